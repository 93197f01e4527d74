"""Observer of splits of shards: alarms for those that were withdrawn because the halves made
something else than the shard, and metrics.

It has no state of its own: it reads the log of moves from its beginning, and raises each alarm
once, as the alarms that were raised before are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

from anabranch.protocol.control.consistency import SPLIT_DIFFERS
from anabranch.protocol.control.records import Alarm, SplitStep
from anabranch.protocol.stage.splitting import SplitPhase
from anabranch.streams.placement import PlacementReader

if TYPE_CHECKING:
    from anabranch.process.frame import ServiceContext


class SplitAlarms:
    """Follower of the log of moves of one pipeline. One thread calls it."""

    def __init__(self, context: ServiceContext) -> None:
        """Prepare; ``start`` contacts the broker."""
        self._context = context
        self._reader: PlacementReader | None = None
        self._is_new = False
        self._found: list[Alarm] = []
        self._steps = Counter(
            "anabranch_split_steps",
            "Steps of splits of shards: wanted, confirmed or withdrawn",
            ("pipeline", "step"),
            registry=context.registry,
        )

    def start(self) -> None:
        """Read the log of moves to its end. Without shards that may be split it is not followed.

        Raises:
            Unavailable: the topic does not exist, or there is no answer.
        """
        pipeline = self._context.pipeline
        if not pipeline.may_split:
            return
        self._reader = PlacementReader(
            self._context.log,
            pipeline.topic_names.placement(),
            pipeline.places(),
            on_split=self._seen,
        )
        self._reader.read_to_end()
        self._is_new = True

    def _seen(self, step: SplitStep) -> None:
        """Note a step that counts."""
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
