"""``python -m anabranch.ingestion``: one source of one pipeline."""

from __future__ import annotations

from anabranch.adapters.connect import connect
from anabranch.ingestion.service import build
from anabranch.runtime.service import main

if __name__ == "__main__":
    main("ingestion", build, connect)
