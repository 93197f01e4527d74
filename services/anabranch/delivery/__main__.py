"""``python -m anabranch.delivery``: one output of one pipeline."""

from __future__ import annotations

from anabranch.adapters.connect import connect
from anabranch.delivery.service import build
from anabranch.runtime.service import main

if __name__ == "__main__":
    main("delivery", build, connect)
