"""Tentative buckets, and branches that run and end, as the log state of a boundary log has
them.
"""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome, TentativeBucket
from anabranch.protocol.log.records import BranchEnded, LogEntry
from harness.boundary_logs import WRITERS, part, record, started, state_after, tentative


def test_rule_16_a_tentative_bucket_is_there_until_the_stable_one_comes() -> None:
    log_state = state_after(
        started(),
        record(0, 0, 4, (part(5, "open"),)),
        tentative(0, 1, 8, part(5, "open"), part(6), part(9), prev=BatchId("l", 0), base=4),
    )
    assert (
        log_state.upto,
        log_state.branch("0"),
        log_state.branch("1"),
        log_state.tentative_upto("0"),
        log_state.tentative_upto("1"),
    ) == (
        4,
        (0, 1),
        None,
        8,
        0,
    )
    assert log_state.tentative("0", 5) == TentativeBucket(
        5, "0", (0, 1), (part(5, "open"),), ("reports",)
    )
    assert log_state.tentative("0", 7) == TentativeBucket(7, "0", (0, 1), (), ("reports",))
    assert log_state.tentative("0", 4) is None
    assert log_state.tentative("0", 9) is None
    assert log_state.tentative("1", 5) is None
    assert log_state.tentative_filled("0", 1, 99) == [5, 6]
    assert [(r.first, r.last) for r in log_state.tentative_ranges("0", 1, 99)] == [(5, 8)]
    assert log_state.accepted("0", BatchId("branch 1", 1))
    assert log_state.tip("0") == BatchId("l", 0), "BL9"
    assert log_state.pending("0") == (part(5, "open"),), "BL9"
    assert log_state.past_upto == 8
    log_state.apply(
        3, record(0, 1, 6, (part(6, "stable"),), timeline="successor", prev=BatchId("l", 0))
    )
    assert log_state.stable(5, 6) == [(5, "0", (part(5, "open"),)), (6, "0", (part(6, "stable"),))]
    assert log_state.tentative("0", 6) is None, "BL10"
    assert log_state.tentative_filled("0", 1, 99) == []
    assert (log_state.tentative_upto("0"), log_state.past_upto) == (8, 8), "BL12"


def test_rule_16_the_newest_branch_wins_and_the_older_one_counts_no_more() -> None:
    log_state = state_after(
        started(),
        tentative(0, 0, 9, part(3, "first"), part(8, "first"), base=0),
        tentative(0, 0, 5, part(4, "second"), counter=2, base=1, prev=None, missing=()),
    )
    assert [
        (b.bucket, b.branch)
        for n in range(1, 10)
        if (b := log_state.tentative("0", n)) is not None and b.parts
    ] == [
        (4, (0, 2)),
        (8, (0, 1)),
    ]
    assert log_state.apply(3, tentative(0, 1, 12)) == Outcome(
        accepted=False, reason="older_branch", replica="0"
    )
    assert log_state.apply(4, tentative(0, 1, 6, counter=2)) == Outcome(
        accepted=True, reason="tentative", replica="0"
    )
    assert log_state.apply(5, tentative(0, 1, 6, counter=2)).reason == "known"
    assert log_state.apply(6, tentative(0, 3, 7, counter=2)).reason == "off_chain"
    assert log_state.apply(7, tentative(0, 4, 7, counter=3)).reason == "no_base"


def test_rules_1_and_16_branches_of_a_restarted_replica_are_newer() -> None:
    log_state = state_after(
        started(),
        tentative(0, 0, 5, part(5), counter=7, base=0),
        started(),
        tentative(2, 0, 6, part(6), base=4, prev=None),
    )
    assert log_state.branch("0") == (2, 1)
    assert [log_state.tentative("0", n) is not None for n in (4, 5, 6, 7)] == [
        True,
        True,
        True,
        False,
    ]
    assert log_state.apply(4, tentative(0, 1, 9, counter=7)).reason == "fenced"


def test_a_branch_changes_nothing_of_its_peer() -> None:
    log_state = state_after(
        started("0"),
        started("1"),
        tentative(0, 0, 5, part(2), base=0),
        record(1, 0, 3, (part(2, "of 1"),), replica="1"),
    )
    assert log_state.stable(1, 3) == [(2, "1", (part(2, "of 1"),))]
    assert log_state.closed("0") == 0
    assert [(r.first, r.last) for r in log_state.tentative_ranges("0", 1, 99)] == [(4, 5)]


def test_open_parts_are_those_of_the_writer_that_has_most_rows() -> None:
    log_state = state_after(
        started("0"),
        started("1"),
        record(0, 0, 1, (part(2, rows=2), part(2, "more"), part(4))),
        record(1, 0, 0, (part(2, "of 1", rows=2), part(3, "of 1"), part(4, "of 1")), replica="1"),
    )
    assert log_state.open_parts(2) == ("0", (part(2, rows=2), part(2, "more")))
    assert log_state.open_parts(3) == ("1", (part(3, "of 1"),))
    assert log_state.open_parts(4) == ("1", (part(4, "of 1"),))
    assert log_state.open_parts(1) == log_state.open_parts(5) == ("", ())
    assert (
        log_state.open_buckets(1, 99),
        log_state.open_buckets(1, 99, 2),
        log_state.open_buckets(4, 99),
    ) == ([2, 3, 4], [2, 3], [4])
    assert log_state.past_upto == 1


def test_a_bucket_that_was_closed_behind_a_hole_is_open_for_branches() -> None:
    log_state = state_after(
        started("0"),
        started("1"),
        record(1, 1, 3, replica="1", prev=None, base=3),
        record(1, 2, 5, (part(5),), replica="1"),
    )
    assert (log_state.upto, log_state.open_parts(5), log_state.open_buckets(1, 9)) == (
        0,
        ("1", (part(5),)),
        [5],
    )
    again = LogState.from_snapshot(log_state.snapshot(4))
    for each in (log_state, again):
        each.apply(4, record(0, 0, 3))
        assert each.stable(1, 5) == [(5, "1", (part(5),))], "BL8"
        assert each.open_parts(5) == ("", ())


def forked(*more: LogEntry) -> LogState:
    """Both writers have a branch."""
    branches = tentative(0, 0, 5, base=3), tentative(1, 0, 6, base=3, replica="1")
    return state_after(started("0"), started("1"), *branches, *more)


def test_bl18_a_branch_runs_until_its_end_or_the_next_epoch() -> None:
    log_state = forked()
    assert [log_state.has_branch(w) for w in "01"] == [True, True]
    end = BranchEnded("0", 0, 1)
    assert log_state.apply(4, end) == Outcome(accepted=True, reason="branch_ended", replica="0")
    assert log_state.apply(5, end).reason == "known"
    assert log_state.apply(6, tentative(0, 1, 9)).reason == "ended_branch"
    assert [log_state.has_branch(w) for w in "01"] == [False, True]
    assert log_state.apply(7, BranchEnded("1", 0, 1)).reason == "fenced"
    assert log_state.apply(8, BranchEnded("2", 0, 1)).reason == "unknown_writer"
    log_state.apply(9, started("1"))
    assert [log_state.has_branch(w) for w in "01"] == [False, False]
    assert (log_state.ended_branch("0"), log_state.ended_branch("1")) == ((0, 1), None)


def test_bl18_a_branch_of_a_version_that_counts_no_more_does_not_run() -> None:
    log_state = forked(started("1", version=2), record(4, 0, 9, replica="1"))
    assert log_state.version == (2, 0)
    assert [log_state.has_branch(w) for w in "01"] == [False, False]
    log_state.apply(6, tentative(4, 0, 12, base=9, replica="1"))
    log_state.apply(7, record(0, 0, 20))
    assert log_state.awaits_correction("1"), "nobody who counts has made what it has shown"


def test_bl18_no_branch_runs_in_a_stream_that_has_ended() -> None:
    """An overloaded shard has one when its halves take over: who reads it would wait for ever."""
    last = dataclasses.replace(record(0, 0, BUCKET_MAX, past=5), heirs=2)
    log_state = forked(last)
    again = LogState.from_snapshot(log_state.snapshot(5))
    for each in (log_state, again):
        assert [each.has_branch(w) for w in "01"] == [False, False]
        assert not any(map(each.awaits_correction, "01"))


@pytest.mark.parametrize("ended", [BranchEnded("0", 0, 1), started("0")])
def test_bl19_a_writer_without_a_branch_corrects_those_of_others(ended: LogEntry) -> None:
    log_state = forked(record(0, 0, 9))
    assert [log_state.awaits_correction(w) for w in "01"] == [True, True], "it has a branch itself"
    log_state.apply(5, ended)
    assert [log_state.awaits_correction(w) for w in "01"] == [False, True], "it may have failed"
    epoch = log_state.epoch("0") or 0
    log_state.apply(6, record(epoch, 1, 10, prev=log_state.tip("0")))
    assert not log_state.awaits_correction("1")
    assert log_state.has_branch("1"), "it has its own corrections still to make"
    log_state.apply(7, tentative(1, 0, 14, base=6, counter=2, replica="1"))
    assert log_state.awaits_correction("1"), "another failure"


def test_offers_are_what_is_tentative_beyond_the_stable_buckets_and_beyond_what_was_read() -> None:
    log_state = forked()
    assert log_state.tentative_offers() == {"0": 5, "1": 6}
    assert log_state.tentative_offers(5) == {"1": 6}
    log_state.apply(4, record(0, 0, 6))
    assert log_state.tentative_offers() == {}


def test_what_a_branch_closed_first_is_known() -> None:
    log_state = forked(tentative(0, 1, 8))
    assert [log_state.first_tentative_upto(w) for w in "01"] == [5, 6]
    assert LogState(WRITERS).first_tentative_upto("0") == 0


def test_bl8_ends_are_in_a_snapshot() -> None:
    log_state = forked(BranchEnded("0", 0, 1))
    again = LogState.from_snapshot(log_state.snapshot(5))
    for each in (log_state, again):
        assert [each.has_branch(w) for w in "01"] == [False, True]
        assert each.awaits_correction("1")
        assert each.apply(5, tentative(0, 1, 9)).reason == "ended_branch"
        assert [each.first_tentative_upto(w) for w in "01"] == [5, 6]
