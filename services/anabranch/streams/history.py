"""Recent history of a stream: the rows of its stable buckets of which all blocks still exist.

A stream of several shards is read as one, as stages read it: up to the last bucket that is stable
in all of them; of a shard that was split, first its own buckets, then those of its halves. Nothing
is written, and no reader of the pipeline notices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from anabranch.protocol.errors import ConfigurationError, DataMissing
from anabranch.streams.block_reader import BlockReader, read_from_any
from anabranch.streams.gone_blocks import last_gone_everywhere
from anabranch.streams.stream_logs import input_state, open_stream

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog
    from anabranch.protocol.stage.planner import TakenBucket
    from anabranch.streams.boundary_reader import BoundaryReader, StreamReader

_ROWS_AT_ONCE: Final = 50_000
"""Number of rows from which a read ends, after its bucket: memory is that of a few such reads."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One stream of the input: its boundary log, read to the end, and a reader of its blocks."""

    stream: str
    boundaries: BoundaryReader
    blocks: BlockReader


class History:
    """Reader of one stream of a pipeline, or of an input of several shards. Not thread-safe. Use it
    in ``with``.
    """

    def __init__(self, log: EventLog, pipeline: Pipeline, name: str, clock: Clock) -> None:
        """Read the boundary logs of ``name``, a source, stage or binding, to their present ends.

        Raises:
            ConfigurationError: there is no such stream, or it is on another owner's cluster.
            Unavailable: a log does not exist, or the broker does not answer.
            DataMissing: a log was cut, and no log snapshot replaces what is missing.
        """
        known = [*pipeline.sources, *pipeline.unsplit().stages, *pipeline.bindings]
        if name not in known:
            raise ConfigurationError(
                f"pipeline {pipeline.name} has no stream {name}; it has {', '.join(known)}"
            )
        if pipeline.cluster_of(name):
            raise ConfigurationError(
                f"{name} is on cluster {pipeline.cluster_of(name)}: read it there, with the file of"
                " the pipeline that it belongs to"
            )
        self._log = log
        self._names = pipeline.topic_names
        above: dict[str, StreamReader] = {}
        with ExitStack() as opened:
            self._parts = [
                self._open(opened, pipeline, stream, clock, above)
                for stream in pipeline.input_streams(name)
            ]
            self.last = min(part.boundaries.log_state.upto for part in self._parts)
            """Last bucket that can be read; 0 while there is none."""
            self.first = 1 + max(map(self._gone_upto, self._parts))
            """First bucket of which all blocks exist, in all shards."""
            # Last: whatever raises before closes the readers, since nobody else could.
            self._opened = opened.pop_all()

    def _open(
        self,
        opened: ExitStack,
        pipeline: Pipeline,
        stream: str,
        clock: Clock,
        above: dict[str, StreamReader],
    ) -> _Part:
        """Open ``stream``, which comes after the shards ``above`` it, and add it to these."""
        new_state = input_state(pipeline, stream, above)
        boundaries = open_stream(self._log, pipeline, stream, new_state=new_state)
        above[stream] = opened.enter_context(closing(boundaries))
        boundaries.read_to_end()
        topic_of = partial(self._names.blocks, stream)
        blocks = opened.enter_context(
            closing(BlockReader(self._log, topic_of, clock, width_ms=pipeline.bucket_ms))
        )
        return _Part(stream, boundaries, blocks)

    def _gone_upto(self, part: _Part) -> int:
        topic_of = partial(self._names.blocks, part.stream)
        return last_gone_everywhere(self._log, topic_of, part.boundaries.log_state)

    def rows(self, first: int, last: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of the non-empty buckets ``first..last`` as (bucket, table), ascending; a
        bucket may come in several tables. Buckets that cannot be read are left out.

        Raises:
            DataMissing: blocks were deleted meanwhile, or differ from what the log says of them.
            Unavailable: the broker does not answer.
        """
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return
        stable = [part.boundaries.log_state.stable(first, last) for part in self._parts]
        buckets = sorted({bucket for those in stable for bucket, _, _ in those})
        for group in _groups(buckets, stable):
            found: dict[int, list[pa.Table]] = {bucket: [] for bucket in group}
            for part, those in zip(self._parts, stable, strict=True):
                wanted = [each for each in those if each[0] in found]
                for bucket, table in _read(part, wanted):
                    found[bucket].append(table)
            for bucket, tables in found.items():
                for table in tables:
                    yield bucket, table

    def close(self) -> None:
        """Close all readers. Idempotent."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(part: _Part, wanted: list[TakenBucket]) -> list[tuple[int, pa.Table]]:
    try:
        return part.blocks.read_buckets(wanted)
    except DataMissing:
        return read_from_any(part.blocks, part.boundaries.log_state, wanted)


def _groups(buckets: list[int], stable: list[list[TakenBucket]]) -> Iterator[list[int]]:
    """Divide ``buckets`` into consecutive groups that end with the first bucket by which there are
    _ROWS_AT_ONCE rows.
    """
    rows = Counter[int]()
    for those in stable:
        for bucket, _, parts in those:
            rows[bucket] += sum(part.rows for part in parts)
    group, size = list[int](), 0
    for bucket in buckets:
        group.append(bucket)
        size += rows[bucket]
        if size >= _ROWS_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group
