"""Entry point of ``python -m anabranch.ingestion``: runs one source of one pipeline."""

from __future__ import annotations

from functools import partial

from anabranch.adapters.connect import connect, schema_registry
from anabranch.ingestion.service import build
from anabranch.process.frame import main

if __name__ == "__main__":
    main("ingestion", partial(build, open_registry=schema_registry), connect)
