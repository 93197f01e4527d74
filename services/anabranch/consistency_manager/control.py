"""Control topics of the manager: reads the heartbeats of all processes, publishes trim points, and
writes fences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from anabranch.codec.blocks import ROW_BYTES_MAX
from anabranch.consistency_manager.index_image import IndexImage
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.durations import readable_ms, time_in_words
from anabranch.pipeline.waits import known_horizon_buckets
from anabranch.process.crash_points import crash_point
from anabranch.protocol.control import trimming
from anabranch.protocol.control.alarm_conditions import (
    OUTPUT_AWAY,
    OVERLOAD_LASTS,
    AlarmConditions,
)
from anabranch.protocol.control.consistency import RECOMPUTED_DIFFER, REJECTED, ROWS_REJECTED
from anabranch.protocol.control.failure_detector import (
    DELIVERY_SERVICE,
    MANAGER_SERVICE,
    REPLICA_SERVICE,
    Peer,
)
from anabranch.protocol.control.fencing import FenceBook
from anabranch.protocol.control.records import (
    INPUT_MISSING,
    INPUT_REFUSED,
    Alarm,
    Ask,
    AskOutcome,
    AskReply,
    ControlRecord,
    Fence,
    Heartbeat,
    NodeReport,
    TrimPoint,
)
from anabranch.protocol.control.trimming import OutputAway, ReadingStage, Trimming
from anabranch.protocol.limits import BUCKET_MAX, MIB
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.buckets import buckets_of
from anabranch.protocol.stage.recovery import unneeded_upto
from anabranch.streams.heartbeats import ControlReader, ControlWriter, HeartbeatSender

if TYPE_CHECKING:
    from anabranch.consistency_manager.scaling import ManagerScaling
    from anabranch.pipeline.model import Output, Pipeline
    from anabranch.process.frame import ServiceContext

_LABELS: Final = ("pipeline",)
AUDIT_KEEP_MS: Final = 600_000
"""Time for which blocks are kept for an auditor beside the stage's horizon, in ms. It must
recompute a bucket within it, also when its node restarts, which takes less.
"""


class ManagerControl:
    """Reader of all control topics and writer of the manager's own. ``start`` reads the topics
    whole, so that nothing is written twice.
    """

    def __init__(
        self,
        context: ServiceContext,
        image: IndexImage,
        scaling: ManagerScaling | None = None,
        is_confirmed: Callable[[str], bool] = lambda _shard: False,
    ) -> None:
        """Keep the arguments; contact nothing. ``scaling`` receives the records that it needs; None
        where the pipeline is not scaled. ``is_confirmed``: whether the split of a shard is
        confirmed by now.
        """
        self._scaling = scaling
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
        self._trimming = Trimming(
            readers_of(self._pipeline),
            kept_buckets(self._pipeline),
            halves(self._pipeline),
            is_confirmed,
            [Peer(REPLICA_SERVICE, name, "0") for name in self._pipeline.traded_stages()],
        )
        self._fences = FenceBook()
        self._unsent: list[Fence] = []
        self._unsent_points: dict[str, TrimPoint] = {}
        self.alarms: list[Alarm] = []
        """Alarms that control records gave rise to. The caller removes those that it writes."""
        self._conditions = AlarmConditions()
        self.away: list[OutputAway] = []
        """Deliveries that are away."""
        self._records_written = Counter(
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
        """Newest trim point of each stream that was read in the manager's topic."""

    def start(self) -> None:
        """Read the topics to their ends. Heartbeats found there may be old, so they do not count as
        news: a living process soon sends another one.

        Raises:
            Unavailable: there is no such topic, or no answer.
        """
        self._reader = ControlReader(self._log, control_topics(self._pipeline), from_beginning=True)
        for entry in self._reader.to_end():
            self._apply(entry, is_news=False)

    def round(
        self, uptos: Mapping[str, int], state: str, unneeded: Mapping[str, int] | None = None
    ) -> int:
        """Read new control records, then write what is due; return the number of records read.

        Args:
            uptos: Last stable bucket of each stream that can be read.
            state: State of this service, for its heartbeat.
            unneeded: ``unneeded_inputs`` of the streams that can be read.
        """
        assert self._reader is not None, "round is called after start"  # noqa: S101
        entries = self._reader.poll()
        for entry in entries:
            self._apply(entry)
        self.rejected.inc(self._reader.rejected - self._rejected)
        self._rejected = self._reader.rejected
        self._write_due(uptos, unneeded)
        self._check_outputs()
        slowest = min(uptos.values(), default=0)
        self._heartbeats.send(
            Heartbeat(MANAGER_SERVICE, self._pipeline.name, "0", -1, state, slowest, 0)
        )
        return len(entries)

    def trim_points(self) -> dict[str, int]:
        """Return the newest trim point of each stream that is in the topic."""
        return dict(self._points)

    def trim_point(self, stream: str) -> int:
        """Return the newest trim point of ``stream`` that is in the topic; 0: none."""
        return self._points.get(stream, 0)

    def fence(self, fence: Fence, log_state: LogState) -> bool:
        """Queue a fence unless the process is fenced already; return whether it was queued. The
        next round writes it; a failed write is repeated. ``log_state``: of the stage.
        """
        fence = replace(fence, life=self._life(fence.stage))
        is_new = self._fences.is_new(fence, log_state)
        if is_new:
            self._unsent.append(fence)
        return is_new

    def _life(self, stream: str) -> str:
        """Return the life of ``stream`` to which a record about it applies."""
        assert self._reader is not None, "nothing is written before start"  # noqa: S101
        return self._reader.life(self._pipeline.topic_names.boundaries(stream))

    def close(self) -> None:
        """Close readers and writers. Idempotent."""
        if self._reader is not None:
            self._reader.close()
        self._writer.close()
        self._fence_writer.close()
        self._heartbeats.close()

    def _apply(self, entry: ControlRecord, *, is_news: bool = True) -> None:
        """Apply a control record. ``is_news``: whether it was written after the start, so that a
        heartbeat in it shows a living process.
        """
        monotonic_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        if is_news and self._scaling is not None:
            self._scaling.receive(entry)
        if isinstance(entry, NodeReport):
            return
        if isinstance(entry, Heartbeat):
            self._apply_heartbeat(entry, is_news=is_news)
        elif isinstance(entry, TrimPoint) and entry.stream in self._pipeline.streams():
            self._trimming.seen(entry, monotonic_ms)
            self._points[entry.stream] = max(entry.bucket, self._points.get(entry.stream, 0))
            self._image.trim(entry)
        elif isinstance(entry, Fence):
            self._fences.known(entry)
        elif isinstance(entry, (Ask, AskReply)) and entry.stream in self._pipeline.stages:
            if isinstance(entry, AskReply) and entry.outcome is AskOutcome.DIFFERENT:
                text = (
                    f"replica {entry.replica} recomputed buckets of {entry.stream} for"
                    f" {entry.reader}, with other rows: {entry.reason}"
                )
                self.alarms.append(Alarm(RECOMPUTED_DIFFER, entry.stream, -1, text, wall_ms))
        else:
            self.rejected.inc()

    def _apply_heartbeat(self, entry: Heartbeat, *, is_news: bool) -> None:
        monotonic_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        self._trimming.receive(entry, monotonic_ms)
        if is_news and not self._image.heartbeat(entry, monotonic_ms):
            self.rejected.inc()
        if (
            entry.service == DELIVERY_SERVICE
            and entry.rejected
            and (output := self._pipeline.deliveries().get(entry.name)) is not None
        ):
            self.alarms.append(self._rejection_alarm(output, wall_ms))
        if (
            entry.service == REPLICA_SERVICE
            and entry.rejected
            and entry.name in self._pipeline.stages
        ):
            self.alarms.append(self._row_alarm(entry.name, wall_ms))
        for kind in self._conditions.begun(entry) if is_news else ():
            self.alarms.append(Alarm(kind, entry.name, -1, _CONDITIONS[kind](entry), wall_ms))

    def _check_outputs(self) -> None:
        """Raise an alarm when an output is away, and another when it has lost its place."""
        self.away = self._trimming.away(self._clock.monotonic_ms())
        wall_ms = self._clock.now_ms()
        for each in self._conditions.newly_away(self.away):
            since = f"output {each.output} was not heard since"
            since += f" {time_in_words(wall_ms - each.silent_ms)} UTC"
            text = (
                f"{since}: what it has not read of {each.stream} is kept for"
                f" {readable_ms(each.left_ms)} more, and after that it cannot continue. Start it: a"
                " moment keeps its place for another day; or take it out of the pipeline file"
                if each.left_ms
                else f"{since}: what it has not read of {each.stream} is kept no longer, and it"
                " cannot continue where it was"
            )
            self.alarms.append(Alarm(OUTPUT_AWAY, each.stream, -1, text, wall_ms))

    @staticmethod
    def _rejection_alarm(output: Output, wall_ms: int) -> Alarm:
        """Return the alarm for results that the topics of ``output`` cannot hold."""
        text = (
            f"output {output.name}: results are larger than its topics allow, or have columns that"
            f" it cannot write: instead of {output.corrected.topic} they are in {output.rejected},"
            " each with its reason, and the live topic leaves them out; make them smaller, or raise"
            " max.message.bytes"
        )
        return Alarm(REJECTED, output.stage, -1, text, wall_ms)

    @staticmethod
    def _row_alarm(stage: str, wall_ms: int) -> Alarm:
        """Return the alarm for rows of ``stage`` that are too large for its stream."""
        text = (
            f"stage {stage}: its function made rows of more than {ROW_BYTES_MAX // MIB} MiB, which"
            " no stream holds: they are left out, its outputs show their beginnings in their topics"
            " of rejected results; make the rows smaller, or several of each"
        )
        return Alarm(ROWS_REJECTED, stage, -1, text, wall_ms)

    def _write_due(self, uptos: Mapping[str, int], unneeded: Mapping[str, int] | None) -> None:
        """Write fences and due trim points. Both are written again until they are in the log: no
        newer trim point follows that of a stream which has ended.
        """
        due = self._trimming.due(
            self._clock.monotonic_ms(), uptos, wall_ms=self._clock.now_ms(), unneeded=unneeded
        )
        self._unsent_points |= {point.stream: point for point in due}
        points = [
            replace(point, life=self._life(point.stream)) for point in self._unsent_points.values()
        ]
        are_fences_written = bool(self._unsent) and self._fence_writer.write(self._unsent)
        are_points_written = bool(points) and self._writer.write(points)
        if are_fences_written or are_points_written:
            crash_point("manager.control_written")
        if are_fences_written:
            self._records_written.labels(self._pipeline.name, "fence").inc(len(self._unsent))
            self._unsent.clear()
        if are_points_written:
            self._unsent_points.clear()
        for point in points if are_points_written else []:
            self._records_written.labels(self._pipeline.name, "trimpoint").inc()
            self._trimmable.labels(self._pipeline.name, point.stream).set(point.bucket)


def _overload(beat: Heartbeat) -> str:
    """Return the text of the alarm for an overload that would stop a stage soon."""
    assert beat.room_left_ms is not None, "AC3"  # noqa: S101
    return (
        f"stage {beat.name}: more rows arrive than replica {beat.replica} can process; at this rate"
        f" it cannot hold more of its input in {beat.room_left_ms // 60_000} min, and new results"
        " stop. Give its node more cores, divide the stage into shards, or move it to a node with"
        " room ('anabranch scale')"
    )


def _refused_input(beat: Heartbeat) -> str:
    """Return the text of the alarm for a replica that refuses an input of another owner."""
    return (
        f"replica {beat.replica} of {beat.name} refuses an input that another owner writes, and"
        " goes on without it: it contradicts the pipeline file; 'anabranch status' shows which and"
        " why. Ask its owner, or change the file"
    )


def _missing_input(beat: Heartbeat) -> str:
    """Return the text of the alarm for a source that waits for missing input."""
    return (
        f"source {beat.name} waits for its input: part of it is gone, or a topic does not exist;"
        " 'anabranch status' shows what is missing and what to do"
    )


_CONDITIONS: Final[Mapping[str, Callable[[Heartbeat], str]]] = {
    OVERLOAD_LASTS: _overload,
    INPUT_REFUSED: _refused_input,
    INPUT_MISSING: _missing_input,
}
"""For each condition of a process that raises an alarm, the text of the alarm."""


def kept_buckets(pipeline: Pipeline) -> dict[str, int]:
    """Return how many of the newest buckets are kept, for each stream of which some are: for other
    pipelines, an auditor, or people (``anabranch tap``).
    """
    kept_ms = {name: stage.history_ms for name, stage in pipeline.stages.items()}
    for source in pipeline.sources.values():
        kept_ms |= dict.fromkeys(source.streams(), source.history_ms)
    for stream, keep_ms in pipeline.publish_ms.items():
        kept_ms[stream] = max(kept_ms.get(stream, 0), keep_ms)
    for stage in pipeline.audited_stages():
        horizon_ms = pipeline.stages[stage].state_horizon_ms or 0
        for stream in (stage, *pipeline.inputs(stage)):
            kept_ms[stream] = max(kept_ms.get(stream, 0), AUDIT_KEEP_MS + 2 * horizon_ms)
    return {
        stream: buckets_of(keep_ms, pipeline.bucket_ms)
        for stream, keep_ms in kept_ms.items()
        if keep_ms and stream not in pipeline.bindings
    }


def unneeded_inputs(pipeline: Pipeline, log_states: Mapping[str, LogState]) -> dict[str, int]:
    """Return the last bucket of its inputs that each stage which partners may run needs no more, by
    its log. Lacks stages of which ``log_states`` has none.
    """
    return {
        name: unneeded_upto(
            log_states[name].closed("0"),
            BUCKET_MAX,
            known_horizon_buckets(pipeline, name),
            "upstream_backup",
        )
        for name in pipeline.traded_stages()
        if name in log_states
    }


def halves(pipeline: Pipeline) -> dict[Peer, str]:
    """Return the replicas of halves of shards, each with its shard."""
    return {
        Peer(REPLICA_SERVICE, name, replica): stage.parent
        for name, stage in pipeline.stages.items()
        if stage.parent
        for replica in stage.replica_ids()
    }


def readers_of(pipeline: Pipeline) -> dict[str, list[Peer]]:
    """Return every process that may read each stream."""
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
