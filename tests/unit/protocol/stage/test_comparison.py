"""What a process that lost its disk makes again is compared with the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.comparison import Comparison, PartnerWrong
from harness.stage_logs import StageLog, backed_up, part

HORIZON, WIDTH_MS = 2, 100


def comparison(log: StageLog, after: int = 6) -> Comparison:
    """Of a process that begins after a bucket."""
    made = Comparison("s", HORIZON, WIDTH_MS, {"partner"}.__contains__)
    made.begin(log.log_state, "0", after)
    return made


def make_again(compared: Comparison, log: StageLog, **changed: int) -> list[PartnerWrong]:
    """What a process makes of buckets 7 and 8 (partial), 9 and 10 (whole), and 11, in batches
    that end anywhere.
    """
    digests = {7: 1, 8: 2, 9: 1_009, 10: 1_010, 11: 1_011} | {
        int(name[1:]): digest for name, digest in changed.items()
    }
    records = [
        log.record(6),
        replace(log.record(9, part(11, 3)), kind=BoundaryKind.TENTATIVE),
        log.record(8, part(7, digests[7]), part(8, digests[8]), part(9, 9)),
        log.record(9, part(9, digests[9] - 9, rows=0), part(10, digests[10])),
        log.record(11, part(11, digests[11])),
        log.record(12, part(12, 1)),
    ]
    return [wrong for record in records for wrong in compared.check(record)]


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_cm1_what_is_made_again_is_compared(from_snapshot: bool) -> None:
    log = backed_up().from_snapshot() if from_snapshot else backed_up()
    compared = comparison(log)
    assert compared.upto == 10
    assert make_again(compared, log) == []
    with pytest.raises(StageFunctionError, match="bucket 9"):
        make_again(comparison(log), log, b9=4_711)


@pytest.mark.parametrize("bucket", [9, 10])
def test_cm1_a_difference_ends_the_process_before_anything_new_is_closed(bucket: int) -> None:
    log = backed_up()
    with pytest.raises(
        StageFunctionError,
        match=f"bucket {bucket}, made again from 400 ms of input, .* a longer state_horizon",
    ):
        make_again(comparison(log), log, **{f"b{bucket}": 4_711})


def test_cm1_a_bucket_too_many_or_too_few_is_a_difference() -> None:
    log = backed_up()
    with pytest.raises(StageFunctionError, match="bucket 9"):
        comparison(log).check(log.record(11, part(10, 1_010)))


def test_cm1_one_that_began_with_the_stage_has_no_partial_buckets() -> None:
    log = backed_up()
    with pytest.raises(StageFunctionError, match="bucket 1,"):
        comparison(log, after=0).check(log.record(2, part(2, 1_002)))


def test_cm1_each_process_that_begins_anew_compares_to_the_end() -> None:
    log = backed_up()
    log.add(log.record(6, fresh=True))
    log.add(log.record(8, part(7, 1), part(8, 2)))
    log.begin()
    with pytest.raises(StageFunctionError, match="bucket 9"):
        make_again(comparison(log), log, b9=4_711)


def sold(*nodes: str) -> StageLog:
    """Bucket 7 and those before were made on ``home``, 8, 9 and 10 on these; then the stage came
    home.
    """
    log = StageLog()
    log.begin(node="home")
    log.add(log.record(7))
    for bucket, node in zip(range(8, 11), nodes, strict=True):
        if node != log.log_state.node("0"):
            log.begin(node=node)
        log.add(log.record(bucket, part(bucket, 1_000 + bucket)))
    log.begin(node="home")
    return log


def test_cm1_what_a_partner_made_otherwise_stands_and_is_told_once() -> None:
    log = sold("partner", "partner", "partner")
    assert make_again(comparison(log), log, b10=4_711) == [PartnerWrong("s", 10, "partner")]


def test_cm1_a_stage_that_came_home_and_ends_is_not_stopped_by_what_its_partner_made() -> None:
    log = sold("partner", "partner", "home")
    assert make_again(comparison(log), log, b9=4_711) == [PartnerWrong("s", 9, "partner")]


@pytest.mark.parametrize(
    "nodes", [("home", "home", "home"), ("partner", "partner", "home"), ("home", "away", "away")]
)
def test_cm1_a_difference_of_own_nodes_ends_the_process_wherever_it_has_been(
    nodes: tuple[str, ...],
) -> None:
    log = sold(*nodes)
    with pytest.raises(StageFunctionError, match="bucket 10"):
        make_again(comparison(log), log, b10=4_711)


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_another_function_is_not_compared(from_snapshot: bool) -> None:
    log = backed_up(again="g").from_snapshot() if from_snapshot else backed_up(again="g")
    compared = comparison(log)
    assert compared.upto == 0
    assert make_again(compared, log, b9=4_711) == []


def test_what_another_function_has_made_is_not_compared_after_a_restart_either() -> None:
    log = backed_up(again="g")
    log.add(log.record(6, fresh=True))
    log.begin("g")
    assert make_again(comparison(log), log, b9=4_711) == []


def test_of_a_function_that_was_changed_only_what_it_made_from_its_own_state_is_compared() -> None:
    log = StageLog()
    log.begin()
    log.add(log.record(7))
    log.begin("g")
    for bucket in range(8, 11):
        log.add(log.record(bucket, part(bucket, 1_000 + bucket)))
    log.begin("g")
    assert make_again(comparison(log), log, b9=4_711) == []
    with pytest.raises(StageFunctionError, match="bucket 10"):
        make_again(comparison(log), log, b9=4_711, b10=4_711)
