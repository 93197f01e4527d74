"""Deletes blocks that no reader needs (rule 18): trim points become offsets
(``protocol.control.trimming``), offsets become deletions.

Deleted is only what a trim point in the control topic says, so that whoever looks there knows what
may be gone. A deletion that did not come about is made up for by a later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from anabranch.ports import TopicPartition
from anabranch.protocol.control.trimming import TrimOffsets
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import TRIM_EVERY_MS
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import LogEntry
from anabranch.runtime.crash_points import crash_point

if TYPE_CHECKING:
    from anabranch.ports import LogAdmin
    from anabranch.runtime.service import ServiceContext

_LABELS: Final = ("pipeline",)


class BlockTrimming:
    """The block topics of all streams of a pipeline."""

    def __init__(self, context: ServiceContext) -> None:
        self._context, self._names = context, context.pipeline.topic_names
        self._streams = {stream: TrimOffsets() for stream in context.pipeline.streams()}
        self._done: dict[str, int] = {}
        """Trim point of each stream up to which was deleted."""
        self._admin: LogAdmin | None = None
        self._retry_at_ms: dict[str, int] = {}
        """When to try a stream again whose deletion failed."""
        self._offsets = Gauge(
            "anabranch_trimmed_offsets",
            "Offsets deleted from block topics",
            (*_LABELS, "stream"),
            registry=context.registry,
        )
        self._failures = Counter(
            "anabranch_trim_failures",
            "Deletions that the log rejected or did not answer; each is made up for",
            _LABELS,
            registry=context.registry,
        ).labels(context.pipeline.name)

    def seen(self, stream: str, entry: LogEntry, outcome: Outcome) -> None:
        """A record of a boundary log, right after the log state took it."""
        self._streams[stream].seen(entry, outcome)

    def round(self, points: Mapping[str, int]) -> None:
        """Delete what lies below ``points``, the trim points that stand in the control topic."""
        now_ms = self._context.clock.monotonic_ms()
        for stream, bucket in points.items():
            if bucket <= self._done.get(stream, 0) or now_ms < self._retry_at_ms.get(stream, 0):
                continue
            offsets = {
                TopicPartition(self._names.blocks(stream, writer), partition): offset
                for (writer, partition), offset in self._streams[stream].below(bucket).items()
                if writer
                in self._context.pipeline.stream_writers(
                    stream
                )  # a log snapshot may name blocks of one that there is no more
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
                # the others in the next round: a broker that does not answer is waited for once in
                # each
                return
            crash_point("manager.blocks_deleted")
            self._done[stream] = bucket
            self._offsets.labels(self._context.pipeline.name, stream).set(sum(offsets.values()))

    def close(self) -> None:
        """Idempotent."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _open(self) -> LogAdmin:
        if self._admin is None:
            self._admin = self._context.log.admin()
        return self._admin
