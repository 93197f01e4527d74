"""Tests of which replica is outvoted, which fences count, and that none is fenced twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.protocol.control.fencing import FenceBook, fenced_epochs, is_proven, outvoted
from anabranch.protocol.control.records import Fence, Vote
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import Recomputed
from harness.boundary_logs import part, record, started, state_after


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


BUCKET = 4
VOTES = (Vote("0", 0, 2, 7), Vote("1", 1, 2, 7), Vote("2", 2, 3, 7))
FENCE = Fence("tolls", "2", 2, BUCKET, VOTES, 5)


def read_log() -> LogState:
    """Three replicas closed bucket 4, and replica 2 made three rows of it where the others made
    two; each in its first epoch, of which replica 2 has had two.
    """
    return state_after(
        *(started(writer, token=writer) for writer in "012"),
        *(
            record(int(writer), 0, 5, (part(BUCKET, rows=rows),), replica=writer)
            for writer, rows in zip("012", (2, 2, 3), strict=True)
        ),
        started("2", token="again"),
        writers="012",
    )


def test_a_fence_is_proven_by_its_votes_and_the_log() -> None:
    assert is_proven(FENCE, read_log())
    assert is_proven(replace(FENCE, epoch=6), read_log()), "it went on from the same state"
    assert FENCE.reason.startswith(
        "a majority of the replicas of tolls made other rows of bucket 4"
    )


@pytest.mark.parametrize(
    "forged",
    [
        replace(FENCE, votes=()),
        replace(FENCE, votes=VOTES[1:]),
        replace(FENCE, votes=VOTES[:2]),
        replace(FENCE, votes=(*VOTES, VOTES[0])),
        replace(FENCE, replica="1", epoch=1),
        replace(FENCE, replica="3"),
        replace(FENCE, epoch=1),
        replace(FENCE, epoch=7),
        replace(FENCE, bucket=6),
        replace(FENCE, bucket=0),
        replace(FENCE, bucket=3),
        replace(FENCE, votes=(VOTES[0], replace(VOTES[1], replica="x"), VOTES[2])),
        replace(FENCE, votes=(VOTES[0], replace(VOTES[1], epoch=9), VOTES[2])),
        replace(FENCE, votes=(VOTES[0], VOTES[1], replace(VOTES[2], digest=8))),
        replace(FENCE, votes=tuple(replace(vote, rows=vote.rows + 1) for vote in VOTES)),
        replace(FENCE, votes=tuple(replace(vote, rows=2) for vote in VOTES)),
    ],
)
def test_ef2_what_is_not_proven_is_of_no_effect(forged: Fence) -> None:
    assert not is_proven(forged, read_log())
    assert fenced_epochs([forged], read_log()) == {}


def _forgotten() -> LogState:
    log_state = read_log()
    log_state.forget(5)
    return log_state


def _recomputed() -> LogState:
    log_state = read_log()
    log_state.apply(7, Recomputed("0", 0, (part(BUCKET, "b", 2),)))
    return log_state


@pytest.mark.parametrize("known", [_forgotten, _recomputed])
def test_where_the_log_does_not_name_the_bucket_the_votes_alone_decide(
    known: Callable[[], LogState],
) -> None:
    lies = tuple(replace(vote, digest=vote.digest + int(vote.replica)) for vote in VOTES)
    assert is_proven(replace(FENCE, votes=tuple(replace(v, digest=9) for v in VOTES)), known())
    assert not is_proven(replace(FENCE, votes=lies), known()), "no two agree"
    assert not is_proven(replace(FENCE, bucket=6), known()), "nobody has closed it"


def test_who_has_never_begun_is_not_fenced() -> None:
    assert not is_proven(FENCE, LogState("012"))


def test_the_newest_fenced_epoch_of_each_replica() -> None:
    fences = [replace(FENCE, epoch=6), FENCE, replace(FENCE, votes=())]
    assert fenced_epochs(fences, read_log()) == {"2": 6}
    assert fenced_epochs(reversed(fences), read_log()) == {"2": 6}


def test_ef1_nobody_is_fenced_twice_for_what_one_process_made() -> None:
    book, log_state = FenceBook(), read_log()
    assert book.is_new(FENCE, log_state)
    assert not book.is_new(replace(FENCE, written_ms=9), log_state)
    assert not book.is_new(replace(FENCE, epoch=6, bucket=5), log_state), "of the same process"
    later = replace(FENCE, epoch=6, votes=(*VOTES[:2], replace(VOTES[2], epoch=6)))
    assert book.is_new(later, log_state)
    again = FenceBook()
    again.known(later)
    assert not again.is_new(FENCE, log_state), "what came before is settled by it"


def test_what_is_forged_does_not_stand_in_for_the_fence() -> None:
    book = FenceBook()
    book.known(replace(FENCE, votes=()))
    book.known(replace(FENCE, epoch=99))
    assert book.is_new(FENCE, read_log())
