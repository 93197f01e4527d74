"""The manager's part in the control topics: it hears all heartbeats, and says who must end,
and what may be trimmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from anabranch.consistency_manager.index_image import IndexImage
from anabranch.pipeline.speakers import speakers
from anabranch.protocol.control import trimming
from anabranch.protocol.control.consistency import REJECTED
from anabranch.protocol.control.failure_detector import (
    DELIVERY_SERVICE,
    INGESTION_SERVICE,
    MANAGER_SERVICE,
    Peer,
)
from anabranch.protocol.control.fencing import FenceBook
from anabranch.protocol.control.records import (
    INPUT_MISSING,
    Alarm,
    Ask,
    AskOutcome,
    AskReply,
    ControlRecord,
    Fence,
    Heartbeat,
    TrimPoint,
)
from anabranch.protocol.control.trimming import ReadingStage, Trimming
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.buckets import buckets_of
from anabranch.runtime.crash_points import crash_point
from anabranch.runtime.heartbeats import ControlReader, ControlWriter, HeartbeatSender

if TYPE_CHECKING:
    from anabranch.pipeline.model import Output, Pipeline
    from anabranch.runtime.service import ServiceContext

_LABELS: Final = ("pipeline",)
AUDIT_KEEP_MS: Final = 600_000
"""So long an auditor has time to compute a bucket again: a node that starts again takes less."""


class ControlRoom:
    """Created with the manager; ``start`` reads the topics whole, so that nothing is written
    twice.
    """

    def __init__(self, context: ServiceContext, image: IndexImage) -> None:
        self._clock = context.clock
        self._log = context.log
        self._pipeline = context.pipeline
        self._image = image
        names = self._pipeline.topic_names
        topic = names.manager()
        self._reader: ControlReader | None = None
        self._writer = ControlWriter(context.log, topic, context.clock)
        self._fence_writer = ControlWriter(context.log, names.fences(), context.clock)
        self._heartbeats = HeartbeatSender(context.log, topic, context.clock)
        self._trimming = Trimming(readers_of(self._pipeline), kept_buckets(self._pipeline))
        self._fences = FenceBook()
        self._unsent: list[Fence] = []
        self.alarms: list[Alarm] = []
        """What was heard that a person should look at; whoever writes it takes it out."""
        self._waiting_sources: set[str] = set()
        """Sources that wait for their input, of which an alarm was raised."""
        self._stated = Counter(
            "anabranch_control_records_written",
            "Trim points and fences that the manager wrote",
            (*_LABELS, "record"),
            registry=context.registry,
        )
        self.rejected = Counter(
            "anabranch_rejected_control_records",
            "Control records that could not be used",
            _LABELS,
            registry=context.registry,
        ).labels(self._pipeline.name)
        self._trimmable = Gauge(
            "anabranch_trim_point_bucket",
            "No reader needs buckets up to this one",
            (*_LABELS, "stream"),
            registry=context.registry,
        )
        self._rejected = 0
        self._points: dict[str, int] = {}
        """Trim points that were read in the topic."""

    def start(self) -> None:
        """Read the topics to their ends. A heartbeat that stands there may be of yesterday: whoever
        is alive sends another one soon.

        Raises:
            Unavailable: there is no such topic, or no answer.
        """
        self._reader = ControlReader(self._log, speakers(self._pipeline), from_beginning=True)
        for entry in self._reader.to_end():
            self._take(entry, is_news=False)

    def round(self, uptos: Mapping[str, int], state: str) -> int:
        """Hear what there is, then say what follows; how many records were heard."""
        assert self._reader is not None, "started"  # noqa: S101 - round is called after start
        entries = self._reader.poll()
        for entry in entries:
            self._take(entry)
        self.rejected.inc(self._reader.rejected - self._rejected)
        self._rejected = self._reader.rejected
        self._say(uptos)
        slowest = min(uptos.values(), default=0)
        self._heartbeats.send(
            Heartbeat(MANAGER_SERVICE, self._pipeline.name, "0", -1, state, slowest, 0)
        )
        return len(entries)

    def trim_points(self) -> dict[str, int]:
        """The newest trim point of each stream that stands in the topic."""
        return dict(self._points)

    def trim_point(self, stream: str) -> int:
        """The newest one of ``stream`` that stands in the topic; 0: none."""
        return self._points.get(stream, 0)

    def fence(self, fence: Fence, log_state: LogState) -> bool:
        """Have a process fenced; False if it was already. Written with the next round, and
        until it could be. ``log_state``: of the stage.
        """
        fence = replace(fence, life=self._life(fence.stage))
        is_new = self._fences.is_new(fence, log_state)
        if is_new:
            self._unsent.append(fence)
        return is_new

    def _life(self, stream: str) -> str:
        """The life of ``stream`` in which what is said of it counts."""
        assert self._reader is not None, "started"  # noqa: S101 - nothing is said before
        return self._reader.life(self._pipeline.topic_names.boundaries(stream))

    def close(self) -> None:
        """Idempotent."""
        if self._reader is not None:
            self._reader.close()
        self._writer.close()
        self._fence_writer.close()
        self._heartbeats.close()

    def _take(self, entry: ControlRecord, *, is_news: bool = True) -> None:
        monotonic_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        if isinstance(entry, Heartbeat):
            self._trimming.heard(entry, monotonic_ms)
            if is_news and not self._image.heartbeat(entry, monotonic_ms):
                self.rejected.inc()
            if (
                entry.service == DELIVERY_SERVICE
                and entry.rejected
                and (output := self._pipeline.deliveries().get(entry.name)) is not None
            ):
                self.alarms.append(self._rejecting(output, wall_ms))
            if is_news and entry.service == INGESTION_SERVICE:
                self._heard_source(entry, wall_ms)
        elif isinstance(entry, TrimPoint) and entry.stream in self._pipeline.streams():
            self._trimming.seen(entry, monotonic_ms)
            self._points[entry.stream] = max(entry.bucket, self._points.get(entry.stream, 0))
            self._image.trim(entry)
        elif isinstance(entry, Fence):
            self._fences.known(entry)
        elif isinstance(entry, (Ask, AskReply)) and entry.stream in self._pipeline.stages:
            if isinstance(entry, AskReply) and entry.outcome is AskOutcome.DIFFERENT:
                text = (
                    f"replica {entry.replica} made buckets of {entry.stream} again for"
                    f" {entry.reader}: {entry.reason}"
                )
                self.alarms.append(Alarm("recomputed_rows_differ", entry.stream, -1, text, wall_ms))
        else:
            self.rejected.inc()

    def _heard_source(self, entry: Heartbeat, wall_ms: int) -> None:
        """Raise an alarm when a source begins to wait for its input; not again while it waits."""
        if entry.state != INPUT_MISSING:
            self._waiting_sources.discard(entry.name)
        elif entry.name not in self._waiting_sources:
            self._waiting_sources.add(entry.name)
            text = (
                f"source {entry.name} waits for its input: part of it is gone, or a topic does not"
                " exist or has no leader; 'anabranch status' says what is missing and how to go on"
            )
            self.alarms.append(Alarm(INPUT_MISSING, entry.name, -1, text, wall_ms))

    @staticmethod
    def _rejecting(output: Output, wall_ms: int) -> Alarm:
        text = (
            f"output {output.name}: results are larger than its topics take: those that"
            f" {output.corrected.topic} rejected are in {output.rejected}, the live topic leaves"
            " them out; make them smaller, or raise max.message.bytes"
        )
        return Alarm(REJECTED, output.stage, -1, text, wall_ms)

    def _say(self, uptos: Mapping[str, int]) -> None:
        """Trim points that could not be written are lost: others follow. Fences are written
        until they are.
        """
        due = self._trimming.due(self._clock.monotonic_ms(), uptos, wall_ms=self._clock.now_ms())
        points = [replace(point, life=self._life(point.stream)) for point in due]
        fences_there = bool(self._unsent) and self._fence_writer.write(self._unsent)
        points_there = bool(points) and self._writer.write(points)
        if fences_there or points_there:
            crash_point("manager.control_written")
        if fences_there:
            self._stated.labels(self._pipeline.name, "fence").inc(len(self._unsent))
            self._unsent.clear()
        for point in points if points_there else []:
            self._stated.labels(self._pipeline.name, "trimpoint").inc()
            self._trimmable.labels(self._pipeline.name, point.stream).set(point.bucket)


def kept_buckets(pipeline: Pipeline) -> dict[str, int]:
    """Of each stream that other pipelines read, or that an auditor does, how many of the newest
    buckets are kept.
    """
    kept_ms = dict(pipeline.publish_ms)
    for stage in pipeline.audited_stages():
        horizon_ms = pipeline.stages[stage].state_horizon_ms or 0
        for stream in (stage, *pipeline.inputs(stage)):
            kept_ms[stream] = max(kept_ms.get(stream, 0), AUDIT_KEEP_MS + 2 * horizon_ms)
    return {
        stream: buckets_of(keep_ms, pipeline.bucket_ms)
        for stream, keep_ms in kept_ms.items()
        if stream not in pipeline.bindings
    }


def readers_of(pipeline: Pipeline) -> dict[str, list[Peer]]:
    """Every process that may read each stream."""
    stages = (
        ReadingStage(
            name,
            pipeline.inputs(name),
            stage.replica_ids(),
            stage.process_ids() if stage.ha == "passive" else (),
        )
        for name, stage in pipeline.stages.items()
    )
    outputs = {name: output.stage for name, output in pipeline.deliveries().items()}
    return trimming.readers_of(pipeline.streams(), stages, outputs)
