"""Which keys count, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.published_keys import (
    KEY_ID_CHARACTERS_MAX,
    KEYS_MAX,
    PublishedKey,
    PublishedKeys,
)

A, B = bytes(32), bytes(31) + b"b"


def published(key_id: str = "1", public: bytes = A, participant: str = "north") -> PublishedKey:
    return PublishedKey(participant, key_id, public)


def revoked(key_id: str = "1", public: bytes = A) -> PublishedKey:
    return PublishedKey("north", key_id, public, is_revoked=True)


def test_fg1_a_key_counts_from_its_publication_until_its_revocation() -> None:
    keys = PublishedKeys()
    assert keys.add("north", published(), 10) == ""
    assert [keys.find("north", "1", at) for at in (9, 10, 10**12)] == [None, A, A]
    assert keys.add("north", revoked(), 20) == ""
    assert [keys.find("north", "1", at) for at in (9, 10, 19, 20)] == [None, A, A, None]
    assert keys.find("north", "2", 15) is None
    assert keys.find("south", "1", 15) is None


def test_what_a_participant_said_can_be_forgotten() -> None:
    keys = PublishedKeys()
    keys.add("north", published(), 10)
    keys.forget("south")
    assert keys.find("north", "1", 10) == A
    keys.forget("north")
    assert (keys.find("north", "1", 10), keys.participants()) == (None, [])


def test_fg1_a_key_may_follow_another_before_that_is_revoked() -> None:
    keys = PublishedKeys()
    keys.add("north", published("1", A), 0)
    keys.add("north", published("2", B), 10)
    assert keys.ids("north", 10) == ["1", "2"]
    keys.add("north", revoked("1", A), 20)
    assert (keys.ids("north", 5), keys.ids("north", 20)) == (["1"], ["2"])
    assert keys.ids("south", 20) == []
    assert keys.participants() == ["north"]


def test_fg2_an_id_has_one_key_for_ever() -> None:
    keys = PublishedKeys()
    keys.add("north", published(), 0)
    assert keys.add("north", published(), 1) == "published already"
    assert keys.add("north", published(public=B), 1) == "another key has this id"
    assert keys.add("north", revoked(public=B), 1) == "another key has this id"
    keys.add("north", revoked(), 2)
    assert keys.add("north", published(), 3) == "revoked already"
    assert keys.add("north", published(public=B), 3) == "another key has this id"
    assert (keys.find("north", "1", 1), keys.find("north", "1", 3)) == (A, None)


def test_fg2_a_key_that_was_never_published_can_be_revoked_and_then_never_counts() -> None:
    keys = PublishedKeys()
    assert keys.add("north", revoked(), 5) == ""
    assert keys.add("north", published(), 6) == "revoked already"
    assert [keys.find("north", "1", at) for at in (4, 5, 6)] == [None, None, None]


def test_fg3_a_participant_says_nothing_about_keys_of_others() -> None:
    keys = PublishedKeys()
    assert keys.add("south", published(participant="north"), 0) == "a key of somebody else"
    assert keys.find("north", "1", 0) is None
    assert keys.find("south", "1", 0) is None


@pytest.mark.parametrize(
    "word",
    [
        published(public=b""),
        published(public=bytes(31)),
        published(public=bytes(33)),
        published(key_id=""),
        published(key_id="k" * (KEY_ID_CHARACTERS_MAX + 1)),
    ],
)
def test_what_is_no_key_is_rejected(word: PublishedKey) -> None:
    assert PublishedKeys().add("north", word, 0) == "not a key"


def test_a_log_cannot_fill_a_readers_memory() -> None:
    keys = PublishedKeys()
    for number in range(KEYS_MAX):
        assert keys.add("north", published(str(number)), 0) == ""
    assert keys.add("north", published("more"), 0) == "more keys than a participant has"
    assert keys.add("north", revoked("0"), 1) == ""
    assert keys.add("south", published(participant="south"), 0) == ""


@given(
    st.lists(st.tuples(st.sampled_from(["1", "2"]), st.booleans()), max_size=8),
    st.integers(0, 9),
)
def test_fg1_what_comes_later_changes_no_judgement_about_before(
    words: list[tuple[str, bool]], at_ms: int
) -> None:
    whole, part = PublishedKeys(), PublishedKeys()
    for time_ms, (key_id, is_revoked) in enumerate(words):
        word = PublishedKey("north", key_id, A, is_revoked)
        whole.add("north", word, time_ms)
        if time_ms <= at_ms:
            part.add("north", word, time_ms)
    assert whole.ids("north", at_ms) == part.ids("north", at_ms)
