"""A live topic's records, and in numbers what they amount to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from demo.comparing import result
from demo.live import (
    Account,
    account,
    delays,
    events,
    live_record,
    seen_event_times_ms,
)
from demo.live_checker import (
    BOUNDARY,
    INSERTION,
    REC_DONE,
    TENTATIVE,
    UNDO,
    LiveRecord,
    Transaction,
    transactions,
)


def shown(
    kind: str, bucket: int, position: int = 0, *, missing: tuple[str, ...] = ()
) -> LiveRecord:
    branch = (7, 1) if kind == TENTATIVE else None
    return LiveRecord(
        0,
        0,
        kind,
        (bucket, position),
        branch,
        (bucket,),
        missing=missing,
        event_time_ms=bucket * 100,
    )


def boundary(sequence: int, stable: int, shown_upto: int = 0, *, at_ms: int = 0) -> LiveRecord:
    return LiveRecord(
        0, 0, BOUNDARY, stable=stable, shown=shown_upto, sequence=sequence, received_ms=at_ms
    )


UNDONE, REC = LiveRecord(0, 0, UNDO, (1, 0)), LiveRecord(0, 0, REC_DONE)

# One failure: buckets 2 and 3 are shown without "a", then 2 is corrected (3 comes once more), then
# 3, then 4 as usual.
STORY = [
    shown(INSERTION, 1),
    boundary(1, 1, at_ms=150),
    shown(TENTATIVE, 2, missing=("a", "b")),
    boundary(2, 1, 2, at_ms=500),
    shown(TENTATIVE, 3, missing=("a",)),
    boundary(3, 1, 3, at_ms=700),
    UNDONE,
    shown(INSERTION, 2),
    shown(INSERTION, 2, 1),
    shown(TENTATIVE, 3),
    boundary(4, 2, 3, at_ms=900),
    shown(INSERTION, 3),
    REC,
    boundary(5, 3, at_ms=950),
    shown(INSERTION, 4),
    boundary(6, 4, at_ms=1_000),
]


def ordered(records: list[LiveRecord]) -> list[Transaction]:
    return transactions(records, 1)[0]


def test_a_failure_is_accounted_for() -> None:
    found = account(ordered(STORY))
    assert (len(found.tentative), found.undone, found.corrected, found.missing) == (
        2,
        2,
        3,
        {"a", "b"},
    )
    assert found.standing == set()
    assert account([]) == Account()


def test_what_is_not_voided_stands() -> None:
    found = account(ordered(STORY[:6]))
    assert (len(found.tentative), found.undone, len(found.standing)) == (2, 0, 2)


def test_a_bucket_is_late_until_it_is_shown_tentative_or_not() -> None:
    everything = ordered(STORY)
    late = delays(everything, seen_event_times_ms(everything))
    assert [(each.event_time_ms, each.delay_ms) for each in late] == [
        (100, 50),
        (200, 300),
        (300, 400),
        (400, 600),
    ]
    assert delays(everything, {4: 400, 5: 500}) == late[-1:], "what was never shown has no delay"


def test_events_of_a_failure() -> None:
    assert events(ordered(STORY)) == [STORY[2], STORY[6], STORY[12]]
    empty_first = [
        boundary(1, 0, 1),
        *[each._replace(sequence=each.sequence + 1) for each in STORY],
    ]
    assert [each.kind for each in events(ordered(empty_first))] == [TENTATIVE, UNDO, REC_DONE], (
        "it may begin with buckets without results"
    )
    again = events(ordered([*STORY, shown(TENTATIVE, 5), boundary(7, 4, 5)]))
    assert [event.kind for event in again] == [TENTATIVE, UNDO, REC_DONE, TENTATIVE]


def _read(kind: str, value: dict[str, Any], **headers: str) -> LiveRecord:
    named = {
        "anabranch-kind": kind,
        **{f"anabranch-{name.replace('_', '-')}": text for name, text in headers.items()},
    }
    encoded = [(name, text.encode()) for name, text in named.items()]
    return live_record(
        encoded, b"k", json.dumps(value).encode(), partition=1, offset=2, received_ms=3
    )


def test_records_are_read() -> None:
    row = result({"n": 1}, 7, b"k", 1)
    assert _read(INSERTION, {"n": 1}, id="5.6", event_time="7") == LiveRecord(
        1, 2, INSERTION, (5, 6), None, row, event_time_ms=7, received_ms=3
    )
    tentative = _read(TENTATIVE, {"n": 1}, id="5.6/7.8", event_time="7", missing="a,b")
    assert (tentative.branch, tentative.missing, tentative.row) == ((7, 8), ("a", "b"), row)
    assert _read(UNDO, {"stable": 4, "stable_ms": 400}, id="4.9").ident == (4, 9)
    assert _read(UNDO, {"stable": 4, "stable_ms": 400}).ident is None
    fields = {"stable": 4, "stable_ms": 400, "shown": 5, "sequence": 6}
    read = LiveRecord(1, 2, BOUNDARY, stable=4, stable_ms=400, shown=5, sequence=6, received_ms=3)
    assert _read(BOUNDARY, fields) == read


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("what", {}),
        (TENTATIVE, {"id": "5.6", "event_time": "7"}),
        (INSERTION, {"id": "5.6/7.8", "event_time": "7"}),
        (INSERTION, {"event_time": "7"}),
    ],
)
def test_what_is_no_record_of_a_live_topic_is_rejected(kind: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="kind"):
        _read(kind, {"n": 1}, **headers)
