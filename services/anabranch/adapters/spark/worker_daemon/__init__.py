"""PySpark's daemon, from which Spark's Python workers are forked: it has imported what each of them
needs, and they look for garbage among what tasks made, not among what was imported.

PySpark's loop calls ``gc.collect()`` after every task. Over all that pyarrow, pandas, polars and
the client of Kafka bring with them that takes 30 to 90 ms of processor time, most of what a worker
does for a small batch. Importing what reads blocks takes half a second and 50 MB, in the first task
of each worker if its daemon has not done it. Spark starts this module where it would start
``pyspark.daemon``.

Java closes the connection of a worker that was idle for a minute. At a socket of the file system
the worker's last words then fail, of which PySpark prints a traceback.

The workers that plan are forked from PySpark's own daemon, which no setting replaces. Each quietens
itself when it imports something of this project: the data source, or the module that is there for
those that only look which data sources there are (``adapters/spark/planner_path``).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, Final

_FULL: Final = 2


class FreezesImports:
    """Takes what is alive out of the collector's sight whenever modules were imported since
    the last time: so seldom that little else goes with them.
    """

    def __init__(self) -> None:
        self._modules = 0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """Python's collector says that it begins or ends."""
        if phase == "stop" and info["generation"] == _FULL and len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            gc.freeze()


def quiet_at_its_end(worker: Callable[..., int]) -> Callable[..., int]:
    """``worker``, PySpark's, which serves one task after the other: where Java has closed its
    connection it just ends.
    """

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return run


def quieten_planner() -> None:
    """If PySpark's own daemon forked this process: from its next task on it ends quietly."""
    loop: Any = sys.modules["__main__"]
    if getattr(loop.__spec__, "name", "") == "pyspark.daemon":
        loop.worker = quiet_at_its_end(loop.worker)
