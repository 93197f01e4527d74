"""Node whose standbys copy the primary's checkpoint at another interval than the usual one: run as
``python -m experiments.copying_node`` with the options of ``anabranch.processing``.
"""

from __future__ import annotations

import os
import runpy
from typing import Final

from anabranch.processing import standby

_VARIABLE: Final = "EXPERIMENT_COPY_EVERY_MS"


def copying_every(interval_s: float) -> dict[str, str]:
    """Return the environment variables of a node whose standbys copy at this interval."""
    return {_VARIABLE: str(round(1_000 * interval_s))}


if __name__ == "__main__":
    standby.STANDBY_COPY_EVERY_MS = int(os.environ[_VARIABLE])  # type: ignore[misc]
    runpy.run_module("anabranch.processing", run_name="__main__")
