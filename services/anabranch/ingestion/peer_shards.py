"""Boundary logs of a source's other shards: how far those have read, and checks that the number of
shards has not changed unannounced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from anabranch.ports import TopicPartition
from anabranch.protocol.edge.handover import written
from anabranch.protocol.edge.shards import another_number
from anabranch.protocol.edge.sources import wrong_shard
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import InputPosition
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline, Source
    from anabranch.ports import EventLog, LogReader
    from anabranch.streams.boundary_reader import BoundaryReader

_WRITER = "0"


class OtherLogs:
    """Readers of the boundary logs of all shards of a source but ``stream``. Empty for a source
    without shards.
    """

    def __init__(self, log: EventLog, pipeline: Pipeline, source: Source, stream: str) -> None:
        """Keep the arguments; contact nothing."""
        self._log = log
        self._pipeline = pipeline
        self._source = source
        self._streams = [other for other in source.processes() if other != stream]
        self._readers: dict[str, BoundaryReader] = {}
        self._seen: dict[str, BatchId] = {}

    def start(self) -> None:
        """Read the logs to their present ends.

        Raises:
            ConfigurationError: a log was written when the source had another number of shards.
            Unavailable: the broker does not answer.
        """
        for stream in self._streams:
            reader = self._readers[stream] = open_stream(self._log, self._pipeline, stream)
            reader.read_to_end()
            last = reader.log_state.last(_WRITER)
            check_own_partitions(self._source, stream, () if last is None else last.positions)

    def new_positions(self) -> Iterator[tuple[InputPosition, ...]]:
        """Yield the positions of each shard that has appended a record since the last call."""
        for stream, reader in self._readers.items():
            reader.poll(0)
            log_state = reader.log_state
            log_state.forget(log_state.upto)
            last = log_state.last(_WRITER)
            if last is not None and self._seen.get(stream) != last.id:
                self._seen[stream] = last.id
                yield last.positions

    def close(self) -> None:
        """Close all readers. Idempotent."""
        while self._readers:
            self._readers.popitem()[1].close()


def check_own_partitions(source: Source, stream: str, positions: Sequence[InputPosition]) -> None:
    """Check that ``positions``, from the log of ``stream``, are of its shard's partitions only.

    Raises:
        ConfigurationError: one belongs to another shard: the number of shards has changed.
    """
    if (found := wrong_shard(source.shard(stream), positions)) is not None:
        raise _number_changed(
            source, f"{stream} has read partition {found.partition} of {found.topic}"
        )


def check_unknown_logs(
    reader: LogReader, pipeline: Pipeline, source: Source, streams: Sequence[str]
) -> None:
    """Check that none of ``streams``, which the source has only with another number of shards, was
    ever written.

    Raises:
        ConfigurationError: one was: the number of shards has changed.
    """
    for stream in streams:
        first, end = reader.offsets(TopicPartition(pipeline.topic_names.boundaries(stream), 0))
        if end > first:
            raise _number_changed(source, f"there is a log of {stream}")


def _number_changed(source: Source, what: str) -> ConfigurationError:
    """Return the error for a number of shards that differs from the logs'. ``what`` is the
    evidence.
    """
    return ConfigurationError(
        f"{another_number(f'source {source.name}', source.shards)}: {what}. List every number of"
        " shards that it has had, in order, and the new one last: `shards: [BEFORE, NOW]`. Or start"
        " afresh: rename the source, or run 'anabranch reset' while the old number is still in the"
        " file"
    )


def missing_number(source: Source) -> ConfigurationError:
    """Return the error for a new shard of which the file does not name the streams it follows."""
    return ConfigurationError(
        f"source {source.name}: nothing says where its shards begin, since `shards:"
        f" {written(source.numbers)}` does not say how many it had before: write that number in"
        " place of the last 0. If it has never run, write the last number alone"
    )
