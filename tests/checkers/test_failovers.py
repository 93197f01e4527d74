"""The checker of who runs a replica: each of its rules was seen to fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkers import failovers
from checkers.failovers import Began, Closed, Primaries, Stands, Waits, Word

WAITS = Waits(silent_ms=1_500, turn_ms=600)
BEGUN = [Began(0, 1), Began(1_000, 5)]
WORDS = [Word(1_500, 5), Word(2_000, 5)]


def stands(process: str, *, has_checkpoint: bool = True, at_ms: int = 3_900) -> Stands:
    return Stands(at_ms, process, has_checkpoint)


def check(
    at_ms: int,
    process: str,
    *others: Stands,
    has_checkpoint: bool = True,
    words: list[Word] = WORDS,
    closed: Sequence[Closed] = (),
) -> list[str]:
    primaries = Primaries(BEGUN, words, closed)
    return failovers.check("s", [(at_ms, process, has_checkpoint)], primaries, others, WAITS)


def check_in_time(
    *began: Began, free: Sequence[str] = ("1",), until_ms: int = 9_000, **said: Any
) -> list[str]:
    primaries = Primaries([*BEGUN, *began], **{"words": WORDS, **said})
    return failovers.check_in_time("s", primaries, lambda *_: free, WAITS, until_ms)


def test_after_the_whole_silence_it_is_right() -> None:
    assert check(3_500, "1") == []


def test_nobody_takes_the_place_of_one_that_is_heard() -> None:
    assert check(3_400, "1") != []
    assert check(3_500, "1", words=[*WORDS, Word(3_300, 5)]) != []


def test_one_that_says_that_it_ends_is_not_waited_for() -> None:
    assert check(2_200, "1") != []
    assert check(2_200, "1", words=[*WORDS, Word(2_150, 5, is_end=True)]) == []
    assert check(2_200, "1", words=[*WORDS, Word(2_150, 1, is_end=True)]) != []
    assert check(2_200, "1", words=[*WORDS, Word(2_150, 5, is_end=True), Word(2_190, 5)]) != []


def test_what_is_still_on_the_way_counts_for_nothing() -> None:
    assert check(3_500, "1", words=[*WORDS, Word(3_301, 5)]) == []


def test_words_of_an_older_epoch_are_no_sign_of_life() -> None:
    assert check(3_500, "1", words=[*WORDS, Word(3_000, 1)]) == []
    assert len(check_in_time(words=[*WORDS, Word(3_000, 1)])) == 1


def test_a_bucket_that_it_closes_is_a_sign_of_life() -> None:
    assert check(3_500, "1", closed=[Closed(3_300, 5)]) != []
    assert check(3_500, "1", closed=[Closed(3_300, 1)]) == []
    assert check_in_time(closed=[Closed(6_000, 5)]) == []
    assert len(check_in_time(closed=[Closed(6_000, 1)])) == 1
    assert len(check_in_time(closed=[Closed(6_000, 5)], until_ms=12_000)) == 1


def test_a_bucket_that_it_closes_takes_back_no_end() -> None:
    ends = [*WORDS, Word(2_150, 5, is_end=True)]
    assert check(2_200, "1", words=ends, closed=[Closed(2_190, 5)]) == []


def test_turns_are_kept() -> None:
    assert check(4_000, "2", stands("1")) != []
    assert check(4_100, "2", stands("1")) == []
    assert check(4_000, "2", stands("1", has_checkpoint=False)) == []
    assert check(4_000, "1", stands("2"), has_checkpoint=False) != []


def test_somebody_takes_the_place_if_there_is_anybody() -> None:
    assert check_in_time(free=[]) == []
    assert len(check_in_time()) == 1
    assert check_in_time(Began(5_800, 9), until_ms=6_000) == []
