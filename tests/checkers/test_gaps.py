"""The checker of what a stage gives up: each of its rules was seen to fail."""

from __future__ import annotations

from checkers import gaps
from checkers.gaps import Gap

INPUT = [(0, 0), (100, 10), (200, 20)]


def check(*found: Gap, lost_ms: tuple[int, ...] = (90,), horizon: int = 2) -> list[str]:
    return gaps.check("s", found, lost_ms, [INPUT], horizon)


def test_a_gap_up_to_the_horizon_behind_what_was_complete_is_right() -> None:
    assert check(Gap(150, 5, 12)) == []


def test_nothing_is_given_up_where_no_state_was_lost() -> None:
    assert check(Gap(150, 5, 12), lost_ms=()) != []
    assert check(Gap(150, 5, 12), lost_ms=(160,)) != []


def test_one_loss_is_a_reason_for_one_gap() -> None:
    two = Gap(150, 5, 12), Gap(220, 15, 22)
    assert [line for line in check(*two) if "15..22" not in line] == []
    assert check(*two) != []
    assert check(*two, lost_ms=(90, 210)) == []


def test_no_more_is_given_up_than_may_be_partial() -> None:
    assert check(Gap(150, 5, 13)) != []
    assert gaps.check("s", [Gap(150, 5, 12)], [90], [INPUT, [(0, 3)]], 2) != []


def test_of_every_gap_an_alarm_tells() -> None:
    assert gaps.check_alarms("s", [Gap(150, 5, 12)], {5}) == []
    assert gaps.check_alarms("s", [Gap(150, 5, 12)], {6}) != []
