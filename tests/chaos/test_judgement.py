"""Each judge is seen to accept what is right and to find what is wrong."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry, Part
from chaos import judgement
from chaos.judgement import Digest, Injected, Made, Recovery, Seen, Waits
from chaos.schedule import BROKER, REDIS, Kind
from demo.live import Delay
from demo.live_checker import (
    BOUNDARY,
    INSERTION,
    REC_DONE,
    TENTATIVE,
    UNDO,
    LiveRecord,
)
from demo.reporting import TOLLS_MIN
from demo.stalls import Stall, judged
from demo.story import LiveTopic
from demo.tentative import Road
from demo.traffic import COLUMNS
from harness.boundary_logs import record, started

TARGETS = (
    "kafka/kafka",
    "redis/redis",
    "ingestion/a",
    "processing/s.0",
    "processing/s.1",
    "processing/t.0",
    "delivery/o",
)


def test_a_wait_ends_with_the_first_result_that_is_about_a_later_time() -> None:
    waits = Waits(
        [
            Seen(1_000, 1_500),
            Seen(2_000, 2_500),
            Seen(3_000, 9_000),
            Seen(4_000, 8_000),
            Seen(5_000, 9_500),
        ]
    )
    assert waits.after(0) == 1_500
    assert waits.after(1_000) == 1_500, "a result about the very moment does not count"
    assert waits.after(2_100) == 5_900, "what came first, whatever its time"
    assert waits.after(2_499) == 5_501, "one that was under way does not count"
    assert waits.after(5_000) is None
    assert Waits([]).after(0) is None
    assert waits.usual(0, 300) == [1_500, 1_400, 1_300]
    assert waits.usual(4_950, 5_150) == [4_550]


def injected(
    number: int, begun_ms: int, ended_ms: int, kind: Kind = Kind.PAUSE, target: str = "ingestion/a"
) -> Injected:
    return Injected(number, kind, target, begun_ms, ended_ms)


def test_a_recovery_counts_from_the_begin_and_from_the_end_of_a_fault() -> None:
    results = [Seen(time, time + 500) for time in range(1_000, 10_000, 1_000)] + [
        Seen(time, 30_000) for time in range(10_000, 29_000, 1_000)
    ]
    results += [Seen(time, time + 500) for time in range(30_000, 60_000, 1_000)]
    masked, late, last = judgement.recoveries(
        [injected(0, 2_100, 4_100), injected(1, 9_500, 28_100), injected(2, 59_000, 59_001)],
        results,
    )
    assert (masked.during_ms, masked.after_ms, masked.is_disturbed) == (1_400, 1_400, False)
    assert (late.during_ms, late.after_ms, late.is_disturbed) == (20_500, 2_400, False)
    assert (last.during_ms, last.after_ms) == (None, None)


@pytest.mark.parametrize(
    ("one", "other", "disturbed"),
    [
        (injected(0, 2_000, 4_000), injected(1, 3_000, 3_000), [True, True]),
        (injected(0, 2_000, 4_000), injected(1, 4_200, 4_200), [True, True]),
        (injected(0, 2_000, 4_000), injected(1, 8_000, 9_000), [False, False]),
    ],
)
def test_a_fault_that_meets_another_says_nothing_about_its_own_recovery(
    one: Injected, other: Injected, disturbed: list[bool]
) -> None:
    results = [Seen(time, time + 500) for time in range(1_000, 20_000, 1_000)]
    assert [each.is_disturbed for each in judgement.recoveries([one, other], results)] == disturbed


def test_goals() -> None:
    def goal(kind: Kind, target: str) -> tuple[str, int]:
        return judgement.goal_ms(kind, target, TARGETS, 1_000)

    assert goal(Kind.KILL, "processing/s.0") == ("during", 6_000)
    assert goal(Kind.KILL, "processing/t.0") == ("after", 31_000)
    assert goal(Kind.KILL_TWICE, "processing/t.0") == ("after", 61_000)
    assert goal(Kind.CUT, "ingestion/a") == ("after", 31_000)
    assert goal(Kind.BROKER_KILL, BROKER) == ("after", 46_000)
    assert goal(Kind.REDIS_EMPTY, REDIS) == ("during", 6_000)
    assert goal(Kind.RUSH, "ingestion/a") == ("after", 91_000)


@pytest.mark.parametrize(
    ("usual_ms", "says"),
    [
        ([9_000], ""),
        ([], "nothing came"),
        ([1_000, 12_001], "a result took 12.0 s"),
    ],
)
def test_times_are_judged_where_the_machine_lets_them(usual_ms: list[int], says: str) -> None:
    found = judgement.too_slow(usual_ms)
    assert (says in found) if says else not found


def test_what_is_usual_is_measured_outside_of_stalls() -> None:
    waits = judgement.Waits([Seen(1_000, 1_500), Seen(2_000, 9_000), Seen(10_000, 10_400)])
    assert max(waits.usual(0, 9_500)) == 8_400
    assert max(waits.usual(0, 9_500, [Stall(5_000, 8_000)])) <= 2_400
    assert waits.usual(900, 2_000, [Stall(0, 9_999)]) == []


def test_a_stall_explains_only_the_recoveries_that_it_overlaps() -> None:
    fault = injected(0, 10_000, 20_000, Kind.KILL, "delivery/o")
    (late,) = judgement.late_recoveries([Recovery(fault, 0, 40_000, False)], TARGETS, 1_000)
    assert late.span_ms == (20_000, 60_000)
    (never,) = judgement.late_recoveries([Recovery(fault, 0, None, False)], TARGETS, 1_000)

    def to_judge(stall: Stall) -> list[judgement.Late]:
        return judged([late, never], [stall], lambda each: each.span_ms)[0]

    assert to_judge(Stall(59_000, 61_000)) == [never], "a result that never came is judged"
    assert to_judge(Stall(10_000, 20_000)) == [late, never], "it was over before the fault ended"
    assert to_judge(Stall(60_000, 99_000)) == [late, never], "the result was there before"


def recovery(took_ms: int | None, fault: Injected, *, disturbed: bool = False) -> Recovery:
    return Recovery(fault, took_ms, took_ms, disturbed)


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (recovery(31_000, injected(0, 0, 0, Kind.KILL, "delivery/o")), 0),
        (recovery(31_001, injected(0, 0, 0, Kind.KILL, "delivery/o")), 1),
        (recovery(31_001, injected(0, 0, 0, Kind.KILL, "delivery/o"), disturbed=True), 0),
        (recovery(None, injected(0, 0, 0, Kind.CUT, "ingestion/a")), 1),
        (recovery(6_001, injected(0, 0, 0, Kind.KILL, "processing/s.0")), 1),
    ],
)
def test_a_recovery_that_takes_too_long_is_found(found: Recovery, count: int) -> None:
    assert len(judgement.late_recoveries([found], TARGETS, 1_000)) == count


@pytest.mark.parametrize(
    ("fault", "disturbed", "count"),
    [
        (injected(0, 10_000, 30_000, Kind.CUT, "ingestion/a"), False, 1),
        (injected(0, 10_000, 30_000, Kind.KILL, "processing/s.0"), False, 1),
        (injected(0, 10_000, 30_000, Kind.CUT, "ingestion/a"), True, 0),
        (injected(0, 10_000, 30_000, Kind.KILL, "processing/t.0"), False, 0),
        (injected(0, 10_000, 30_000, Kind.BROKER_KILL, BROKER), False, 0),
        (injected(0, 60_000, 60_000, Kind.BROKER_KILL, BROKER), False, 1),
    ],
)
def test_a_late_live_result_is_found_where_the_bound_covers_the_fault(
    fault: Injected, disturbed: bool, count: int
) -> None:
    late = [Delay(1_000, 9_000), Delay(5_000, 6_000), Delay(12_000, 16_000), Delay(14_000, 18_001)]
    found = [Recovery(fault, 1_000, 1_000, disturbed)]
    assert len(judgement.late_on_live(late, found, TARGETS, (4_000, 10_000), 3_000)) == count


def test_what_is_usual_is_no_excuse_for_a_live_topic_that_is_slow() -> None:
    late = [Delay(5_000, 14_000), Delay(20_000, 28_000)]
    found = judgement.late_on_live(late, [], TARGETS, (4_000, 10_000), 3_000)
    assert judgement.in_words(found) == [
        "live: the results of 5000 came 9.0 s later, allowed are 8.0 s"
    ]


def test_what_a_stall_held_up_is_not_usual_and_not_judged_on_the_live_topic() -> None:
    late = [Delay(5_000, 6_000), Delay(6_000, 10_900), Delay(20_000, 26_000), Delay(40_000, 46_000)]
    calm, stalls = (4_000, 10_000), [Stall(8_000, 9_000), Stall(45_000, 45_300)]
    found = judgement.late_on_live(late, [], TARGETS, calm, 3_000, stalls)
    assert [each.begin_ms for each in found] == [6_000, 20_000, 40_000], "4.0 s are allowed"
    clear, stalled, apart = judged(found, stalls, lambda each: each.span_ms)
    assert [each.begin_ms for each in clear] == [20_000], "a slow system is late all the same"
    assert (len(stalled), apart.longest_ms) == (2, 1_000)


def test_at_least_four_in_five_of_the_planned_faults_must_happen() -> None:
    assert judgement.too_few(8, 10) == []
    assert judgement.too_few(7, 10) == ["only 7 of 10 planned faults happened"]


def test_a_run_in_which_little_happened_shows_nothing() -> None:
    assert judgement.too_little(100, 100, TOLLS_MIN) == []
    assert judgement.too_little(99, 100, TOLLS_MIN - 1) == [
        "99 records were written, not 100",
        f"{TOLLS_MIN - 1} results cost something, at least {TOLLS_MIN} must",
    ]


def test_what_was_half_done_disturbs_too() -> None:
    results = [Seen(time, time + 500) for time in range(1_000, 20_000, 1_000)]
    (found,) = judgement.recoveries(
        [injected(0, 2_000, 4_000)], results, [injected(1, 3_000, 3_000)]
    )
    assert found.is_disturbed


def part(bucket: int, rows: int, digest: int, attempt: str = "a") -> Part:
    return Part(bucket, 0, attempt, 1, 0, 1, rows, digest)


def two_replicas() -> list[LogEntry]:
    """Return the log of two replicas of one stream, each with the buckets 1 to 3, bucket 2 empty
    and bucket 1 in two parts.
    """
    logs: list[LogEntry] = [started("0"), started("1")]
    for epoch, replica in ((0, "0"), (1, "1")):
        parts = (part(1, 2, 7, f"a{replica}"), part(1, 1, 2**64 - 1, f"b{replica}"))
        logs.append(record(epoch, 0, 2, parts, replica=replica, timeline=replica))
        logs.append(
            record(epoch, 1, 3, (part(3, 5, 9, f"c{replica}"),), replica=replica, timeline=replica)
        )
    return logs


def made(entries: list[LogEntry]) -> dict[str, Made]:
    return judgement.made_by(list(enumerate(entries)), ["0", "1"])[0]


def test_replicas_that_made_the_same_agree() -> None:
    found = made(two_replicas())
    assert found["0"] == found["1"] == Made({1: Digest(3, 6), 3: Digest(5, 9)}, [])
    assert judgement.compare_digests("s", found) == []


def test_replicas_that_differ_are_found() -> None:
    for wrong in (part(3, 5, 10), part(3, 6, 9)):
        entries = two_replicas()
        entries[-1] = record(1, 1, 3, (wrong,), replica="1", timeline="1")
        (text,) = judgement.compare_digests("s", made(entries))
        assert text.startswith("s: bucket 3 of replica 0 is")


def test_a_replica_that_did_not_catch_up_is_found() -> None:
    (text,) = judgement.compare_digests("s", made(two_replicas()[:-1]))
    assert text == "s: the last bucket with rows of replica 0 is 3, of 1 1"


def test_replicas_of_a_shard_that_was_split_stop_where_they_are() -> None:
    behind = made(two_replicas()[:-1])
    assert judgement.compare_digests("s", behind, continues=False) == []
    parents = {"s": "", "s.0": "s", "s.1": "s", "t": ""}
    assert judgement.continuing(parents, []) == {"s", "t"}
    assert judgement.continuing(parents, ["s"]) == {"s.0", "s.1", "t"}
    ended = replace(record(1, 1, 3, replica="1", timeline="1"), heirs=2)
    assert judgement.ended_at(two_replicas()) is None
    assert judgement.ended_at([*two_replicas(), ended]) == 3


def test_a_bucket_that_only_one_replica_has_is_found_unless_the_other_took_it_over() -> None:
    entries = two_replicas()
    entries[-2] = record(1, 0, 2, (), replica="1", timeline="1")
    assert judgement.compare_digests("s", made(entries)) == [
        "s: replica 1 has no rows in 1 buckets where its peer has some, such as 1"
    ]
    assert judgement.compare_digests("s", made(entries), whole_after=1) == []
    entries[-2] = record(1, 0, 2, (), replica="1", timeline="1", base=2, prev=None)
    assert made(entries)["1"].failed_over == [(1, 2)]
    assert judgement.compare_digests("s", made(entries)) == []


def test_rejected_boundary_records_are_counted_by_reason() -> None:
    entries = [*two_replicas(), started("0"), record(0, 2, 4, replica="0", timeline="0")]
    _, rejected = judgement.made_by(list(enumerate(entries)), ["0", "1"])
    assert rejected == {"accepted": 4, "fenced": 1}


def test_repetitions_are_counted() -> None:
    assert judgement.repeated([]) == 0
    assert judgement.repeated(["a", "b", "a", "a"]) == 2


def test_faults_are_counted_and_grouped_in_the_order_of_the_kinds() -> None:
    faults = [
        injected(0, 1, 1, Kind.ZOMBIE),
        injected(1, 2, 2, Kind.KILL),
        injected(2, 3, 3, Kind.KILL, "delivery/o"),
    ]
    assert judgement.by_kind(faults) == {"kill": 2, "zombie": 1}
    groups = judgement.grouped(judgement.recoveries(faults, []))
    assert list(groups) == [
        (Kind.KILL, "delivery"),
        (Kind.KILL, "ingestion"),
        (Kind.ZOMBIE, "ingestion"),
    ]


ROWS = [(1_000 * window + 700, 5, 30, xway, 1, 0, 3, 0) for window in range(3) for xway in (0, 1)]
ROAD = Road(
    pl.DataFrame(ROWS, schema=list(COLUMNS), orient="row"), ("a", "b"), 500, 1_000, 20, 40, 1
)
"""Results of two expressways in buckets 2, 4 and 6."""


def results(
    kind: str, bucket: int, xways: tuple[int, ...] = (0, 1), missing: tuple[str, ...] = ("b",)
) -> list[LiveRecord]:
    branch, named = ((1, 1), missing) if kind == TENTATIVE else (None, ())
    return [
        LiveRecord(0, 0, kind, (bucket, place), branch, ROAD.answer[bucket][xway], missing=named)
        for place, xway in enumerate(xways)
    ]


def boundary(sequence: int, stable: int, shown: int = 0) -> LiveRecord:
    return LiveRecord(
        0, 0, BOUNDARY, stable=stable, stable_ms=500 * stable, shown=shown, sequence=sequence
    )


UNDONE, CORRECTED = LiveRecord(0, 0, UNDO, (2, 1)), LiveRecord(0, 0, REC_DONE)
BEGIN = [*results(INSERTION, 2), boundary(1, 2)]
SHOWN = [*results(TENTATIVE, 4, (0,)), boundary(2, 2, 4)]
MADE_GOOD = [
    UNDONE,
    *results(INSERTION, 4),
    CORRECTED,
    boundary(3, 4),
    *results(INSERTION, 6),
    boundary(4, 6),
]
SILENCE = [LiveRecord(0, 0, BOUNDARY, stable=6, stable_ms=3_000, shown=8, sequence=5)]
"""One failure; then the traffic ends, at 3 000 ms, which looks like another."""


def live(records: list[LiveRecord], missing: tuple[str, ...] = ()) -> list[str]:
    topic = LiveTopic(1)
    for each in records:
        topic.add(each)
    return judgement.live_promises("tolls", topic, 3_000, ROAD, lambda _: missing)


def test_a_live_topic_that_keeps_its_promises() -> None:
    assert live([*BEGIN, *SHOWN, *MADE_GOOD, *SILENCE]) == []


def test_a_bucket_may_be_empty_only_where_the_log_says_that_all_was_missing() -> None:
    empty = [*BEGIN, boundary(2, 2, 4), *MADE_GOOD]
    assert any("is shown without results, but has 1" in text for text in live(empty, ("a",)))
    assert live(empty, ("segment_statistics",)) == []


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([*BEGIN, *SHOWN, UNDONE, UNDONE, *MADE_GOOD[1:]], "undo in 2 of 1 partitions"),
        (
            [*BEGIN, *results(TENTATIVE, 4, (0,), ()), boundary(2, 2, 4), *MADE_GOOD],
            "none of its reports left out",
        ),
        (
            [*BEGIN, *SHOWN, *MADE_GOOD[:3], *MADE_GOOD[4:]],
            "at the end buckets [] are tentative, shown up to 4",
        ),
        ([*BEGIN, *SHOWN, *MADE_GOOD[:-3]], "at the end bucket 6 is []"),
        ([*BEGIN, *SHOWN, *MADE_GOOD, UNDONE], "after the last boundary"),
    ],
)
def test_a_broken_promise_of_a_live_topic_is_found(records: list[LiveRecord], says: str) -> None:
    found = live(records)
    assert any(says in text for text in found), found


def test_a_rush_in_which_nothing_was_left_out_shows_nothing() -> None:
    shed = [LiveRecord(0, 0, TENTATIVE, (1, 0), (1, 1), shed=300)]
    rush = injected(0, 1, 2, Kind.RUSH)
    assert judgement.nothing_shed([rush], shed) == []
    assert judgement.nothing_shed([injected(0, 1, 2)], []) == []
    (found,) = judgement.nothing_shed([rush], [LiveRecord(0, 0, TENTATIVE, (1, 0), (1, 1))])
    assert "1 rushes, and no result" in found


def test_a_rush_is_covered_until_another_fault_meets_it() -> None:
    rush = Recovery(injected(0, 1_000, 9_000, Kind.RUSH), 20_000, 12_000, True)
    cut = Recovery(injected(1, 5_000, 8_000, Kind.CUT), 16_000, 13_000, True)
    late = [Delay(2_000, 5_900), Delay(2_000, 4_900), Delay(30_000, 39_000)]

    def found(*faults: Recovery) -> list[int]:
        return [
            each.begin_ms
            for each in judgement.late_on_live(late, faults, TARGETS, (0, 1_000), 2_000)
        ]

    assert found(rush) == [2_000, 2_000, 30_000]
    assert found(rush, cut) == [2_000, 30_000], (
        "what came before the cut, and after the corrections"
    )


@pytest.mark.parametrize("left_out", [300, 0])
def test_a_live_topic_that_lacks_rows_may_only_lack_those_that_are_left_out(left_out: int) -> None:
    """A road of which every report of the second expressway is left out first."""
    road = replace(ROAD, kept=lambda shed: (ROAD.reports["xway"] == 0).to_numpy() | (shed == 0))
    topic = LiveTopic(1)
    part = [each._replace(shed=left_out) for each in results(TENTATIVE, 4, (0,), ())]
    for each in [*BEGIN, *part, boundary(2, 2, 4), *MADE_GOOD]:
        topic.add(each)
    found = judgement.live_promises("tolls", topic, 3_000, road, lambda _: ())
    assert (found == []) is (left_out > 0), found
    # The boundary log states the share of a bucket without results.
    empty = LiveTopic(1)
    for each in [*BEGIN, boundary(2, 2, 4), *MADE_GOOD]:
        empty.add(each)
    (first, *_) = judgement.live_promises(
        "tolls", empty, 3_000, road, lambda _: (), lambda _: left_out
    )
    assert f"is shown without results, but has {1 if left_out else 2}" in first


def test_what_was_missing_of_a_bucket_stands_in_the_log() -> None:
    def branch(base: int | None, closed: int, *missing: str, shed: int = 0) -> LogEntry:
        return BoundaryRecord(
            "0",
            1,
            BatchId("b", closed),
            None,
            closed,
            (),
            base,
            BoundaryKind.TENTATIVE,
            (1, 1),
            missing,
            shed=shed,
        )

    missing_of = judgement.missing_by_bucket(
        [started("0"), branch(3, 5, "a"), branch(None, 7, "b"), branch(4, 5, "c")]
    )
    assert [set(missing_of(bucket)) for bucket in range(3, 9)] == [
        set(),
        {"a"},
        {"a", "c"},
        {"b"},
        {"b"},
        set(),
    ]
    shed_of = judgement.shed_by_bucket(
        [started("0"), branch(3, 5, shed=200), branch(None, 7, shed=100), branch(4, 5, shed=300)]
    )
    assert [shed_of(bucket) for bucket in range(3, 9)] == [0, 200, 300, 100, 100, 0]
