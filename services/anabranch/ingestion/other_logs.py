"""The boundary logs of the other shards of a source: what they have read, and whether the source
has as many shards as it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from anabranch.ports import TopicPartition
from anabranch.protocol.edge.handover import written
from anabranch.protocol.edge.shards import another_number
from anabranch.protocol.edge.sources import misdealt
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import InputPosition
from anabranch.runtime.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline, Source
    from anabranch.ports import EventLog, LogReader
    from anabranch.runtime.boundary_reader import BoundaryReader

_WRITER = "0"


class OtherLogs:
    """Those of one source but ``stream``. Nothing is there of a source without shards."""

    def __init__(self, log: EventLog, pipeline: Pipeline, source: Source, stream: str) -> None:
        """Nothing is contacted yet."""
        self._log = log
        self._pipeline = pipeline
        self._source = source
        self._streams = [other for other in source.processes() if other != stream]
        self._readers: dict[str, BoundaryReader] = {}
        self._seen: dict[str, BatchId] = {}

    def start(self) -> None:
        """Read them as far as they go now.

        Raises:
            ConfigurationError: they were written when the source had another number of shards.
            Unavailable: the broker does not answer.
        """
        for stream in self._streams:
            reader = self._readers[stream] = open_stream(self._log, self._pipeline, stream)
            reader.read_to_end()
            last = reader.log_state.last(_WRITER)
            check_dealt(self._source, stream, () if last is None else last.positions)

    def news(self) -> Iterator[tuple[InputPosition, ...]]:
        """Of each shard that has written since, how far it has read."""
        for stream, reader in self._readers.items():
            reader.poll(0)
            log_state = reader.log_state
            log_state.forget(log_state.upto)
            last = log_state.last(_WRITER)
            if last is not None and self._seen.get(stream) != last.id:
                self._seen[stream] = last.id
                yield last.positions

    def close(self) -> None:
        """Idempotent."""
        while self._readers:
            self._readers.popitem()[1].close()


def check_dealt(source: Source, stream: str, positions: Sequence[InputPosition]) -> None:
    """Raises ConfigurationError where the log of ``stream`` names a partition as read that is not
    its shard's.
    """
    if (found := misdealt(source.shard(stream), positions)) is not None:
        raise _changed(source, f"{stream} has read partition {found.partition} of {found.topic}")


def check_strangers(
    reader: LogReader, pipeline: Pipeline, source: Source, streams: Sequence[str]
) -> None:
    """Raises ConfigurationError where one of ``streams`` has been written, which the source has not
    with its shards as they are.
    """
    for stream in streams:
        first, end = reader.offsets(TopicPartition(pipeline.topic_names.boundaries(stream), 0))
        if end > first:
            raise _changed(source, f"there is a log of {stream}")


def _changed(source: Source, what: str) -> ConfigurationError:
    """What the logs say is not what the file says."""
    return ConfigurationError(
        f"{another_number(f'source {source.name}', source.shards)}: {what}. Write all numbers that"
        " it has had, in their order, and last the one that it is to have, `shards: [BEFORE, NOW]`;"
        " or begin anew: under another name of the source, or with 'anabranch reset' while the old"
        " number stands in the file"
    )


def lacking(source: Source) -> ConfigurationError:
    """A shard has not begun, and the file does not name the streams that it goes on after."""
    return ConfigurationError(
        f"source {source.name}: nothing says where its shards begin, since `shards:"
        f" {written(source.numbers)}` does not say how many it had before: write that number in"
        " place of the last 0. If it has never run, write the last number alone"
    )
