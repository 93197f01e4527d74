"""Followers of one tradable stage: what its inputs contained, which node computed which bucket, and
whether the node that runs it is alive.

A crash loses nothing that counts: a new follower begins at the current state of the logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.control_topics import control_topics
from anabranch.protocol.control.failure_detector import (
    REPLICA_SERVICE,
    FailureDetector,
    Peer,
    Silence,
)
from anabranch.protocol.control.records import Heartbeat
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
    """Logs of one stage. Not thread-safe."""

    def __init__(
        self, log: EventLog, clock: Clock, pipeline: Pipeline, stage: str, *, with_heartbeats: bool
    ) -> None:
        """Prepare the followers; no broker is contacted yet. ``with_heartbeats``: also follow the
        heartbeats of the stage's replica.
        """
        self._log = log
        self._clock = clock
        self._pipeline = pipeline
        self._stage = stage
        self._declared, self._with_heartbeats = pipeline.stages[stage], with_heartbeats
        self._replica = self._declared.replica_ids()[0]
        federation = pipeline.federation
        self.allowed = partners_nodes({} if federation is None else federation.partners, stage)
        """Partners' nodes that may run the stage, by its owner's file."""
        self.workload = Workload(pipeline.inputs(stage), pipeline.bucket_ms)
        self._rows: dict[str, tuple[int, int]] = {}
        """Number of rows and buckets of each stream since ``rate`` was called."""
        self._inputs: dict[str, BoundaryReader] = {}
        self._upto: dict[str, int] = {}
        self._own: BoundaryReader | None = None
        self._control: ControlReader | None = None
        self._peer = Peer(REPLICA_SERVICE, stage, self._replica)
        self._detector = FailureDetector([self._peer], follows_logs=True)
        self._silence = Silence()
        self._began: tuple[str, int] = ("", 0)
        """Node that runs the stage, and the observed time at which it began."""

    @property
    def runs_on(self) -> str:
        """Node on which the stage's newest epoch began; empty if none did, or the log was not read
        yet.
        """
        return "" if self._own is None else self._own.log_state.node(self._replica)

    def is_silent(self) -> bool:
        """Return whether the node that runs the stage has shown no sign of life for LONG_SILENT_MS
        while the broker answered.
        """
        return self._silence.ms >= LONG_SILENT_MS

    def waits_ms(self) -> int:
        """Return how long the oldest uncomputed bucket has waited, in ms of observed time, since
        the node that runs the stage began.
        """
        since = self.workload.waits_since()
        if since is None:
            return 0
        return self._detector.look(self._clock.monotonic_ms()) - max(since, self._began[1])

    def rate(self, stream: str) -> int | None:
        """Return the rows per second of event time of an input, or of the stage's results, since
        the last call; None if no bucket has come.
        """
        rows, buckets = self._rows.pop(stream, (0, 0))
        width_ms = self._pipeline.bucket_ms
        return rows * _MS_PER_S // (buckets * width_ms) if buckets else None

    def poll(self) -> None:
        """Read the available records, without waiting.

        Raises:
            Unavailable: a topic does not exist yet, or the broker does not answer.
            DataMissing: unread records of a log were deleted. New followers start afresh.
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
            self._own.end()  # raises unless the broker answers: only then silence counts
            self._silence.came_back(now_ms)
            for entry in self._control.poll():
                if isinstance(entry, Heartbeat) and self._detector.receive(entry, now_ms):
                    self._silence.broken(now_ms)

    def _open(self) -> None:
        """Open the logs that are not open yet: a topic may be created later."""
        if self._own is not None:
            return
        names, pipeline = self._pipeline.topic_names, self._pipeline
        for stream in pipeline.inputs(self._stage):
            if stream in self._inputs:
                continue
            self._inputs[stream] = self._open_log(stream)
        topic = names.control(REPLICA_SERVICE, f"{self._stage}.{self._replica}")
        if self._with_heartbeats and self._control is None:
            self._control = ControlReader(self._log, {topic: control_topics(pipeline)[topic]})
        self._own = self._open_log(self._stage, self._on_entry)
        self._note_progress(self._own)

    def _open_log(self, stream: str, listener: Listener | None = None) -> BoundaryReader:
        """Open the log of a stream and read it to its end."""
        reader = open_stream(self._log, self._pipeline, stream, listener=listener, needs_start=True)
        try:
            reader.read_to_end()
        except BaseException:
            reader.close()
            raise
        return reader

    def _on_entry(self, _offset: int, _entry: LogEntry, outcome: Outcome) -> None:
        """Note which node closed which bucket, after an accepted record."""
        if outcome.accepted and self._own is not None:
            self._note_progress(self._own)

    def _note_progress(self, own: BoundaryReader) -> None:
        """Tell the workload which node runs the stage and up to which bucket it is closed."""
        log_state = own.log_state
        self.workload.made(log_state.node(self._replica), log_state.closed(self._replica))

    def _take(self, stream: str, reader: BoundaryReader, observed_ms: int) -> None:
        """Tell the workload which buckets of an input have arrived."""
        rows, upto = self._rows_of(stream, reader), reader.log_state.upto
        self.workload.arrived(stream, upto, rows, observed_ms)

    def _rows_of(self, stream: str, reader: BoundaryReader) -> dict[int, int]:
        """Return the rows of each bucket of a stream that has become stable since the last call."""
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
        """Close the logs. Idempotent."""
        for closable in (*self._inputs.values(), self._own, self._control):
            if closable is not None:
                closable.close()
