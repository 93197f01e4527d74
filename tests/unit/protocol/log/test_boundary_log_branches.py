"""Branches that run and end, as the log state of a boundary log has them."""

from __future__ import annotations

import pytest

from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import BranchEnded, LogEntry
from harness.boundary_logs import WRITERS, record, started, state_after, tentative


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
