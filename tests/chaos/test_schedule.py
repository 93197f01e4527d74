"""The faults of a run: which kinds there are, and whom they strike."""

from __future__ import annotations

from itertools import pairwise

import pytest

from chaos.__main__ import parse
from chaos.run import kinds
from chaos.schedule import ELASTIC, Kind, draw, kinds_of, targets_of

TARGETS = (
    "kafka/kafka",
    "redis/redis",
    "ingestion/a",
    "processing/north.0",
    "processing/north.1",
    "processing/north.7",
    "delivery/o",
    "consistency_manager/p",
)


@pytest.mark.parametrize("seed", range(20))
def test_a_shard_is_split_once_and_replicas_move_in_an_elastic_run_alone(seed: int) -> None:
    plain = draw(seed, 900, TARGETS, kinds_of(is_elastic=False))
    elastic = draw(seed, 900, TARGETS, kinds_of(is_elastic=True))
    assert not any(fault.kind in ELASTIC for fault in plain)
    assert sum(fault.kind is Kind.SPLIT for fault in elastic) == 1
    assert sum(fault.kind is Kind.MOVE for fault in elastic) > 1
    assert not any(fault.kind in (Kind.DISK, Kind.ZOMBIE) for fault in elastic)
    assert {fault.kind for fault in plain} == set(kinds_of(is_elastic=False)), "none is rare"


@pytest.mark.parametrize("seed", range(20))
def test_every_other_fault_of_an_overloaded_run_is_a_rush_at_a_source(seed: int) -> None:
    possible = kinds_of(is_elastic=False, is_overload=True)
    faults = draw(seed, 900, TARGETS, possible)
    assert {fault.kind for fault in faults} == set(possible)
    assert all((fault.kind is Kind.RUSH) is (fault.number % 2 == 0) for fault in faults)
    assert {fault.target for fault in faults if fault.kind is Kind.RUSH} == {"ingestion/a"}
    assert any(rush.at_ms < other.at_ms < rush.end_ms for rush, other in pairwise(faults))
    assert {fault.kind for fault in draw(seed, 60, TARGETS, [Kind.RUSH])} == {Kind.RUSH}


def test_the_peers_of_what_moves_stay_where_they_are() -> None:
    assert targets_of(Kind.MOVE, TARGETS) == ["processing/north.0"]
    assert targets_of(Kind.SPLIT, TARGETS) == ["processing/north.0"]


def test_a_kind_that_a_run_cannot_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert kinds(parse(["--elastic", "--faults", "move,kill"])) == (Kind.MOVE, Kind.KILL)
    assert kinds(parse([])) == kinds_of(is_elastic=False)
    for wrong, says in (
        (["--faults", "kill,split"], "split: only with --elastic"),
        (["--elastic", "--faults", "disk"], "disk: only without --elastic"),
        (["--faults", "rush"], "rush: only with --overload"),
        (["--overload", "--faults", "move"], "move: only with --elastic"),
        (["--overload", "--elastic"], "not allowed with argument"),
    ):
        with pytest.raises(SystemExit):
            parse(wrong)
        assert says in capsys.readouterr().err
