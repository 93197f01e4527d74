"""Writes snapshots of boundary logs and deletes what lies below (``protocol.log.log_snapshots``).

Deleted is only what a snapshot that stands in the log covers. A log snapshot or a deletion that did
not come about is made up for by a later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from anabranch.adapters.key_files import owners_signer
from anabranch.codec import boundary_records
from anabranch.codec.signed_records import Sign, signed
from anabranch.ports import TopicPartition
from anabranch.protocol import limits
from anabranch.protocol.errors import LocalProtocolError, OutcomeUnknown, Unavailable
from anabranch.protocol.limits import TRIM_EVERY_MS
from anabranch.protocol.log.buckets import buckets_of
from anabranch.protocol.log.log_snapshots import LogSnapshots, forgettable
from anabranch.runtime.crash_points import crash_point

if TYPE_CHECKING:
    from anabranch.ports import LogAdmin, LogWriter
    from anabranch.protocol.control.consistency import StreamAudit
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry, LogSnapshot
    from anabranch.runtime.boundary_reader import BoundaryReader
    from anabranch.runtime.service import ServiceContext

_LABELS: Final = ("pipeline",)


@dataclass(slots=True)
class _Log:
    """The boundary log of one stream."""

    at: TopicPartition
    writer: str
    horizon_buckets: int
    log_snapshots: LogSnapshots
    sign: Sign | None = None
    """Of a stream that other pipelines read."""
    deleted_below: int = 0
    reported: str = ""
    retry_at_ms: int = 0


class LogTrimming:
    """The boundary logs of all streams of a pipeline."""

    def __init__(self, context: ServiceContext) -> None:
        """Nothing is contacted before something is due."""
        pipeline = context.pipeline
        self._context, self._logs = context, dict[str, _Log]()
        for stream in pipeline.streams():
            writers, stage = pipeline.stream_writers(stream), pipeline.stages.get(stream)
            state_horizon_ms = None if stage is None else stage.backup_horizon_ms
            self._logs[stream] = _Log(
                TopicPartition(pipeline.topic_names.boundaries(stream), 0),
                writers[0],
                buckets_of(state_horizon_ms or 0, pipeline.bucket_ms),
                LogSnapshots(writers, limits.SNAPSHOT_EVERY_RECORDS),
                owners_signer(pipeline, stream),
            )
        self._writer: LogWriter | None = None
        self._admin: LogAdmin | None = None
        registry, own = context.registry, pipeline.name
        self._written = Counter(
            "anabranch_log_snapshots_written",
            "Log snapshots",
            (*_LABELS, "stream"),
            registry=registry,
        )
        self._rejected = Counter(
            "anabranch_log_snapshots_rejected",
            "Log snapshots that were due and could not be: a start takes longer and longer",
            (*_LABELS, "stream"),
            registry=registry,
        )
        self._start = Gauge(
            "anabranch_boundary_log_start",
            "Records of a boundary log below this offset are deleted",
            (*_LABELS, "stream"),
            registry=registry,
        )
        self._failures = Counter(
            "anabranch_log_snapshot_failures",
            "Log snapshots and deletions that the log rejected or did not answer; each is made"
            " up for",
            _LABELS,
            registry=registry,
        ).labels(own)

    def seen(self, stream: str, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """A record of a boundary log, right after the log state took it."""
        self._logs[stream].log_snapshots.seen(offset, entry, outcome)

    def read_to_end(self) -> None:
        """Every log was read as far as it went."""
        for log in self._logs.values():
            log.log_snapshots.read_to_end()

    def forget(self, stream: str, reader: BoundaryReader, trim_point: int, audited: int) -> None:
        """Let the log state forget what neither a log snapshot nor the audit needs; what
        there is no room for, too.
        """
        log = self._logs[stream]
        upto = (
            audited
            if log.log_snapshots.overfull(reader.log_state)
            else min(audited, self._forgettable(log, reader, trim_point))
        )
        reader.log_state.forget(upto)

    def round(
        self,
        readers: Mapping[str, BoundaryReader],
        points: Mapping[str, int],
        audits: Mapping[str, StreamAudit],
    ) -> None:
        """Write the log snapshots that are due, delete what may be. ``points``: the trim
        points that stand in the control topic.
        """
        clock = self._context.clock
        for stream, log in self._logs.items():
            if clock.monotonic_ms() < log.retry_at_ms:
                continue
            try:
                self._sum_up(stream, log, readers[stream], points.get(stream, 0), audits[stream])
                self._delete(stream, log)
            except (OutcomeUnknown, Unavailable) as error:
                self._context.logger.warning(
                    "log_trimming_delayed", stream=stream, error=str(error)
                )
                self._failures.inc()
                log.retry_at_ms = clock.monotonic_ms() + TRIM_EVERY_MS
                self._close_writer()
                # the others in the next round: a broker that does not answer is waited for once in
                # each
                return

    def report(self) -> dict[str, str]:
        """Of each stream whose log gets no snapshot, why."""
        return {
            stream: reason
            for stream, log in self._logs.items()
            if (reason := _why_not(log.log_snapshots))
        }

    def close(self) -> None:
        """Idempotent."""
        self._close_writer()
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    @staticmethod
    def _forgettable(log: _Log, reader: BoundaryReader, trim_point: int) -> int:
        return forgettable(reader.log_state, trim_point, log.writer, log.horizon_buckets)

    def _sum_up(
        self, stream: str, log: _Log, reader: BoundaryReader, trim_point: int, audit: StreamAudit
    ) -> None:
        as_of, log_snapshots = reader.offset_next, log.log_snapshots
        if log_snapshots.due(as_of):
            histories = {writer: audit.history(writer) for writer in reader.log_state.writers}
            log_snapshot = log_snapshots.make(
                reader.log_state, as_of, self._forgettable(log, reader, trim_point), histories
            )
            if log_snapshot is not None and self._append(log, log_snapshot):
                self._written.labels(self._context.pipeline.name, stream).inc()
            else:
                self._rejected.labels(self._context.pipeline.name, stream).inc()
        reason = _why_not(log_snapshots)
        if reason != log.reported:
            log.reported = reason
            if reason:
                self._context.logger.warning("no_log_snapshot", stream=stream, reason=reason)

    def _append(self, log: _Log, log_snapshot: LogSnapshot) -> bool:
        """Whether a record can hold it. The log shows what became of it.

        Raises:
            OutcomeUnknown, Unavailable: see there.
        """
        try:
            value, headers = boundary_records.encode(log_snapshot)
        except LocalProtocolError as error:
            log.log_snapshots.too_large(log_snapshot.as_of, str(error))
            return False
        if self._writer is None:
            self._writer = self._context.log.writer()
        if log.sign is not None:
            headers = [*headers, *signed(log.at.topic, value, log.sign)]
        self._writer.send(log.at, value, headers=headers)
        self._writer.flush()
        crash_point("manager.snapshot_written")
        return True

    def _delete(self, stream: str, log: _Log) -> None:
        cut = log.log_snapshots.cut()
        if cut <= log.deleted_below:
            return
        if self._admin is None:
            self._admin = self._context.log.admin()
        self._admin.delete_before({log.at: cut})
        crash_point("manager.log_trimmed")
        log.deleted_below = cut
        self._start.labels(self._context.pipeline.name, stream).set(cut)
        self._context.logger.info("log_trimmed", stream=stream, below=cut)

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _why_not(log_snapshots: LogSnapshots) -> str:
    if log_snapshots.stranger:
        return (
            f"a process writes to the log as {log_snapshots.stranger!r}, which no replica of this"
            " pipeline file is: restart the manager when all have the same file"
        )
    return log_snapshots.rejected
