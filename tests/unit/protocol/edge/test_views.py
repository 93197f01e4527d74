from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.edge.origins import ORIGINS_MAX
from anabranch.protocol.edge.views import LiveRecord, LiveView
from anabranch.protocol.identifiers import RecordId


def stable(bucket: int, position: int = 0, key: bytes = b"k") -> LiveRecord:
    return LiveRecord(Kind.INSERTION, RecordId(bucket, position), key=key, value=b"s%d" % bucket)


def tentative(
    bucket: int, position: int = 0, key: bytes = b"k", missing: tuple[str, ...] = ("a",)
) -> LiveRecord:
    return LiveRecord(
        Kind.TENTATIVE, RecordId(bucket, position), (1, 1), missing, key=key, value=b"t%d" % bucket
    )


def boundary(sequence: int, upto: int, shown: int = 0) -> LiveRecord:
    return LiveRecord(
        Kind.BOUNDARY,
        stable=upto,
        shown=shown,
        sequence=sequence,
        stable_ms=upto * 100,
        shown_ms=shown * 100,
    )


def feed(view: LiveView, partition: int, *records: LiveRecord) -> list[bool]:
    return [view.take(partition, record) for record in records]


def values(view: LiveView) -> list[bytes | None]:
    return [record.value for record in view.records()]


def test_the_largest_share_that_a_tentative_record_lacks_is_said() -> None:
    view = LiveView(1)
    feed(view, 0, stable(1), boundary(1, 1))
    assert view.shed == 0
    less, more = (replace(tentative(n), shed=shed) for n, shed in ((2, 250), (3, 600)))
    feed(view, 0, more, less, boundary(2, 1, 3))
    assert view.shed == 600


def test_records_count_from_their_boundary_on() -> None:
    view = LiveView(1)
    assert feed(view, 0, stable(1), stable(2, key=b"l")) == [False, False]
    assert (values(view), view.sequence, view.stable_upto, view.stable_ms, view.shown_ms) == (
        [],
        0,
        0,
        0,
        0,
    )
    assert feed(view, 0, boundary(1, 2)) == [True]
    assert (values(view), view.sequence, view.stable_upto, view.stable_ms, view.shown_ms) == (
        [b"s1", b"s2"],
        1,
        2,
        200,
        200,
    )


def test_a_failure() -> None:
    view = LiveView(1)
    feed(
        view,
        0,
        stable(1),
        boundary(1, 1),
        tentative(2),
        tentative(3, missing=("b", "a")),
        boundary(2, 1, 3),
    )
    assert (values(view), view.in_failure, view.missing, view.failures) == (
        [b"s1", b"t2", b"t3"],
        True,
        ("a", "b"),
        1,
    )
    assert (view.shown_ms, view.stable_ms) == (300, 100)
    assert {key: record.value for key, record in view.by_key().items()} == {b"k": b"t3"}
    feed(
        view,
        0,
        LiveRecord(Kind.UNDO, RecordId(1, 0), stable=1),
        stable(2),
        tentative(3, 1),
        boundary(3, 2, 3),
    )
    assert (values(view), view.undone) == ([b"s1", b"s2", b"t3"], 2)
    feed(view, 0, stable(3), LiveRecord(Kind.REC_DONE, stable=3), boundary(4, 3))
    assert (values(view), view.in_failure, view.missing, view.undone) == (
        [b"s1", b"s2", b"s3"],
        False,
        (),
        3,
    )
    assert {key: record.value for key, record in view.by_key().items()} == {b"k": b"s3"}


def test_a_boundary_voids_a_tentative_bucket_whose_correction_is_empty() -> None:
    view = LiveView(1)
    feed(view, 0, tentative(2), tentative(4), boundary(1, 1, 4), boundary(2, 3, 4))
    assert values(view) == [b"t4"]


def test_a_transaction_counts_when_all_partitions_have_it() -> None:
    view = LiveView(2)
    assert feed(view, 0, stable(1), boundary(1, 1), stable(3), boundary(2, 3)) == [False] * 4
    assert feed(view, 1, stable(1, 1), boundary(1, 1)) == [False, True]
    assert (values(view), view.stable_upto) == ([b"s1", b"s1"], 1)
    assert feed(view, 1, boundary(2, 3)) == [True]
    assert values(view) == [b"s1", b"s1", b"s3"]


def test_partitions_join_with_their_first_boundary() -> None:
    view = LiveView(2)
    feed(view, 0, stable(1), boundary(7, 1), boundary(8, 2))
    assert view.sequence == 0
    assert feed(view, 1, stable(3), boundary(9, 3)) == [False, True]
    assert (view.sequence, view.gaps) == (8, 0)
    feed(view, 0, boundary(9, 3))
    assert (view.sequence, values(view)) == (9, [b"s1", b"s3"])


def test_what_is_read_again_counts_once() -> None:
    """From the beginning of a transaction, and from its middle, as a consumer does after a
    rebalance.
    """
    view = LiveView(1)
    first, second = [stable(1), boundary(1, 1)], [stable(2), tentative(3), boundary(2, 2, 3)]
    assert feed(view, 0, *first, *second) == [False, True, False, False, True]
    before = (values(view), view.sequence, view.shown_ms, view.gaps, view.undone, view.failures)
    assert feed(view, 0, *first, *second, *second[1:]) == [False] * 7
    assert (
        values(view),
        view.sequence,
        view.shown_ms,
        view.gaps,
        view.undone,
        view.failures,
    ) == before
    third = [stable(3), stable(3, 1), LiveRecord(Kind.REC_DONE, stable=3), boundary(3, 3)]
    assert feed(view, 0, *third[:2], *second[2:], *third[:2], *third[1:]) == [False] * 7 + [True]
    assert values(view) == [b"s1", b"s2", b"s3", b"s3"]


def test_gaps_are_counted() -> None:
    view = LiveView(1)
    feed(view, 0, boundary(1, 1), boundary(4, 2))
    assert (view.gaps, view.sequence) == (2, 4)


def test_old_buckets_can_be_forgotten_by_key_they_stay() -> None:
    view = LiveView(1, buckets_kept=1)
    feed(view, 0, stable(1, key=b"a"), stable(2, key=b"b"), boundary(1, 2))
    assert values(view) == [b"s2"]
    assert sorted(key for key in view.by_key() if key is not None) == [b"a", b"b"]


def test_tentative_records_of_all_partitions_come_in_the_order_of_their_ids() -> None:
    view = LiveView(2)
    feed(view, 0, tentative(2, 1), tentative(3, 0), boundary(1, 1, 3))
    feed(view, 1, tentative(2, 0), boundary(1, 1, 3))
    assert [record.id for record in view.tentative()] == [
        RecordId(2, 0),
        RecordId(2, 1),
        RecordId(3, 0),
    ]


def of_life(life: str, sequence: int, *inserted: int) -> list[LiveRecord]:
    """Return a transaction of ``life`` in one partition: a stable record in each bucket."""
    return [
        *(
            LiveRecord(Kind.INSERTION, RecordId(bucket, 0), key=b"k", value=b"v", origin=life)
            for bucket in inserted
        ),
        LiveRecord(Kind.BOUNDARY, stable=max(inserted), sequence=sequence, origin=life),
    ]


def seen(view: LiveView) -> list[tuple[str, int]]:
    return [(record.origin, record.id.bucket) for record in view.records() if record.id]


def test_an_answer_goes_on_until_that_of_the_next_life_is_whole() -> None:
    view = LiveView(2)
    for place in range(2):
        for record in of_life("old", 7, 5):
            view.take(place, record)
    assert seen(view) == [("old", 5), ("old", 5)]
    for record in of_life("new", 1, 2):
        assert not view.take(0, record), "the other partition has nothing of it yet"
    assert seen(view) == [("old", 5), ("old", 5)]
    assert [view.take(1, record) for record in of_life("new", 1, 3)] == [False, True]
    assert seen(view) == [("new", 2), ("new", 3)]
    assert (view.sequence, view.gaps) == (1, 0)
    for record in of_life("old", 8, 6):
        assert not view.take(0, record), "its writer was replaced, or this is read again"
    assert seen(view) == [("new", 2), ("new", 3)]


def test_which_life_is_newer_is_told_by_a_partition_not_by_who_was_read_first() -> None:
    view = LiveView(2)
    for record in of_life("new", 1, 2):  # here retention has removed the earlier one
        view.take(1, record)
    for record in of_life("old", 7, 5):
        view.take(0, record)
    assert seen(view) == []
    for record in of_life("new", 1, 3):
        view.take(0, record)
    assert seen(view) == [("new", 2), ("new", 3)]


def test_lives_that_were_never_shown_are_forgotten() -> None:
    view = LiveView(2)
    for number in range(ORIGINS_MAX + 3):
        view.take(0, LiveRecord(Kind.INSERTION, RecordId(1, 0), origin=f"o{number}"))
    assert len(view._answers) == 1
    assert len(view._past) == ORIGINS_MAX
    for place in range(2):
        for record in of_life("o0", 1, 1):  # so long ago that it counts as new
            view.take(place, record)
    assert seen(view) == [("o0", 1), ("o0", 1)]
