"""Prices of leaving out rows on one node: utility lost and processor time saved by the next step of
each stage (``protocol.stage.utility``), from the times that its batches took.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import loss_curves
from anabranch.protocol.stage.utility import StageLoad, choose

PRICES_EVERY_MS: Final = 5_000
"""Interval over which the load of stages is measured, in ms: several batches of each."""


class ShedPrices:
    """Table of the stages of a node that may leave out rows, cheapest first. Not thread-safe."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._before: Mapping[str, int] = {}
        self._read_ms: int | None = None
        self.table: list[dict[str, object]] = []
        """Entry of each stage, for the status: what the next step costs and saves."""

    def update(self, busy_ms: Mapping[str, int], now_ms: int) -> None:
        """Measure anew, if PRICES_EVERY_MS have passed.

        Args:
            busy_ms: Time in which batches of each stage of the node have run so far.
            now_ms: Monotonic time.
        """
        if self._read_ms is not None and now_ms - self._read_ms < PRICES_EVERY_MS:
            return
        before, read_ms = self._before, self._read_ms
        self._before, self._read_ms = dict(busy_ms), now_ms
        if read_ms is None:
            return
        loads = [
            StageLoad(
                stage,
                (total_ms - before[stage]) * 1_000_000 // (now_ms - read_ms),
                tuple((curve, 0) for curve in loss_curves(self._pipeline, stage)),
            )
            for stage, total_ms in busy_ms.items()
            if total_ms >= before.get(stage, total_ms + 1)  # else it has begun anew meanwhile
            and self._pipeline.stages[stage].shed.kind != "off"
        ]
        self.table = [
            {
                "stage": step.stage,
                "kept_permille": step.kept,
                "utility_lost_permille": step.lost,
                "busy_saved_us_per_s": step.saved_us,
            }
            for step in choose(loads, 0).table
        ]
