"""Trimming of boundary logs: writes log snapshots, and deletes the records that they cover
(``protocol.log.log_snapshots``).

Only records that a snapshot in the log covers are deleted. A snapshot or deletion that failed is
repeated, by the next one at the latest.
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
from anabranch.process.crash_points import crash_point
from anabranch.protocol import limits
from anabranch.protocol.errors import LocalProtocolError, OutcomeUnknown, Unavailable
from anabranch.protocol.limits import TRIM_EVERY_MS
from anabranch.protocol.log.buckets import buckets_of
from anabranch.protocol.log.log_snapshots import LogSnapshots, forgettable

if TYPE_CHECKING:
    from anabranch.consistency_manager.followed_stream import FollowedStream
    from anabranch.ports import LogAdmin, LogWriter
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.control.consistency import StreamAudit
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry, LogSnapshot
    from anabranch.streams.boundary_reader import BoundaryReader

_LABELS: Final = ("pipeline",)


@dataclass(slots=True)
class _Log:
    """Boundary log of one stream, with the state of its trimming."""

    at: TopicPartition
    writer: str
    """First writer of the stream; its only one where there is a horizon."""
    horizon_buckets: int
    """State horizon of a stage that restarts from its input alone, in buckets; 0: none. Twice as
    many buckets below the newest are kept.
    """
    log_snapshots: LogSnapshots
    sign: Sign | None = None
    """Signer of snapshots, for a stream that other pipelines read; None: others do not read it."""
    deleted_below: int = 0
    """Offset below which records are deleted."""
    reported: str = ""
    """Reason last logged why no snapshot can be written; empty: none."""
    retry_at_ms: int = 0
    """Time of the next attempt after a failure, on the monotonic clock."""


class LogTrimming:
    """Trimmer of the boundary logs of all streams of a pipeline."""

    def __init__(self, context: ServiceContext) -> None:
        """Prepare the logs. Nothing is contacted before something is due."""
        self._context, self._pipeline = context, context.pipeline
        self._logs = {stream: self._new_log(stream) for stream in self._pipeline.streams()}
        self._writer: LogWriter | None = None
        self._admin: LogAdmin | None = None
        registry, own = context.registry, self._pipeline.name
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
            "Log snapshots and deletions that the log rejected or did not answer; each is repeated",
            _LABELS,
            registry=registry,
        ).labels(own)

    def _new_log(self, stream: str) -> _Log:
        """Return the log of a stream of which nothing was read."""
        pipeline = self._pipeline
        writers, stage = pipeline.stream_writers(stream), pipeline.stages.get(stream)
        state_horizon_ms = None if stage is None else stage.backup_horizon_ms
        return _Log(
            TopicPartition(pipeline.topic_names.boundaries(stream), 0),
            writers[0],
            buckets_of(state_horizon_ms or 0, pipeline.bucket_ms),
            LogSnapshots(writers, limits.SNAPSHOT_EVERY_RECORDS),
            owners_signer(pipeline, stream),
        )

    def begin(self, stream: str) -> None:
        """Forget what was read of the log of a stream, which is read anew."""
        self._logs[stream] = self._new_log(stream)

    def seen(self, stream: str, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Note a record of a boundary log. Called right after the log state has accepted or
        rejected it.
        """
        self._logs[stream].log_snapshots.seen(offset, entry, outcome)

    def read_to_end(self, stream: str) -> None:
        """Note that the log of a stream was read to the end that it had when it was opened."""
        self._logs[stream].log_snapshots.read_to_end()

    def forget(self, stream: str, reader: BoundaryReader, trim_point: int, audited: int) -> None:
        """Let the log state forget buckets that neither a log snapshot nor the audit needs. If a
        snapshot would not fit, it also forgets what a snapshot needs.
        """
        log = self._logs[stream]
        upto = (
            audited
            if log.log_snapshots.overfull(reader.log_state)
            else min(audited, self._forgettable(log, reader, trim_point))
        )
        reader.log_state.forget(upto)

    def round(self, streams: Mapping[str, FollowedStream], points: Mapping[str, int]) -> None:
        """Write the log snapshots that are due of ``streams``, then delete what they cover.
        ``points``: trim points that are in the manager's topic.
        """
        clock = self._context.clock
        for stream, followed in streams.items():
            log = self._logs[stream]
            if clock.monotonic_ms() < log.retry_at_ms:
                continue
            try:
                self._write_snapshot(
                    stream, log, followed.reader, points.get(stream, 0), followed.audit
                )
                self._delete_covered(stream, log)
            except (OutcomeUnknown, Unavailable) as error:
                self._context.logger.warning(
                    "log_trimming_delayed", stream=stream, error=str(error)
                )
                self._failures.inc()
                log.retry_at_ms = clock.monotonic_ms() + TRIM_EVERY_MS
                self._close_writer()
                # The other streams follow in the next round, so that each round waits at most once
                # for a broker that does not answer.
                return

    def report(self) -> dict[str, str]:
        """Return, for each stream whose log gets no snapshots, the reason."""
        return {
            stream: reason
            for stream, log in self._logs.items()
            if (reason := _obstacle(log.log_snapshots))
        }

    def close(self) -> None:
        """Close connections. Idempotent."""
        self._close_writer()
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    @staticmethod
    def _forgettable(log: _Log, reader: BoundaryReader, trim_point: int) -> int:
        return forgettable(reader.log_state, trim_point, log.writer, log.horizon_buckets)

    def _write_snapshot(
        self, stream: str, log: _Log, reader: BoundaryReader, trim_point: int, audit: StreamAudit
    ) -> None:
        """Write a snapshot of ``log`` if one is due. Counts and logs one that cannot be written."""
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
        reason = _obstacle(log_snapshots)
        if reason != log.reported:
            log.reported = reason
            if reason:
                self._context.logger.warning("no_log_snapshot", stream=stream, reason=reason)

    def _append(self, log: _Log, log_snapshot: LogSnapshot) -> bool:
        """Append a log snapshot; return whether it fits into a record. Whether it was appended is
        learned by reading the log, not here.

        Raises:
            OutcomeUnknown, Unavailable: see ``ports.LogWriter.flush``.
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

    def _delete_covered(self, stream: str, log: _Log) -> None:
        """Delete the records that a snapshot in the log covers."""
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


def _obstacle(log_snapshots: LogSnapshots) -> str:
    """Return the reason why a log gets no snapshots; empty: it gets them."""
    if log_snapshots.unknown_writer:
        return (
            f"a process writes to the log as {log_snapshots.unknown_writer!r}, which is no replica"
            " of this pipeline file: give all processes the same file, then restart the manager"
        )
    return log_snapshots.rejected
