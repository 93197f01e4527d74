from __future__ import annotations

import json

from rich.console import Console

from anabranch.client import Kind, LiveRecord, LiveView
from anabranch.protocol.identifiers import RecordId
from examples.toll_road.live_view import newest, state_of, table_of


def toll(bucket: int, seg: int, *, tentative: bool = False) -> LiveRecord:
    value = json.dumps({"seg": seg, "toll": bucket * 10}).encode()
    kind = Kind.TENTATIVE if tentative else Kind.INSERTION
    return LiveRecord(
        kind,
        RecordId(bucket, 0),
        (1, 1) if tentative else None,
        ("reports_2",) if tentative else (),
        0,
        b"%d" % seg,
        value,
    )


def boundary(sequence: int, stable: int, shown: int = 0) -> LiveRecord:
    return LiveRecord(
        Kind.BOUNDARY,
        stable=stable,
        shown=shown,
        stable_ms=stable * 250,
        shown_ms=shown * 250,
        sequence=sequence,
    )


def text_of(view: LiveView) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table_of(view))
    return captured.get()


def test_the_table_marks_what_may_change() -> None:
    view = LiveView(1)
    for record in (
        toll(1, 7),
        toll(2, 8),
        boundary(1, 2),
        toll(3, 8, tentative=True),
        boundary(2, 2, 3),
    ):
        view.take(0, record)
    assert (
        state_of(view) == "stable up to 00:00:00.5, tentative up to 00:00:00.7, without reports_2"
    )
    assert "tentative, without reports_2" in text_of(view)
    for record in (LiveRecord(Kind.UNDO, RecordId(2, 0), stable=2), toll(3, 8), boundary(3, 3)):
        view.take(0, record)
    text = text_of(view)
    assert "tentative" not in text
    assert state_of(view) == "stable up to 00:00:00.7"
    assert text.index("30") < text.index("10")


def test_the_newest_come_first() -> None:
    assert [r.id for r in newest([toll(1, 7), boundary(1, 1), toll(3, 8), toll(2, 9)], 2)] == [
        RecordId(3, 0),
        RecordId(2, 0),
    ]
