"""Ramp that finds the throughput of nodes which split a stage, and the page of the experiment."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from anabranch.pipeline.file import load
from experiments.elastic.lost_shard import LostShard, change_for_loss
from experiments.elastic.measuring import Recovery
from experiments.elastic.ramp import (
    BOUND_S,
    GROWS_S,
    Point,
    Ramp,
    course,
    held_rate,
    is_scaling,
    moves,
    nodes_used,
    rising_rate,
    splits,
)
from experiments.elastic.report import Measured, plots, tables
from experiments.elastic.splitting import Split, Threshold, Throughput, change, change_for_split
from experiments.elastic.world import Writes

PIPELINE = Path("experiments/elastic/pipeline")


def processed(rates: list[float], capacity: float) -> list[Point]:
    """Return buckets of a second with ``rates`` rows each, of which ``capacity`` are processed in a
    second, in order.
    """
    free_s, points = 0.0, []
    for number, rate in enumerate(rates):
        free_s = max(free_s, float(number)) + int(rate) / capacity
        points.append(Point(float(number), int(rate), free_s - number))
    return points


def test_the_rate_that_was_held_is_what_the_stage_can_do() -> None:
    assert held_rate(processed([80] * 30, 100)) == pytest.approx(80)
    rising = [50 * 1.03**second for second in range(90)]
    for capacity in (100, 200, 400):
        assert held_rate(processed(rising, capacity)) == pytest.approx(capacity, rel=0.06)


def test_neither_a_growing_lag_nor_a_shrinking_backlog_is_throughput() -> None:
    growing = processed([120] * 21, 100)
    assert max(point.delay_s for point in growing) <= BOUND_S + 0.5
    assert held_rate(growing[:21], bound_s=6) <= 100
    # The backlog of ten seconds is processed within the bound, while little is written.
    shrinking = [Point(float(number), 20, 1.0) for number in range(40)]
    backlog = [Point(-1.0 + number / 100, 50, 5.0 + number) for number in range(20)]
    assert held_rate([*backlog, *shrinking]) == pytest.approx(20)


def test_a_rate_counts_only_if_each_bucket_was_in_time_for_all_of_the_while() -> None:
    points = processed([80] * 40, 100)
    assert held_rate(points[:20]) == 0.0, "nineteen seconds"
    late = [*points[:20], Point(20.0, 80, BOUND_S + 0.1), *points[21:40]]
    assert held_rate(late) == 0.0
    assert held_rate([]) == 0.0


def test_the_course_has_a_row_for_each_five_seconds() -> None:
    points = [Point(10.0 + number, 50, 2.0) for number in range(13)]
    first, second = course(points)
    assert first == (5.0, 50.0, 30.0, 2.0)
    assert second == (10.0, 50.0, 50.0, 2.0)
    assert course([]) == []


def run(capacity: Any, *, splits_at: float = 1e9, seconds: int = 400) -> tuple[Ramp, float]:
    """Let a ramp run on a stage that processes ``capacity(second)`` rows a second, and return it
    with the time of its end. ``splits_at``: time, in seconds, at which a split of 20 s begins.
    """
    ramp, backlog = Ramp(70.0, 0.0), 0.0
    for second in range(1, seconds):
        backlog = max(0.0, backlog + ramp.rows_per_s - capacity(second))
        lag_s = 1 + backlog / capacity(second)
        ramp.step(float(second), lag_s, is_scaling=splits_at <= second < splits_at + 20)
        if ramp.has_ended:
            return ramp, float(second)
    return ramp, float(seconds)


def test_a_ramp_rises_a_little_above_what_the_stage_can_do_and_ends() -> None:
    ramp, ended_s = run(lambda _: 100)
    assert ramp.has_ended
    assert 105 < ramp.rows_per_s < 140
    assert GROWS_S < ended_s < 120


def test_a_ramp_waits_for_a_split_and_goes_on_after_it() -> None:
    ramp, ended_s = run(lambda second: 100 if second < 70 else 200, splits_at=50)
    assert ramp.has_ended
    assert 205 < ramp.rows_per_s < 280
    assert ended_s < 250


def test_a_lag_that_shrinks_does_not_end_a_ramp() -> None:
    ramp = Ramp(100.0, 0.0)
    for second in range(1, 200):
        ramp.step(float(second), 30.0 - second / 10, is_scaling=False)
    assert not ramp.has_ended
    assert ramp.rows_per_s == 100.0


def test_the_rate_of_a_comparison_rises_to_its_last() -> None:
    assert rising_rate(40, 120, 0) == 40
    assert 40 < rising_rate(40, 120, 20) < 120
    assert rising_rate(40, 120, 40) == 120


def event(label: str, cause: str, catch_up_ms: int | None, outcome: str = "") -> dict[str, Any]:
    """Return a decision as the manager reports it."""
    return {"label": label, "cause": cause, "catch_up_ms": catch_up_ms, "outcome": outcome}


def places(**found: list[str]) -> dict[str, Any]:
    """Return nodes as the manager reports them."""
    return {name: {"places": labels} for name, labels in found.items()}


def test_only_shards_that_are_read_use_a_node() -> None:
    compared = {
        "nodes": places(a=["dear.0", "dear.0.0"], b=["dear.1.0"], r=["united.0"]),
        "events": [event("dear.1.0", "half", None), event("dear", "split", None)],
    }
    assert (nodes_used(compared, "dear"), splits(compared)) == (1, [])
    assert is_scaling(compared)
    confirmed = compared | {"events": [event("dear", "split", 9)]}
    assert (nodes_used(confirmed, "dear"), splits(confirmed)) == (2, ["dear"])
    assert not is_scaling(confirmed)
    again = {
        "nodes": places(a=["dear.0", "dear.0.0"], b=["dear.1.0", "dear.00.0"], c=["dear.01.0"]),
        "events": [
            *confirmed["events"],
            event("dear.0", "split", 9),
            event("dear.1", "split", None, "withdrawn"),
            event("dear.1.0", "overload", 5),
        ],
    }
    assert (nodes_used(again, "dear"), splits(again)) == (2, ["dear", "dear.0"])
    assert moves(again) == 1
    assert not is_scaling(again)
    assert (nodes_used({}, "dear"), moves({}), is_scaling({})) == (0, 0, False)


def test_the_load_follows_its_rate_and_its_answer_counts_each_second() -> None:
    writes = Writes(100, 40, note_bytes=0, width_ms=1_000, windows_ms=(1_000, 1_000))
    writes.rows(1)
    writes.rows_per_s = 55.5
    writes.rows(2)
    assert writes.sizes == {1: 40, 2: 55}
    by_end = {end: 0 for end, _ in writes.counted}
    for (end, _), number in writes.counted.items():
        by_end[end] += number
    assert by_end == {1_000: 40, 2_000: 55}


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_the_pipeline_has_a_pool_for_the_nodes(tmp_path: Path, nodes: int) -> None:
    folder = shutil.copytree(PIPELINE, tmp_path / "pipeline")
    path, yaml = folder / "dear.yaml", YAML()
    document = yaml.load(path)
    change(nodes, 60, document)
    yaml.dump(document, path)
    pipeline = load(path)
    scaling = pipeline.scaling
    if nodes == 1:
        assert scaling is None
    else:
        assert scaling is not None
        assert (len(scaling.pool), scaling.above_permille) == (nodes - 1, 600)
    assert [each.cores for each in pipeline.resources.values()] == [1] * nodes


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_split_by_command_has_other_nodes_and_no_scaler(tmp_path: Path, nodes: int) -> None:
    folder = shutil.copytree(PIPELINE, tmp_path / "pipeline")
    path, yaml = folder / "dear.yaml", YAML()
    document = yaml.load(path)
    change_for_split(nodes, document)
    yaml.dump(document, path)
    pipeline = load(path)
    assert pipeline.scaling is None
    assert pipeline.halves("dear") == ["dear.0", "dear.1"]
    others = {node for node, shards in pipeline.nodes().items() if not shards}
    assert others == {f"north.{number}" for number in range(1, nodes)}
    shown = tables([measured(Split(2, 50, 0.5, 1.75, 2.0, 42.0, 0, 7))])["split"]
    assert "| 2 | 50 | 0.50 s | 1.75 s | +1.25 s | 2.00 s | 42 s | 0 of 7 |" in shown
    assert "split" not in tables([])


def test_the_page_compares_recovery_on_one_and_two_nodes() -> None:
    rows = [
        LostShard(1, 70.0, 25.0, 5.25, 0.0, 12.0, 61.5, 0, 7),
        LostShard(2, 70.0, 25.0, 5.25, 9.5, 14.0, 31.0, 0, 7),
    ]
    shown = tables([measured(*rows)])["parallel"]
    assert "| 70 | 1 | 25 s | 5.2 s | - | 12.0 s | 61.5 s | 0 of 7 |" in shown
    assert "| 70 | 2 | 25 s | 5.2 s | 9.5 s | 14.0 s | 31.0 s | 0 of 7 |" in shown


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_lost_shard_has_three_nodes_that_nothing_else_uses(tmp_path: Path, nodes: int) -> None:
    shutil.copytree(PIPELINE, tmp_path / "p")
    path, yaml = tmp_path / "p" / "dear.yaml", YAML()
    document = yaml.load(path)
    change_for_loss(nodes, document)
    yaml.dump(document, path)
    scaling = load(path).scaling
    assert scaling is not None
    assert (scaling.pool, scaling.parallel) == (["north.1", "north.2", "north.3"], nodes)
    assert scaling.for_ms == 600_000


def measured(*rows: Any) -> Measured:
    """Return a run."""
    return Measured("2026-01-02", "abcd1234", "one machine", 0.5, rows)


def test_the_page_shows_ratios_and_thresholds() -> None:
    ramp = partial(Throughput, wrong=0, judged=9, moves=0, course=[(5.0, 70.0, 69.0, 1.0)])
    found = [
        measured(ramp(1, 1, 90.0, splits=0, has_ended=True)),
        measured(ramp(4, 4, 315.0, splits=3, has_ended=False)),
        measured(Threshold(50, 4, 3, 0.5, 1.25, 0, 7)),
    ]
    blocks, drawn = tables(found), plots(found)
    assert "| 1 | 1 | 90 | 1.00 | 0 | 0 | 0 of 9 |" in blocks["ramp"]
    assert "| 4 | 4 | at least 315 | 3.50 | 3 | 0 | 0 of 9 |" in blocks["ramp"]
    assert "| 50 % | 4 | 3 | 0.50 s | 1.25 s | 0 of 7 |" in blocks["threshold"]
    assert "4 nodes, written" in drawn["elastic-ramp"]
    assert "p99, seconds" in drawn["elastic-threshold"]
    assert Throughput(**asdict(found[0].rows[0])) == found[0].rows[0]
    alone = tables(found[1:])["ramp"]
    assert "| at least 315 | - |" in alone, "without one node there is no ratio"


def test_recovery_is_drawn_against_the_age_of_the_checkpoint() -> None:
    rows = [
        Recovery("store", rate, age, 5.0, 9.0, 1.0, 15.0, 0, 7)
        for rate, age in ((500, 1.0), (500, 25.0), (100, 12.0))
    ]
    drawn = plots([measured(*rows)])
    assert "store, 500 rows/s" in drawn["elastic-ages"]
    assert "store, 100 rows/s" not in drawn["elastic-ages"]
    assert "25 s old" not in drawn["elastic-recovery"]
    assert "elastic-ages.svg" in tables([measured(*rows)])["recovery"]
