"""The checker of changed functions passes what is right and finds each fault that it is for."""

from __future__ import annotations

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, LogEntry, Part
from checkers import versions
from checkers.streams import Row

ANSWER: dict[int, list[Row]] = {bucket: [(bucket, 10)] for bucket in range(1, 5)}


def of_version(row: Row, version: int) -> Row:
    return row[0], int(str(row[1])) * version


def begins(replica: str, version: int) -> EpochStarted:
    return EpochStarted(replica, f"f{version}", f"{replica} {version}", version=version)


def closes(replica: str, epoch: int, closed: int, *buckets: int, prev: int = -1) -> BoundaryRecord:
    """Batch ``closed`` closes up to that bucket; it has a part of each of ``buckets``."""
    parts = tuple(Part(b, 0, f"{replica} {closed}", 1, b, b + 1, 1, epoch) for b in buckets)
    before = None if prev < 0 else BatchId(replica, prev)
    return BoundaryRecord(replica, epoch, BatchId(replica, closed), before, closed, parts)


def made(log: list[LogEntry]) -> versions.Versions:
    return versions.read(list(enumerate(log)), ["0", "1"])


def rows_of(replica: str, part: Part) -> list[Row]:
    """Epochs 0 and 1 are of the first version."""
    return [of_version((part.bucket, 10), 1 if part.digest in (0, 1) else 2)]


UPGRADED: list[LogEntry] = [
    begins("0", 1),
    begins("1", 1),
    closes("0", 0, 2, 1, 2, 3),
    closes("1", 1, 1, 1),
    begins("1", 2),
    closes("0", 0, 3, prev=2),
    closes("1", 4, 4, 2, 3, 4, prev=1),
    closes("0", 0, 4, 4, prev=3),
]
"""Replica 1 gets the second version, and has caught up when it closes bucket 4; then replica 0,
whose row of bucket 3 was made early, is of no account.
"""


def test_what_each_version_made_is_right_and_the_newest_stands_from_where_it_caught_up() -> None:
    found = made(UPGRADED)
    assert found.counts == {1: 0, 2: 3}
    assert versions.check("s", found, ANSWER, of_version, rows_of) == []
    assert versions.stands(found, rows_of) == {
        1: [(1, 10)],
        2: [(2, 10)],
        3: [(3, 10)],
        4: [(4, 20)],
    }


def test_rows_of_another_version_than_the_record_that_names_them_are_found() -> None:
    def mixed(_replica: str, part: Part) -> list[Row]:
        return [of_version((part.bucket, 10), 1)]

    assert len(versions.check("s", made(UPGRADED), ANSWER, of_version, mixed)) == 3


def test_a_row_too_many_or_too_few_is_found() -> None:
    def twice(replica: str, part: Part) -> list[Row]:
        return rows_of(replica, part) * (2 if part.bucket == 4 else 1)

    (wrong,) = versions.check("s", made(UPGRADED), ANSWER, of_version, twice)
    assert "bucket 4" in wrong
    (wrong,) = versions.check(
        "s", made([*UPGRADED[:2], closes("0", 0, 2, 1)]), ANSWER, of_version, rows_of
    )
    assert "bucket 2" in wrong


def test_a_version_that_lags_does_not_count_yet() -> None:
    lagging = [*UPGRADED[:6], closes("1", 4, 2, 2, prev=1)]
    found = made(lagging)
    assert found.counts == {1: 0}
    assert found.upto == 3


def test_what_another_version_closed_behind_a_hole_is_not_the_new_ones() -> None:
    behind: list[LogEntry] = [
        begins("0", 1),
        begins("1", 1),
        BoundaryRecord("1", 1, BatchId("1", 4), None, 4, (), base=3),
        begins("1", 2),
        closes("0", 0, 3, 1, 2, 3),
    ]
    found = made(behind)
    assert found.reading.writers["1"].base == 4
    assert found.upto == 3, "bucket 4 was made by the version before"


def test_a_process_of_the_version_before_that_goes_on_is_found() -> None:
    late = [*UPGRADED, closes("0", 0, 5, prev=4)]
    (wrong,) = versions.check("s", made(late), ANSWER, of_version, rows_of)
    assert "epoch 0 goes on" in wrong
