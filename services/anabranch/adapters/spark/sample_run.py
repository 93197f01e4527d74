"""Run of a stage's query over complete sample rows to its end: for trying functions out, without a
broker and without a planner.

After the rows of an input comes one more, the marker, with an event time far behind theirs: it
moves the watermark, so that windows end and timers fire. The function never sees it. Two rules of
Spark keep it until the watermark has moved: a condition on the event time's column is not pushed
below the watermark, and the function's own conditions are not pushed below ``observe``.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from anabranch.adapters.spark.sink import to_rows
from anabranch.codec.blocks import EVENT_TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AFTER: Final = timedelta(days=400)
"""Distance of the marker's event time from the last row's, enough for windows to end and timers to
fire.
"""
_MARKER: Final = "anabranch_marker"
"""Name of the column that marks the marker."""
_TIME: Final = pa.timestamp("us", "UTC")
"""Type of the event time."""


class SampleRun:
    """Queries of one session over rows in files below one folder. Not thread-safe."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        """Prepare the session; nothing is read or written yet."""
        self._session = session
        self._folder = folder
        self._files = 0
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")

    def frame(self, table: pa.Table, time: str) -> DataFrame:
        """Return ``table`` as a stage gets an input: a stream with the watermark on the column
        ``time``.
        """
        self._files += 1
        folder = self._folder / f"input-{self._files}"
        folder.mkdir(parents=True)
        rows = table.set_column(
            table.schema.names.index(time), pa.field(time, _TIME), table[time].cast(_TIME)
        )
        rows = rows.append_column(_MARKER, pa.array([False] * rows.num_rows, pa.bool_()))
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
        last = pc.max(rows[time]).as_py()
        end = pa.scalar(0, _TIME).as_py() if last is None else last
        marker = pa.Table.from_pylist([{time: end + _AFTER, _MARKER: True}], schema=rows.schema)
        pq.write_table(pa.concat_tables([rows, marker]), folder / "rows.parquet")
        schema = self._session.read.parquet(str(folder)).schema
        frame = (
            self._session.readStream.schema(schema)
            .parquet(str(folder))
            .withWatermark(time, "0 seconds")
        )
        frame = frame.where(f"NOT ({_MARKER} AND {time} IS NOT NULL)").observe(
            f"sample_{self._files}", F.count(F.lit(1)).alias("rows")
        )
        return frame.drop(_MARKER)

    def rows(self, frame: DataFrame) -> pa.Table:
        """Run the query ``frame`` and return all its rows as a stream has them. Raises what Spark
        raises.
        """
        self._files += 1
        found: list[pa.Table] = []

        def take(batch: DataFrame, _number: int) -> None:
            """Collect the rows of a batch."""
            found.append(batch.toArrow())

        query = (
            frame.writeStream.outputMode("append")
            .option("checkpointLocation", str(self._folder / f"checkpoint-{self._files}"))
            .foreachBatch(take)
            .start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return as_streamed(pa.concat_tables(found))


def as_streamed(table: pa.Table) -> pa.Table:
    """Return result rows with their event times in whole ms, rounded up as in a stream: the next
    stage must get the times here that it gets there.
    """
    whole = to_rows(table)[EVENT_TIME].cast(pa.timestamp("ms", "UTC")).cast(_TIME)
    return table.set_column(table.schema.get_field_index(EVENT_TIME), EVENT_TIME, whole)
