"""Entry point of ``python -m anabranch.agent``: one agent per participant that trades."""

from __future__ import annotations

from anabranch.adapters.connect import connect
from anabranch.agent.service import build
from anabranch.process.frame import main

if __name__ == "__main__":
    main("agent", build, connect)
