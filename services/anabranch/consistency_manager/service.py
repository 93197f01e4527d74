"""Service of the consistency manager: connects ``protocol.control.consistency``, ``fencing`` and
``trimming`` to the logs and the index.

It has no state of its own. At start it reads the logs, from their beginning or from a log snapshot
on, and draws the same conclusions again. Two managers may run at once; they write the same index.
While the index cannot be reached everything else continues, and the writes due to it are kept,
bounded, until it can. The other services can do without its fences and trim points.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from prometheus_client import Counter, Gauge

from anabranch.codec import control_records
from anabranch.codec.topic_rules import differences
from anabranch.consistency_manager.block_trimming import BlockTrimming
from anabranch.consistency_manager.control import ManagerControl
from anabranch.consistency_manager.float_audit import FloatAudit
from anabranch.consistency_manager.index_image import IndexImage
from anabranch.consistency_manager.log_trimming import LogTrimming
from anabranch.consistency_manager.moves import MovesFollower
from anabranch.consistency_manager.scaling import scaling_of
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.waits import known_horizon_buckets
from anabranch.ports import Index, LogReader, LogWriter, TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.process.settings import ServiceSettings
from anabranch.protocol.control.consistency import (
    RECORD_REFUSED,
    AlarmBook,
    GapBook,
    Mismatch,
    StreamAudit,
)
from anabranch.protocol.control.records import Alarm, ControlRecord, Fence
from anabranch.protocol.errors import OutcomeUnknown, RemoteProtocolError, Unavailable
from anabranch.protocol.limits import HEARTBEAT_LIFETIME_MS
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.log.records import BoundaryRecord, LogEntry, LogSnapshot
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.stream_logs import open_stream

_IDLE_MS: Final = 50
"""Pause after a round without work, in ms."""
_CHECK_EVERY_MS: Final = 500
"""Interval between two checks whether the index was lost or replaced, in ms."""
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
        self._streams: dict[str, BoundaryReader] = {}
        self._audits: dict[str, StreamAudit] = {}
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
        self._gaps = {
            name: GapBook(
                name,
                known_horizon_buckets(self._pipeline, name),
                self._pipeline.bucket_ms,
            )
            for name, stage in self._pipeline.stages.items()
            if stage.ha == "amnesia"
        }
        self._token = context.entropy.token()
        self._look = 0
        """Number of this manager's newest look at the index, which the index holds, too."""
        self._is_index_complete = False
        """Whether the index holds the image, as far as is known."""
        self._index_next_ms = 0
        self._check_next_ms = 0
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
        self._rebuilt = Counter(
            "anabranch_index_rebuilt",
            "Times that the whole index was written",
            _LABELS,
            registry=registry,
        ).labels(own)

    def start(self) -> None:
        """Read the alarms that were raised before, then start to follow all logs and control
        topics.

        Raises:
            Unavailable: a topic is missing, or the broker does not answer.
        """
        log = self._context.log
        self._check_topic_settings()
        # Before the logs: what they show again must not raise its alarm a second time.
        for alarm in self._old_alarms():
            self._book.known(alarm)
        for stream in self._pipeline.streams():
            writers = self._pipeline.stream_writers(stream)
            self._audits[stream] = StreamAudit(stream, writers)
            self._streams[stream] = open_stream(
                log, self._pipeline, stream, listener=partial(self._seen, stream)
            )
        self._control.start()
        self._moves.start()
        for reader in self._streams.values():
            reader.read_to_end()
        self._log_trimming.read_to_end()

    def step(self) -> None:
        """Do one round: read all logs and control topics, raise alarms, trim, update the index."""
        read = sum(reader.poll(0) for reader in self._streams.values())
        read += self._control.round(
            {stream: reader.log_state.upto for stream, reader in self._streams.items()},
            self.status.state,
        )
        for alarm in self._moves.round():
            self._raise_once(alarm)
        if self._scaling is not None:
            self._scaling.round()
        while self._control.alarms:
            self._raise_once(self._control.alarms.pop(0))
        self._trimming.round(self._control.trim_points())
        self._log_trimming.round(self._streams, self._control.trim_points(), self._audits)
        for stream, reader in self._streams.items():
            self._raise_once(self._floats.round(stream, reader.log_state, self._audits[stream]))
        self._write_alarms()
        busy = self._write_index()
        self._report()
        if not read and not busy:
            self._context.clock.sleep_ms(_IDLE_MS)

    def stop(self) -> None:
        """Close readers, writers and threads. Idempotent."""
        for reader in self._streams.values():
            reader.close()
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

    def _seen(self, stream: str, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Handle a record of a boundary log. Called right after the log state has accepted or
        rejected it.
        """
        reader = self._streams[stream]
        log_state = reader.log_state
        self._trimming.seen(stream, entry, outcome)
        self._log_trimming.seen(stream, offset, entry, outcome)
        for mismatch in self._audits[stream].seen(log_state, entry, outcome):
            self._mismatch(mismatch)
            for replica in mismatch.outvoted:
                self._fence(mismatch, replica, log_state)
        if reader.refused and not outcome.accepted:
            text = f"a record in the log of {stream} does not count: {reader.refused}"
            written_ms = self._context.clock.now_ms()
            self._raise_once(Alarm(RECORD_REFUSED, stream, -1, text, written_ms))
        if stream in self._gaps:
            self._raise_once(self._gaps[stream].seen(entry, outcome, self._context.clock.now_ms()))
        if outcome.accepted and isinstance(entry, BoundaryRecord):
            self._image.boundary(stream, offset, entry, log_state)
        elif outcome.accepted and isinstance(entry, LogSnapshot):
            self._image.adopted(stream, entry, log_state)
        self._log_trimming.forget(
            stream, reader, self._control.trim_point(stream), self._audits[stream].floor
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
            while reader.position(at) < end:
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
        """Write pending changes of the image to the index; return whether something was written.
        Never raises because of the index.
        """
        index, now_ms = self._index, self._context.clock.monotonic_ms()
        if index is None or now_ms < self._index_next_ms:
            return False
        try:
            if self._is_index_complete and now_ms >= self._check_next_ms:
                self._check_next_ms = now_ms + _CHECK_EVERY_MS
                self._is_index_complete = self._is_own(index)
            if not self._is_index_complete:
                self._rebuild_index(index)
            return self._write_some(index)
        except Unavailable as error:
            if self.status.waiting_for is None:
                self._context.logger.warning("index_unavailable", error=str(error))
            self._index_failures.inc()
            self._index_next_ms = self._context.clock.monotonic_ms() + _RETRY_MS
            self.status.waiting_for = f"index: {error}"
            return False

    def _is_own(self, index: Index) -> bool:
        """Return whether the index still has what this manager has written, and note the look. A
        Redis that was restarted may be empty, or have read an old copy from its disk.
        """
        key = self._image.look_key(self._token)
        if not index.get(self._image.marker) or index.get(key) != {"number": str(self._look)}:
            return False
        self._note_look(index)
        return True

    def _note_look(self, index: Index) -> None:
        """Write the number of the next look at the index."""
        number, key = self._look + 1, self._image.look_key(self._token)
        index.put(key, {"number": str(number)}, expire_ms=HEARTBEAT_LIFETIME_MS)
        self._look = number

    def _rebuild_index(self, index: Index) -> None:
        """Delete the pipeline's keys from the index and write the whole image: the index is new,
        was lost, or has unknown content.
        """
        self._image.states(self._context.clock.monotonic_ms())
        looks = self._image.look_key("")
        for key in index.keys(self._image.prefix):
            # Those of other managers remain: each would take the index for lost, and clear it.
            if not key.startswith(looks):
                index.delete(key)
        crash_point("manager.index_cleared")
        self._image.rewrite_all()
        while self._write_some(index):
            pass
        # The marker last: after a crash before this line the next manager finds none, and starts
        # over.
        index.put(self._image.marker, {"manager": self._token})
        self._note_look(index)
        self._is_index_complete = True
        self._rebuilt.inc()
        self._context.logger.info("index_written", keys=len(self._image.keys()))

    def _write_some(self, index: Index) -> bool:
        for count in range(_WRITES_PER_ROUND):
            write = self._image.next_write(self._context.clock.monotonic_ms())
            if write is None:
                self.status.waiting_for = None
                return count > 0
            index.put(write.key, write.fields, expire_ms=write.expire_ms)
            crash_point("manager.index_written")
            self._image.written(write)
        return True

    def _unneeded_streams(self) -> list[str]:
        """Return the streams of earlier numbers of shards that every reader has read to their ends,
        so that the file need not name them any more.
        """
        return [
            stream
            for stream, reader in self._streams.items()
            if stream not in self._pipeline.stages
            and reader.log_state.heirs
            and self._control.trim_point(stream)
            >= max(reader.log_state.filled_upto, reader.log_state.closed_upto)
        ]

    def _report(self) -> None:
        uptos = {stream: reader.log_state.closed_upto for stream, reader in self._streams.items()}
        for stream, reader in self._streams.items():
            self._context.metrics.rejected(stream, reader.counts)
            self._compared.labels(self._pipeline.name, stream).set(self._audits[stream].compared)
            self._uncompared.labels(self._pipeline.name, stream).set(
                self._audits[stream].uncompared
            )
        for stream, gaps in self._gaps.items():
            self._given_up.labels(self._pipeline.name, stream).set(gaps.lost)
        now_ms, width_ms = self._context.clock.now_ms(), self._pipeline.bucket_ms
        ended = {stream for stream, each in self._streams.items() if each.log_state.heirs}
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
                stream: reader.log_state.version
                for stream, reader in self._streams.items()
                if stream in self._pipeline.stages
            },
            "compared": {stream: audit.compared for stream, audit in self._audits.items()},
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
            if self._is_index_complete
            else "incomplete",
        }
        if self._scaling is not None:
            self.status.detail |= {"scaling": self._scaling.report()}
