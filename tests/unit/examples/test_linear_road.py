"""The processors of Linear Road give the right answers, without Spark: what Spark gathers into a
row is gathered here.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Row

from anabranch.stateful import BatchSafeProcessor, Timers
from benchmarks.linear_road.answers import parse
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.mutants import counted
from benchmarks.linear_road.receiver import line_of
from benchmarks.linear_road.stream import World
from benchmarks.linear_road.validator import Judging, Verdict, judge, truth
from examples.linear_road import stages

PLANS = [Plan(mode=Mode.BORDER), Plan(1, 7, 1, Mode.HOT), Plan(3, 4, 2, Mode.DIRTY)]
GROUPS = 3
_SECOND = Row("time", *stages.REPORT, "event_time")
_ENTRIES = Row("time", *stages.ENTRY, "event_time")


class Runner:
    """State and results of a processor by key."""

    def __init__(self, processor: BatchSafeProcessor) -> None:
        self._processor = processor
        self._states: dict[tuple[int, ...], tuple[Any, ...] | None] = {}
        self.results: list[Row] = []

    def take(self, key: tuple[int, ...], row: Row) -> list[Row]:
        state, results = self._processor.row(key, row, self._states.get(key), Timers(None))
        self._states[key] = state
        self.results += results
        return list(results)


def verdict_on(world: World) -> Verdict:
    """Run the world through both processors, and judge."""
    roads, accounts = Runner(stages.Roads()), Runner(stages.Accounts())
    reports: dict[int, dict[tuple[int, int], set[Any]]] = defaultdict(lambda: defaultdict(set))
    entries: dict[int, dict[int, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for vid, day, xway, toll in world.history.iter_rows():
        entries[-1][vid % GROUPS].add((stages.HISTORY, vid, day, xway, -1, toll))
    for line in world.stream.iter_rows(named=True):
        if line["type"] == 0:
            report = tuple(line[name] for name in stages.REPORT)
            reports[line["time"]][line["xway"], line["dir"]].add(report)
        elif line["type"] in {stages.BALANCE, stages.EXPENDITURE}:
            entry = (line["type"], line["vid"], line["day"], line["xway"], line["qid"], -1)
            entries[line["time"]][line["vid"] % GROUPS].add(entry)
    at = datetime.now(UTC)
    for time in range(-1, int(world.stream["time"][-1]) + 1):
        for road, found in reports[time].items():
            for row in roads.take(road, _SECOND(time, *arrays(found), at)):
                if row.type == stages.CHARGE:
                    charge = (stages.CHARGE, row.vid, -1, row.seg, -1, row.toll)
                    entries[time][row.vid % GROUPS].add(charge)
        for group, happened in entries[time].items():
            accounts.take((group,), _ENTRIES(time, *arrays(happened), at))
    rows = sorted((row.asDict() for row in (*roads.results, *accounts.results)), key=by_time)
    lines = [text for row in rows if (text := line_of(row, 0)) is not None]
    expected = truth(world.stream, world.history)
    return judge(expected, parse(lines), Judging(None, is_strict=True))


def arrays(rows: set[Any]) -> list[list[int]]:
    """Return the sorted rows, by column."""
    return [list(column) for column in zip(*sorted(rows), strict=True)]


def by_time(row: dict[str, Any]) -> int:
    return int(row["time"])


@pytest.mark.parametrize("plan", PLANS, ids=[plan.mode.value for plan in PLANS])
def test_each_answer_is_right(plan: Plan) -> None:
    verdict = verdict_on(generate(plan))
    assert verdict.is_valid, "\n".join(verdict.lines())
    assert verdict.counts["tolls"].received > 1_000


@pytest.mark.parametrize(
    ("name", "value", "kinds"),
    [
        ("_FREE_CARS", 51, {"tolls", "balances"}),
        ("_FREE_MPH", 39, {"tolls"}),
        ("_STOPPED_AFTER", 5, {"accidents", "tolls"}),
        ("_NEW_TRIP_AFTER_S", 61, {"tolls"}),
        ("_MINUTES", 4, {"tolls"}),
        ("_REACH", 3, {"accidents"}),
    ],
)
def test_a_rule_that_is_off_by_one_is_found_at_the_borders(
    name: str, value: int, kinds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, name, value)
    assert counted(verdict_on(generate(PLANS[0]))).keys() >= kinds
