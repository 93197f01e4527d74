"""Who is outvoted, and that nobody is fenced twice."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.fencing import FenceBook, fenced_epochs, outvoted
from anabranch.protocol.control.records import Fence, TrimPoint


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ("", ()),
        ("a", ()),
        ("ab", ()),
        ("aa", ()),
        ("aaa", ()),
        ("aab", ("2",)),
        ("baa", ("0",)),
        ("abc", ()),
        ("aabb", ()),
        ("abcaa", ("1", "2")),
        ("aabbc", ()),
    ],
)
def test_ef2_a_majority_of_at_least_three(votes: str, expected: tuple[str, ...]) -> None:
    assert outvoted({str(number): vote for number, vote in enumerate(votes)}) == expected


def test_ef1_a_process_is_fenced_once_and_its_successor_is_another() -> None:
    book = FenceBook()
    fence = book.fence("tolls", "2", 7, 42, 5)
    assert fence is not None
    assert (fence.stage, fence.replica, fence.epoch, fence.written_ms) == ("tolls", "2", 7, 5)
    assert "bucket 42" in fence.reason
    assert book.fence("tolls", "2", 7, 43, 6) is None
    assert book.fence("tolls", "2", 8, 44, 7) is not None
    again = FenceBook()
    again.known(fence)
    assert again.fence("tolls", "2", 7, 42, 9) is None


def test_the_newest_fenced_epoch_of_each_replica() -> None:
    fences = [
        Fence("tolls", "2", 7, "", 0),
        Fence("tolls", "2", 5, "", 1),
        Fence("tolls", "0", 3, "", 2),
        Fence("means", "1", 9, "", 3),
    ]
    assert fenced_epochs("tolls", ("1", "2"), [*fences, TrimPoint("tolls", 5, 4)]) == {
        "2": 7,
        "0": 3,
    }
    assert fenced_epochs("sums", ("1", "2"), fences) == {}


@pytest.mark.parametrize("peers", [(), ("1",)])
def test_ef2_where_nobody_can_be_outvoted_no_fence_counts_and_none_is_looked_for(
    peers: tuple[str, ...],
) -> None:
    entries = iter([Fence("tolls", "0", 3, "", 2)])
    assert fenced_epochs("tolls", peers, entries) == {}
    assert next(entries).epoch == 3
    assert fenced_epochs("tolls", ("1", "2"), iter([Fence("tolls", "0", 3, "", 2)])) == {"0": 3}
