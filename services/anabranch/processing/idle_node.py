"""Work of a node that has no replica: it runs stages on empty batches, as
``protocol.control.idle_node`` says.

It reads and writes no data, so a crash loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.source_columns import source_schema
from anabranch.process.frame import ServiceStatus
from anabranch.processing.warming import Warming
from anabranch.protocol.control import idle_node

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Engine
    from anabranch.process.frame import ServiceContext

_REST_S: Final = 0.1
"""Pause between two rounds, in seconds."""
_WRITER: Final = "idle"
"""Replica id under which the queries would write. No replica of a stage has it."""


def rehearsed(pipeline: Pipeline, may_come: Collection[str]) -> list[str]:
    """Return the stages that a node rehearses to which those of ``may_come`` may come."""
    return idle_node.rehearsed(
        (
            idle_node.Rehearsable(
                name,
                (*stage.functions, stage.sql or "") if stage.has_code else (),
                pipeline.inputs(name),
            )
            for name, stage in pipeline.stages.items()
        ),
        may_come,
    )


class IdleNode:
    """Queries that keep a node's engine warm while it has no replica. One thread calls it
    (``processing.hosting``).
    """

    def __init__(self, context: ServiceContext, engine: Engine, stages: Collection[str]) -> None:
        """Prepare the work; ``start`` begins it. ``stages``: as ``rehearsed`` returns them."""
        self._context, self._engine, self._stages = context, engine, stages
        self._warming: Warming | None = None
        self.status = ServiceStatus()

    def start(self) -> None:
        """Run empty batches of each stage, one stage after the other. The query of the last one
        remains: a later batch now and then keeps the Python workers, which all stages share.

        Raises:
            StageFunctionError: a stage's function failed; its replicas would, too.
        """
        for stage in self._stages:
            self._end_query()
            if self._context.stopping.is_set():
                return
            self._warm(stage)
        self.status.state = "waiting"

    def _warm(self, name: str) -> None:
        """Start the query of stage ``name`` and wait for its first batches."""
        pipeline, context = self._context.pipeline, self._context
        schemas = {each: source_schema(pipeline, each) for each in pipeline.stages[name].reads}
        self._warming = Warming(
            self._engine.prepare(f"{name}.{_WRITER}", name, schemas),
            _WRITER,
            pipeline.inputs(name),
            pipeline.bucket_ms,
            context.clock,
            context.threads,
        )
        self._warming.until_warm(context.stopping.is_set)

    def step(self) -> None:
        """Run one round. Raises the error that ended the query."""
        if self._warming is not None:
            self._warming.step()
        self._context.stopping.wait(_REST_S)

    def stop(self) -> None:
        """End the query. Idempotent."""
        self._end_query()

    def _end_query(self) -> None:
        """End the query that runs, if there is one, and wait for that."""
        warming, self._warming = self._warming, None
        if warming is not None and (ending := warming.stop()) is not None:
            ending.join()
