"""Rules of the scaler as a pipeline file states them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.control.scaling import ScalingRules

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline, Scaling


def rules_of(pipeline: Pipeline, scaling: Scaling) -> ScalingRules:
    """Return the thresholds and times of ``scaling``, the section of ``pipeline``."""
    return ScalingRules(
        tuple(scaling.pool),
        scaling.above_permille,
        scaling.for_ms,
        scaling.rest_ms,
        pipeline.bucket_ms,
        frozenset(
            label
            for stage in pipeline.placed_stages()
            if pipeline.stages[stage.name].ha == "passive"
            for label in stage.labels()
        ),
        {shard: tuple(halves) for shard in pipeline.stages if (halves := pipeline.halves(shard))},
    )
