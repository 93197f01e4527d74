"""Follows the topics of a pipeline for the page: boundary logs, control topics, alarms.

A stream whose log is not there yet, or cannot be read, keeps no other from being shown: it is tried
again. A crash loses nothing: all is read from the logs again, as far back as they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from anabranch.codec import control_records
from anabranch.pipeline.speakers import bound_speakers, speakers
from anabranch.ports import Chunk, EventLog, TopicPartition
from anabranch.protocol.control.records import Alarm
from anabranch.protocol.control.speaking import Speaker
from anabranch.protocol.errors import AnabranchError, RemoteProtocolError, Unavailable
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.heartbeats import ControlReader
from anabranch.runtime.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.dashboard.feed import Feed
    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry

_PAUSE_S: Final = 0.2
_LOOK_MS: Final = 2_000
"""Between two looks whether the broker answers, and what topics are new."""
_ANSWER_MS: Final = 1_500
_ALARMS_AT_ONCE: Final = 100
_ROUND_RECORDS_MAX: Final = 20_000
"""Of one log before the others have their turn."""

Connect = Callable[[], tuple[str, EventLog]]
"""(address, log) of the broker as it is known now."""


class TopicFollower:
    """Runs in the thread that calls ``work``."""

    def __init__(self, pipeline: Pipeline, connect: Connect, feed: Feed) -> None:
        """Nothing is contacted yet."""
        self._pipeline, self._connect, self._feed = pipeline, connect, feed
        self._readers: dict[str, BoundaryReader] = {}
        self._ends: dict[str, int] = {}
        """Where each log ended when it was opened: what stands before is history."""
        with feed.page() as page:
            self._kept = page.cells_max

    def work(self) -> None:
        """Follow one broker, until another is named or the end.

        Raises:
            AnabranchError: it does not answer, or not as it should.
        """
        address, log = self._connect()
        with ExitStack() as stack:
            admin = stack.enter_context(closing(log.admin()))
            wanted = self._control_topics()
            found = admin.partitions([*wanted, self._pipeline.topic_names.alarms()])
            if not found:
                raise Unavailable(
                    f"the broker at {address} has no topics of pipeline {self._pipeline.name} yet"
                )
            control = stack.enter_context(
                closing(ControlReader(log, {t: s for t, s in wanted.items() if t in found}))
            )
            alarms = stack.enter_context(closing(log.reader(committed=False, headers=False)))
            alarm_at = TopicPartition(self._pipeline.topic_names.alarms(), 0)
            has_alarms = alarm_at.topic in found
            if has_alarms:
                alarms.assign({alarm_at: alarms.offsets(alarm_at)[1]})
            stack.callback(self._close)
            look_ms = 0
            while not self._feed.stopping.is_set():
                now_ms = self._feed.clock.monotonic_ms()
                if now_ms >= look_ms:
                    look_ms = now_ms + _LOOK_MS
                    if self._connect()[0] != address:
                        return
                    answers = not has_alarms or bool(alarms.ends([alarm_at], _ANSWER_MS))
                    with self._feed.page() as page:
                        page.show_contact(
                            "" if answers else f"the broker at {address} does not answer"
                        )
                    if answers:
                        self._open_new(log, admin.partitions(self._boundary_topics()))
                self._read(control, alarms.fetch(_ALARMS_AT_ONCE, 0) if has_alarms else [])
                self._feed.stopping.wait(_PAUSE_S)

    def _read(self, control: ControlReader, alarm_chunks: list[Chunk]) -> None:
        heard = [*control.poll(), *_alarms(alarm_chunks)]
        if heard:
            clock = self._feed.clock
            with self._feed.page() as page:
                for record in heard:
                    page.hear(record, clock.now_ms(), clock.monotonic_ms())
        for stream, reader in list(self._readers.items()):
            try:
                taken = 0
                while taken < _ROUND_RECORDS_MAX and (read := reader.poll(0)):
                    taken += read
                    reader.log_state.forget(reader.log_state.upto - self._kept)
            except AnabranchError as error:
                self._drop(stream)
                with self._feed.page() as page:
                    page.happened(
                        self._feed.clock.now_ms(), "alarm", stream, f"its log: {error}", stream
                    )

    def _open_new(self, log: EventLog, found: dict[str, int]) -> None:
        names = self._pipeline.topic_names
        for stream in self._streams():
            if stream in self._readers or names.boundaries(stream) not in found:
                continue
            with self._feed.page() as page:
                page.begin_stream(stream)
            reader = open_stream(log, self._pipeline, stream, listener=self._listener(stream))
            self._readers[stream], self._ends[stream] = reader, reader.end()

    def _listener(self, stream: str) -> Callable[[int, LogEntry, Outcome], None]:
        def listen(offset: int, entry: LogEntry, outcome: Outcome) -> None:
            is_news = stream in self._readers and offset >= self._ends[stream]
            with self._feed.page() as page:
                page.take(
                    stream,
                    entry,
                    outcome,
                    self._readers[stream].log_state,
                    self._feed.clock.now_ms() if is_news else None,
                )

        return listen

    def _streams(self) -> list[str]:
        return [*self._pipeline.streams(), *self._pipeline.bindings]

    def _boundary_topics(self) -> list[str]:
        return [self._pipeline.topic_names.boundaries(stream) for stream in self._streams()]

    def _control_topics(self) -> dict[str, Speaker]:
        return speakers(self._pipeline) | bound_speakers(self._pipeline, self._pipeline.bindings)

    def _drop(self, stream: str) -> None:
        self._readers.pop(stream).close()
        self._ends.pop(stream, None)

    def _close(self) -> None:
        for stream in list(self._readers):
            self._drop(stream)


def _alarms(chunks: list[Chunk]) -> Iterator[Alarm]:
    for chunk in chunks:
        for value in chunk.values:
            try:
                record = control_records.decode(value)
            except RemoteProtocolError:
                continue
            if isinstance(record, Alarm):
                yield record
