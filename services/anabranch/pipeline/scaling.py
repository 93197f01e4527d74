"""Rules of the scaler as a pipeline file states them, and what it can do for each stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.control.scaling import ScalingRules
from anabranch.protocol.edge.shards import whole_of

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
        is_parallel=scaling.parallel > 1,
    )


def describe_scaling(pipeline: Pipeline) -> list[str]:
    """Return what the scaler does for an overloaded or lost node of ``pipeline``, and the stages
    that it cannot split, one sentence each, for people; nothing if the file has no ``scaling``.
    """
    if pipeline.scaling is None:
        return []
    pool = ", ".join(pipeline.scaling.pool)
    found = [f"scaling: replicas of a node that is overloaded or lost move to {pool}"]
    if pipeline.scaling.parallel > 1:
        found.append(
            "scaling: a shard whose node is lost is split, and each half computes its state from"
            " the input, of which a state_horizon is kept for this"
        )
    for name in pipeline.order():
        stage = pipeline.stages[name]
        unites = name not in pipeline.input_streams(name)
        if stage.is_whole_or_first_shard and not unites and not pipeline.halves(name):
            found.append(
                f"stage {whole_of(name)}: cannot be split, so nothing helps it once it needs more"
                " than a node that it has for itself; if it works key by key, give it halvings and"
                " shard_by before its first start"
            )
    return found
