"""Rules that a replica's decisions follow: from the pipeline file, the plan of the stage's query,
and the operator's restatements.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from anabranch.pipeline.waits import availability, horizon_buckets, quiet_ms
from anabranch.protocol.log.stateful_plan import StageState
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules
from anabranch.streams.placement import PlacementReader

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Engine, EventLog, PreparedStage

SUCCESSOR_AFTER_MS: Final = 2_000
"""Delay of a successor's start after the first tentative rows of its branch, in ms. Starting a
query occupies the cores for a second or two, which the downstream stages need for their first
tentative results.
"""


def stage_rules(
    log: EventLog, pipeline: Pipeline, name: str, engine: Engine, prepared: PreparedStage
) -> StageRules:
    """Return the rules of stage ``name``, whose query is ``prepared``.

    Raises:
        Unavailable: the log of moves does not exist, or the broker does not answer.
    """
    stage = pipeline.stages[name]
    return StageRules(
        prepared.traits,
        availability(pipeline, name),
        BatchRules(
            pipeline.bucket_ms,
            engine.rows_max,
            engine.pace_ms,
            quiet_ms(pipeline, name),
            SUCCESSOR_AFTER_MS,
            rows_per_s=stage.rows_per_s,
            reads_stages=not set(pipeline.inputs(name)) <= set(pipeline.source_streams()),
        ),
        horizon_buckets(pipeline, name),
        stage.ha,
        StageState(name, prepared.stateful_plan),
        _restated_after(log, pipeline, name, prepared),
        sheds=stage.shed.kind != "off",
        has_one_task=engine.cores == 1,
    )


def _restated_after(
    log: EventLog, pipeline: Pipeline, name: str, prepared: PreparedStage
) -> int | None:
    """Return the bucket after which an operator lets this version of the stage begin anew; None if
    none does, or if it has no state that another function could have built (RS2).

    Raises:
        Unavailable: the log of moves does not exist, or the broker does not answer.
    """
    version = pipeline.stages[name].version
    if version == 1 or not prepared.traits.is_stateful or horizon_buckets(pipeline, name) is None:
        return None
    topic = pipeline.topic_names.placement()
    with closing(PlacementReader(log, topic, pipeline.places())) as reader:
        reader.read_to_end()
        return reader.restatements.after(name, version)
