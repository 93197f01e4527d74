"""The checker of replicas that disagree passes what is right and finds each fault it is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkers import outvoted
from checkers.outvoted import Made, ManagerFence

MADE = [
    *(Made(100, replica, epoch, 1, is_right=True) for replica, epoch in (("0", 0), ("1", 1))),
    Made(150, "2", 2, 1, is_right=True),
    *(Made(200, replica, epoch, 2, is_right=True) for replica, epoch in (("0", 0), ("1", 1))),
    Made(250, "2", 2, 2, is_right=False),
    Made(900, "2", 9, 3, is_right=True),
]
FENCE = ManagerFence(300, "2", 2)


def test_who_is_outvoted_is_fenced_and_an_alarm_is_raised() -> None:
    assert outvoted.contradicted(MADE) == [MADE[5]]
    assert outvoted.check(MADE, [FENCE], [2]) == []


@pytest.mark.parametrize(
    ("fences", "alarmed", "found"),
    [
        ([], [2], "nobody fenced it"),
        ([replace(FENCE, epoch=1)], [2], "nobody fenced it"),
        ([FENCE], [], "nobody was told"),
        ([FENCE, ManagerFence(300, "1", 1)], [2], "nobody contradicts it"),
        ([replace(FENCE, at_ms=240)], [2], "nobody contradicts it"),
        ([FENCE, replace(FENCE, at_ms=400)], [2], "and again at 400 ms"),
    ],
)
def test_what_should_have_come_of_it(
    fences: list[ManagerFence], alarmed: list[int], found: str
) -> None:
    assert any(found in line for line in outvoted.check(MADE, fences, alarmed))


def test_who_is_wrong_again_in_a_new_epoch_is_fenced_again() -> None:
    again = [
        Made(1_000, replica, epoch, 4, is_right=True) for replica, epoch in (("0", 0), ("1", 1))
    ]
    made = [*MADE, *again, Made(1_050, "2", 9, 4, is_right=False)]
    assert outvoted.check(made, [FENCE, ManagerFence(1_100, "2", 9)], [2]) == []


def test_two_of_three_that_are_wrong_are_a_majority() -> None:
    spoilt = [*MADE[:4], replace(MADE[4], is_right=False), MADE[5]]
    assert outvoted.contradicted(spoilt) == []


def test_a_fenced_process_that_goes_on_is_found() -> None:
    late = Made(300 + outvoted.HEARD_MS + 1, "2", 2, 3, is_right=True)
    assert any("after its fence" in line for line in outvoted.check([*MADE, late], [FENCE], [2]))


def test_who_goes_on_from_what_was_outvoted_is_found() -> None:
    begun = [("0", 0, 0), ("1", 1, 0), ("2", 2, 0), ("2", 9, 800)]
    assert outvoted.check_anew(MADE, [FENCE], begun) == []
    spoilt = [*MADE[:-1], replace(MADE[-1], is_right=False)]
    assert outvoted.check_anew(spoilt, [FENCE], begun) != []
    assert outvoted.check_anew(spoilt, [replace(FENCE, at_ms=850)], begun) == [], "it began before"
