"""The story of a cut: when it happens, what is told, and when it counts as good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from demo.comparing import Comparison, Delivered, result
from demo.consuming import received_ms
from demo.live_checker import (
    BOUNDARY,
    INSERTION,
    REC_DONE,
    TENTATIVE,
    UNDO,
    LiveRecord,
)
from demo.stalls import Apart, Stall
from demo.story import FailureReport, LiveTopic, Story, streams_of
from demo.tentative import Road
from demo.traffic import COLUMNS

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
    answer=Comparison(3, 3, 0, 0, 0, 0),
)


class Recorded:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def drill(self, *arguments: str) -> None:
        self.done.append(arguments)


WINDOW_MS, BUCKET_MS = 1_000, 500


def road(begin_ms: int) -> Road:
    """Two expressways, one report each in each of the three windows from ``begin_ms`` on."""
    rows = [
        (begin_ms + WINDOW_MS * window + 700, 5, 30, xway, 1, 0, 3, 0)
        for window in range(3)
        for xway in (0, 1)
    ]
    return Road(
        pl.DataFrame(rows, schema=list(COLUMNS), orient="row"),
        ("a", "b"),
        BUCKET_MS,
        WINDOW_MS,
        20,
        40,
        1,
    )


def boundary(sequence: int, at: Road, stable: int, shown: int = 0, *, at_ms: int = 0) -> LiveRecord:
    buckets = [0, *sorted(at.answer)]
    upto = buckets[stable]
    return LiveRecord(
        0,
        0,
        BOUNDARY,
        stable=upto,
        shown=buckets[shown],
        sequence=sequence,
        stable_ms=upto * BUCKET_MS,
        received_ms=at_ms,
    )


def results(kind: str, at: Road, window: int, xways: tuple[int, ...] = (0, 1)) -> list[LiveRecord]:
    bucket = sorted(at.answer)[window - 1]
    rows = [at.answer[bucket][xway] for xway in xways]
    branch, missing = ((1, 1), ("b",)) if kind == TENTATIVE else (None, ())
    return [
        LiveRecord(
            0,
            0,
            kind,
            (bucket, place),
            branch,
            row,
            missing=missing,
            event_time_ms=row.event_time_ms,
        )
        for place, row in enumerate(rows)
    ]


def story_of(
    at: Road, begin_ms: int, *, tentative: list[LiveRecord] | None = None
) -> list[LiveRecord]:
    """The first window stable, the second one without b, then corrected, the third one
    stable. Each 500 ms late, the second one 2 500 ms.
    """
    last = LiveRecord(0, 0, UNDO, (min(at.answer), 1))
    shown = results(TENTATIVE, at, 2, (0,)) if tentative is None else tentative
    ends_ms = [begin_ms + WINDOW_MS * number for number in (1, 2, 3)]
    return [
        *results(INSERTION, at, 1),
        boundary(1, at, 1, at_ms=ends_ms[0] + 500),
        *shown,
        boundary(2, at, 1, 2, at_ms=ends_ms[1] + 2_500),
        last,
        *results(INSERTION, at, 2),
        LiveRecord(0, 0, REC_DONE),
        boundary(3, at, 2, at_ms=ends_ms[1] + 5_000),
        *results(INSERTION, at, 3),
        boundary(4, at, 3, at_ms=ends_ms[2] + 3_000),
    ]


class Kept(LiveTopic):
    """What the client library keeps is what is stable: what it keeps of real records is seen
    below.
    """

    def answer(self) -> list[Delivered]:
        return [
            Delivered(each.ident, each.row, 0)  # type: ignore[arg-type]
            for each in self.records()
            if each.kind == INSERTION and each.ident
        ]


def topic_of(records: list[LiveRecord]) -> LiveTopic:
    topic = Kept(1)
    for record in records:
        topic.add(record)
    return topic


BEGIN_MS = 1_700_000_000_000


def report_of(
    records: list[LiveRecord],
    again: list[LiveRecord] | None = None,
    stalls: Sequence[Stall] = (),
) -> FailureReport:
    at = road(BEGIN_MS)
    story = Story(
        "ingestion/b", 50, 20, topic_of(records), lambda _: None, 3_000, BEGIN_MS + 3 * WINDOW_MS
    )
    story.cut_ms, story.heal_ms = BEGIN_MS + 1_600, BEGIN_MS + 10_000
    return story.report(
        at, topic_of(records if again is None else again), was_killed=False, stalls=stalls
    )


def test_it_cuts_heals_and_tells_what_is_seen() -> None:
    begin_ms = (received_ms() - 2_500) // WINDOW_MS * WINDOW_MS
    lines = list[str]()
    drills = Recorded()
    at = road(begin_ms)
    everything = story_of(at, begin_ms)
    topic = Kept(1)
    story = Story("ingestion/b", 0.0, 0.0, topic, lines.append, 3_000, begin_ms + 3 * WINDOW_MS)
    for record in everything[:3]:
        topic.add(record)
    story.tick(drills)
    assert drills.done == [("cut", "ingestion/b")]
    for record in everything[3:5]:
        topic.add(record)
    assert not story.is_over()
    story.tick(drills)
    assert drills.done == [("cut", "ingestion/b"), ("heal", "ingestion/b")]
    assert not story.is_over(), "tentative results stand"
    for record in everything[5:]:
        topic.add(record)
    story.tick(drills)
    story.tick(drills)
    assert story.is_over()
    events = [line.partition("[/]  ")[2] for line in lines]
    assert events[0] == "so far results come 0.5 s after their window, stable at once"
    assert [line.split(",")[0].split(":")[0].rpartition(" ")[0] for line in events[1:]] == [
        "[bold]anabranch drill cut",
        "[bold]anabranch drill heal",
        "tentative",
        "undo back to result",
        "",
    ]
    assert "made without b" in events[3]


def test_a_right_story_is_good() -> None:
    found = report_of(story_of(road(BEGIN_MS), BEGIN_MS))
    assert found.broken == ()
    assert (
        found.tentative,
        found.undone,
        found.corrected,
        found.failures,
        found.undos,
        found.rec_dones,
    ) == (1, 1, 2, 1, 1, 1)
    assert (found.usual_p50_ms, found.usual_max_ms, found.longest_ms, found.added_ms) == (
        500,
        500,
        3_000,
        2_500,
    )
    assert (found.missing, found.answer.expected) == (("b",), 6)
    assert found.is_good()


NONSENSE = LiveRecord(0, 0, TENTATIVE, (0, 0), (1, 1), result({"nonsense": True}, 0, None, 0))


def wrong_stories() -> dict[str, tuple[list[LiveRecord], str]]:
    at = road(BEGIN_MS)
    second, right = sorted(at.answer)[1], results(TENTATIVE, at, 2, (0,))
    good = story_of(at, BEGIN_MS)
    silent = story_of(at, BEGIN_MS, tentative=[])
    nonsense = story_of(at, BEGIN_MS, tentative=[NONSENSE._replace(ident=(second, 0))])
    return {
        "nonsense": (nonsense, "it has results of no expressway"),
        "names nothing": (
            story_of(at, BEGIN_MS, tentative=[right[0]._replace(missing=())]),
            "none of its reports left out",
        ),
        "only boundaries": (silent, "is shown without results"),
        "not shown": (silent, "was not shown without it"),
        "wrong final": ([good[0]._replace(row=good[1].row), *good[1:]], "insertion"),
        "torn": (good[:-1], "after the last boundary"),
    }


@pytest.mark.parametrize("name", list(wrong_stories()))
def test_a_wrong_story_is_not_good(name: str) -> None:
    records, says = wrong_stories()[name]
    found = report_of(records)
    assert any(says in text for text in found.broken), found.broken
    assert not found.is_good()


def test_a_node_may_be_cut_off_too() -> None:
    targets = ("ingestion/reports_2", "processing/north.0", "delivery/tolls")
    assert [streams_of(target) for target in targets] == [
        {"reports_2"},
        {"segment_statistics", "tolls"},
        {"tolls"},
    ]


def test_what_was_seen_must_still_be_there() -> None:
    good = story_of(road(BEGIN_MS), BEGIN_MS)
    found = report_of([good[0]._replace(branch=(9, 9)), *good[1:]], good)
    assert any("who followed it saw" in text for text in found.broken), found.broken


@pytest.mark.parametrize(
    "report",
    [
        replace(GOOD, longest_ms=3_701),
        replace(GOOD, usual_max_ms=5_000, longest_ms=7_501),
        replace(GOOD, longest_ms=None),
        replace(GOOD, usual_max_ms=6_001, longest_ms=6_000),
        replace(GOOD, usual_max_ms=None),
        replace(GOOD, longest_ms=None, apart_before=Apart(9, 9, 300)),
        replace(GOOD, usual_max_ms=None, longest_ms=7_501, apart_before=Apart(9, 9, 300)),
        replace(GOOD, tentative=0),
        replace(GOOD, broken=("an undo names something else",)),
        replace(GOOD, answer=Comparison(3, 4, 0, 1, 0, 0)),
    ],
)
def test_any_broken_promise_is_not_good(report: FailureReport) -> None:
    assert GOOD.is_good()
    assert not report.is_good()


@pytest.mark.parametrize(
    "report",
    [
        replace(GOOD, usual_max_ms=None, longest_ms=7_500, apart_before=Apart(9, 9, 300)),
        replace(GOOD, longest_ms=None, apart_since=Apart(9, 9, 300)),
        replace(
            GOOD,
            usual_max_ms=None,
            longest_ms=None,
            tentative=0,
            apart_since=Apart(9, 9, 99_000),
            is_held_up=True,
        ),
    ],
)
def test_what_no_delay_can_show_is_no_broken_promise(report: FailureReport) -> None:
    assert report.is_good()


LATE_MS = 9_000
CUT_END_MS = BEGIN_MS + 2 * WINDOW_MS


def held_up(by_ms: int) -> list[LiveRecord]:
    """The story with everything from the tentative results on later."""
    at = road(BEGIN_MS)
    return [
        each._replace(received_ms=each.received_ms + by_ms) if each.sequence > 1 else each
        for each in story_of(at, BEGIN_MS)
    ]


def test_a_slow_system_is_not_good_unless_the_machine_stood_still_meanwhile() -> None:
    """The window that ends at CUT_END_MS is shown 11.5 s later, the last one 12 s."""
    slow = report_of(held_up(LATE_MS))
    assert (slow.longest_ms, slow.is_good()) == (12_000, False)
    assert str(slow.apart).startswith("all 3 delays are judged")
    stall = Stall(CUT_END_MS + 2_000, CUT_END_MS + 10_000)
    stalled = report_of(held_up(LATE_MS), stalls=[stall])
    assert stalled.is_good(), stalled
    assert (stalled.usual_max_ms, stalled.longest_ms) == (500, None)
    assert str(stalled.apart) == (
        "2 of 3 delays fell into stalls of the machine (longest 8.0 s): not judged"
    )


@pytest.mark.parametrize(
    "stall",
    [
        Stall(BEGIN_MS, BEGIN_MS + 900),
        Stall(CUT_END_MS + 11_500, CUT_END_MS + 11_900),
        Stall(CUT_END_MS + 30_000, CUT_END_MS + 40_000),
    ],
)
def test_a_stall_at_another_time_does_not_excuse_a_slow_system(stall: Stall) -> None:
    """Before the cut; after the one late result, which leaves the other; and after all."""
    found = report_of(held_up(LATE_MS), stalls=[stall])
    assert found.longest_ms in {11_500, 12_000}
    assert not found.is_good()


def test_a_bucket_that_a_stall_held_up_may_lack_any_stream() -> None:
    at = road(BEGIN_MS)
    (shown,) = results(TENTATIVE, at, 2, (1,))
    # The first expressway's source is missing, which was not cut off.
    other = [shown._replace(missing=("a",), ident=(shown.ident or (0, 0)), received_ms=CUT_END_MS)]
    records = story_of(at, BEGIN_MS, tentative=other)
    assert any("cannot have been missing" in text for text in report_of(records).broken)
    stall = Stall(CUT_END_MS - 100, CUT_END_MS + 100)
    late = [each._replace(received_ms=CUT_END_MS + 50) for each in other]
    found = report_of(story_of(at, BEGIN_MS, tentative=late), stalls=[stall])
    assert not any("cannot have been missing" in text for text in found.broken)


def test_a_bucket_is_shown_without_the_source_unless_a_stall_came() -> None:
    at = road(BEGIN_MS)
    silent = story_of(at, BEGIN_MS, tentative=[])
    says = "was not shown without it"
    found = report_of(silent)
    assert any(says in text for text in found.broken)
    assert not found.is_held_up
    stalled = report_of(silent, stalls=[Stall(CUT_END_MS + 100, CUT_END_MS + 500)])
    assert not any(says in text for text in stalled.broken)
    assert stalled.is_held_up


def test_a_run_that_stalls_from_the_start_to_the_heal_breaks_no_promise() -> None:
    """Nothing comes before the heal, then all is right: no delay is judged, in either way."""
    at = road(BEGIN_MS)
    heal_ms = BEGIN_MS + 10_000
    records = [
        *results(INSERTION, at, 1),
        *results(INSERTION, at, 2),
        *results(INSERTION, at, 3),
        boundary(1, at, 3, at_ms=heal_ms + 5_000),
    ]
    stalled = report_of(records, stalls=[Stall(BEGIN_MS, heal_ms + 1_000)])
    assert (stalled.apart.stalled, stalled.tentative) == (3, 0)
    assert stalled.is_good(), stalled
    assert not report_of(records).is_good()
    assert not report_of(records, stalls=[Stall(BEGIN_MS, BEGIN_MS + 500)]).is_good()


def test_one_more_failure_is_a_stall_s_or_the_system_s() -> None:
    at = road(BEGIN_MS)
    good = story_of(at, BEGIN_MS)
    third = [
        each._replace(branch=(2, 1), received_ms=CUT_END_MS + WINDOW_MS + 3_000)
        for each in results(TENTATIVE, at, 3, (0,))
    ]
    end_ms = CUT_END_MS + WINDOW_MS
    twice = [
        *good[:-3],
        *third,
        boundary(4, at, 2, 3, at_ms=end_ms + 3_000),
        LiveRecord(0, 0, UNDO, (sorted(at.answer)[1], 1)),
        *results(INSERTION, at, 3),
        LiveRecord(0, 0, REC_DONE),
        boundary(5, at, 3, at_ms=end_ms + 5_000),
    ]
    says = "the topic shows one cut as 2 failures"
    assert says in report_of(twice).broken
    assert says in report_of(twice, stalls=[Stall(BEGIN_MS, BEGIN_MS + 900)]).broken
    assert says not in report_of(twice, stalls=[Stall(end_ms + 100, end_ms + 900)]).broken


class Message:
    """As a consumer gets it."""

    def __init__(self, value: dict[str, object], **headers: str) -> None:
        self._value = value
        named = {"origin": "roads.tolls.x", **headers}
        self._headers = [
            (f"anabranch-{name.replace('_', '-')}", text.encode()) for name, text in named.items()
        ]

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return json.dumps(self._value).encode()

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


def test_the_answer_is_what_the_client_library_keeps() -> None:
    topic = LiveTopic(1)
    for message in (
        Message({"n": 1}, kind=INSERTION, id="1.1", event_time="100"),
        Message({"n": 2}, kind=TENTATIVE, id="2.1/1.1", event_time="200", missing="a"),
        Message(
            {
                "kind": BOUNDARY,
                "stable": 1,
                "stable_ms": 100,
                "shown": 2,
                "shown_ms": 200,
                "sequence": 1,
            },
            kind=BOUNDARY,
        ),
    ):
        topic.take(message)
    assert [record.result.value for record in topic.answer()] == ['{"n": 1}', '{"n": 2}']
    for message in (
        Message(
            {"kind": UNDO, "stable": 1, "stable_ms": 100, "last_id": "1.1"}, kind=UNDO, id="1.1"
        ),
        Message({"n": 3}, kind=INSERTION, id="2.1", event_time="200"),
        Message({"kind": REC_DONE, "stable": 2, "stable_ms": 200}, kind=REC_DONE),
        Message(
            {
                "kind": BOUNDARY,
                "stable": 2,
                "stable_ms": 200,
                "shown": 0,
                "shown_ms": 0,
                "sequence": 2,
            },
            kind=BOUNDARY,
        ),
    ):
        topic.take(message)
    assert [(record.result.value, record.identifier) for record in topic.answer()] == [
        ('{"n": 1}', (1, 1)),
        ('{"n": 3}', (2, 1)),
    ]
