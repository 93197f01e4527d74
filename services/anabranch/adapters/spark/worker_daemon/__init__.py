"""PySpark's daemon, from which Spark's Python workers are forked: they look for garbage among what tasks made, not among what they have imported.

PySpark's loop calls ``gc.collect()`` after every task. Over all that pyarrow, pandas, polars and the client of Kafka bring with them that takes 30 to 90 ms of
processor time, most of what a worker does for a small batch. Spark starts this module where it would start ``pyspark.daemon``.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

_FULL: Final = 2


class FreezesImports:
    """Takes what is alive out of the collector's sight whenever modules were imported since the last time: so seldom that little else goes with them."""

    def __init__(self) -> None:
        self._modules = 0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """Python's collector says that it begins or ends."""
        if phase == "stop" and info["generation"] == _FULL and len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            gc.freeze()
