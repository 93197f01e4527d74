"""End of the streams that a source wrote with earlier numbers of shards. Each new shard ends them,
or awaits their end, before it begins; ``protocol.edge.handover`` holds the rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from anabranch.ingestion.peer_shards import check_own_partitions
from anabranch.protocol.edge.handover import (
    Attempts,
    EndedStream,
    end,
    ended,
    rest_upto,
    successor_begins,
)
from anabranch.protocol.edge.ingestion import SourceProgress
from anabranch.protocol.errors import ConfigurationError, Fenced, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.pipeline.model import Source
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.protocol.log.records import EpochStarted
    from anabranch.streams.boundary_reader import BoundaryReader

_WRITER: Final = "0"
_POLL_INTERVAL_MS: Final = 100


class EarlierSourceShards:
    """Earlier shards of one source, seen from the new shard ``stream``."""

    def __init__(
        self, context: ServiceContext, source: Source, stream: str, started: EpochStarted
    ) -> None:
        """Keep the arguments; contact nothing. ``started`` is the record that begins the new
        shard's epoch; the epochs that end earlier streams begin with a variant of it.
        """
        self._context, self._source = context, source
        self._shard = source.shard(stream)
        self._started = started

    def ended(self) -> list[EndedStream]:
        """End all earlier streams and return those of the last earlier number of shards.

        Returns an empty list if there were none, or if they are no longer needed. A process that
        starts after a crash continues here.

        Raises:
            ConfigurationError: the streams were written with another number of shards than the
                file says, or have ended for another one. Nothing was changed.
            Unavailable: a stream has not ended, or the broker does not answer.
        """
        before: list[EndedStream] = []
        for generation in range(1, len(self._source.numbers)):
            readers: dict[str, BoundaryReader] = {}
            try:
                for stream in self._source.generation(generation):
                    readers[stream] = open_stream(self._context.log, self._context.pipeline, stream)
                    readers[stream].read_to_end()
                    self._check(stream, readers[stream].log_state, is_oldest=not before)
                heirs = self._source.numbers[generation]
                before = [self._ended(stream, readers, heirs, before) for stream in readers]
            finally:
                for reader in readers.values():
                    reader.close()
        return before

    def _check(self, stream: str, log_state: LogState, *, is_oldest: bool) -> None:
        """Check that ``stream`` was written with the number of shards that the file says.

        Raises:
            ConfigurationError: the stream's writer read other partitions, or the stream was never
                written although it is one of the oldest.
        """
        last = log_state.last(_WRITER)
        check_own_partitions(self._source, stream, () if last is None else last.positions)
        if is_oldest and log_state.epoch(_WRITER) is None:
            raise ConfigurationError(
                f"source {self._source.name}: {stream} was never written, although the"
                " pipeline file names it as an earlier shard: correct that number in `shards`, or"
                " run the source with that number first"
            )

    def _ended(
        self,
        stream: str,
        readers: Mapping[str, BoundaryReader],
        heirs: int,
        before: Sequence[EndedStream],
    ) -> EndedStream:
        """Wait until ``stream`` has ended in favour of ``heirs`` shards, trying to end it when an
        attempt is due, and return its end.

        Raises:
            Unavailable: the time for all attempts is over.
        """
        reader, clock = readers[stream], self._context.clock
        attempts = Attempts(self._shard, clock.monotonic_ms())
        while not reader.log_state.heirs:
            now_ms = clock.monotonic_ms()
            if attempts.is_over(now_ms):
                raise Unavailable(
                    f"{stream} has not ended: other processes keep beginning epochs in its log;"
                    " this process restarts and tries again"
                )
            if attempts.is_due(now_ms):
                self._end(stream, heirs, before)
            else:
                clock.sleep_ms(_POLL_INTERVAL_MS)
            # All readers of the generation, not only this one: their logs may be trimmed meanwhile.
            for each in readers.values():
                each.read_to_end()
        return ended(self._source.shard(stream), _WRITER, reader.log_state)

    def _end(self, stream: str, heirs: int, before: Sequence[EndedStream]) -> None:
        """Try once to end ``stream`` by a record of its own epoch.

        A process that begins a later epoch there fences this attempt. Either it is another new
        shard, which ends the stream, or an old process, which the next attempt fences.
        """
        context = self._context
        now_ms = context.clock.now_ms()
        shard = self._source.shard(stream)
        begins = successor_begins(shard, before, now_ms) if before else SourceProgress()
        writer = BoundaryWriter(
            context.log,
            context.pipeline.topic_names.boundaries(stream),
            open_stream(context.log, context.pipeline, stream),
            replace(self._started, token=context.entropy.token(), rest_upto=rest_upto(before)),
            context.clock,
        )
        try:
            epoch, ident = writer.start(), BatchId(context.entropy.token(), 0)
            if not writer.log_state.heirs:
                state = writer.log_state
                writer.append(end(_WRITER, epoch, ident, state, begins, heirs, now_ms))
                context.logger.info("a stream has ended", stream=stream, heirs=heirs)
        except Fenced as error:
            context.logger.info(
                "another process began an epoch first", stream=stream, why=str(error)
            )
        finally:
            writer.close()
