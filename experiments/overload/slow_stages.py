"""First stage of the toll road, which takes time for each report. An overloaded run of
``make chaos`` copies this module to the folder of its pipeline file.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Final

import pyspark.sql.functions as sf
from pyspark.sql.types import LongType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COST_S: Final = 0.002
"""Time that a report takes, in seconds. It is slept, so that it is the same on every machine and
leaves the cores to the other processes. One task reads all sources, so the stage handles at most
500 reports in a second. With what batches cost whatever they hold, 150 take half of its time.
"""


def _charge(speed: int) -> int:
    time.sleep(COST_S)
    return speed


def segment_statistics(*, window: str, **reports: DataFrame) -> DataFrame:
    """Compute the statistics of the toll road's own stage."""
    charge = sf.udf(_charge, LongType())
    slow = {name: rows.withColumn("speed", charge("speed")) for name, rows in reports.items()}
    own = importlib.import_module("stages")
    statistics: DataFrame = own.segment_statistics(window=window, **slow)
    return statistics
