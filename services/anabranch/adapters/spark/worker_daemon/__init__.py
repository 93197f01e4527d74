"""Daemon from which Spark's Python workers are forked: PySpark's, with the imports that every
worker needs done once, and excluded from garbage collection.

PySpark's loop calls ``gc.collect()`` after every task. Over the objects of pyarrow, pandas, polars
and the Kafka client that takes 30 to 90 ms of processor time, most of what a worker does for a
small batch. Importing the modules that read blocks takes half a second and 50 MB, in the first task
of each worker unless its daemon has imported them. Spark starts this module in place of
``pyspark.daemon``.

Java closes the connection of a worker that was idle for a minute. At a socket of the file system
the worker's last write then fails, and PySpark prints a traceback.

The workers that plan are forked from PySpark's own daemon, which no setting replaces. Each silences
itself when it imports a module of this project: the data source, or the module for those that only
look which data sources exist (``adapters/spark/planner_path``).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, Final

_FULL: Final = 2
"""Generation of a full collection."""


class FreezesImports:
    """Callback of the garbage collector that freezes all live objects whenever modules were
    imported since the last time: so rarely that few other objects are frozen with them.
    """

    def __init__(self) -> None:
        self._modules = 0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """Freeze after a full collection if there are new modules."""
        if phase == "stop" and info["generation"] == _FULL and len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            gc.freeze()


def quiet_at_its_end(worker: Callable[..., int]) -> Callable[..., int]:
    """Return PySpark's ``worker``, which runs one task after the other, changed to end silently
    when Java has closed its connection.
    """

    def run(*arguments: Any) -> int:
        """Run the worker; return 1 if its connection was closed."""
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return run


def quieten_planner() -> None:
    """Make this process end silently after its next task, if PySpark's own daemon forked it."""
    loop: Any = sys.modules["__main__"]
    if getattr(loop.__spec__, "name", "") == "pyspark.daemon":
        loop.worker = quiet_at_its_end(loop.worker)
