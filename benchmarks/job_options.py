"""Command line that the jobs of the other systems have in common. Runs in the environment of any of
them, so it imports nothing of the project.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path


def parser(description: str | None, option: str, choices: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of a job's command line; ``--OPTION`` chooses one of ``choices``."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument(f"--{option}", choices=sorted(choices), required=True)
    made.add_argument("--kafka", required=True)
    made.add_argument("--checkpoint", type=Path, required=True)
    made.add_argument("--input", required=True, help="topic")
    made.add_argument("--output", required=True, help="topic")
    made.add_argument("--out-of-orderness-ms", type=int, required=True)
    return made
