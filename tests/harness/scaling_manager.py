"""The consistency manager as a process of its own, and what it reports of scaling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.pipeline.model import Pipeline
from harness.service_processes import ModuleProcess, detail_of, service


@dataclass(frozen=True)
class ScalingManager:
    """A running consistency manager, which is the scaler."""

    process: ModuleProcess
    pipeline: Pipeline
    state: Path

    def scaling(self) -> dict[str, Any]:
        """Return what the manager says of scaling; empty while it does not answer."""
        self.process.alive()
        pid = self.process.process.pid
        detail = detail_of(self.state, "consistency_manager", self.pipeline.name, pid)
        found = detail.get("scaling") or {}
        assert isinstance(found, dict)
        return found

    def decisions(self) -> dict[str, dict[str, Any]]:
        """Return the newest decision about each replica, and about each shard that is split."""
        return {each["label"]: each for each in self.scaling().get("events", [])}


@contextmanager
def scaling_manager(pipeline: Pipeline, kafka: str, state: Path) -> Iterator[ScalingManager]:
    """Run the consistency manager of ``pipeline``. Leaving the block ends it."""
    with service("consistency_manager", pipeline.name, pipeline.path, kafka, state) as process:
        yield ScalingManager(process, pipeline, state)
