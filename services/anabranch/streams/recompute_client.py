"""Client of recomputation (``protocol.stage.recomputation``): requests deleted blocks on the
control topic, reads the replies, and reports the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from anabranch.pipeline.control_topics import control_topics
from anabranch.protocol.control.records import AskOutcome, AskReply
from anabranch.protocol.stage.recomputation import RecomputeRequests, RequestState
from anabranch.streams.heartbeats import ControlReader, ControlWriter

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch.process.frame import ServiceContext

_LABELS: Final = ("pipeline", "reader", "stream")


class RecomputeClient:
    """Client of one process. Contacts nothing until blocks are missing. Not thread-safe."""

    def __init__(self, context: ServiceContext, reader: str, streams: Collection[str]) -> None:
        """Keep the arguments. ``reader`` is the requesting process, SERVICE.NAME; ``streams`` are
        those that it reads.
        """
        pipeline = context.pipeline
        self._context = context
        self._reader = reader
        self._streams = tuple(streams)
        own = {*pipeline.stages, *pipeline.source_streams()}
        self._requests = RecomputeRequests(
            reader, {s: pipeline.stream_writers(s) for s in streams if s in own}
        )
        service, _, name = reader.partition(".")
        self._topic = pipeline.topic_names.control(service, name)
        self._control: tuple[ControlReader, ControlWriter] | None = None
        self._reported: dict[str, str] = {}
        self._asks = Counter(
            "anabranch_recompute_requests",
            "Requests to recompute blocks that are gone",
            _LABELS,
            registry=context.registry,
        )
        self._stuck = Gauge(
            "anabranch_blocks_gone",
            "1 while a reader waits for blocks that are gone",
            _LABELS,
            registry=context.registry,
        )

    def ask(self, gone: Mapping[str, tuple[int, int]]) -> str:
        """Run one round: read replies, and request what is due of ``gone``, the (first, last
        bucket) missing by stream. Return the state of the requests, in words.

        Raises:
            Unavailable: the log does not answer.
        """
        clock, log = self._context.clock, self._context.log
        if self._control is None:
            self._control = (
                ControlReader(log, control_topics(self._context.pipeline)),
                ControlWriter(log, self._topic, clock),
            )
        control, writer = self._control
        for entry in control.poll():
            if isinstance(entry, AskReply):
                self._requests.receive(entry, clock.monotonic_ms())
                if entry.reader == self._reader and entry.outcome is AskOutcome.DIFFERENT:
                    self._context.logger.error(
                        "recomputed_rows_differ",
                        stream=entry.stream,
                        replica=entry.replica,
                        reason=entry.reason,
                    )
        for stream in self._streams:
            if stream not in gone:
                self._requests.there(stream)
                self._stuck.labels(self._context.pipeline.name, self._reader, stream).set(0)
                continue
            ask = self._requests.lacking(
                stream, *gone[stream], clock.monotonic_ms(), wall_ms=clock.now_ms()
            )
            if ask is not None and writer.write([ask]):
                self._asks.labels(self._context.pipeline.name, self._reader, stream).inc()
            self._stuck.labels(self._context.pipeline.name, self._reader, stream).set(1)
            self._tell(stream)
        return "; ".join(self._requests.describe(stream) for stream in gone)

    def stop_requesting(self) -> None:
        """Record that no missing blocks are needed any more, and close the topics."""
        if self._control is not None:
            self.ask({})
            self.close()

    def close(self) -> None:
        """Close the topics. Idempotent."""
        if self._control is not None:
            control, self._control = self._control, None
            for end in control:
                end.close()

    def _tell(self, stream: str) -> None:
        reported = self._requests.describe(stream)
        if reported != self._reported.get(stream):
            self._reported[stream] = reported
            state = self._requests.state(stream)
            log = (
                self._context.logger.error
                if state in (None, RequestState.REJECTED)
                else self._context.logger.warning
            )
            log("blocks_gone", reader=self._reader, stream=stream, reported=reported)
