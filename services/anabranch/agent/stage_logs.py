"""Follows the logs of one stage that may move: what its input had, who made which bucket, and
whether whoever runs it is heard.

A crash loses nothing that counts: a new follower begins at the logs' state of then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.control_topics import speakers
from anabranch.protocol.control.failure_detector import (
    REPLICA_SERVICE,
    FailureDetector,
    Peer,
    Silence,
)
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.federation.stage_moves import partners_nodes
from anabranch.protocol.federation.workload import Workload
from anabranch.protocol.limits import LONG_SILENT_MS
from anabranch.streams.boundary_reader import BoundaryReader, Listener
from anabranch.streams.heartbeats import ControlReader
from anabranch.streams.stream_logs import open_stream

_MS_PER_S: Final = 1_000

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry


class StageLogs:
    """Of one stage. Not thread-safe."""

    def __init__(
        self, log: EventLog, clock: Clock, pipeline: Pipeline, stage: str, *, hears: bool
    ) -> None:
        """Nothing is contacted yet. ``hears``: also follow the heartbeats of its replica."""
        self._log = log
        self._clock = clock
        self._pipeline = pipeline
        self._stage = stage
        self._declared, self._hears = pipeline.stages[stage], hears
        self._replica = self._declared.replica_ids()[0]
        federation = pipeline.federation
        self.allowed = partners_nodes({} if federation is None else federation.partners, stage)
        """The nodes of partners that may run it, by its owner's file."""
        self.workload = Workload(pipeline.inputs(stage), pipeline.bucket_ms)
        self._rows: dict[str, tuple[int, int]] = {}
        """Stream -> its rows, and how many buckets they are of, since they were asked for."""
        self._inputs: dict[str, BoundaryReader] = {}
        self._upto: dict[str, int] = {}
        self._own: BoundaryReader | None = None
        self._control: ControlReader | None = None
        self._peer = Peer(REPLICA_SERVICE, stage, self._replica)
        self._detector, self._silence = FailureDetector([self._peer]), Silence()
        self._began: tuple[str, int] = ("", 0)
        """The node that runs it, and the observed time since when."""

    @property
    def runs_on(self) -> str:
        """The node on which the stage's newest epoch began; empty: on none, or not read yet."""
        return "" if self._own is None else self._own.log_state.node(self._replica)

    def is_silent(self) -> bool:
        """Whether nothing was heard of who runs it for as long as one that is moved would wait,
        while the broker answered.
        """
        return self._silence.ms >= LONG_SILENT_MS

    def waits_ms(self) -> int:
        """How long the oldest bucket waits that is not made: of time that was observed, and since
        the node that runs it now has begun.
        """
        since = self.workload.waits_since()
        if since is None:
            return 0
        return self._detector.look(self._clock.monotonic_ms()) - max(since, self._began[1])

    def rate(self, stream: str) -> int | None:
        """Rows per second of event time of an input, or of the stage's results, since the last
        call; None: no bucket has come.
        """
        rows, buckets = self._rows.pop(stream, (0, 0))
        width_ms = self._pipeline.bucket_ms
        return rows * _MS_PER_S // (buckets * width_ms) if buckets else None

    def poll(self) -> None:
        """Take what is there, without waiting.

        Raises:
            Unavailable: a topic is not there yet, or there is no answer.
            DataMissing: a log was cut under it: a new process begins anew.
        """
        self._open()
        assert self._own is not None, "opened"  # noqa: S101
        observed_ms = self._detector.look(self._clock.monotonic_ms())
        for stream, reader in self._inputs.items():
            reader.poll(0)
            self._take(stream, reader, observed_ms)
        self._own.poll(0)
        self._rows_of(self._stage, self._own)
        if self.runs_on != self._began[0]:
            self._began = self.runs_on, observed_ms
        now_ms = self._clock.monotonic_ms()
        epoch = self._own.log_state.epoch(self._replica)
        if epoch is not None and self._detector.began(self._peer, epoch, now_ms):
            self._silence.broken(now_ms)
        if self._control is not None:
            self._own.end()  # the broker answers
            self._silence.came_back(now_ms)
            for entry in self._control.poll():
                if isinstance(entry, Heartbeat) and self._detector.heard(entry, now_ms):
                    self._silence.broken(now_ms)

    def _open(self) -> None:
        """All of it, or what is left of it: a topic may come later."""
        if self._own is not None:
            return
        names, pipeline = self._pipeline.topic_names, self._pipeline
        for stream in pipeline.inputs(self._stage):
            if stream in self._inputs:
                continue
            self._inputs[stream] = self._opened(stream)
        topic = names.control(REPLICA_SERVICE, f"{self._stage}.{self._replica}")
        if self._hears and self._control is None:
            self._control = ControlReader(self._log, {topic: speakers(pipeline)[topic]})
        self._own = self._opened(self._stage, self._seen)
        self._tell(self._own)

    def _opened(self, stream: str, listener: Listener | None = None) -> BoundaryReader:
        """The log of a stream, read to its end."""
        reader = open_stream(self._log, self._pipeline, stream, listener=listener)
        try:
            reader.read_to_end()
        except Unavailable:
            reader.close()
            raise
        return reader

    def _seen(self, _offset: int, _entry: LogEntry, outcome: Outcome) -> None:
        if outcome.accepted and self._own is not None:
            self._tell(self._own)

    def _tell(self, own: BoundaryReader) -> None:
        log_state = own.log_state
        self.workload.made(log_state.node(self._replica), log_state.closed(self._replica))

    def _take(self, stream: str, reader: BoundaryReader, observed_ms: int) -> None:
        rows, upto = self._rows_of(stream, reader), reader.log_state.upto
        self.workload.arrived(stream, upto, rows, observed_ms)

    def _rows_of(self, stream: str, reader: BoundaryReader) -> dict[int, int]:
        """Of the buckets of a stream that have become stable since the last call."""
        log_state = reader.log_state
        before, upto = self._upto.get(stream), log_state.upto
        rows = (
            {}
            if before is None or upto <= before
            else {
                bucket: sum(part.rows for part in parts)
                for bucket, _, parts in log_state.stable(before + 1, upto)
            }
        )
        log_state.forget(upto)
        self._upto[stream] = upto
        if before:
            known, buckets = self._rows.get(stream, (0, 0))
            self._rows[stream] = known + sum(rows.values()), buckets + upto - before
        return rows

    def close(self) -> None:
        """Idempotent."""
        for closable in (*self._inputs.values(), self._own, self._control):
            if closable is not None:
                closable.close()
