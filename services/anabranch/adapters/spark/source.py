"""The data source of a stage's inputs: runs exactly the plans of the stage's planner.

Runs in Spark's Python workers: the reader's planning methods in one long-lived process per input,
``read`` in the task workers. The first kind is started for every input of every query, when a stage
starts and whenever a successor does, and holds up what is waited for then: so this module imports
little, and what reads blocks is in ``reading``, imported where it is used.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from anabranch.adapters.spark.plan_socket import PlanClient
from anabranch.adapters.spark.worker_daemon import quieten_planner
from anabranch.codec.plan_offsets import INITIAL, position_fields, taken_by_stream
from anabranch.protocol.log.records import Part

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "anabranch"
_ROWS_PER_SPLIT: Final = 20_000
"""Below this one split is cheapest: a task costs more than its rows."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader must know, as one JSON option."""

    blocks: Mapping[str, str]
    """By each stream that is read as this input: the topics of its blocks, to which a dot and a
    replica are added.
    """
    query: str
    """The timeline of the query that reads: a replica may run two."""
    stream: str
    """The name of the input."""
    kafka: str
    cluster: str
    """What the pipeline file calls it; empty: it is the own one."""
    socket: str
    schema: str
    """Of the stream's rows (``codec.blocks.schema_text``)."""
    columns: tuple[str, ...]
    """The columns that the query uses: the others are null, which costs nothing to hand over."""
    optional: tuple[str, ...]
    """Those of a source's record that may be null: they are, in blocks from before the record had
    them.
    """
    width_ms: int
    splits_max: int
    is_own: bool
    """The participant of the stage writes the stream, too (``runtime.block_reader``)."""
    ordered: bool
    """Give the rows of a batch in canonical order, in one split: for plans that are not
    batch-safe.
    """

    def to_json(self) -> str:
        """As the value of the option ``config``."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> SourceOptions:
        """What ``to_json`` wrote."""
        fields = json.loads(text)
        listed = {name: tuple(fields[name]) for name in ("columns", "optional")}
        return cls(**(fields | listed))


class Split(InputPartition):
    """One task's share of a plan: (stream, writer, parts)."""

    def __init__(self, taken: list[tuple[str, str, tuple[Part, ...]]]) -> None:
        super().__init__(None)
        self.taken = taken


class AnabranchSource(DataSource):
    """``spark.readStream.format("anabranch").option("config", ...)``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def _config(self) -> SourceOptions:
        return SourceOptions.from_json(self.options["config"])

    def schema(self) -> StructType:
        """Of the stream, as Spark types."""
        from anabranch.adapters.spark import reading  # see the module's text

        return from_arrow_schema(reading.arrow_schema(self._config()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        """The reader of one input."""
        return PlannedReader(self._config())


class PlannedReader(DataSourceStreamReader):
    """Runs plans. Holds no state that a restart would miss: ranges come from Spark's log."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: PlanClient | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query stands."""
        return dict(INITIAL)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's names
        """The next plan as an offset, or ``start`` again."""
        if self._client is None:
            self._client = PlanClient(self._options.socket)
        answer = self._client.ask(self._options.query, self._options.stream, position_fields(start))
        return start if answer is None else answer

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the plan that ``end`` is."""
        if start["sequence"] == end["sequence"]:
            return []
        taken = [
            (stream, replica, part)
            for stream, buckets in taken_by_stream(end).items()
            for _, replica, parts in buckets
            for part in parts
        ]
        weight = sum(part.weight for _, _, part in taken)
        count = (
            1
            if self._options.ordered
            else max(1, min(self._options.splits_max, weight // _ROWS_PER_SPLIT))
        )
        split_of = _shared(((stream, part) for stream, _, part in taken), count)
        groups: list[dict[tuple[str, str], list[Part]]] = [{} for _ in range(count)]
        for stream, replica, part in taken:
            group = groups[split_of[stream, part.partition]]
            group.setdefault((stream, replica), []).append(part)
        return [
            Split([(*writer, tuple(parts)) for writer, parts in group.items()]) for group in groups
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; a block that is missing fails the batch."""
        from anabranch.adapters.spark import reading  # see the module's text

        assert isinstance(partition, Split)  # noqa: S101 - what ``partitions`` made
        return reading.rows(self._options, partition.taken)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the boundary log is what counts."""

    def stop(self) -> None:
        """The last thing that is called, in a process that has nothing else to do: Spark wants no
        more, or closed the connection.

        Spark ends a query by closing the connection and killing this process a moment later, of
        which the process would tell as of an error, for as long as it lives.
        """
        sys.excepthook = _tell_of_errors


def _shared(parts: Iterable[tuple[str, Part]], count: int) -> dict[tuple[str, int], int]:
    """Which of ``count`` tasks reads which partition of which stream: the largest first, each to
    the task that has the least so far.
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


def _tell_of_errors(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """All but those that say that Spark has gone; what went wrong in a reader has been sent
    to Spark before.
    """
    if not isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
        sys.__excepthook__(kind, error, trace)


quieten_planner()
