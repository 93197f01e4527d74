"""Data source of a stage's inputs: reads exactly what the stage's planner plans.

It runs in Spark's Python workers: the reader's planning methods in one long-lived process per
input, ``read`` in the task workers. Spark starts a planning process for every input of every query,
when a stage starts and whenever a successor does, and results wait for it: so this module imports
little, and the reading of blocks is in ``reading``, imported where it is used.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from anabranch.adapters.spark.plan_socket import PlanClient
from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.adapters.spark.worker_daemon import quieten_planner
from anabranch.codec.plan_offsets import INITIAL, kept_of, position_fields, taken_by_stream
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.kept_rows import KEPT_ALL

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "anabranch"
_ROWS_PER_SPLIT: Final = 20_000
"""Number of rows that a task reads at least: a smaller task costs more than its rows."""


class TaskInput(InputPartition):
    """Share of a plan that one task reads: (stream, writer, parts), and the per mille of their
    rows that it keeps.
    """

    def __init__(
        self, taken: list[tuple[str, str, tuple[Part, ...]]], kept: int = KEPT_ALL
    ) -> None:
        super().__init__(None)
        self.taken = taken
        self.kept = kept


class AnabranchSource(DataSource):
    """Data source of ``spark.readStream.format("anabranch").option("config", ...)``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def _config(self) -> SourceOptions:
        """Return the parsed settings."""
        return SourceOptions.from_json(self.options["config"])

    def schema(self) -> StructType:
        """Return the columns of the stream, as Spark types."""
        from anabranch.adapters.spark import reading  # see the module's text

        return from_arrow_schema(reading.arrow_schema(self._config()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        """Return the reader of one input."""
        return PlannedReader(self._config())


class PlannedReader(DataSourceStreamReader):
    """Reader of planned batches. It holds no state that a restart would lose: ranges come from
    Spark's log.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: PlanClient | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of a new query."""
        return dict(INITIAL)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's names
        """Return the next plan as an offset, or ``start`` if there is none yet."""
        if self._client is None:
            self._client = PlanClient(self._options.socket)
        answer = self._client.ask(self._options.query, self._options.stream, position_fields(start))
        return start if answer is None else answer

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the shares of the tasks in the plan that is the offset ``end``."""
        if start["sequence"] == end["sequence"]:
            return []
        taken = [
            (stream, replica, part)
            for stream, buckets in taken_by_stream(end).items()
            for _, replica, parts in buckets
            for part in parts
        ]
        kept = kept_of(end)
        weight = sum(part.weight for _, _, part in taken) // self._options.shards
        count = (
            1
            if self._options.ordered or (self._options.keeps_by_importance and kept < KEPT_ALL)
            else max(1, min(self._options.splits_max, weight // _ROWS_PER_SPLIT))
        )
        split_of = _assign_partitions(((stream, part) for stream, _, part in taken), count)
        groups: list[dict[tuple[str, str], list[Part]]] = [{} for _ in range(count)]
        for stream, replica, part in taken:
            group = groups[split_of[stream, part.partition]]
            group.setdefault((stream, replica), []).append(part)
        return [
            TaskInput([(*writer, tuple(parts)) for writer, parts in group.items()], kept)
            for group in groups
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. A missing block fails the batch."""
        from anabranch.adapters.spark import reading  # see the module's text

        assert isinstance(partition, TaskInput)  # noqa: S101 - what ``partitions`` made
        return reading.rows(self._options, partition.taken, partition.kept)

    def commit(self, end: dict[str, Any]) -> None:
        """Ignore Spark's commit: the boundary log decides."""

    def stop(self) -> None:
        """Silence the errors that Spark's end causes. Spark calls this last, in a process that has
        nothing else to do, when it needs no more plans or has closed the connection.

        Spark ends a query by closing the connection and kills this process a moment later. In
        between the process would print the closed connection as an error.
        """
        sys.excepthook = _report_unexpected


def _assign_partitions(parts: Iterable[tuple[str, Part]], count: int) -> dict[tuple[str, int], int]:
    """Assign the partitions of each stream to ``count`` tasks: the largest first, each to the task
    with the least rows so far.
    """
    weights: Counter[tuple[str, int]] = Counter()
    for stream, part in parts:
        weights[stream, part.partition] += part.weight
    weight_of, task_of = [0] * count, {}
    for partition, more in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        task = weight_of.index(min(weight_of))
        task_of[partition] = task
        weight_of[task] += more
    return task_of


def _report_unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an error, unless it says that Spark has closed the connection. Spark already has the
    errors of the reader itself.
    """
    if not isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
        sys.__excepthook__(kind, error, trace)


quieten_planner()
