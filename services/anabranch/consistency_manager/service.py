"""Service of the consistency manager: connects ``protocol.control.consistency``, ``fencing`` and
``trimming`` to the logs and the index.

A stream whose log has lost records holds up no other one: it is named in the status and by an
alarm, and until it can be read again nothing of it is trimmed, compared, or in the index
(``protocol.log.unread_logs``).

It has no state of its own. At start it reads the logs, from their beginning or from a log snapshot
on, and draws the same conclusions again. Two managers may run at once; they write the same index.
While the index cannot be reached everything else continues, and the writes due to it are kept,
bounded, until it can. The other services can do without its fences and trim points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import Counter, Gauge

from anabranch.codec import control_records
from anabranch.codec.topic_rules import differences
from anabranch.consistency_manager.block_trimming import BlockTrimming
from anabranch.consistency_manager.control import ManagerControl, unneeded_inputs
from anabranch.consistency_manager.float_audit import FloatAudit
from anabranch.consistency_manager.followed_stream import FollowedStream
from anabranch.consistency_manager.index_image import IndexImage
from anabranch.consistency_manager.log_trimming import LogTrimming
from anabranch.consistency_manager.moves import MovesFollower
from anabranch.consistency_manager.scaling import scaling_of
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.ports import LogReader, LogWriter, TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.process.settings import ServiceSettings
from anabranch.protocol.control.consistency import (
    LOG_UNREAD,
    RECORD_REFUSED,
    AlarmBook,
    Mismatch,
)
from anabranch.protocol.control.records import Alarm, ControlRecord, Fence
from anabranch.protocol.edge.handover import is_used_up
from anabranch.protocol.errors import OutcomeUnknown, RemoteProtocolError, Unavailable
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.log.reading_to_end import ReadingToEnd
from anabranch.protocol.log.records import BoundaryRecord, LogEntry, LogSnapshot
from anabranch.streams.followed_logs import FollowedLogs

_IDLE_MS: Final = 50
"""Pause after a round without work, in ms."""
_RETRY_MS: Final = 1_000
"""Pause after a failure of the index, in ms."""
_ALARMS_AGAIN_MS: Final = 5_000
"""Pause after alarms could not be written, in ms. Each attempt opens a client and logs a line."""
_FETCH_RECORDS: Final = 2_000
"""Maximum number of alarms per fetch at start."""
_WRITES_PER_ROUND: Final = 500
"""Maximum number of writes to the index per round, so that the logs are not left unread."""
_LABELS: Final = ("pipeline",)


def build(_settings: ServiceSettings, context: ServiceContext) -> ConsistencyManager:
    """Return the manager of the context's pipeline."""
    return ConsistencyManager(context)


class ConsistencyManager:
    """Consistency manager of one pipeline, see ``process.frame.Service``."""

    def __init__(self, context: ServiceContext) -> None:
        self.status = ServiceStatus()
        self._context = context
        self._pipeline = context.pipeline
        self._index = context.index
        self._streams = FollowedLogs(self._prepare, context.clock, context.logger)
        self._readable: dict[str, FollowedStream] = {}
        """Streams whose logs could be read in this round."""
        self._lives: dict[str, str] = {}
        """Life in which each stream was read."""
        self._records = 0
        """Number of records of boundary logs that were read."""
        self._alarmed_unread: set[str] = set()
        """Streams whose logs cannot be read, for which an alarm was raised."""
        self._alarms: LogWriter | None = None
        self._unsent: list[Alarm] = []
        self._alarms_next_ms = 0
        self._topic_differences: list[str] = []
        self._image = IndexImage(self._pipeline.name)
        self._scaling = scaling_of(context)
        self._moves = MovesFollower(context, self._scaling)
        self._control = ManagerControl(
            context, self._image, self._scaling, self._moves.is_confirmed
        )
        self._trimming = BlockTrimming(context)
        self._log_trimming = LogTrimming(context)
        self._floats = FloatAudit(context)
        self._book = AlarmBook()
        self._index_next_ms = 0
        self._index_error: str | None = None
        """Why the index cannot be reached; None: it could be."""
        registry, own = context.registry, self._pipeline.name
        self._mismatches = Counter(
            "anabranch_digest_mismatches",
            "Buckets of which two replicas have different rows",
            _LABELS,
            registry=registry,
        ).labels(own)
        self._compared = Gauge(
            "anabranch_buckets_compared",
            "Buckets compared between two replicas",
            (*_LABELS, "stream"),
            registry=registry,
        )
        self._uncompared = Gauge(
            "anabranch_buckets_uncompared",
            "Buckets not compared: closed too late, or made after other plans",
            (*_LABELS, "stream"),
            registry=registry,
        )
        self._given_up = Gauge(
            "anabranch_buckets_given_up",
            "Buckets that a stage with ha: amnesia has given up",
            (*_LABELS, "stream"),
            registry=registry,
        )
        self._index_failures = Counter(
            "anabranch_index_failures",
            "Times that the index could not be reached",
            _LABELS,
            registry=registry,
        ).labels(own)

    def start(self) -> None:
        """Read the alarms that were raised before, then start to follow all logs and control
        topics.

        Raises:
            Unavailable: a topic is missing, or the broker does not answer.
        """
        self._check_topic_settings()
        # Before the logs: what they show again must not raise its alarm a second time.
        for alarm in self._old_alarms():
            self._book.known(alarm)
        self._control.start()
        self._moves.start()
        for stream in self._pipeline.streams():
            self._streams.follow(stream)
        self._read_streams()
        if self._streams.why_unread.keys() - self._streams.stuck.keys():
            raise Unavailable(self._streams.waits_for())

    def step(self) -> None:
        """Do one round: read all logs and control topics, raise alarms, trim, update the index."""
        before = self._records
        self._read_streams()
        streams = self._readable
        read = self._records - before
        log_states = {stream: followed.log_state for stream, followed in streams.items()}
        read += self._control.round(
            {stream: log_state.upto for stream, log_state in log_states.items()},
            self.status.state,
            unneeded_inputs(self._pipeline, log_states),
        )
        for alarm in self._moves.round():
            self._raise_once(alarm)
        if self._scaling is not None:
            self._scaling.round()
        while self._control.alarms:
            self._raise_once(self._control.alarms.pop(0))
        points = self._control.trim_points()
        self._trimming.round({name: points[name] for name in points.keys() & streams.keys()})
        self._log_trimming.round(streams, points)
        for stream, followed in streams.items():
            self._raise_once(self._floats.round(stream, followed.log_state, followed.audit))
        self._write_alarms()
        busy = self._write_index()
        self._report()
        if not read and not busy:
            self._context.clock.sleep_ms(_IDLE_MS)

    def _prepare(self, stream: str) -> FollowedStream:
        """Prepare to follow a stream from a log snapshot, or from the beginning of its log. What
        was derived of it before is forgotten.
        """
        self._trimming.begin(stream)
        self._log_trimming.begin(stream)
        self._image.forget(stream)
        return FollowedStream(self._context.log, self._pipeline, stream, self._lives, self._seen)

    def _read_streams(self) -> None:
        """Read the boundary logs of all streams, and raise an alarm for each one that cannot be
        read until a person has restored it, once.

        Raises:
            Unavailable, DataMissing: after which this process must begin anew.
        """
        self._streams.poll()
        for followed in self._streams.every.values():
            if followed.ended_by is not None:
                raise followed.ended_by
        self._readable = {
            stream: followed
            for stream, followed in self._streams.every.items()
            if self._streams.known(stream) and stream not in self._streams.why_unread
        }
        for stream in self._readable:
            self._log_trimming.read_to_end(stream)
        stuck = self._streams.stuck
        for stream in stuck.keys() - self._alarmed_unread:
            text = (
                f"the boundary log of {stream} cannot be read: {stuck[stream]}. The manager goes on"
                " with all other streams; of this one nothing is trimmed"
            )
            self._raise(Alarm(LOG_UNREAD, stream, -1, text, self._context.clock.now_ms()))
        self._alarmed_unread = set(stuck)

    def stop(self) -> None:
        """Close readers, writers and threads. Idempotent."""
        self._streams.close()
        self._control.close()
        if self._scaling is not None:
            self._scaling.close()
        self._moves.close()
        self._trimming.close()
        self._log_trimming.close()
        self._floats.close()
        if self._alarms is not None:
            self._alarms.close()
            self._alarms = None

    def _check_topic_settings(self) -> None:
        """Warn of internal topics with weaker settings than required. A failed check is only
        reported: this principal may have no right to read settings.
        """
        admin = self._context.log.admin()
        try:
            topics = [topic for _, topic in internal_topics(self._pipeline)]
            existing = admin.partitions([topic.name for topic in topics])
            there = [topic for topic in topics if topic.name in existing]
            found = [
                line
                for topic in there
                for line in differences(
                    topic, existing[topic.name], None, admin.settings(topic.name)
                )
            ]
        except Unavailable as error:
            found = [f"the settings of internal topics could not be checked: {error}"]
        finally:
            admin.close()
        for line in found:
            self._context.logger.warning("topic_differs", text=line)
        self._topic_differences = found

    def _seen(
        self, followed: FollowedStream, offset: int, entry: LogEntry, outcome: Outcome
    ) -> None:
        """Handle a record of a boundary log. Called right after the log state has accepted or
        rejected it.
        """
        self._records += 1
        stream, reader = followed.stream, followed.reader
        log_state = reader.log_state
        self._trimming.seen(stream, entry, outcome)
        self._log_trimming.seen(stream, offset, entry, outcome)
        for mismatch in followed.audit.seen(log_state, entry, outcome):
            self._mismatch(mismatch)
            for replica in mismatch.outvoted:
                self._fence(mismatch, replica, log_state)
        if reader.refused and not outcome.accepted:
            text = f"a record in the log of {stream} does not count: {reader.refused}"
            written_ms = self._context.clock.now_ms()
            self._raise_once(Alarm(RECORD_REFUSED, stream, -1, text, written_ms))
        if followed.gaps is not None:
            self._raise_once(followed.gaps.seen(entry, outcome, self._context.clock.now_ms()))
        if outcome.accepted and isinstance(entry, BoundaryRecord):
            self._image.boundary(stream, offset, entry, log_state)
        elif outcome.accepted and isinstance(entry, LogSnapshot):
            self._image.adopted(stream, entry, log_state)
        self._log_trimming.forget(
            stream, reader, self._control.trim_point(stream), followed.audit.floor
        )

    def _mismatch(self, mismatch: Mismatch) -> None:
        self._mismatches.inc()
        alarm = self._book.alarm(mismatch, self._context.clock.now_ms())
        if alarm is not None:
            self._raise(alarm)

    def _raise(self, alarm: Alarm) -> None:
        """Log an alarm and queue it for the topic of alarms."""
        self._context.logger.error(
            "alarm", kind=alarm.kind, stream=alarm.stream, bucket=alarm.bucket, text=alarm.text
        )
        self._unsent.append(alarm)

    def _raise_once(self, alarm: Alarm | None) -> None:
        """Raise an alarm unless it was raised before, for example before a restart that finds its
        cause again.
        """
        if alarm is not None and self._book.is_new(alarm):
            self._raise(alarm)

    def _fence(self, mismatch: Mismatch, replica: str, log_state: LogState) -> None:
        """Fence a replica that a majority contradicts: its process, which continues from its wrong
        results, must end. A restart reaches the same decision (EF1).
        """
        epoch = log_state.epoch(replica)
        fence = Fence(
            mismatch.stream,
            replica,
            -1 if epoch is None else epoch,
            mismatch.bucket,
            mismatch.votes,
            self._context.clock.now_ms(),
        )
        if self._control.fence(fence, log_state):
            self._raise(
                Alarm(
                    "replica_fenced", fence.stage, mismatch.bucket, fence.reason, fence.written_ms
                )
            )

    def _write_alarms(self) -> None:
        """Write the alarms that wait. After a failure they are written again, a while later: a
        duplicate does no harm, and a topic that may not be written is refused each time.
        """
        if not self._unsent or self._context.clock.monotonic_ms() < self._alarms_next_ms:
            return
        if self._alarms is None:
            self._alarms = self._context.log.writer()
        at = TopicPartition(self._pipeline.topic_names.alarms(), 0)
        try:
            for alarm in self._unsent:
                self._alarms.send(at, control_records.encode(alarm), alarm.stream.encode())
            self._alarms.flush()
            crash_point("manager.alarms_written")
        except (OutcomeUnknown, Unavailable) as error:
            self._context.logger.warning(
                "alarms_delayed", count=len(self._unsent), error=str(error)
            )
            self._alarms.close()
            self._alarms = None
            self._alarms_next_ms = self._context.clock.monotonic_ms() + _ALARMS_AGAIN_MS
            return
        self._unsent.clear()

    def _old_alarms(self) -> Iterator[Alarm]:
        """Yield the alarms that are in the topic of alarms."""
        reader = self._context.log.reader(committed=False, headers=False)
        at = TopicPartition(self._pipeline.topic_names.alarms(), 0)
        try:
            start, end = reader.offsets(at)
            reader.assign({at: start})
            reading = ReadingToEnd({at: end}, reader.position)
            while not reading.is_over():
                for entry in self._fetch(reader, 100):
                    if isinstance(entry, Alarm):
                        yield entry
        finally:
            reader.close()

    def _fetch(self, reader: LogReader, wait_ms: int) -> list[ControlRecord]:
        found = []
        for chunk in reader.fetch(_FETCH_RECORDS, wait_ms):
            for value in chunk.values:
                try:
                    found.append(control_records.decode(value))
                except RemoteProtocolError:
                    self._control.rejected.inc()
        return found

    def _write_index(self) -> bool:
        """Write the entries of the image that are due to the index; return whether something was
        written. Never raises because of the index.
        """
        index, now_ms = self._index, self._context.clock.monotonic_ms()
        if index is None or now_ms < self._index_next_ms:
            return False
        try:
            for count in range(_WRITES_PER_ROUND):
                write = self._image.next_write(now_ms)
                if write is None:
                    self._index_error = None
                    return count > 0
                index.put(write.key, write.fields, expire_ms=write.expire_ms)
                crash_point("manager.index_written")
                # The time before the write: what is lost after it is written again in time.
                self._image.written(write, now_ms)
        except Unavailable as error:
            if self._index_error is None:
                self._context.logger.warning("index_unavailable", error=str(error))
            self._index_failures.inc()
            self._index_next_ms = self._context.clock.monotonic_ms() + _RETRY_MS
            self._index_error = f"index: {error}"
            return False
        return True

    def _unneeded_streams(self) -> list[str]:
        """Return the streams of earlier numbers of shards that every reader has read to their ends,
        so that the file need not name them any more.
        """
        return [
            stream
            for stream, followed in self._readable.items()
            if stream not in self._pipeline.stages
            and is_used_up(followed.log_state, self._control.trim_point(stream))
        ]

    def _report(self) -> None:
        streams, own = self._readable, self._pipeline.name
        uptos = {stream: followed.log_state.closed_upto for stream, followed in streams.items()}
        for stream, followed in streams.items():
            self._context.metrics.rejected(stream, followed.reader.counts)
            self._compared.labels(own, stream).set(followed.audit.compared)
            self._uncompared.labels(own, stream).set(followed.audit.uncompared)
            if followed.gaps is not None:
                self._given_up.labels(own, stream).set(followed.gaps.lost)
        self.status.waiting_for = self._streams.waits_for(self._index_error)
        now_ms, width_ms = self._context.clock.now_ms(), self._pipeline.bucket_ms
        ended = {stream for stream, each in streams.items() if each.log_state.heirs}
        unread = {name for name, stage in self._pipeline.stages.items() if stage.parent} - {
            half for stream in ended for half in self._pipeline.halves(stream)
        }
        slowest = min((uptos[stream] for stream in uptos.keys() - ended - unread), default=0)
        if slowest > 0:
            self.status.last_bucket_ms = bound_ms(slowest, width_ms)
            self.status.lag_ms = now_ms - self.status.last_bucket_ms
        self.status.detail = {
            "stable_bucket_ms": {
                stream: bound_ms(upto, width_ms) for stream, upto in uptos.items()
            },
            "processes": self._image.states(self._context.clock.monotonic_ms()),
            "versions": {
                stream: followed.log_state.version
                for stream, followed in streams.items()
                if stream in self._pipeline.stages
            },
            "compared": {stream: followed.audit.compared for stream, followed in streams.items()},
            "topics": self._topic_differences,
            "not_needed": self._unneeded_streams(),
            "outputs_away": [
                {"output": each.output, "silent_ms": each.silent_ms, "left_ms": each.left_ms}
                for each in self._control.away
            ],
            "no_log_snapshot": self._log_trimming.report(),
            "index": "none"
            if self._index is None
            else "written"
            if self._image.is_written
            else "incomplete",
        }
        if self._scaling is not None:
            self.status.detail |= {"scaling": self._scaling.report()}
