"""The processes that the benchmarks start by themselves find every topic that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anabranch.access.pipeline_acls import CLOCK_TOPIC, Resource, rights
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.system.clock import SystemClock
from experiments.dpc.chain import create_topics, write_pipeline
from experiments.dpc.plan import Session
from experiments.ha import MODES, write_stage

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.pipeline.model import Pipeline


def missing(pipeline: Pipeline) -> set[str]:
    """Topics that some process has rights on, since it asks for them, and that were not made."""
    log = LocalEventLog(SystemClock())
    create_topics(log, pipeline)
    wanted = {right.name for right in rights(pipeline) if right.resource is Resource.TOPIC}
    return wanted - {CLOCK_TOPIC} - set(log.topics)


@pytest.mark.parametrize("mode", MODES)
def test_of_each_mode_of_ha(tmp_path: Path, mode: str) -> None:
    assert missing(write_stage(tmp_path, "ha", MODES[mode])) == set()


def test_of_a_chain(tmp_path: Path) -> None:
    session = Session("two", (2,), 2, 2_200, failures_s=(10,))
    assert missing(write_pipeline(tmp_path, "chain", session)) == set()
