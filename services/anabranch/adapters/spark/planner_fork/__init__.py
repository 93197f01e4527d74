"""Fork server for the processes that plan the inputs of queries: it has imported what they need.

Theory of operation. Spark starts a Python process for every input of every new query, and waits for
it: a third of a second of processor time for imports alone, just when results are needed, and 60
MB. So a process that starts beside Java imports all of it once, and listens at a socket
(``__main__``). The program that Spark starts as Python is a line of shell: it passes a planner's
start as a request to that process (``launch``), and runs everything else as it is. The request
carries the environment and the standard output of the started process; the answer is a fork that
continues as Spark's own module, so Spark talks to it as if it had started it itself. ``launch``
ends with the fork.

If no process answers at the socket, the planner is started as Spark would have done.

The fork server ends with the process that started it, also after a crash: its standard input ends
then.
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
"""Module of the data source, which a planner imports."""

_ENDS_S: Final = 5.0
"""Time for the process to end after its standard input has, in seconds; then it is killed."""


class PlannerFork:
    """Fork server of one application's planners."""

    def __init__(self, scratch: Scratch) -> None:
        """Start the process without waiting for it. ``scratch``: the folder of this process."""
        path = scratch.socket_path("planners")
        launch = shlex.quote(str(Path(__file__).with_name("launch.py")))
        python = shlex.quote(sys.executable)
        self.python = scratch.path / "python"
        """Program that Spark must start as Python."""
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
        """Id of the process."""
        return self._process.pid

    def close(self) -> None:
        """End the process; planners end with their queries. Idempotent."""
        assert self._process.stdin is not None, "a pipe"  # noqa: S101
        self._process.stdin.close()
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
