"""Tests of an auditor's conduct in a movement (AU1-AU4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.federation.audit import Fault, Finding, commitment, is_sampled
from anabranch.protocol.federation.auditing import (
    TERM_MS,
    WANTED_MAX,
    MovementAudit,
    SoldStage,
    reason_against,
    why_not_judged,
)
from anabranch.protocol.federation.ledger import AuditCommitted, Audited, Ledger
from anabranch.protocol.federation.movements import Ended, EndReason, Movement
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import EpochStarted
from harness.boundary_logs import part, record, state_after
from harness.markets import CONTRACT, answer, contract, started, verify

NAME = "north-south:1/north.a"
WIDTH_MS = 100
STAGE = SoldStage("0", frozenset({"south.0", "west.0"}), horizon=2, version=1, width_ms=WIDTH_MS)
NUMBERS = [bytes([number]) * 32 for number in range(1, 5)]
HOME = 50
"""The last bucket that the owner's node has made."""
BEGUN_MS = HOME * WIDTH_MS


def stream(
    upto: int, node: str = "south.0", version: int = 1, missing: tuple[str, ...] = ()
) -> LogState:
    """Made at home up to HOME, then by ``node``."""
    return state_after(
        EpochStarted("0", "f", "t", node="north.0"),
        record(0, 0, HOME, missing=missing),
        EpochStarted("0", "f", "u", node=node, version=version),
        record(2, 1, upto, (part(60),)),
        writers=["0"],
    )


def replaced(upto: int) -> LogState:
    """Made at home by version 0 of the function, then by version 1."""
    return state_after(
        EpochStarted("0", "f", "t", node="north.0", version=0),
        record(0, 0, HOME - 1),
        record(0, 1, HOME),
        EpochStarted("0", "g", "u", node="south.0", version=1),
        record(3, 2, upto),
        writers=["0"],
    )


def sold(sample_ppm: int = 1_000_000) -> Ledger:
    text = contract(audit=replace(CONTRACT.audit, sample_ppm=sample_ppm))
    made = Ledger(text, verify, "audit")
    assert made.add(started(answer()), BEGUN_MS) == ""
    return made


def movement(ledger: Ledger) -> Movement:
    return ledger.movements[NAME]


def audit(*numbers: bytes) -> MovementAudit:
    return MovementAudit("audit", "north-south", NAME, numbers)


def write(made: MovementAudit, ledger: Ledger, at_ms: int) -> list[AuditCommitted | Audited]:
    """Write what is due, let it count, and read it."""
    due = made.entries(movement(ledger), WIDTH_MS)
    for entry in due:
        assert ledger.add(entry, at_ms) == ""
    made.read(ledger, movement(ledger))
    return due


def look(made: MovementAudit, ledger: Ledger, log_state: LogState, now_ms: int) -> None:
    made.look(ledger, movement(ledger), log_state, STAGE, now_ms)


def end(ledger: Ledger, at_ms: int) -> None:
    assert ledger.add(Ended("north-south", NAME, "north", 0, EndReason.RECALLED), at_ms) == ""


def test_a_number_is_drawn_while_the_movement_runs_and_its_hash_is_written_once() -> None:
    ledger, made = sold(), audit()
    assert made.is_number_due(movement(ledger), BEGUN_MS)
    assert write(made, ledger, BEGUN_MS) == []
    made.drawn(NUMBERS[0])
    assert made.numbers == (NUMBERS[0],)
    assert not made.is_number_due(movement(ledger), BEGUN_MS + 2 * TERM_MS), "its hash comes first"
    assert write(made, ledger, BEGUN_MS) == [
        AuditCommitted("north-south", NAME, "audit", commitment(NUMBERS[0]), WIDTH_MS)
    ]
    assert write(made, ledger, BEGUN_MS + 1) == []
    assert not made.is_number_due(movement(ledger), BEGUN_MS + TERM_MS - 1)
    assert made.is_number_due(movement(ledger), BEGUN_MS + TERM_MS)
    end(ledger, BEGUN_MS + 5)
    assert not made.is_number_due(movement(ledger), BEGUN_MS + TERM_MS)


def committed(sample_ppm: int = 1_000_000) -> tuple[Ledger, MovementAudit]:
    ledger, made = sold(sample_ppm), audit(NUMBERS[0])
    write(made, ledger, BEGUN_MS)
    return ledger, made


def test_au2_the_buckets_of_the_sample_that_the_seller_made_are_wanted_once() -> None:
    ledger, made = committed(500_000)
    look(made, ledger, stream(70), 6_500)
    drawn = [b for b in range(HOME + 1, 71) if is_sampled(NUMBERS[0], NAME, b, 500_000)]
    wanted = [bucket for bucket in drawn if bucket <= 65]
    assert list(made.wanted(100)) == wanted, "later ones have not ended"
    look(made, ledger, stream(70), 6_500)
    assert list(made.wanted(100)) == wanted
    made.judged(wanted, [])
    look(made, ledger, stream(70), 9_000)
    assert list(made.wanted(100)) == [bucket for bucket in drawn if bucket > 65], "all are closed"
    assert not made.left_out


def test_buckets_are_computed_together_whose_input_adjoins_or_is_the_same() -> None:
    ledger, made = committed(500_000)
    look(made, ledger, stream(70), 9_000)
    found, horizon = list(made.wanted(100)), 1
    cut = next(i for i in range(1, len(found)) if found[i] - horizon - 1 > found[i - 1])
    assert list(made.wanted(horizon)) == found[:cut]
    ledger, made = committed()
    look(made, ledger, stream(HOME + 500), 10**6)
    assert len(made.wanted(0)) == WANTED_MAX


def test_au1_a_number_is_revealed_after_the_next_hash_and_once_all_of_its_term_is_judged() -> None:
    ledger, made = committed()
    made.drawn(NUMBERS[1])
    look(made, ledger, stream(60), 6_000)
    assert [type(each) for each in write(made, ledger, 6_010)] == [AuditCommitted]
    assert write(made, ledger, 6_020) == [], "not all is judged"
    made.judged(made.wanted(100), [])
    look(made, ledger, stream(60), 6_500)
    assert write(made, ledger, 6_600) == [Audited("north-south", NAME, "audit", NUMBERS[0], ())], (
        "bucket 60 was the last of it"
    )
    assert made.numbers == (NUMBERS[1],)


def test_au3_a_finding_ends_the_term_and_is_reported_with_its_number() -> None:
    ledger, made = committed()
    look(made, ledger, stream(60), 6_000)
    wrong = Finding(55, Fault.WRONG_RESULT)
    assert not made.is_number_due(movement(ledger), 6_000)
    made.judged([55, 56], [wrong])
    assert not made.wanted(100), "it ends by that"
    assert write(made, ledger, 6_000) == [], "the next hash comes first"
    assert made.is_number_due(movement(ledger), 6_000)
    made.drawn(NUMBERS[1])
    assert [type(each) for each in write(made, ledger, 6_001)] == [AuditCommitted]
    assert write(made, ledger, 6_002) == [
        Audited("north-south", NAME, "audit", NUMBERS[0], (wrong,))
    ]
    assert ledger.is_wrong(NAME)


def test_au3_findings_are_reported_with_the_number_of_whose_sample_they_are() -> None:
    ledger, made = committed()
    made.drawn(NUMBERS[1])
    write(made, ledger, 6_000)
    look(made, ledger, stream(70), 9_000)
    made.judged(made.wanted(100), [Finding(70, Fault.NO_RESULT)])
    assert write(made, ledger, 9_000) == [Audited("north-south", NAME, "audit", NUMBERS[0], ())]
    end(ledger, 9_100)
    assert write(made, ledger, 9_200) == [
        Audited("north-south", NAME, "audit", NUMBERS[1], (Finding(70, Fault.NO_RESULT),))
    ]


def test_at_the_end_of_the_movement_the_number_is_revealed_and_what_has_no_hash_is_dropped() -> (
    None
):
    ledger, made = committed()
    made.drawn(NUMBERS[1])
    end(ledger, 6_000)
    made.read(ledger, movement(ledger))
    assert list(made.numbers) == NUMBERS[:1]
    look(made, ledger, stream(59), 9_000)
    made.skipped(made.wanted(100), "its input is gone")
    assert write(made, ledger, 9_000) == []
    look(made, ledger, stream(70), 9_000)
    assert made.wanted(100) == (60,), "later ones are not the seller's"
    made.judged([60], [])
    assert [type(each) for each in write(made, ledger, 9_100)] == [Audited]
    assert not list(made.numbers)
    assert made.left_out == {"its input is gone": 9}


def test_what_is_needed_of_the_log() -> None:
    assert audit().needed_after(40) == audit(NUMBERS[0]).needed_after(40) == 40
    ledger, made = committed()
    look(made, ledger, stream(60), 6_000)
    assert made.needed_after(70) == HOME
    made.judged([51, 52], [])
    assert made.needed_after(70) == 52
    made.judged(made.wanted(100), [])
    assert made.needed_after(70) == 60
    made.drawn(NUMBERS[1])
    assert [made.needed_after(ended) for ended in (59, 70)] == [59, 60]


@pytest.mark.parametrize(
    ("log_state", "bucket", "why"),
    [
        (stream(70), 51, ""),
        (stream(70), 50, "another node made it"),
        (stream(70, node="east.0"), 55, "another node made it"),
        (stream(70, node="west.0"), 55, ""),
        (stream(70, version=2), 55, "it is of another version of the stage"),
        (replaced(70), 52, "it may be partial"),
        (replaced(70), 53, ""),
        (stream(70, missing=("a",)), 52, "it may be partial"),
        (stream(70, missing=("a",)), 53, ""),
    ],
)
def test_what_says_nothing_of_the_seller_is_left_out(
    log_state: LogState, bucket: int, why: str
) -> None:
    assert why_not_judged(log_state, STAGE, bucket) == why


def test_what_may_come_from_the_state_of_the_owner_is_left_out() -> None:
    sold_stage = replace(STAGE, by_checkpoint=True)
    whys = [why_not_judged(stream(70), sold_stage, bucket) for bucket in (HOME, 52, 53)]
    assert whys == ["another node made it", "it may come from its owner's state", ""]


def test_what_the_log_describes_no_more_is_left_out() -> None:
    log_state = stream(70)
    log_state.forget(55)
    assert why_not_judged(log_state, STAGE, 55) == "its log describes it no more"
    assert why_not_judged(log_state, STAGE, 56) == ""
    ledger, made = committed()
    look(made, ledger, log_state, 6_000)
    assert made.wanted(100) == (56, 57, 58, 59, 60)
    assert made.left_out == {"its log describes it no more": 5}


def test_which_stages_can_be_audited() -> None:
    assert reason_against("upstream_backup") == ""
    assert "with ha: active its results do not follow" in reason_against("active")
