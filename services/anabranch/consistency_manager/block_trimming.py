"""Deletion of blocks that no reader needs (rule 18): turns trim points into offsets
(``protocol.control.trimming``) and deletes the records below them.

Only blocks below a trim point that is in the manager's topic are deleted, so that every reader of
the topic knows what may be gone. A deletion that failed is repeated, by the next one at the latest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from anabranch.ports import TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.protocol.control.trimming import TrimOffsets
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import TRIM_EVERY_MS
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import LogEntry

if TYPE_CHECKING:
    from anabranch.ports import LogAdmin
    from anabranch.process.frame import ServiceContext

_LABELS: Final = ("pipeline",)


class BlockTrimming:
    """Trimmer of the block topics of all streams of a pipeline."""

    def __init__(self, context: ServiceContext) -> None:
        self._context, self._names = context, context.pipeline.topic_names
        self._streams = {stream: TrimOffsets() for stream in context.pipeline.streams()}
        self._done: dict[str, int] = {}
        """Trim point of each stream up to which blocks are deleted."""
        self._admin: LogAdmin | None = None
        self._retry_at_ms: dict[str, int] = {}
        """Monotonic time of the next attempt for each stream whose deletion failed, in ms."""
        self._offsets = Gauge(
            "anabranch_trimmed_offsets",
            "Offsets deleted from block topics",
            (*_LABELS, "stream"),
            registry=context.registry,
        )
        self._failures = Counter(
            "anabranch_trim_failures",
            "Deletions that the log rejected or did not answer; each is repeated",
            _LABELS,
            registry=context.registry,
        ).labels(context.pipeline.name)

    def begin(self, stream: str) -> None:
        """Forget what was read of the log of a stream, which is read anew."""
        self._streams[stream] = TrimOffsets()
        self._done.pop(stream, None)

    def seen(self, stream: str, entry: LogEntry, outcome: Outcome) -> None:
        """Note a record of a boundary log. Called right after the log state has accepted or
        rejected it.
        """
        self._streams[stream].seen(entry, outcome)

    def round(self, points: Mapping[str, int]) -> None:
        """Delete the blocks below ``points``, the trim points that are in the manager's topic."""
        now_ms = self._context.clock.monotonic_ms()
        for stream, bucket in points.items():
            if bucket <= self._done.get(stream, 0) or now_ms < self._retry_at_ms.get(stream, 0):
                continue
            offsets = {
                TopicPartition(self._names.blocks(stream, writer), partition): offset
                for (writer, partition), offset in self._streams[stream].below(bucket).items()
                # A log snapshot may name blocks of a writer that the file no longer has.
                if writer in self._context.pipeline.stream_writers(stream)
            }
            try:
                if offsets:
                    self._open().delete_before(offsets)
            except Unavailable as error:
                self._context.logger.warning(
                    "trim_delayed", stream=stream, bucket=bucket, error=str(error)
                )
                self._failures.inc()
                self._retry_at_ms[stream] = self._context.clock.monotonic_ms() + TRIM_EVERY_MS
                # The other streams follow in the next round, so that each round waits at most once
                # for a broker that does not answer.
                return
            crash_point("manager.blocks_deleted")
            self._done[stream] = bucket
            self._offsets.labels(self._context.pipeline.name, stream).set(sum(offsets.values()))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _open(self) -> LogAdmin:
        if self._admin is None:
            self._admin = self._context.log.admin()
        return self._admin
