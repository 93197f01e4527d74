"""The faults of a run are a function of its seed, and over a while each kind comes."""

from __future__ import annotations

import itertools

import pytest

from chaos import schedule
from chaos.schedule import LENGTHS_S, LONGEST_SHARE, Kind, draw, has_peer, service_of, targets_of

TARGETS = (
    "kafka/kafka",
    "redis/redis",
    "proxy/proxy",
    "ingestion/reports_0",
    "ingestion/reports_1",
    "processing/statistics.0",
    "processing/statistics.1",
    "processing/tolls.0",
    "delivery/tolls",
    "consistency_manager/toll-road",
)
SEEDS = range(200)


def test_the_same_seed_draws_the_same_faults_and_another_seed_others() -> None:
    assert [draw(seed, 300, TARGETS) for seed in SEEDS] == [
        draw(seed, 300, TARGETS) for seed in SEEDS
    ]
    assert len({draw(seed, 300, TARGETS) for seed in SEEDS}) == len(SEEDS)


def test_the_faults_of_a_seed_are_known() -> None:
    """A seed that failed must mean the same faults tomorrow: whoever changes the drawing
    changes this line, and knows it.
    """
    first = [
        (str(fault.kind), fault.target, fault.at_ms, fault.for_ms)
        for fault in draw(7, 120, TARGETS)[:3]
    ]
    assert first == [
        ("cut", "consistency_manager/toll-road", 647, 3000),
        ("redis-kill", "redis/redis", 14389, 0),
        ("broker-kill", "kafka/kafka", 16052, 0),
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_kind_comes_twice_before_each_came_once(seed: int) -> None:
    faults = draw(seed, 3_600, TARGETS)
    assert {fault.kind for fault in faults[: len(Kind)]} == set(Kind)
    assert {fault.kind for fault in faults[len(Kind) : 2 * len(Kind)]} == set(Kind)


@pytest.mark.parametrize("seconds", [20, 90, 300, 1_800])
def test_all_are_undone_when_the_run_ends_and_none_takes_most_of_it(seconds: int) -> None:
    for seed in SEEDS:
        faults = draw(seed, seconds, TARGETS)
        assert faults
        assert max(fault.end_ms for fault in faults) <= seconds * 1_000
        assert max(fault.for_ms for fault in faults) <= seconds * 1_000 * LONGEST_SHARE
        assert [fault.number for fault in faults] == list(range(len(faults)))
        assert [fault.at_ms for fault in faults] == sorted(fault.at_ms for fault in faults)


def test_every_length_every_target_company_and_haste_appear() -> None:
    faults = [draw(seed, 600, TARGETS) for seed in SEEDS]
    every = [fault for run in faults for fault in run]
    assert {(fault.kind, fault.for_ms // 1_000) for fault in every} == {
        (kind, s) for kind in Kind for s in LENGTHS_S.get(kind, (0,))
    }
    assert {fault.target for fault in every if fault.kind is Kind.KILL} == {
        each for each in TARGETS if service_of(each) not in schedule._SERVERS
    }
    pairs = [(one, other) for run in faults for one, other in itertools.pairwise(run)]
    company = [(one, other) for one, other in pairs if other.at_ms < one.end_ms]
    assert company
    assert all(one.target != other.target for one, other in company)
    gaps = [other.at_ms - one.end_ms for one, other in pairs if other.at_ms >= one.end_ms]
    assert min(gaps) < 4_000
    assert max(gaps) > 15_000


@pytest.mark.parametrize("seed", SEEDS)
def test_with_a_rest_none_meets_another(seed: int) -> None:
    faults = draw(seed, 600, TARGETS, rest_s=40)
    assert len(faults) >= 600 // (40 + 2 + max(map(max, LENGTHS_S.values())))
    assert {
        40_000 <= other.at_ms - one.end_ms <= 42_000 for one, other in itertools.pairwise(faults)
    } == {True}


def test_the_bigger_services_are_not_hit_more_often() -> None:
    hits = [
        service_of(fault.target)
        for seed in SEEDS
        for fault in draw(seed, 600, TARGETS, [Kind.PAUSE])
    ]
    shares = {service: hits.count(service) / len(hits) for service in set(hits)}
    assert len(shares) == 4
    assert min(shares.values()) > 0.2


def test_who_can_be_hit() -> None:
    assert targets_of(Kind.REDIS_PAUSE, TARGETS) == ["redis/redis"]
    assert targets_of(Kind.DISK, TARGETS) == ["processing/statistics.0", "processing/statistics.1"]
    assert len(targets_of(Kind.PAUSE, TARGETS)) == 7
    assert set(targets_of(Kind.PAUSE, TARGETS)) - set(targets_of(Kind.ZOMBIE, TARGETS)) == {
        "processing/tolls.0"
    }, "without a peer its disk would be lost"
    assert has_peer("processing/statistics.1", TARGETS)
    assert not has_peer("processing/tolls.0", TARGETS)
    assert not has_peer("ingestion/reports_0", TARGETS)


def test_a_kind_without_a_target_does_not_happen() -> None:
    alone = [each for each in TARGETS if each not in {"redis/redis", "processing/statistics.1"}]
    kinds = {fault.kind for seed in range(20) for fault in draw(seed, 600, alone)}
    assert kinds == set(Kind) - {Kind.DISK, Kind.REDIS_KILL, Kind.REDIS_EMPTY, Kind.REDIS_PAUSE}
    assert draw(1, 600, alone, [Kind.DISK]) == ()
