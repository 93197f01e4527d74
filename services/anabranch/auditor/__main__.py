"""``python -m anabranch.auditor``: the auditor's, one for each pipeline of which stages are sold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.adapters.connect import connect
from anabranch.adapters.secret_files import from_environment
from anabranch.auditor.service import build
from anabranch.runtime.service import main

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch.ports import Engine
    from anabranch.runtime.service import ServiceContext


def spark(context: ServiceContext, stages: Collection[str]) -> Engine:
    """Start Spark for ``stages``, and wait for it.

    Raises:
        ConfigurationError, Unavailable: as of ``SparkEngine``.
    """
    from anabranch.adapters.spark.engine import SparkEngine
    from anabranch.adapters.spark.settings import SparkSettings
    from anabranch.adapters.spark.starting import StartingSpark

    settings, pipeline = from_environment(SparkSettings), context.pipeline
    scratch = Path(context.settings.state_dir) / "scratch" / "auditor"
    starting = StartingSpark(f"{pipeline.name}.auditor", pipeline, stages, settings, scratch)
    return SparkEngine(context, settings, starting)


if __name__ == "__main__":
    main("auditor", lambda settings, context: build(settings, context, spark), connect)
