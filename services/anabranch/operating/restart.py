"""``anabranch restart``: end one process of a local deployment, and wait for its next run.

The supervisor of the deployment starts the process again.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from anabranch.local import state_file
from anabranch.local.state_file import ProcessRow
from anabranch.ports import Clock
from anabranch.protocol.errors import Unavailable

_WAIT_MS: Final = 180_000
"""Timeout for the next run to become ready, in ms. Starting Spark on a busy machine takes long."""
# Interval between checks of the supervisor's file.
_PAUSE_MS: Final = 100


def restart(state_dir: Path, label: str, clock: Clock, *, wait_ms: int = _WAIT_MS) -> int:
    """End the process SERVICE/NAME with SIGTERM, wait until its next run is ready, and return the
    new process id.

    Raises:
        Unavailable: the process does not run now, or its next run is not ready within ``wait_ms``.
    """
    before = _row(state_dir, label)
    if before is None or before.pid is None:
        raise Unavailable(
            f"{label} does not run now: try again when `anabranch status` shows its process id"
        )
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself since
        os.kill(before.pid, signal.SIGTERM)
    deadline_ms = clock.monotonic_ms() + wait_ms
    while clock.monotonic_ms() < deadline_ms:
        row = _row(state_dir, label)
        if row is None:
            raise Unavailable(f"the deployment of {label} has ended")
        if row.state == "running" and row.pid not in (None, before.pid):
            return row.pid or 0
        clock.sleep_ms(_PAUSE_MS)
    raise Unavailable(
        f"{label} is not ready after {wait_ms // 1_000} s; see `anabranch logs {label}`"
    )


def _row(state_dir: Path, label: str) -> ProcessRow | None:
    deployment = state_file.read(state_dir)
    rows = () if deployment is None else deployment.processes
    return next((row for row in rows if f"{row.service}/{row.name}" == label), None)
