"""``python -m experiments.backtracking.receiver KAFKA NAME FOLDER DISCIPLINE``: a receiver,
which is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.backtracking.disciplines import Discipline, Receiver

if __name__ == "__main__":
    kafka, name, folder, discipline = sys.argv[1:]
    receiver = Receiver(kafka, name, Path(folder))
    (Path(folder) / "ready").touch()
    receiver.run(Discipline(discipline))
