"""Program ``python -m anabranch.consistency_manager``, one per pipeline."""

from __future__ import annotations

from anabranch.adapters.connect import connect
from anabranch.consistency_manager.service import build
from anabranch.process.frame import main

if __name__ == "__main__":
    main("consistency_manager", build, connect)
