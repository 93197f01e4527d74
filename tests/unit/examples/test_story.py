"""The story of a cut: when it happens, what is told, and when it counts as good."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from examples.toll_road.comparing import Comparison
from examples.toll_road.live import BOUNDARY, INSERTION, REC_DONE, TENTATIVE, UNDO, LiveRecord
from examples.toll_road.story import FailureReport, LiveTopic, Story

GOOD = FailureReport(
    cut="ingestion/a",
    cut_ms=20_000,
    max_delay_ms=3_000,
    usual_p50_ms=500,
    usual_max_ms=700,
    longest_ms=3_700,
    first_tentative_ms=2_900,
    stable_again_ms=1_000,
    tentative=2,
    undone=2,
    corrected=3,
    failures=1,
    undos=1,
    rec_dones=1,
)


class Recorded:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def drill(self, *arguments: str) -> None:
        self.done.append(arguments)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def result(kind: str, bucket: int, delay_ms: int, ago_ms: int = 0) -> LiveRecord:
    at_ms = now_ms() - ago_ms
    branch, missing = ("1.1", "a,b") if kind == TENTATIVE else ("", "")
    return LiveRecord(kind, 0, at_ms, (bucket, 1), branch, missing, at_ms - delay_ms)


def boundary(sequence: int, stable: int, shown: int = 0) -> LiveRecord:
    return LiveRecord(BOUNDARY, 0, now_ms(), stable=stable, shown=shown, sequence=sequence)


def test_it_cuts_heals_and_tells_what_is_seen() -> None:
    topic, said, drills = LiveTopic(), list[str](), Recorded()
    story = Story("ingestion/a", 0.0, 0.0, topic, said.append, 3_000, now_ms() + 60_000)
    for record in (result(INSERTION, 1, 500, ago_ms=1_000), boundary(1, 1)):
        topic.add(record)
    story.tick(drills)
    assert drills.done == [("cut", "ingestion/a")]
    for record in (result(TENTATIVE, 2, 3_000), boundary(2, 1, 2)):
        topic.add(record)
    assert not story.is_told()
    story.tick(drills)
    assert drills.done == [("cut", "ingestion/a"), ("heal", "ingestion/a")]
    assert not story.is_told(), "tentative results stand"
    undo, done = LiveRecord(UNDO, 0, now_ms(), (1, 1)), LiveRecord(REC_DONE, 0, now_ms())
    for record in (undo, result(INSERTION, 2, 9_000), done, boundary(3, 2), result(INSERTION, 3, 800), boundary(4, 3)):
        topic.add(record)
    story.tick(drills)
    story.tick(drills)
    assert story.is_told()
    told = [line.partition("[/]  ")[2] for line in said]
    assert told[0] == "so far results come 0.5 s after their window, final at once"
    assert [line.split(",")[0].split(":")[0] for line in told[1:]] == [
        "[bold]anabranch cut ingestion/a[/]",
        "[bold]anabranch heal ingestion/a[/]",
        "tentative results",
        "undo back to result 1.1",
        "rec_done",
    ]
    assert "made without a, b: 3.0 s after their window" in told[3]
    found = story.report(lambda records: Comparison(len(records), len(records), 0, 0, 0, 0))
    assert (found.tentative, found.undone, found.corrected, found.failures, found.standing) == (1, 1, 1, 1, 0)
    assert (found.usual_p50_ms, found.usual_max_ms, found.longest_ms, found.added_ms) == (500, 500, 3_000, 2_500)
    assert (found.missing, found.final.expected, found.broken) == (("a", "b"), 3, ())
    assert found.is_good()


@pytest.mark.parametrize(
    "report",
    [
        replace(GOOD, longest_ms=3_701),
        replace(GOOD, longest_ms=None),
        replace(GOOD, usual_max_ms=6_001, longest_ms=6_000),
        replace(GOOD, usual_max_ms=None),
        replace(GOOD, tentative=0),
        replace(GOOD, undos=2),
        replace(GOOD, rec_dones=0),
        replace(GOOD, standing=1),
        replace(GOOD, broken=("an undo names something else",)),
        replace(GOOD, final=Comparison(3, 2, 1, 0, 0, 0)),
        replace(GOOD, answer=Comparison(3, 4, 0, 1, 0, 0)),
    ],
)
def test_any_broken_promise_is_not_good(report: FailureReport) -> None:
    assert GOOD.is_good()
    assert not report.is_good()


class Message:
    """As a consumer gets it."""

    def __init__(self, value: dict[str, object], **headers: str) -> None:
        self._value = value
        self._headers = [(f"anabranch-{name}", text.encode()) for name, text in headers.items()]

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return json.dumps(self._value).encode()

    def partition(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 7


def test_the_answer_is_what_the_client_library_keeps() -> None:
    topic = LiveTopic()
    for message in (
        Message({"n": 1}, kind=INSERTION, id="1.1", stime="100"),
        Message({"n": 2}, kind=TENTATIVE, id="2.1/1.1", stime="200", missing="a"),
        Message({"kind": BOUNDARY, "stable": 1, "stable_ms": 100, "shown": 2, "shown_ms": 200, "sequence": 1}, kind=BOUNDARY),
    ):
        topic.take(message)
    assert [record.value for record in topic.answer()] == [{"n": 1}, {"n": 2}]
    for message in (
        Message({"kind": UNDO, "stable": 1, "stable_ms": 100, "last_id": "1.1"}, kind=UNDO, id="1.1"),
        Message({"n": 3}, kind=INSERTION, id="2.1", stime="200"),
        Message({"kind": REC_DONE, "stable": 2, "stable_ms": 200}, kind=REC_DONE),
        Message({"kind": BOUNDARY, "stable": 2, "stable_ms": 200, "shown": 0, "shown_ms": 0, "sequence": 2}, kind=BOUNDARY),
    ):
        topic.take(message)
    assert [(record.value, record.identifier) for record in topic.answer()] == [({"n": 1}, (1, 1)), ({"n": 3}, (2, 1))]
