"""Follower of a pipeline's topics for the page: boundary logs, control topics, alarms.

A stream whose log does not exist yet, or cannot be read, is retried, and does not keep the others
from being shown. A crash loses nothing: the logs are read again, as far back as they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from anabranch.codec import control_records
from anabranch.pipeline.control_topics import bound_control_topics, control_topics
from anabranch.ports import Chunk, EventLog, LogReader, TopicPartition
from anabranch.protocol.control.records import Alarm, Move, SplitStep
from anabranch.protocol.errors import AnabranchError, RemoteProtocolError, Unavailable
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.heartbeats import ControlReader
from anabranch.streams.placement import PlacementReader
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.dashboard.feed import PageFeed
    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry

_PAUSE_S: Final = 0.2
_CHECK_EVERY_MS: Final = 2_000
"""Interval between checks whether the broker answers and which topics are new, in ms."""
_ANSWER_MS: Final = 1_500
_ALARMS_AT_ONCE: Final = 100
_ROUND_RECORDS_MAX: Final = 20_000
"""Maximum number of records that are read from one log before the others have their turn."""

Connect = Callable[[], tuple[str, EventLog]]
"""Function that returns the address and the log of the broker as they are known now."""


class TopicFollower:
    """Follower of a pipeline's topics. Runs in the thread that calls ``work``."""

    def __init__(self, pipeline: Pipeline, connect: Connect, feed: PageFeed) -> None:
        """Prepare the follower without contacting the broker."""
        self._pipeline = pipeline
        self._connect = connect
        self._feed = feed
        self._readers: dict[str, BoundaryReader] = {}
        self._ends: dict[str, int] = {}
        """End of each log when it was opened. Records before it are history, not events."""
        self._speakers: Final = control_topics(pipeline) | bound_control_topics(
            pipeline, pipeline.bindings
        )
        self._control: ControlReader | None = None
        self._control_topics: set[str] = set()
        """Control topics that ``_control`` reads."""
        self._moves: PlacementReader | None = None
        """Reader of the log of moves, where the pipeline is scaled or may be split."""
        self._alarms: LogReader | None = None
        self._alarms_at: Final = TopicPartition(pipeline.topic_names.alarms(), 0)
        self._placement: Final = (
            pipeline.topic_names.placement()
            if pipeline.scaling is not None or pipeline.may_split
            else ""
        )
        """Topic of the log of moves; empty: nothing scales, and no shard may be split."""
        with feed.page() as page:
            self._kept = page.cells_max

    def work(self) -> None:
        """Follow one broker, until its address changes or the page ends.

        Raises:
            AnabranchError: the broker does not answer, or its answer is invalid.
        """
        address, log = self._connect()
        with ExitStack() as stack:
            admin = stack.enter_context(closing(log.admin()))
            stack.callback(self._close)
            check_ms = 0
            while not self._feed.stopping.is_set():
                now_ms = self._feed.clock.monotonic_ms()
                if now_ms >= check_ms:
                    check_ms = now_ms + _CHECK_EVERY_MS
                    if self._connect()[0] != address:
                        return
                    if self._answers(address):
                        self._open_new(log, admin.partitions(self._topics()), address)
                self._read()
                self._feed.stopping.wait(_PAUSE_S)

    def _answers(self, address: str) -> bool:
        """Return whether the broker answers, and show it if not.

        Asks with the reader of the alarms, because its timeout is shorter than that of an
        administrative client.
        """
        answers = self._alarms is None or bool(self._alarms.ends([self._alarms_at], _ANSWER_MS))
        if not answers:
            with self._feed.page() as page:
                page.show_contact(f"the broker at {address} does not answer")
        return answers

    def _read(self) -> None:
        """Read the new records of all open topics, and show them."""
        records = [] if self._control is None else self._control.poll()
        if self._alarms is not None:
            records += _alarms_in(self._alarms.fetch(_ALARMS_AT_ONCE, 0))
        if self._moves is not None:
            self._moves.poll()
        if records:
            clock = self._feed.clock
            with self._feed.page() as page:
                for record in records:
                    page.take_control(record, clock.now_ms(), clock.monotonic_ms())
        for stream, reader in list(self._readers.items()):
            try:
                taken = 0
                while taken < _ROUND_RECORDS_MAX and (read := reader.poll(0)):
                    taken += read
                    reader.log_state.forget(reader.log_state.upto - self._kept)
            except AnabranchError as error:
                # The next check opens the stream again, from its log's beginning.
                self._drop(stream)
                with self._feed.page() as page:
                    page.add_event(
                        self._feed.clock.now_ms(), "alarm", stream, f"its log: {error}", stream
                    )

    def _open_new(self, log: EventLog, found: dict[str, int], address: str) -> None:
        """Open the topics that exist and are not open yet.

        A pipeline's topics appear one by one while it starts, and those of other pipelines at any
        time.
        """
        names = self._pipeline.topic_names
        speakers = {t: s for t, s in self._speakers.items() if t in found}
        if not speakers:
            raise Unavailable(
                f"the broker at {address} has no topics of pipeline {self._pipeline.name} yet"
            )
        with self._feed.page() as page:
            page.show_contact("")
        if speakers.keys() != self._control_topics:
            control = ControlReader(log, speakers)
            self._close_control()
            self._control, self._control_topics = control, set(speakers)
        if self._alarms is None and self._alarms_at.topic in found:
            # From the end on: earlier alarms are not events of now.
            self._alarms = log.reader(committed=False, headers=False)
            self._alarms.assign({self._alarms_at: self._alarms.offsets(self._alarms_at)[1]})
        if self._moves is None and self._placement in found:
            self._moves = self._open_moves(log)
        for stream in self._streams():
            if stream in self._readers or names.boundaries(stream) not in found:
                continue
            with self._feed.page() as page:
                page.begin_stream(stream)
            reader = open_stream(log, self._pipeline, stream, listener=self._listener(stream))
            self._readers[stream], self._ends[stream] = reader, reader.end()

    def _open_moves(self, log: EventLog) -> PlacementReader:
        """Return a reader of the log of moves that has read what is there, which is no event of
        now, and shows each later move that the scaler decides and each step of a split.
        """
        is_news = False

        def moved(move: Move, source: str) -> None:
            """Show a move that counts."""
            if is_news and move.cause:
                with self._feed.page() as page:
                    page.take_move(move, source, self._feed.clock.now_ms())

        def stepped(step: SplitStep) -> None:
            """Show a step of a split that counts."""
            if is_news:
                with self._feed.page() as page:
                    page.take_split(step, self._feed.clock.now_ms())

        reader = PlacementReader(log, self._placement, self._pipeline.places(), moved, stepped)
        reader.read_to_end()
        is_news = True
        return reader

    def _listener(self, stream: str) -> Callable[[int, LogEntry, Outcome], None]:
        """Return the function that shows each record of the boundary log of ``stream``."""

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
        """Return the pipeline's streams, and those of other pipelines on its own cluster."""
        bound = (b.name for b in self._pipeline.bindings.values() if not b.cluster)
        return [*self._pipeline.streams(), *bound]

    def _topics(self) -> list[str]:
        """Return the names of all topics to follow."""
        boundaries = map(self._pipeline.topic_names.boundaries, self._streams())
        moves = [self._placement] if self._placement else []
        return [*self._speakers, self._alarms_at.topic, *moves, *boundaries]

    def _drop(self, stream: str) -> None:
        self._readers.pop(stream).close()
        self._ends.pop(stream, None)

    def _close_control(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control, self._control_topics = None, set()

    def _close(self) -> None:
        for stream in list(self._readers):
            self._drop(stream)
        self._close_control()
        if self._alarms is not None:
            self._alarms.close()
        self._alarms = None
        if self._moves is not None:
            self._moves.close()
        self._moves = None


def _alarms_in(chunks: list[Chunk]) -> Iterator[Alarm]:
    """Yield the alarms of ``chunks``, without records that are none."""
    for chunk in chunks:
        for value in chunk.values:
            try:
                record = control_records.decode(value)
            except RemoteProtocolError:
                continue
            if isinstance(record, Alarm):
                yield record
