"""Follower of the log of moves: passes what counts to the scaler, raises alarms for splits of
shards that were withdrawn because the halves made something else than the shard, and counts steps
of splits.

It has no state of its own: it reads the log from its beginning, and raises each alarm once, as the
alarms that were raised before are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

from anabranch.protocol.control.consistency import SPLIT_DIFFERS
from anabranch.protocol.control.records import Alarm, SplitStep
from anabranch.protocol.stage.splitting import SplitPhase
from anabranch.streams.placement import PlacementReader

if TYPE_CHECKING:
    from anabranch.consistency_manager.scaling import ManagerScaling
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.control.records import Move


class MovesFollower:
    """Follower of the log of moves of one pipeline. One thread calls it."""

    def __init__(self, context: ServiceContext, scaling: ManagerScaling | None) -> None:
        """Prepare; ``start`` contacts the broker. ``scaling``: None if the pipeline has none."""
        self._context, self._scaling = context, scaling
        self._reader: PlacementReader | None = None
        self._is_new = False
        """Whether records are newer than this process."""
        self._found: list[Alarm] = []
        self._steps = Counter(
            "anabranch_split_steps",
            "Steps of splits of shards: wanted, confirmed or withdrawn",
            ("pipeline", "step"),
            registry=context.registry,
        )

    def start(self) -> None:
        """Read the log to its end. It is not followed for a pipeline without scaling and without
        shards that may be split.

        Raises:
            Unavailable: the topic does not exist, or there is no answer.
        """
        pipeline, scaling = self._context.pipeline, self._scaling
        if scaling is None and not pipeline.may_split:
            return
        self._reader = PlacementReader(
            self._context.log,
            pipeline.topic_names.placement(),
            pipeline.places() if scaling is None else scaling.places,
            self._moved,
            self._stepped,
        )
        self._reader.read_to_end()
        self._is_new = True

    def _moved(self, move: Move, source: str) -> None:
        """Pass on a move that counts."""
        if self._scaling is not None:
            self._scaling.moved(move, source, is_new=self._is_new)

    def _stepped(self, step: SplitStep) -> None:
        """Note and pass on a step that counts."""
        if self._scaling is not None:
            self._scaling.stepped(step, is_new=self._is_new)
        if self._is_new:
            self._steps.labels(self._context.pipeline.name, step.step.value).inc()
        if step.bucket >= 0:
            self._found.append(
                Alarm(SPLIT_DIFFERS, step.shard, step.bucket, step.reason, step.written_ms)
            )

    def is_confirmed(self, shard: str) -> bool:
        """Return whether the split of ``shard`` is confirmed, as far as the log was read."""
        reader = self._reader
        return reader is not None and reader.splits.of(shard).phase is SplitPhase.CONFIRMED

    def round(self) -> list[Alarm]:
        """Read what is new. Return the alarms that follow from it."""
        if self._reader is not None:
            self._reader.poll()
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        """Close the log. Idempotent."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
