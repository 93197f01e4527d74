"""The streams that a source had with other numbers of shards: each new shard sees to it that they
have ended before it begins. What that means is decided in ``protocol.edge.handover``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from anabranch.ingestion.other_logs import check_dealt
from anabranch.protocol.edge.handover import (
    Attempts,
    EndedStream,
    end,
    ended,
    heir_begins,
    rest_upto,
)
from anabranch.protocol.edge.ingestion import SourceProgress
from anabranch.protocol.errors import ConfigurationError, Fenced, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.runtime.boundary_writer import BoundaryWriter
from anabranch.runtime.stream_logs import open_stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.pipeline.model import Source
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.protocol.log.records import EpochStarted
    from anabranch.runtime.boundary_reader import BoundaryReader
    from anabranch.runtime.service import ServiceContext

_WRITER: Final = "0"
_LOOK_EVERY_MS: Final = 100


class EarlierShards:
    """Those of one source, as the shard ``stream`` finds them."""

    def __init__(
        self, context: ServiceContext, source: Source, stream: str, started: EpochStarted
    ) -> None:
        """``started``: with which the shard begins epochs. Nothing is contacted yet."""
        self._context, self._source = context, source
        self._shard = source.shard(stream)
        self._started = started

    def ended(self) -> list[EndedStream]:
        """Those of the number before the last one, once all have ended; empty: there was none, or
        nobody needs it any more. After a crash the next process goes on here.

        Raises:
            ConfigurationError: they do not have the number of shards that the file says, or have
                ended for another one. Nothing has changed then.
            Unavailable: one has not ended, or the broker does not answer.
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
        last = log_state.last(_WRITER)
        check_dealt(self._source, stream, () if last is None else last.positions)
        if is_oldest and log_state.epoch(_WRITER) is None:
            raise ConfigurationError(
                f"source {self._source.name}: nobody has ever written {stream}, which is one of the"
                " shards that it had by the pipeline file: correct that number in `shards`, or run"
                " it with that number first"
            )

    def _ended(
        self,
        stream: str,
        readers: Mapping[str, BoundaryReader],
        heirs: int,
        before: Sequence[EndedStream],
    ) -> EndedStream:
        """``stream``, once it has ended with ``heirs``. Meanwhile all logs of its generation are
        read on: they may be trimmed.
        """
        reader, clock = readers[stream], self._context.clock
        attempts = Attempts(self._shard, clock.monotonic_ms())
        while not reader.log_state.heirs:
            now_ms = clock.monotonic_ms()
            if attempts.is_over(now_ms):
                raise Unavailable(f"{stream} has not ended: another process has begun to end it")
            if attempts.is_due(now_ms):
                self._end(stream, heirs, before)
            else:
                clock.sleep_ms(_LOOK_EVERY_MS)
            for each in readers.values():
                each.read_to_end()
        return ended(self._source.shard(stream), _WRITER, reader.log_state)

    def _end(self, stream: str, heirs: int, before: Sequence[EndedStream]) -> None:
        """Try to end ``stream``. Whoever begins an epoch there meanwhile prevents it, and ends it,
        or is an old process, which the next attempt fences.
        """
        context = self._context
        now_ms = context.clock.now_ms()
        shard = self._source.shard(stream)
        begins = heir_begins(shard, before, now_ms) if before else SourceProgress()
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
            context.logger.info("somebody else has begun to end it", stream=stream, why=str(error))
        finally:
            writer.close()
