"""Start of the engine of a node, or of another process that runs stages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.adapters.disk import state_format
from anabranch.adapters.secret_files import from_environment
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.adapters.spark.starting import StartingSpark
from anabranch.pipeline.resources import of_node
from anabranch.ports import StartingEngine

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch.process.frame import ServiceContext


def start_engine(context: ServiceContext, name: str, stages: Collection[str]) -> StartingEngine:
    """Start Spark in the background for the node, or other process, ``name``, with the resources
    that the pipeline file gives it.

    Raises:
        ConfigurationError: the state directory has another version's format, or there is no secret
            for a cluster on other machines. Waiting for the engine raises as ``SparkEngine`` does.
    """
    state_dir, pipeline = Path(context.settings.state_dir), context.pipeline
    state_format.claim(state_dir)
    settings = from_environment(SparkSettings).with_resources(of_node(pipeline, name))
    starting = StartingSpark(
        f"{pipeline.name}.{name}",
        pipeline,
        stages,
        settings,
        state_dir / "scratch" / name,
        partial(context.logger.info, "spark_started", node=name),
    )
    # Imported here, since Java is starting meanwhile: these imports take long.
    from anabranch.adapters.spark.engine import SparkEngine

    return StartingEngine(partial(SparkEngine, context, settings, starting), starting.has_failed)
