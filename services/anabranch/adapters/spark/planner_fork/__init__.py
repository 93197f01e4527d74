"""The processes that plan the inputs of queries, forked from one that has imported what they need.

Theory of operation. Spark starts a Python for every input of every query that begins, and waits for
it: a third of a second of processor time for imports alone, just when results are waited for, and
60 MB. So a process is started beside Java that imports all of it once, and waits at a socket
(``__main__``). What Spark starts as Python is a line of shell: it starts a planner as a request to
that process (``launch``), and everything else as it is. The request carries the environment and the
standard output of what Spark has started; the answer is a fork that goes on as Spark's own module,
and so speaks with Spark as if that had started it. ``launch`` ends with the fork.

Where nobody answers at the socket the planner is started as Spark would have done.

The process ends with the one that started it, also after a crash: its standard input ends then.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.adapters.system.scratch import Scratch

PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""Spark's module that a planner runs."""
SOURCE: Final = "anabranch.adapters.spark.source"
"""What it plans with."""

_ENDS_S: Final = 5.0
"""Given to end when its standard input has; then it is killed."""


class PlannerFork:
    """The process that planners are forked from, of one application."""

    def __init__(self, scratch: Scratch) -> None:
        """Start it, without waiting. ``scratch``: of this process."""
        path = scratch.socket_path("planners")
        launch = shlex.quote(str(Path(__file__).with_name("launch.py")))
        python = shlex.quote(sys.executable)
        self.python = scratch.path / "python"
        """What Spark is to start as Python."""
        self.python.write_text(
            "#!/bin/sh\n"
            f'[ "$2" = {PLANNER} ] && exec {python} -SE {launch} {shlex.quote(path)} "$@"\n'
            f'exec {python} "$@"\n'
        )
        self.python.chmod(0o700)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, path], stdin=subprocess.PIPE
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def close(self) -> None:
        """End it; planners end with their queries. Idempotent."""
        assert self._process.stdin is not None, "a pipe"  # noqa: S101
        self._process.stdin.close()
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
