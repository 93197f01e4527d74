"""What a live topic amounts to, and which broken promises are noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from examples.toll_road.live import (
    BOUNDARY,
    INSERTION,
    REC_DONE,
    TENTATIVE,
    UNDO,
    Account,
    LiveRecord,
    account,
    events,
    live_record,
    transactions,
)


def result(kind: str, bucket: int, position: int = 1, *, at_ms: int, partition: int = 0, missing: str = "") -> LiveRecord:
    branch = "7.1" if kind == TENTATIVE else ""
    return LiveRecord(kind, partition, at_ms, (bucket, position), branch, missing, bucket * 100, at_ms, {"n": bucket})


def boundary(sequence: int, stable: int, shown: int = 0, partition: int = 0) -> LiveRecord:
    return LiveRecord(BOUNDARY, partition, 0, stable=stable, shown=shown, sequence=sequence)


def undo(bucket: int, position: int = 1, partition: int = 0) -> LiveRecord:
    return LiveRecord(UNDO, partition, 0, (bucket, position))


REC = LiveRecord(REC_DONE, 0, 0)

# One failure: buckets 2 and 3 are shown without "a", then 2 is corrected (3 comes once more), then 3, then 4 as usual.
STORY = [
    result(INSERTION, 1, at_ms=150), boundary(1, 1),
    result(TENTATIVE, 2, at_ms=500, missing="a,b"), boundary(2, 1, 2),
    result(TENTATIVE, 3, at_ms=700, missing="a"), boundary(3, 1, 3),
    undo(1), result(INSERTION, 2, at_ms=900), result(INSERTION, 2, 2, at_ms=900), result(TENTATIVE, 3, at_ms=900), boundary(4, 2, 3),
    result(INSERTION, 3, at_ms=950), REC, boundary(5, 3),
    result(INSERTION, 4, at_ms=1_000), boundary(6, 4),
]  # fmt: skip


def test_a_failure_is_accounted_for() -> None:
    found = account(STORY)
    assert [(new.delay_ms, new.is_tentative) for new in found.new] == [(50, False), (300, True), (400, True), (600, False)]
    assert [record.identifier for record in found.stable] == [(1, 1), (2, 1), (2, 2), (3, 1), (4, 1)]
    assert (len(found.tentative), found.undone, found.corrected) == (2, 2, 3)
    assert (found.failures, found.undos, found.rec_dones, found.missing) == (1, 1, 1, {"a", "b"})
    assert (found.standing, found.broken) == (set(), [])


def test_events_of_a_failure() -> None:
    assert events(STORY) == [STORY[2], STORY[6], STORY[12]]
    empty_first = [boundary(0, 0, 1), *STORY]
    assert events(empty_first) == events(STORY), "a failure may begin with buckets without results"
    assert [event.kind for event in events([*STORY, result(TENTATIVE, 5, at_ms=1), boundary(7, 4, 5)])] == [
        TENTATIVE,
        UNDO,
        REC_DONE,
        TENTATIVE,
    ]


def test_what_is_not_voided_stands() -> None:
    found = account(STORY[:6])
    assert (len(found.tentative), found.undone, len(found.standing)) == (2, 0, 2)


def test_after_the_end_of_the_traffic_nothing_counts() -> None:
    silence = [*STORY, result(TENTATIVE, 5, at_ms=9_000), boundary(7, 4, 5)]
    assert account(silence).failures == 2
    ended = [replace(record, stable_ms=record.stable * 100) for record in silence]
    assert account(ended, 400) == account(STORY)
    assert account(ended, 450).failures == 2
    assert events(ended, 400) == events([replace(record, stable_ms=record.stable * 100) for record in STORY])


def test_partitions_are_put_back_into_the_order_of_transactions() -> None:
    """The second partition was read later, and its bucket 2 is no new result: it was shown, empty there, before."""
    first = [result(TENTATIVE, 2, at_ms=250), boundary(1, 1, 2), undo(0), result(INSERTION, 2, at_ms=300), REC, boundary(2, 2)]
    second = [boundary(1, 1, 2, 1), undo(0, partition=1), result(INSERTION, 2, 2, at_ms=900, partition=1), boundary(2, 2, 0, 1)]
    for records in ([*first, *second], [*second, *first]):
        assert [transaction.sequence for transaction in transactions(records)] == [1, 2]
        assert [new.delay_ms for new in account(records).new] == [50]
    assert [transaction.sequence for transaction in transactions([*first, *second[:1]])] == [1], "the second is not read whole"
    assert transactions([result(INSERTION, 9, at_ms=1)]) == []


def replaced(at: int, *records: LiveRecord) -> list[LiveRecord]:
    return [*STORY[:at], *records, *STORY[at + 1 :]]


@pytest.mark.parametrize(
    ("records", "what"),
    [
        (replaced(6, undo(0)), "an undo names [(0, 1)], the last final result was (1, 1)"),
        (replaced(11, undo(2, 2), result(INSERTION, 3, at_ms=950)), "a second undo in one failure, transaction 5"),
        (replaced(10, REC, boundary(4, 2, 3)), "rec_done of transaction 4 left 1 tentative results"),
        (replaced(14, result(INSERTION, 3, at_ms=1)), "a final result (3, 1) came after (3, 1)"),
        (replaced(13, boundary(5, 1)), "transaction 5: final results go back from bucket 2 to 1"),
        (replaced(14, result(TENTATIVE, 4, at_ms=1)), "tentative without a failure, transaction 6"),
        (replaced(14, undo(3), result(INSERTION, 4, at_ms=1)), "undo without a failure, transaction 6"),
        (replaced(14, REC, result(INSERTION, 4, at_ms=1)), "rec_done without a failure, transaction 6"),
        (replaced(12), "a failure ended without rec_done, transaction 5"),
    ],
)
def test_broken_promises_are_noticed(records: list[LiveRecord], what: str) -> None:
    assert what in account(records).broken


def _read(kind: str, value: dict[str, Any], **headers: str) -> LiveRecord:
    named = {"anabranch-kind": kind, **{f"anabranch-{name}": text for name, text in headers.items()}}
    encoded = [(name, text.encode()) for name, text in named.items()]
    return live_record(encoded, json.dumps(value).encode(), partition=1, appended_ms=2, received_ms=3)


def test_records_are_read() -> None:
    assert _read(INSERTION, {"n": 1}, id="5.6", stime="7") == LiveRecord(INSERTION, 1, 3, (5, 6), "", "", 7, 2, {"n": 1})
    tentative = _read(TENTATIVE, {"n": 1}, id="5.6/7.8", stime="7", missing="a,b")
    assert tentative == LiveRecord(TENTATIVE, 1, 3, (5, 6), "7.8", "a,b", 7, 2, {"n": 1})
    assert _read(UNDO, {"stable": 4}, id="4.9") == LiveRecord(UNDO, 1, 3, (4, 9), stable=4)
    assert _read(UNDO, {"stable": 4}) == LiveRecord(UNDO, 1, 3, stable=4)
    boundary_fields = {"stable": 4, "stable_ms": 400, "shown": 5, "sequence": 6}
    assert _read(BOUNDARY, boundary_fields) == LiveRecord(BOUNDARY, 1, 3, stable=4, stable_ms=400, shown=5, sequence=6)
    assert _read(REC_DONE, {"stable": 4}) == LiveRecord(REC_DONE, 1, 3, stable=4)
    with pytest.raises(ValueError, match="no records of kind 'what'"):
        _read("what", {})


def test_nothing_amounts_to_nothing() -> None:
    assert account([]) == Account()
