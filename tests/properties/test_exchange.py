"""Agents with each other under virtual time: lost messages, crashes, changing loads, and
participants that cheat.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from anabranch.protocol.federation.movements import MovementState
from checkers.market import calm, holds, payments, runners, waits
from experiments.market.exchange import Faults
from experiments.market.graph import chain, complete_graph, random_graph
from harness.exchanges import COST, MINUTE, exchange, rush

LOADS = [[100] * 9, [100] * 6, [100] * 2, [100]]


def test_overload_goes_where_there_is_room_by_way_of_who_is_full() -> None:
    made = exchange([[100] * 9, [100] * 7, [100]], chain(3))
    made.run(5 * MINUTE)
    assert list(runners(made)) == []
    assert max(made.level(name) for name in made.agents) <= 700
    assert any(made.runner(task) == "p2" for task in made.tasks if task.startswith(("p0", "p1")))
    assert list(payments(made)) == []


def test_offers_of_many_at_once_to_one_with_little_room_cause_no_recall() -> None:
    made = exchange(
        [[100] * 8, [100] * 8, [100] * 8, [100] * 5], complete_graph(4), min_hold_ms=2_000
    )
    made.run(4 * MINUTE)
    assert made.starts
    assert list(calm(made)) == []


def test_participants_that_run_tasks_of_others_keep_them_over_a_crash() -> None:
    faults = Faults(seed=3, lost=0.35, moves_fail=0.4, crashes_per_h=40, until_ms=4 * MINUTE)
    made = exchange([[100] * 9, [70] * 9, [100] * 2, [100]], chain(4), faults=faults)
    made.run(7 * MINUTE)
    assert any(made.runner(task) != of.owner for task, of in made.tasks.items())
    for name in ("p1", "p2", "p0"):
        made.crash(name)
        made.run(made.now_ms + MINUTE)
        assert list(runners(made)) == []


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 6))]
)
def test_lost_late_and_repeated_messages_crashes_and_failed_moves_lose_no_task_and_run_none_twice(
    seed: int,
) -> None:
    chance = random.Random(seed)
    faults = Faults(
        seed=seed,
        lost=0.3,
        repeated=0.2,
        late_ms=3_000,
        read_late_ms=2_000,
        moves_fail=0.2,
        crashes_per_h=60,
        until_ms=6 * MINUTE,
        down_ms=chance.choice([500, 20_000]),
    )
    loads = [
        [50 + 10 * chance.randrange(11) for _ in range(chance.choice([0, 2, 5, 12]))]
        for _ in range(6)
    ]
    made = exchange(loads, random_graph(6, 2, chance), faults=faults, min_hold_ms=5_000)
    made.run(10 * MINUTE)
    assert list(runners(made)) == []
    assert list(waits(made, 32_000)) == []
    for ledger in made.ledgers.values():
        assert sum(ledger.balances().values()) == 0


def test_the_faults_are_met() -> None:
    """The runs above would show nothing if nothing moved or nothing went wrong."""
    made = exchange(LOADS, chain(4), faults=Faults(lost=0.3, moves_fail=0.3, until_ms=4 * MINUTE))
    made.run(5 * MINUTE)
    assert made.starts
    assert sum(agent.counters.silences for agent in made.agents.values())
    assert any(
        movement.state is MovementState.VOID
        for ledger in made.ledgers.values()
        for movement in ledger.movements
    )


def test_with_everything_working_trading_ends_and_cost_falls() -> None:
    made = exchange(LOADS, chain(4))
    before = sum(COST(sum(sizes)) for sizes in LOADS)
    made.run(6 * MINUTE)
    moves = len(made.starts)
    assert sum(COST(made.level(name)) for name in made.agents) < before
    made.run(12 * MINUTE)
    assert len(made.starts) == moves
    assert list(runners(made)) == []


def test_in_a_rush_tasks_leave_and_when_it_is_over_they_come_home() -> None:
    made = exchange([[100] * 5, [100] * 3, [100] * 2], chain(3), units=rush)
    made.run(MINUTE)
    assert made.starts == []
    made.run(9 * MINUTE)
    assert made.level("p0") <= 800
    assert made.level("p0") < 1_000
    made.run(20 * MINUTE)
    assert list(runners(made)) == []
    away = [task for task in made.tasks if task.startswith("p0") and made.runner(task) != "p0"]
    assert len(away) <= 1, "at the price inside the range one may be worth its price still"
    assert list(payments(made)) == []


@pytest.mark.parametrize("min_hold_ms", [20_000, pytest.param(60_000, marks=pytest.mark.nightly)])
def test_under_noise_the_minimum_hold_bounds_the_movements_of_each_task(min_hold_ms: int) -> None:
    noise = random.Random(5)
    drawn = [noise.randrange(60, 141) for _ in range(10_000)]

    def units(name: str, size: int) -> Callable[[int], int]:
        shift = sum(map(ord, name)) * 37
        return lambda now: size * drawn[(now // 5_000 + shift) % len(drawn)] // 100

    made = exchange(
        [[100] * 8, [100] * 6, [100] * 6, [100] * 5],
        random_graph(4, 3, random.Random(1)),
        units=units,
        min_hold_ms=min_hold_ms,
    )
    made.run(10 * MINUTE)
    assert max(Counter(task for _, task in made.starts).values()) > 2, "there is something to bound"
    assert list(holds(made.starts, min_hold_ms)) == []
