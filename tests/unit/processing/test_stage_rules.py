"""Rules that a stage's decisions follow, from its pipeline file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.processing.stage_rules import stage_rules
from anabranch.protocol.log.stateful_plan import StatefulPlan
from anabranch.protocol.stage.planner import PlanTraits
from harness.pipeline_files import loaded

TEXT = """
pipeline: p
sources:
  cars: {topics: [in.cars], record: car.avsc, event_time: arrival}
stages:
  first: {reads: [cars], transform: stages:first}
  second: {reads: [first], transform: stages:second}
  both: {reads: [cars, first], transform: stages:first}
outputs:
  out: {stage: both, corrected: {topic: out, format: json, key: []}}
"""
PACE_MS = 600


@pytest.mark.parametrize(("stage", "kept"), [("first", False), ("second", True), ("both", True)])
def test_bp6_batches_of_a_stage_that_reads_a_stage_keep_their_slots(
    tmp_path: Path, stage: str, kept: bool
) -> None:
    engine: Any = SimpleNamespace(rows_max=1_000, pace_ms=PACE_MS, cores=2)
    prepared: Any = SimpleNamespace(
        traits=PlanTraits(is_stateful=False, is_batch_safe=True), stateful_plan=StatefulPlan()
    )
    log: Any = None  # only a stage whose version has changed reads it
    batches = stage_rules(log, loaded(tmp_path, TEXT), stage, engine, prepared).batches
    assert (batches.pace_ms, batches.reads_stages) == (PACE_MS, kept)
