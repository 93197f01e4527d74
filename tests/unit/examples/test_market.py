"""The market's demo: its files, its contract, and its oracle."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.federation.stream_file import load_terms
from anabranch.federation.tables import ledgers_of, movements_of
from anabranch.pipeline.file import load
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.costs import QueueCost
from anabranch.protocol.federation.stage_moves import reason_against
from examples.market import oracle
from examples.market.demo import TERMS, ended_well, gains, judge, waiting_micro
from examples.market.oracle import Sighting
from harness.trading_world import TradingWorld

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "market"
BEGINS_MS = 1_796_126_400_000
"""2026-12-01 12:00 UTC."""


def terms() -> Contract:
    found = load_terms(TERMS)
    assert isinstance(found, Contract)
    return found


def test_both_may_trade_under_the_contract() -> None:
    contract = terms()
    north, south = (load(EXAMPLES / f"{name}.yaml") for name in ("north", "south"))
    assert north.federation is not None
    assert south.federation is not None
    assert list(south.federation.hosts) == [north.name]
    assert reason_against(contract, "north", {"south": ["north.speeds"]}, ()) == ""
    assert reason_against(contract, "south", {}, ["north.speeds"]) == ""
    for region, policy in (("north", north.federation.agent), ("south", south.federation.agent)):
        assert policy is not None
        cost = QueueCost(policy.capacity_units, policy.scale_micro)
        assert [waiting_micro(region, units) for units in (0, 50, 400)] == [
            cost(units) for units in (0, 50, 400)
        ]


def begun(folder: Path, *, are_signers_named: bool = True) -> TradingWorld:
    """Return a world of the market's files with both agents and their contract."""
    for name in ("federation", "market"):
        shutil.copytree(EXAMPLES.parent / name, folder / name)
    clock = VirtualClock(BEGINS_MS)
    world = TradingWorld(
        LocalEventLog(clock),
        clock,
        folder / "market",
        lambda: clock.advance(50),
        are_signers_named=are_signers_named,
    )
    for party in ("north", "south"):
        world.book.say(party, terms())
    world.start("north", "south")
    return world


def test_a_partner_whose_results_readers_would_ignore_buys_nothing(tmp_path: Path) -> None:
    world = begun(tmp_path, are_signers_named=False)
    world.rate = 400
    world.lasts(5_000)
    left = world.agents["north"].status.detail["left_alone"]
    assert "what south signs as north.speeds: run anabranch keys signers" in str(left)
    assert world.movements() == []
    world.close()


def test_a_rush_gives_what_stands_beside_it(tmp_path: Path) -> None:
    """Agents and brokers of contracts as they are; ingestion and nodes are stand-ins."""
    world, rush = begun(tmp_path), EXAMPLES / "rush"
    for load_of in rows(rush / "load.jsonl"):
        world.rate, world.souths_rate = load_of["north"], load_of["south"]
        world.lasts(load_of["for_s"] * 1_000)
    with closing(world.book.reader()) as reader:
        reader.read_to_end()
        movements, ledger = movements_of(reader), ledgers_of(reader)
    world.close()
    assert movements == rows(rush / "movements.expected.jsonl")
    assert ledger["contracts"] == rows(rush / "ledger.expected.jsonl")
    assert ended_well(movements)
    assert all(min(gains(row)) > 0 for row in movements)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def car(number: int, segment: int, speed: int, time_ms: int, kind: str = "car") -> Sighting:
    return Sighting("north", number, kind, segment, speed, time_ms)


def test_cars_that_move_pay_by_the_minute_before() -> None:
    jam = [car(number, 101, 20, 5_000 + number) for number in range(6)]
    later = [car(1, 101, 90, 10_000), car(1, 101, 90, 14_999), car(2, 101, 0, 11_000)]
    unpriced = [car(3, 102, 50, 10_000), car(4, 101, 50, 20_000)]
    trucks = [car(9, 101, 90, 9_000, "tow_truck"), car(9, 101, 90, 12_000, "tow_truck")]
    seen = [*jam, *later, *unpriced, *trucks]
    assert oracle.tolls(seen) == Counter({(15_000, 1, 101, 18): 1})
    assert oracle.tolls([*seen, car(1, 101, 140, 9_999)]) == Counter({(15_000, 1, 101, 18): 1})
    free = [*seen, *[car(1, 101, 140, 9_999)] * 2]
    assert oracle.tolls(free) == Counter({(15_000, 1, 101, 0): 1}), "50 km/h"
    three = [each for each in seen if each.car < 3]
    assert oracle.tolls(three) == Counter({(15_000, 1, 101, 0): 1}), "no more than are free"


def test_the_truck_with_the_lowest_number_goes_to_a_car_that_stands() -> None:
    seen = [car(1, 101, 0, 5_000), car(1, 101, 0, 6_000), car(2, 101, 30, 5_000)]
    trucks = [car(number, 101, 0, 9_999, "tow_truck") for number in (8, 7)]
    too_late = car(6, 101, 40, 10_000, "tow_truck")
    elsewhere = car(5, 102, 40, 5_000, "tow_truck")
    assert not oracle.dispatches([*seen, too_late, elsewhere])
    sent = oracle.dispatches([*seen, *trucks, too_late, elsewhere])
    assert sent == Counter({(10_000, 1, 7, 101): 1})


def test_the_samples_of_the_three_are_one_story() -> None:
    """A test on Spark runs the stages on each sample."""
    samples, seen = EXAMPLES / "tests", []
    for region in ("north", "south"):
        for given, made in (("speeds", "speeds"), ("cars", "moving_cars")):
            stream = rows(samples / "billing" / f"{region}_{given}.jsonl")
            assert stream == rows(samples / region / f"{made}.expected.jsonl")
        here = [
            Sighting(region, row["car"], row["kind"], row["segment"], row["speed"], row["time"])
            for row in rows(samples / region / "sightings.jsonl")
        ]
        assert oracle.dispatches(here) == Counter(
            (row["event_time"], row["car"], row["truck"], row["segment"])
            for row in rows(samples / region / "dispatches.expected.jsonl")
        )
        seen += here
    tolls = rows(samples / "billing" / "tolls.expected.jsonl")
    assert oracle.tolls(seen) == Counter(
        (row["event_time"], row["car"], row["segment"], row["toll"]) for row in tolls
    )
    assert {row["toll"] for row in tolls} == {0, 2, 8}


def test_results_are_judged_as_multisets() -> None:
    right, said = Counter({(5_000, 1, 101, 8): 1, (5_000, 2, 101, 8): 1}), list[str]()
    assert judge(said.append, "tolls", right, right)
    assert not judge(said.append, "tolls", right - Counter([(5_000, 1, 101, 8)]), right)
    assert not judge(said.append, "tolls", right + right, right)
    assert not judge(said.append, "tolls", Counter(), Counter()), "it would show nothing"
    assert said[1:3] == [
        "tolls 1 (expected 2); missing 1, wrong or double 0",
        "tolls 4 (expected 2); missing 0, wrong or double 2",
    ]


def test_a_movement_pays_where_both_sides_gain() -> None:
    assert gains({"units": 400, "price_micro": 10}) == (18_223, 3_533)
    north, south = gains({"units": 300, "price_micro": 20})
    assert north < 0 < south
    assert min(gains({"units": 100, "price_micro": 6})) < 0, "at home it costs less than that"
    assert gains({"units": 417, "price_micro": 10})[0] > 50_000, "more than there is room for"


def test_one_movement_may_end_in_silence_under_load_and_the_others_are_recalled() -> None:
    recalled, silent, returned = ({"why": why} for why in ("recalled", "silent", "returned"))
    assert ended_well([recalled])
    assert ended_well([silent, recalled])
    assert ended_well([silent])
    assert not ended_well([])
    assert not ended_well([silent, silent])
    assert not ended_well([recalled, returned])
    assert not ended_well([recalled, {"why": None}])
