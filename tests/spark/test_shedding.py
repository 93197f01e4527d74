"""Rows that a stage's own function or expression finds important, on real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.records import BoundaryKind
from harness.engines import WIDTH_MS, EngineRig, HandDriver, spark


@pytest.fixture(scope="module")
def rig(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineRig]:
    with spark(kafka, tmp_path_factory.mktemp("engine"), "shedding") as made:
        yield made


@pytest.mark.parametrize("stage", ["weighed", "valued"])
def test_the_rows_that_matter_most_are_kept_and_the_same_after_a_restart(
    rig: EngineRig, stage: str
) -> None:
    name, dying = rig.name(), HandDriver(rig.clock, dies_at="recorded 1")
    rows = [((11 + v % 2) * WIDTH_MS - 50, v, v % 10, v) for v in range(40)]
    plan = rig.plan(None, 12, *rows, kind=BoundaryKind.TENTATIVE)
    dying.add(replace(plan, kept=300))
    query = rig.start(stage, dying, name)
    with pytest.raises(Unavailable, match="a crash at recorded 1"):
        rig.until(lambda: False, query, "dead")
    query.stop()

    again = HandDriver(rig.clock)
    query = rig.start(stage, again, name)
    rig.until(lambda: 1 in again.made, query, "the batch after the crash")
    query.stop()
    expected = sorted((at, key, v) for at, _, key, v in rows if v >= 28)  # 6 of 20 in each bucket
    for driver in (dying, again):
        assert rig.results(stage, driver.made[1]) == expected
