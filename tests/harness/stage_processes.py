"""A stage's replica as a process of its own, that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from anabranch.pipeline.model import Pipeline
from harness.waiting import wait_until


class StageProcess:
    """``python -m anabranch.processing``. Leaving the block ends it, and what it started."""

    def __init__(
        self,
        pipeline: Pipeline,
        name: str,
        kafka: str,
        state_dir: Path,
        *,
        crash_point: str = "",
        offers: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """``crash_point``: ``name:count`` as in ``adapters.spark.sink``. ``offers``: the file of
        the participant who runs in the pipeline what it offers. ``more``: variables.
        """
        state_dir.mkdir(parents=True, exist_ok=True)
        self._output = state_dir / f"{name}.{len(list(state_dir.glob('*.log')))}.log"
        command = [
            sys.executable,
            "-m",
            "anabranch.processing",
            "--pipeline",
            str(pipeline.path),
            "--name",
            name,
            "--kafka",
            kafka,
            *(() if offers is None else ("--offers", str(offers))),
        ]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--state-dir", str(state_dir)],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "ANABRANCH_CRASH_POINT": crash_point, **(more or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def all_of_its_log(self) -> str:
        """Return everything that it wrote."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def log(self) -> str:
        """Return the end of what it wrote."""
        return self.all_of_its_log()[-3_000:]

    def check(self) -> None:
        """Raise AssertionError if it has ended."""
        assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log()}"

    def wait(self, deadline_s: float) -> int:
        """Wait for the end. Return the exit code; negative: the signal that ended it."""
        wait_until(
            lambda: self.process.poll() is not None,
            deadline_s,
            lambda: f"the end of {self.process.args!r}:\n{self.log()}",
        )
        return self.process.wait()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block it stands still, and so do those that it started in its group: Java, but
        not Spark's Python workers.
        """
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to it and to what it started. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
