"""Fork server for the processes that a new query waits for: it has imported what they need.

Theory of operation. Spark starts a Python process for every input of every new query, which plans
its batches, and one for every processor with state of its own, which tells Spark the state's
columns. The query waits for each: a third of a second of processor time for imports alone, just
when results are needed, and 60 MB. So a process that starts beside Java imports all of it once, and
listens at a socket (``__main__``). The program that Spark starts as Python is a line of shell: it
passes such a start as a request to that process (``launch``), and runs everything else as it is.
The request carries module, environment and standard output of the started process; the answer is a
fork that continues as Spark's own module, so Spark talks to it as if it had started it itself.
``launch`` ends with the fork.

If no process answers at the socket, or the server ends before it forks, the module is started as
Spark would have done.

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
STATE_COLUMNS: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""Spark's module that tells which columns the state of a processor has."""
FORKED: Final = (PLANNER, STATE_COLUMNS)
"""Modules that are forked."""
IMPORTED: Final = (
    *FORKED,
    "anabranch.adapters.spark.source",
    "anabranch.stateful",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
)
"""Modules that are imported before: those that are forked, and what they import."""

_ENDS_S: Final = 5.0
"""Time for the process to end after its standard input has, in seconds; then it is killed."""


class PlannerFork:
    """Fork server of one application."""

    def __init__(self, scratch: Scratch) -> None:
        """Start the process without waiting for it. ``scratch``: the folder of this process."""
        path = scratch.socket_path("planners")
        launch = shlex.quote(str(Path(__file__).with_name("launch.py")))
        python = shlex.quote(sys.executable)
        self.python = scratch.path / "python"
        """Program that Spark must start as Python."""
        self.python.write_text(
            "#!/bin/sh\n"
            f'case "$2" in {"|".join(FORKED)})'
            f' exec {python} -SE {launch} {shlex.quote(path)} "$@";; esac\n'
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
        """End the process; its forks end with their queries. Idempotent."""
        assert self._process.stdin is not None, "a pipe"  # noqa: S101
        self._process.stdin.close()
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
