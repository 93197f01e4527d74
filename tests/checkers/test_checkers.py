"""Each checker passes what is right and finds each fault that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    Part,
)
from checkers import availability, conservation, corrected, pushed_back, streams, trimming, upsert
from checkers.corrected import Delivered
from checkers.trimming import SyncedClaim

ANSWER: dict[int, list[tuple[object, ...]]] = {3: [("a",), ("b",)], 5: [("c",)]}


# ---------------------------------------------------------------- corrected


def good_delivery() -> list[Delivered]:
    return [
        Delivered(0, 0, 3, 0, ("a",)),
        Delivered(1, 0, 3, 1, ("b",)),
        Delivered(0, 1, 5, 0, ("c",)),
    ]


def test_a_right_corrected_topic_passes() -> None:
    assert corrected.check(good_delivery(), ANSWER) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda d: d[:2], "missing: 5.0"),
        (lambda d: [*d, d[0]._replace(offset=2)], "duplicate: 3.0"),
        (lambda d: [*d, Delivered(0, 2, 6, 0, ("d",))], "invented: 6.0"),
        (lambda d: [*d[:2], d[2]._replace(row=("x",))], "wrong: 5.0"),
        (lambda d: [d[2], d[0], d[1]], "order: 3.0"),
    ],
)
def test_a_wrong_corrected_topic_is_found(change: object, found: str) -> None:
    wrong = corrected.check(change(good_delivery()), ANSWER)  # type: ignore[operator]
    assert any(line.startswith(found) for line in wrong), wrong


# ---------------------------------------------------------------- streams


def part(bucket: int, name: str) -> Part:
    return Part(bucket, 0, name, 1, 0, 1, 1, 0)


def record(
    batch: int,
    closed: int,
    *names: tuple[int, str],
    prev: int | None = -1,
    epoch: int = 0,
    timeline: str = "l",
) -> BoundaryRecord:
    before = (
        None
        if prev is None or (batch == 1 and prev == -1)
        else BatchId("l", batch - 1 if prev == -1 else prev)
    )
    return BoundaryRecord(
        "0", epoch, BatchId(timeline, batch), before, closed, tuple(part(*name) for name in names)
    )


ROWS = {"a": [("a",)], "b": [("b",)], "c": [("c",)], "x": [("x",)]}


def judged(entries: Sequence[LogEntry]) -> list[str]:
    reading = streams.read(enumerate([EpochStarted("0", "f", "t"), *entries]), ["0"])
    return streams.check("s", reading, ANSWER, lambda _writer, named: ROWS.get(named.attempt))


GOOD = [record(1, 3, (3, "a"), (3, "b"), (5, "c")), record(2, 5)]


def test_a_right_stream_passes() -> None:
    assert judged(GOOD) == []


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([record(1, 3, (3, "a")), record(2, 5, (5, "c"))], "bucket 3 is"),
        ([record(1, 3, (3, "a"), (3, "b")), record(2, 5, (5, "c"), (5, "x"))], "bucket 5 is"),
        (
            [record(1, 3, (3, "a"), (3, "b"), (5, "gone")), record(2, 5)],
            "blocks of bucket 5 are missing",
        ),
        ([record(1, 5, (3, "a"), (3, "b"))], "bucket 5 is"),
    ],
)
def test_a_wrong_stream_is_found(entries: list[LogEntry], text: str) -> None:
    assert any(text in line for line in judged(entries))


def test_the_second_reading_knows_the_rules() -> None:
    fenced = replace(record(2, 5, (5, "x")), epoch=7)
    assert judged([GOOD[0], fenced, GOOD[0], GOOD[1]]) == []
    off_chain = record(3, 5, (5, "x"), prev=9)
    assert judged([GOOD[0], off_chain, GOOD[1]]) == []
    rewound = [
        record(1, 2, (3, "a"), (3, "b")),
        record(2, 2, (5, "x")),
        record(7, 5, (5, "c"), prev=1, timeline="m"),
    ]
    assert judged(rewound) == []
    base = replace(record(1, 3), base=3, prev=BatchId("peer", 9))
    assert judged([base, record(2, 5, (5, "c"), prev=1)]) == []


def tentative(
    batch: int,
    closed: int,
    *names: tuple[int, str],
    base: int | None = None,
    missing: tuple[str, ...] = (),
) -> BoundaryRecord:
    prev = None if base is not None else BatchId("b", batch - 1)
    made = tuple(part(*name) for name in names)
    return BoundaryRecord(
        "0",
        0,
        BatchId("b", batch),
        prev,
        closed,
        made,
        base,
        BoundaryKind.TENTATIVE,
        (0, 1),
        missing,
    )


def test_what_a_branch_closes_is_read_with_its_empty_buckets() -> None:
    entries = [
        tentative(1, 3, (3, "a"), (5, "c"), base=1, missing=("s",)),
        tentative(2, 5),
        tentative(4, 9, (9, "x")),
    ]
    reading = streams.read(enumerate([EpochStarted("0", "f", "t"), *entries]), ["0"])
    found = reading.writers["0"].tentative
    assert [(made.first, made.last, made.base, made.missing) for made in found] == [
        (2, 3, 1, ("s",)),
        (4, 5, 1, ()),
    ]
    offered = streams.offered(reading, lambda _writer, named: ROWS.get(named.attempt))
    assert offered == {(3, (0, 1)): (("s",), [("a",)]), (5, (0, 1)): ((), [("c",)])}


@pytest.mark.parametrize(
    ("end", "runs"),
    [
        (BranchEnded("0", 0, 1), [(1, 3)]),
        (BranchEnded("0", 0, 0), [(1, None)]),
        (BranchEnded("0", 7, 1), [(1, None)]),
        (BranchEnded("1", 0, 1), [(1, None)]),
        (EpochStarted("0", "f", "u"), [(1, 3)]),
    ],
)
def test_a_branch_runs_until_the_log_has_its_end(
    end: LogEntry, runs: list[tuple[int, int | None]]
) -> None:
    entries: list[LogEntry] = [EpochStarted("0", "f", "t"), tentative(1, 3, base=1)]
    entries += [tentative(2, 5), end]
    assert streams.read(enumerate(entries), ["0"]).writers["0"].runs == runs
    late = streams.read(enumerate([*entries, tentative(3, 6)]), ["0"]).writers["0"]
    assert late.runs == runs, "an end is never taken back"
    assert len(late.tentative) == 3 - (runs[-1][1] is not None)


def test_a_second_branch_at_the_same_place_is_found() -> None:
    def begun(*branches: tuple[tuple[int, int], int]) -> list[str]:
        return streams.check_branches(
            "s", streams.Reading({"0": streams.Writer(begun=list(branches))})
        )

    assert begun(((7, 1), 2), ((7, 2), 4)) == []
    assert begun(((7, 1), 4), ((9, 1), 4)) == [], "another process"
    assert len(begun(((7, 1), 4), ((7, 2), 4))) == 1


def test_a_branch_that_leaves_open_parts_out_is_found() -> None:
    stable = record(1, 2, (3, "a"))
    whole, lost = tentative(1, 3, (3, "a"), (3, "b"), base=2), tentative(1, 3, (3, "b"), base=2)
    assert judged([stable, whole]) == []
    assert any("a branch lost" in line for line in judged([stable, lost]))


# ---------------------------------------------------------------- conservation


@pytest.mark.parametrize(
    ("in_stream", "dead", "text"),
    [
        ([1, 2], [3], None),
        ([1], [3], "2 is lost"),
        ([1, 2, 2], [3], "2 is in the stream 2 times"),
        ([1, 2, 3], [], "bad record 3"),
        ([1, 2], [2, 3], "and a dead letter"),
        ([1], [2, 3], "good record 2"),
        ([1, 2, 9], [3], "nobody sent [9]"),
    ],
)
def test_conservation(in_stream: list[int], dead: list[int], text: str | None) -> None:
    wrong = conservation.check("a", {1: True, 2: True, 3: False}, in_stream, dead)
    assert (wrong == []) if text is None else any(text in line for line in wrong), wrong


# ---------------------------------------------------------------- upsert


@pytest.mark.parametrize(
    ("newest", "count"),
    [
        ({"a": ("insertion", ("a",)), "b": ("insertion", ("b",)), "c": ("insertion", ("c",))}, 0),
        ({"a": ("insertion", ("a",)), "b": ("tentative", ("b",)), "c": ("insertion", ("c",))}, 1),
        ({"a": ("insertion", ("a",)), "b": ("insertion", ("b",))}, 1),
        ({"a": ("insertion", ("a",)), "b": ("undo", ("b",)), "c": ("insertion", ("c",))}, 0),
        ({"a": ("insertion", ("a",)), "b": ("undo", ("a",)), "c": ("insertion", ("c",))}, 1),
        (
            {
                "a": ("insertion", ("a",)),
                "b": ("insertion", ("b",)),
                "c": ("insertion", ("c",)),
                "d": ("tentative", ("d",)),
            },
            1,
        ),
        (
            {
                "a": ("insertion", ("a",)),
                "b": ("insertion", ("b",)),
                "c": ("insertion", ("c",)),
                "d": ("undo", None),
            },
            0,
        ),
    ],
)
def test_upsert(newest: dict[object, tuple[str, tuple[object, ...] | None]], count: int) -> None:
    assert len(upsert.check(newest, ANSWER, 0)) == count


# ---------------------------------------------------------------- availability


def test_a_record_is_a_sign_for_every_bucket_up_to_its_own() -> None:
    assert availability.signs([(10, 3), (40, 2), (20, 5)]) == {2: 10, 3: 10, 5: 20}


@pytest.mark.parametrize(
    ("covered", "count"),
    [
        ([(50, 3), (90, 5)], 0),
        ([(50, 3)], 1),
        ([(111, 5)], 1),
        ([(50, 3), (121, 5)], 1),
        ([(50, 9)], 0),
    ],
)
def test_a_late_result_is_found(covered: list[tuple[int, int]], count: int) -> None:
    assert len(availability.check({3: 10, 5: 20}, covered, 100, 1_000)) == count
    assert availability.check({3: 10, 5: 20}, covered, 100, 109) == [], (
        "what could not be judged is not"
    )


@pytest.mark.parametrize(
    ("failing", "count"),
    [
        ([(0, True), (500, False)], 1),
        ([(0, True), (55, False)], 0),  # the failure ended before
        ([(0, False), (30, True)], 0),  # the long wait is right
        ([(30, True)], 0),
        ([], 0),
    ],
)
def test_a_second_long_wait_is_found(failing: list[tuple[int, bool]], count: int) -> None:
    assert (
        len(availability.check_later({3: 10, 5: 20}, [(40, 3), (90, 5)], failing, 50, 1_000))
        == count
    )
    assert availability.check_later({5: 20}, [(90, 5)], failing, 50, 60) == []


@pytest.mark.parametrize(
    ("anew_ms", "count"), [([20], 1), ([21], 0), ([90], 0), ([91], 1), ([10, 91], 1)]
)
def test_the_long_wait_of_another_failure_is_right(anew_ms: list[int], count: int) -> None:
    failing = [(0, True)]
    assert len(availability.check_later({5: 20}, [(90, 5)], failing, 50, 1_000, anew_ms)) == count
    assert len(availability.check_later({5: 20}, [], failing, 50, 1_000, anew_ms)) == 1


def test_who_says_stable_and_is_behind_is_found() -> None:
    complete, reads = {"a": [(10, 5), (20, 9)], "b": [(10, 7)]}, {"s": ["a"], "t": ["a", "b"]}
    claims = [(29, "s", 5), (30, "s", 9), (30, "t", 7), (5, "s", 0)]
    assert availability.check_stable_claims(claims, complete, reads, 10) == []
    assert (
        len(
            availability.check_stable_claims(
                [*claims, (30, "s", 8), (20, "t", 4)], complete, reads, 10
            )
        )
        == 2
    )


def said(at_ms: int, reader: str, bucket: int, epoch: int = 1, life: int = 0) -> SyncedClaim:
    return SyncedClaim(at_ms, reader, epoch, bucket, life)


def test_what_is_trimmed_before_a_living_reader_is_found() -> None:
    claims = [said(10, "a", 5), said(10, "b", 9), said(50, "a", 8)]
    readers = {"s": ["a", "b"], "t": ["b", "c"]}
    points = [(20, "s", 5), (50, "s", 8), (200, "t", 99)]
    assert trimming.check(claims, points, readers, 60, 0) == []
    points = [(20, "s", 6), (50, "s", 9), (59, "t", 1)]
    assert len(trimming.check(claims, points, readers, 60, 0)) == 3


HEARD = pytest.mark.parametrize(
    ("heard_ms", "count"),
    [(0, 1), (10, 1), (11, 0), (None, 0)],
    ids=["at once", "soon", "late", "?"],
)
"""Times after which the trimming process hears of a claim, and numbers of findings."""


@HEARD
def test_who_begins_anew_with_less_holds_back_what_its_last_epoch_held(
    heard_ms: int | None, count: int
) -> None:
    """Rule TM5. The trimming process hears of it ``heard_ms`` later."""
    claims = [said(10, "a", 5), said(20, "a", 3, epoch=2), said(25, "a", 6, epoch=1)]
    found = trimming.check(claims, [(30, "s", 5)], {"s": ["a"]}, 60, heard_ms)
    assert len(found) == count
    assert trimming.check(claims, [(30, "s", 3)], {"s": ["a"]}, 60, 0) == []
    assert trimming.check([*claims, said(31, "a", 5, 2)], [(32, "s", 5)], {"s": ["a"]}, 60, 0) == []


@HEARD
def test_who_lowers_its_claim_holds_back_what_it_claimed_before(
    heard_ms: int | None, count: int
) -> None:
    """Rule TM10. The trimming process hears of it ``heard_ms`` later."""
    lower = said(20, "a", 3)._replace(is_lowered=True)
    claims = [said(10, "a", 5), lower]
    found = trimming.check(claims, [(30, "s", 5)], {"s": ["a"]}, 60, heard_ms)
    assert len(found) == count
    assert trimming.check(claims, [(30, "s", 3)], {"s": ["a"]}, 60, heard_ms) == []
    assert trimming.check([*claims, said(25, "a", 5)], [(30, "s", 5)], {"s": ["a"]}, 60, 0) == []


@HEARD
def test_who_stands_by_holds_nothing_before_it_has_read_of_a_later_primary(
    heard_ms: int | None, count: int
) -> None:
    """Rule TM11. The trimming process hears of it ``heard_ms`` later."""
    led, readers, primaries = said(20, "a", 9, epoch=2), {"s": ["b"]}, {"b": "a"}
    claims = [said(10, "b", 5), led]
    assert trimming.check(claims, [(30, "s", 5)], readers, 60, heard_ms) == []
    found = trimming.check(claims, [(30, "s", 5)], readers, 60, heard_ms, None, primaries)
    assert len(found) == count
    claims.append(said(25, "b", 5, epoch=2))
    assert trimming.check(claims, [(30, "s", 5)], readers, 60, heard_ms, None, primaries) == []


def test_what_a_later_primary_outdates_need_not_be_trimmed() -> None:
    claims, readers = [said(10, "b", 5), said(20, "a", 9, epoch=2)], {"s": ["a", "b"]}
    assert len(trimming.check_goes_on(claims, [], readers, 25)) == 1
    assert trimming.check_goes_on(claims, [], readers, 25, {"b": "a"}) == []
    claims.append(said(22, "b", 5, epoch=2))
    assert len(trimming.check_goes_on(claims, [], readers, 25, {"b": "a"})) == 1


def test_nothing_trimmed_though_all_hold_it_is_found() -> None:
    claims, points = [said(10, "a", 5), said(20, "b", 7), said(40, "a", 6)], [(30, "s", 5)]
    assert trimming.check_goes_on(claims, points, {"s": ["a", "b"], "t": ["c"]}, 25) == []
    assert trimming.check_goes_on(claims, points, {"t": ["a", "b"]}, 15) == []
    assert trimming.check_goes_on([*claims, said(50, "b", 0)], points, {"t": ["a", "b"]}, 25) == []
    assert trimming.check_goes_on(claims, points, {"t": ["a", "b"]}, 25) == [
        # what ``a`` held at the time, since it has not said less
        "t: trimmed up to 0, though all who read it hold it up to 5"
    ]
    assert trimming.check_goes_on(claims, [(30, "s", 4)], {"s": ["a", "b"]}, 25) == [
        "s: trimmed up to 4, though all who read it hold it up to 5"
    ]
    # TM5: a process of a higher epoch holds less than the one that it has replaced
    replaced = [said(1, "a", 0, epoch=3), said(10, "a", 5)]
    assert trimming.check_goes_on(replaced, [], {"s": ["a"]}, 25) == []
    anew = [said(1, "a", 0, epoch=3), said(10, "a", 5, life=1)]
    assert len(trimming.check_goes_on(anew, [], {"s": ["a"]}, 25)) == 1


def test_what_a_process_of_a_former_life_holds_is_not_held() -> None:
    """Epochs begin again, and the process of the former life may go on for a while."""
    claims = [said(1, "a", 9, epoch=7), said(10, "a", 2, life=1), said(20, "a", 9, epoch=8)]
    found = trimming.check(claims, [(30, "s", 3)], {"s": ["a"]}, 60, 0)
    assert found == ["s: trimmed up to 3 at 30 ms, but a, which lives, holds only 2"]
    assert trimming.check(claims, [(30, "s", 2)], {"s": ["a"]}, 60, 0) == []
    assert trimming.check_goes_on(claims, [(30, "s", 2)], {"s": ["a"]}, 25) == []


def test_replicas_that_correct_together_are_found() -> None:
    turns = [(1, "s", "0", True), (2, "s", "0", False), (2, "s", "1", True), (3, "t", "0", True)]
    assert availability.check_correction_order(turns, 5) == []
    both = [*turns, (4, "s", "0", True), (9, "s", "1", False)]
    assert availability.check_correction_order(both, 5) == []
    assert len(availability.check_correction_order(both, 4)) == 1
    assert (
        len(
            availability.check_correction_order(
                [*both[:-1], (8, "s", "2", True), (9, "s", "1", False)], 4
            )
        )
        == 1
    )


@pytest.mark.parametrize(
    ("moments", "count"),
    [
        ([(100, True, 3), (200, True, 4), (600, True, 5)], 0),
        ([(100, True, 3), (200, True, 4), (710, True, 5)], 1),
        ([(100, True, 4), (700, False, 3), (710, True, 4)], 1),
        ([(100, True, 4), (700, False, 2), (710, True, 3)], 0),
        ([(100, True, 4), (300, False, 3), (500, True, 4), (900, True, 5)], 0),
    ],
    ids=["it may not know yet", "it knows", "half is not gone", "half is gone", "full anew"],
)
def test_a_source_that_reads_on_though_its_readers_are_behind_is_found(
    moments: list[tuple[int, bool, int]], count: int
) -> None:
    assert len(pushed_back.check("a", moments, kept_max=4, look_ms=500)) == count
