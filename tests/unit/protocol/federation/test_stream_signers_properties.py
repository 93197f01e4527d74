"""Properties of the signers of a stream, whatever is stated about them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.federation.stream_signers import (
    OwnedStream,
    StreamSigner,
    StreamSigners,
    wanted_words,
)

SPEEDS = OwnedStream("north", "roads", "speeds")
NAMES = ("north", "south", "east")


class Word(NamedTuple):
    in_log_of: str
    owner: str
    signer: str
    is_withdrawn: bool
    signed_by: str

    def counts(self) -> bool:
        return self.in_log_of == self.owner == self.signed_by == "north"


WORDS = st.lists(
    st.builds(
        Word,
        st.sampled_from(["north", "north", "south"]),
        st.sampled_from(["north", "north", "south"]),
        st.sampled_from(["south", "east"]),
        st.booleans(),
        st.sampled_from(["north", "north", "south"]),
    ),
    max_size=12,
)


def signature(by: str) -> Signature:
    return Signature(by, "1", bytes(64))


def all_of(words: list[Word], until: int = 1_000) -> StreamSigners:
    signers = StreamSigners(lambda *_: True)
    for at_ms, drawn in enumerate(words[:until]):
        word = StreamSigner(drawn.owner, "roads", "speeds", drawn.signer, drawn.is_withdrawn, at_ms)
        signers.add(drawn.in_log_of, word, signature(drawn.signed_by), at_ms)
    return signers


@given(WORDS, st.sampled_from(NAMES), st.integers(0, 13), st.booleans())
def test_a_record_counts_if_the_owners_last_word_until_then_is_that_it_does(
    words: list[Word], by: str, at_ms: int, is_snapshot: bool
) -> None:
    last = [each for each in words[: at_ms + 1] if each.counts() and each.signer == by]
    is_named = bool(last) and not last[-1].is_withdrawn
    found = all_of(words).why_not(SPEEDS, signature(by), b"", at_ms, is_snapshot=is_snapshot)
    assert (found == "") is (by == "north" or (is_named and not is_snapshot))


@given(WORDS, st.integers(0, 13))
def test_fj5_what_comes_later_changes_no_judgement_about_before(
    words: list[Word], at_ms: int
) -> None:
    whole, part = all_of(words), all_of(words, at_ms + 1)
    assert whole.named(SPEEDS, at_ms) == part.named(SPEEDS, at_ms)


@given(WORDS, st.sets(st.sampled_from(["south", "east"])))
def test_after_the_words_that_it_took_those_may_sign_and_no_others(
    words: list[Word], wanted: set[str]
) -> None:
    signers = all_of(words)
    for word in wanted_words("north", "roads", {"speeds": sorted(wanted)}, signers, 100):
        assert signers.add("north", word, signature("north"), 100) == ""
    assert signers.named(SPEEDS, 100) == sorted(wanted)
