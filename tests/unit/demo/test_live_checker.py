"""The one checker of live topics passes what is right and finds each fault that it is for."""

from __future__ import annotations

import pytest

from demo import live_checker as live
from demo.live_checker import LiveRecord

ANSWER: dict[int, list[tuple[object, ...]]] = {3: [("a",), ("b",)], 5: [("c",)]}


def boundary(sequence: int, stable: int, shown: int = 0) -> LiveRecord:
    return LiveRecord(0, 0, "boundary", None, stable=stable, shown=shown, sequence=sequence)


def insertion(bucket: int, position: int, row: str) -> LiveRecord:
    return LiveRecord(0, 0, "insertion", (bucket, position), row=(row,))


def shown(bucket: int, position: int, row: str) -> LiveRecord:
    return LiveRecord(0, 0, "tentative", (bucket, position), (0, 1), (row,))


UNDO = LiveRecord(0, 0, "undo", None)
DONE = LiveRecord(0, 0, "rec_done", None, stable=5)
A = insertion(3, 0, "a")
B = insertion(3, 1, "b")
C = insertion(5, 0, "c")
GOOD_LIVE = [
    [shown(3, 0, "a"), boundary(1, 2, 3)],
    [shown(5, 0, "x"), boundary(2, 2, 5)],
    [UNDO, A, B, shown(5, 0, "x"), boundary(3, 3, 5)],
    [C, DONE, boundary(4, 5)],
]


def live_verdict(runs: list[list[LiveRecord]], *, is_complete: bool = True) -> list[str]:
    flat = [
        each._replace(offset=offset)
        for offset, each in enumerate(each for run in runs for each in run)
    ]
    return live.check(flat, 1, ANSWER, is_complete=is_complete).wrong


def test_a_right_live_topic_passes() -> None:
    assert live_verdict(GOOD_LIVE) == []
    assert live_verdict([[A, B, boundary(1, 4)], [C, boundary(2, 5)]]) == []


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([GOOD_LIVE[0], GOOD_LIVE[1], [A, B, boundary(3, 3, 5)]], "corrections without an undo"),
        ([*GOOD_LIVE[:3], [UNDO, C, DONE, boundary(4, 5)]], "a second undo"),
        ([[UNDO, A, B, boundary(1, 3)]], "undo outside a failure"),
        (
            [
                [A, B, boundary(1, 3)],
                [shown(5, 0, "x"), boundary(2, 3, 5)],
                [UNDO, C, DONE, boundary(3, 5)],
            ],
            "undo names",
        ),
        ([*GOOD_LIVE[:2], [UNDO, A, B, boundary(3, 3, 5)]], "fall out of the answer"),
        (
            [*GOOD_LIVE[:2], [UNDO, A, B, shown(5, 0, "x"), DONE, boundary(3, 3)]],
            "are left at rec_done",
        ),
        ([[A, boundary(1, 3)]], "is not whole"),
        ([[A, B, boundary(1, 3)], [A, B, boundary(2, 3)]], "insertion 3.0, stable from 3"),
        ([[insertion(3, 0, "x"), B, boundary(1, 3)]], "insertion 3.0 is ('x',)"),
        (
            [[A, B, boundary(1, 3)], [shown(3, 0, "a"), boundary(2, 3, 3)]],
            "tentative bucket 3 below",
        ),
        (
            [[shown(3, 0, "a"), boundary(1, 2, 3)], [shown(3, 0, "a"), boundary(2, 2, 3)]],
            "shown twice",
        ),
        ([[A, B, boundary(1, 3)], [boundary(2, 2)]], "stable goes back"),
        ([[A, B, boundary(1, 3)], [C, boundary(3, 5)]], "has transaction 3 after 1"),
        ([[A, B, boundary(1, 3)]], "at the end bucket 5"),
        (GOOD_LIVE[:2], "are tentative"),
        ([[A, B, boundary(1, 3)], [C]], "after the last boundary"),
        ([[shown(3, 1, "a"), boundary(1, 2, 3)]], "has positions [1]"),
    ],
)
def test_a_wrong_live_topic_is_found(runs: list[list[LiveRecord]], text: str) -> None:
    wrong = live_verdict(runs)
    assert any(text in line for line in wrong), wrong


def test_all_partitions_must_bring_each_transaction() -> None:
    assert any(
        "in 1 of 2 partitions" in line
        for line in live.check([boundary(1, 3)], 2, {}, is_complete=False).wrong
    )


def test_tentative_rows_that_no_branch_made_are_found() -> None:
    records = [each for run in GOOD_LIVE for each in run]
    offered: dict[tuple[int, tuple[int, int]], list[tuple[object, ...]]] = {
        (3, (0, 1)): [("a",)],
        (5, (0, 1)): [("x",)],
    }
    assert live.check_shown(records, offered) == []
    assert len(live.check_shown(records, {**offered, (5, (0, 1)): [("x",), ("y",)]})) == 1
    assert len(live.check_shown(records, {})) == 2
