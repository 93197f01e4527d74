"""Services as processes of their own, which kill themselves at a named point
(``process.crash_points``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from anabranch.local import probe
from anabranch.process.crash_points import VARIABLE
from harness.waiting import wait_until


def detail_of(state: Path, service: str, name: str, pid: int) -> dict[str, Any]:
    """Return the detail of the status that a process reports; empty while it does not answer."""
    port = probe.metrics_port(state, service, name, pid)
    answer = None if port is None else probe.status(port)
    return {} if answer is None else answer.get("detail") or {}


class ModuleProcess:
    """``python -m MODULE ...``. Leaving the block kills it, and what it started."""

    def __init__(
        self, module: str, arguments: Sequence[str], log: Path, *, crash_point: str = ""
    ) -> None:
        """``crash_point``: ``name`` or ``name:count``."""
        self._log = log
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            VARIABLE: crash_point,
        }
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def log(self) -> str:
        """Return the end of what it wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3_000:]

    def alive(self) -> bool:
        """Raise AssertionError if it has ended."""
        assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log()}"
        return True

    def wait_killed(self, deadline_s: float = 120) -> None:
        """Until it has killed itself."""
        wait_until(
            lambda: self.process.poll() is not None,
            deadline_s,
            lambda: f"the kill of {self.process.args!r}:\n{self.log()}",
        )
        assert self.process.returncode == -signal.SIGKILL, (
            f"ended with {self.process.returncode}:\n{self.log()}"
        )


def service(
    name: str,
    which: str,
    pipeline: Path,
    kafka: str,
    state_dir: Path,
    *,
    redis: str | None = None,
    crash_point: str = "",
) -> ModuleProcess:
    """``python -m anabranch.NAME`` for the source, output or pipeline ``which``."""
    state_dir.mkdir(parents=True, exist_ok=True)
    arguments = [
        "--pipeline",
        str(pipeline),
        "--name",
        which,
        "--kafka",
        kafka,
        "--state-dir",
        str(state_dir),
    ]
    arguments += ["--redis", redis] if redis else []
    return ModuleProcess(
        f"anabranch.{name}", arguments, state_dir / f"{name}.log", crash_point=crash_point
    )
