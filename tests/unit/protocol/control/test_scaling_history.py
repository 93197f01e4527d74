"""The outcome of a decision is what was observed after its record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.records import Move, NodeReport, ReplicaLoad, SplitStep, Step
from anabranch.protocol.control.scaling_history import (
    CAUGHT_UP_MS,
    EPISODES_MAX,
    Episode,
    ScalingHistory,
    leading,
)

BUCKET_MS = 100
MOVE = Move("clean", "0", "north.7", 5, only_from="north.0", cause="lost", because="silent")


def report(*, behind: int = 0, leads: bool = True, stands_by: bool = False) -> NodeReport:
    load = ReplicaLoad("clean", "0", "running", leads, stands_by, 100, 1, behind)
    return NodeReport("north.7", 0, 2, (load,))


def decided() -> tuple[ScalingHistory, Episode]:
    history = ScalingHistory()
    history.moved(MOVE, "north.0", 5_200, 10_000)
    return history, history.episodes[0]


def test_the_times_are_those_from_the_record_on() -> None:
    history, episode = decided()
    assert (episode.source, episode.target, episode.silent_ms) == ("north.0", "north.7", 5_200)
    history.follow({}, BUCKET_MS, 11_000)
    history.follow({"north.7": (None, 0)}, BUCKET_MS, 12_000)
    history.follow({"north.7": (NodeReport("north.7", 0, 2), 12_500)}, BUCKET_MS, 13_000)
    history.follow({"north.7": (report(leads=False), 13_500)}, BUCKET_MS, 14_000)
    reached = [(episode.restore_ms, episode.catch_up_ms, episode.is_open)]
    late = CAUGHT_UP_MS // BUCKET_MS + 1
    history.follow({"north.7": (report(behind=late), 14_500)}, BUCKET_MS, 15_000)
    reached.append((episode.restore_ms, episode.catch_up_ms, episode.is_open))
    history.follow({"north.7": (report(behind=late - 1), 16_500)}, BUCKET_MS, 17_000)
    reached.append((episode.restore_ms, episode.catch_up_ms, episode.is_open))
    assert reached == [(None, None, True), (5_000, None, True), (5_000, 2_000, False)]


def test_a_report_of_before_says_nothing() -> None:
    """EP2."""
    history, episode = decided()
    history.follow({"north.7": (report(), 9_999)}, BUCKET_MS, 11_000)
    assert episode.restore_ms is None


def test_a_standby_of_a_passive_stage_is_restored() -> None:
    history, episode = decided()
    history.follow({"north.7": (report(leads=False, stands_by=True), 11_000)}, BUCKET_MS, 12_000)
    assert (episode.restore_ms, episode.catch_up_ms) == (2_000, 0)


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        (Move("clean", "0", "north.0", 6, withdrawn="no store"), "withdrawn"),
        (Move("clean", "0", "north.8", 6, cause="lost"), "replaced"),
        (Move("clean", "0", "north.8", 6), "replaced"),
        (Move("clean", "1", "north.8", 6), ""),
    ],
)
def test_another_move_ends_it(then: Move, outcome: str) -> None:
    """EP1."""
    history, episode = decided()
    history.moved(then, "north.7", None, 11_000)
    assert episode.outcome == outcome
    assert episode.is_open == (not outcome)
    assert len(history.episodes) == 1 + bool(then.cause)


def test_of_older_decisions_no_times_are_known() -> None:
    history = ScalingHistory()
    history.moved(MOVE, "north.0", None, None)
    history.follow({"north.7": (report(), 1)}, BUCKET_MS, 1)
    assert history.episodes[0].restore_ms is None


def test_the_newest_are_kept() -> None:
    history = ScalingHistory()
    for written_ms in range(EPISODES_MAX + 3):
        move = Move("clean", "0", "north.7", written_ms, cause="lost")
        history.moved(move, "north.0", None, written_ms)
    assert len(history.episodes) == EPISODES_MAX
    assert history.episodes[0].written_ms == 3


def test_who_leads() -> None:
    assert list(leading(None)) == []
    assert list(leading(report(leads=False))) == []
    assert [load.label for load in leading(report())] == ["clean.0"]


WANTED = SplitStep("clean", Step.WANTED, 5, reason="it is slow")


@pytest.mark.parametrize(
    ("answer", "catch_up_ms", "outcome"),
    [(Step.CONFIRMED, 4_000, ""), (Step.WITHDRAWN, None, "withdrawn")],
)
def test_a_split_is_open_until_its_answer(
    answer: Step, catch_up_ms: int | None, outcome: str
) -> None:
    """EP1: a move of a replica whose label is the name of the shard does not end it."""
    history = ScalingHistory()
    history.stepped(replace(WANTED, shard="clean.0"), "north.0", "halves", 1_000, is_new=True)
    history.moved(MOVE, "north.0", None, 2_000)
    episode, move = history.episodes
    assert (episode.label, episode.target, episode.cause) == ("clean.0", "halves", "split")
    assert (episode.because, episode.is_open) == ("it is slow", True)
    step = SplitStep("clean.0", answer, 6, 0)
    history.stepped(replace(step, shard="other"), "", "", 4_000, is_new=True)
    history.stepped(step, "", "", 5_000, is_new=True)
    assert (episode.catch_up_ms, episode.outcome) == (catch_up_ms, outcome)
    assert not episode.is_open
    assert move.is_open


def test_a_split_that_an_operator_wants_is_no_decision_of_a_scaler() -> None:
    history = ScalingHistory()
    history.stepped(replace(WANTED, reason=""), "north.0", "halves", 1_000, is_new=True)
    assert not history.episodes


def test_of_a_split_that_is_older_than_the_process_no_time_is_known() -> None:
    history = ScalingHistory()
    history.stepped(WANTED, "north.0", "halves", 1_000, is_new=False)
    history.stepped(SplitStep("clean", Step.CONFIRMED, 6, 0), "", "", 5_000, is_new=True)
    (episode,) = history.episodes
    assert episode.catch_up_ms is None
