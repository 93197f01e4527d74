"""Start of Spark and its Java, in the background.

Of all that a node starts Java takes longest, mostly on one core. So it starts first, on a thread of
its own, and this module imports no more than that takes: meanwhile the caller imports the rest and
contacts the broker.

A crash leaves nothing, during the start or later: Java ends with the process that started it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.adapters.spark.cluster import is_cluster
from anabranch.adapters.spark.planner_fork import PlannerFork
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.adapters.system.scratch import Scratch
from anabranch.pipeline.transforms import import_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from anabranch.pipeline.model import Pipeline


class StartingSpark:
    """Start of an application's first session."""

    def __init__(
        self,
        name: str,
        pipeline: Pipeline,
        stages: Iterable[str],
        settings: SparkSettings,
        scratch_root: Path,
        started: Callable[[], object] = lambda: None,
    ) -> None:
        """Start Spark in the background.

        Args:
            name: The application's name, for people.
            pipeline: The pipeline of its stages.
            stages: Stages whose functions the workers must find.
            settings: Spark's settings.
            scratch_root: Folder below which this process keeps its temporary files.
            started: Called on another thread when Spark has started.

        Raises:
            ConfigurationError: there is no secret for a cluster on other machines.
        """
        self.scratch = Scratch(scratch_root)
        self._started: Future[SparkSession] = Future()
        self._tell = started
        start = partial(
            start_session,
            name,
            master=settings.master,
            memory=settings.memory,
            state_partitions=settings.state_partitions,
            import_roots=import_roots((pipeline.stages[stage] for stage in stages), pipeline.path),
            scratch=self.scratch,
            compilers=settings.compilers,
            cores=settings.cores,
            secret=settings.cluster_secret(),
            kafka_clusters=list(pipeline.clusters),
        )
        self.planners = None if is_cluster(settings.master) else PlannerFork(self.scratch)
        """Process from which planners are forked; None on a cluster, whose machines all have a
        Python at the same path instead.
        """
        if self.planners is not None:
            start = partial(start, python=str(self.planners.python))
        threading.Thread(target=self._run, args=(start,), name="start Spark", daemon=True).start()

    def session(self) -> SparkSession:
        """Wait until Spark has started and return its session.

        Raises:
            ConfigurationError: there is no Java that can run Spark.
            Unavailable: the cluster's master does not answer.
        """
        return self._started.result()

    def has_failed(self) -> bool:
        """Return whether ``session`` would raise at once."""
        return self._started.done() and self._started.exception() is not None

    def _run(self, start: Callable[[], SparkSession]) -> None:
        """Start Spark, as the body of the thread."""
        try:
            session = start()
            self._tell()
            self._started.set_result(session)
        except BaseException as error:  # noqa: BLE001 - ``session`` raises it
            self._started.set_exception(error)
