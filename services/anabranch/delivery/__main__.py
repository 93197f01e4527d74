"""Entry point of ``python -m anabranch.delivery``: delivers one output of one pipeline."""

from __future__ import annotations

from functools import partial

from anabranch.adapters.connect import connect, schema_registry
from anabranch.delivery.service import build
from anabranch.process.frame import main

if __name__ == "__main__":
    main("delivery", partial(build, open_registry=schema_registry), connect)
