"""The oracles agree with each other, with answers by hand, and with what the generator knows."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.linear_road import batch_oracle, border, event_oracle
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.stream import BALANCE, EXPENDITURE, INPUT, POSITION, World, in_order
from harness.examples import examples

PLANS = [
    Plan(1, 7, 1, Mode.HOT),
    Plan(2, 6, 2, Mode.HOT),
    Plan(1, 7, 3, Mode.DIRTY),
    Plan(3, 5, 4, Mode.DIRTY),
    Plan(1, 5, 5, Mode.PLAIN),
]
LONG_PLANS = [
    *(Plan(half_xways, 15, seed, Mode.HOT) for half_xways, seed in ((1, 6), (2, 7), (3, 8))),
    *(Plan(half_xways, 15, seed, Mode.DIRTY) for half_xways, seed in ((1, 9), (2, 10), (3, 11))),
    *(Plan(half_xways, 30, seed, Mode.PLAIN) for half_xways, seed in ((1, 12), (2, 13))),
]
VALUES = {
    "tolls": ("vid", "time", "lav", "toll"),
    "accidents": ("vid", "time", "seg"),
    "balances": ("qid", "balance"),
    "expenditures": ("qid", "toll"),
}
CASES = border.cases()


@pytest.mark.parametrize(
    "plan",
    [*PLANS, *(pytest.param(plan, marks=pytest.mark.nightly) for plan in LONG_PLANS)],
    ids=[f"{plan.mode.value}-{plan.seed}" for plan in [*PLANS, *LONG_PLANS]],
)
def test_the_oracles_agree(plan: Plan) -> None:
    world = generate(plan)
    found = batch_oracle.answers(world.stream, world.history)
    assert found.differences(event_oracle.answers(world.stream, world.history)) == []
    assert found.tolls.height > 5_000
    assert found.balances.height > 40
    assert found.expenditures.height > 5
    if plan.mode is not Mode.PLAIN:
        assert found.charges.height > 10
        assert found.accidents.height > 50
        assert world.crashes.height >= 1
    if plan.mode is not Mode.DIRTY:
        assert found.crashes.equals(world.crashes)


def test_the_oracles_agree_at_the_borders() -> None:
    world = border.world()
    found = batch_oracle.answers(world.stream, world.history)
    assert found.differences(event_oracle.answers(world.stream, world.history)) == []


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_answers_are_those_derived_by_hand(case: border.Case) -> None:
    stream = pl.DataFrame(
        [{**dict.fromkeys(INPUT, -1), **row} for row in case.rows],
        schema=dict.fromkeys(INPUT, pl.Int32),
    )
    names = dict.fromkeys(("vid", "day", "xway", "toll"), pl.Int64)
    history = pl.DataFrame(case.history, schema=names, orient="row")
    for oracle in (batch_oracle, event_oracle):
        found = oracle.answers(in_order(stream), history)
        for table, columns in VALUES.items():
            rows = getattr(found, table)
            rows = rows.filter(pl.col("vid").is_in(case.probes)).select(columns).sort(columns)
            assert rows.rows() == sorted(getattr(case, table)), (oracle.__name__, table)


_STEPS = st.tuples(
    st.integers(0, 2),  # car
    st.integers(0, 1),  # road
    st.sampled_from([0, 1, 30, 30, 30, 31]),  # seconds after the step before
    st.integers(0, 4),  # lane
    st.booleans(),  # stay where the car was
    st.integers(8, 12),  # segment
    st.sampled_from([0, 700]),  # feet behind its beginning
    st.integers(0, 100),  # speed
    st.sampled_from([POSITION] * 6 + [BALANCE, EXPENDITURE]),
)


Step = tuple[int, int, int, int, bool, int, int, int, int]


def tiny_world(steps: list[Step]) -> World:
    """Make an input of few cars that meet at few places."""
    rows = []
    last: dict[tuple[int, int], tuple[int, int, int]] = {}
    time = 0
    for qid, (vid, road, after, lane, stays, seg, feet, spd, kind) in enumerate(steps):
        time += after
        row = {**dict.fromkeys(INPUT, -1), "type": kind, "time": time, "vid": vid}
        if kind == POSITION:
            place = last.get((vid, road), (lane, seg, feet)) if stays else (lane, seg, feet)
            last[vid, road] = place
            row |= {"lane": place[0], "seg": place[1], "pos": place[1] * 5280 + place[2]}
            row |= {"spd": spd, "xway": 0, "dir": road}
        elif kind == EXPENDITURE:
            row |= {"qid": qid, "day": 1 + spd % 3, "xway": 0}
        else:
            row |= {"qid": qid}
        rows.append(row)
    names = ("vid", "day", "xway", "toll")
    history = pl.DataFrame([(0, 1, 0, 50), (1, 2, 0, 60)], schema=names, orient="row")
    stream = pl.DataFrame(rows, schema=dict.fromkeys(INPUT, pl.Int32))
    return World(in_order(stream), history, pl.DataFrame(), pl.DataFrame())


@examples(150)
@given(st.lists(_STEPS, min_size=1, max_size=60))
def test_the_oracles_agree_on_tiny_worlds(steps: list[Step]) -> None:
    world = tiny_world(steps)
    found = batch_oracle.answers(world.stream, world.history)
    assert found.differences(event_oracle.answers(world.stream, world.history)) == []


def test_neither_oracle_keeps_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = generate(Plan(3, 9, 4, Mode.DIRTY))
    roads: list[tuple[int, int]] = []
    in_car_order = batch_oracle._in_car_order

    def watched(in_time_order: pl.DataFrame) -> pl.DataFrame:
        roads.extend(in_time_order.select("xway", "dir").unique().rows())
        return in_car_order(in_time_order)

    monkeypatch.setattr(batch_oracle, "_in_car_order", watched)
    batch_oracle.answers(world.stream, world.history)
    assert roads == [(0, 0), (0, 1), (1, 0)]  # one road in each call
    oracle = event_oracle.EventOracle(world.history)
    fields = event_oracle.Report._fields
    for row in world.stream.filter(pl.col("type") == POSITION).select(fields).iter_rows():
        oracle.report(event_oracle.Report(*row))
    for road in oracle._roads.values():
        assert {minute for _, minute in road.speeds} == {4, 5, 6, 7, 8, 9}


def test_a_stream_without_reports_has_answers() -> None:
    case = next(case for case in CASES if case.history)
    world = border.world()
    queries = world.stream.filter(pl.col("type") != POSITION)
    for oracle in (batch_oracle, event_oracle):
        found = oracle.answers(queries, world.history)
        assert found.tolls.is_empty()
        assert found.crashes.is_empty()
        assert found.balances.height == queries.filter(pl.col("type") == BALANCE).height > 0
        assert set(found.balances["balance"]) == {0}
        assert found.expenditures.filter(pl.col("vid").is_in(case.probes)).height


def test_a_rule_that_one_oracle_has_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = generate(PLANS[0])
    right = batch_oracle.answers(world.stream, world.history)
    monkeypatch.setattr(event_oracle.Car, "is_stopped", property(lambda car: car.same_reports >= 5))
    found = right.differences(event_oracle.answers(world.stream, world.history))
    assert [line.partition(":")[0] for line in found][-1] == "crashes"
    assert "only in the first" in found[0]
