"""Tests of which participants' records of a published stream count, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.federation import stream_signers
from anabranch.protocol.federation.contract_log import WORD_SKEW_MS
from anabranch.protocol.federation.statements import Signature, signed_bytes
from anabranch.protocol.federation.stream_signers import (
    OwnedStream,
    StreamSigner,
    StreamSigners,
    wanted_words,
)

SPEEDS = OwnedStream("north", "roads", "speeds")
RECORD = b"a record"


def signature(participant: str, message: bytes, key_id: str = "1") -> Signature:
    """Return a signature that only ``verify`` accepts."""
    return Signature(participant, key_id, (message * 64)[-64:])


def verify(by: Signature, message: bytes, at_ms: int) -> bool:
    """Keys with the id ``1`` count from 10 to 1000."""
    return by.key_id == "1" and 10 <= at_ms < 1_000 and by.value == (message * 64)[-64:]


def word(
    signer: str = "south", at_ms: int = 20, *, is_withdrawn: bool = False, stream: str = "speeds"
) -> StreamSigner:
    return StreamSigner("north", "roads", stream, signer, is_withdrawn, at_ms)


def add(to: StreamSigners, what: StreamSigner, appended_ms: int | None = None) -> str:
    return to.add(
        "north",
        what,
        signature("north", signed_bytes(what)),
        what.at_ms if appended_ms is None else appended_ms,
    )


def why_not(of: StreamSigners, by: str, at_ms: int, *, is_snapshot: bool = False) -> str:
    return of.why_not(SPEEDS, signature(by, RECORD), RECORD, at_ms, is_snapshot=is_snapshot)


def test_what_an_owner_said_can_be_forgotten() -> None:
    signers = StreamSigners(verify)
    add(signers, word())
    signers.forget("south")
    assert signers.named(SPEEDS, 30) == ["south"]
    signers.forget("north")
    assert signers.named(SPEEDS, 30) == []
    assert add(signers, word()) == "", "it is not known already"


def test_fj1_the_owners_records_count_while_its_key_does() -> None:
    signers = StreamSigners(verify)
    assert [why_not(signers, "north", at) for at in (10, 999)] == ["", ""]
    for at_ms in (9, 1_000):
        assert (
            why_not(signers, "north", at_ms) == "its signature is none of a key that counted then"
        )
    add(signers, word())
    assert why_not(signers, "north", 30) == ""


def test_fj2_anothers_count_from_the_owners_word_until_its_withdrawal() -> None:
    signers = StreamSigners(verify)
    assert why_not(signers, "south", 20) == "its signer is not named by its owner"
    assert add(signers, word(at_ms=20)) == ""
    assert add(signers, word(at_ms=30, is_withdrawn=True)) == ""
    assert add(signers, word(at_ms=40)) == ""
    counts = [at for at in (19, 20, 29, 30, 39, 40, 999) if not why_not(signers, "south", at)]
    assert counts == [20, 29, 40, 999]
    assert signers.ever_named(SPEEDS) == ["south"]
    assert why_not(signers, "south", 1_000) == "its signature is none of a key that counted then"
    assert why_not(signers, "east", 25) == "its signer is not named by its owner"
    assert not signers.may_sign(replace(SPEEDS, stream="tolls"), "south", 25)
    assert not signers.may_sign(replace(SPEEDS, owner="east"), "south", 25)


@pytest.mark.parametrize(
    ("of", "by", "appended_ms", "why"),
    [
        ("south", "south", 20, "a stream of somebody else"),
        ("north", "south", 20, "not signed by its owner"),
        ("north", "north", 9, "not signed by its owner"),
        ("north", "north", 20, ""),
    ],
)
def test_fj3_a_word_is_the_owners(of: str, by: str, appended_ms: int, why: str) -> None:
    signers, statement = StreamSigners(verify), word()
    assert signers.add(of, statement, signature(by, signed_bytes(statement)), appended_ms) == why
    assert signers.named(SPEEDS, 999) == ([] if why else ["south"])


def test_fj3_no_word_is_dated_at_will_and_none_counts_twice() -> None:
    signers = StreamSigners(lambda *_: True)
    assert add(signers, word(at_ms=20), 21 + WORD_SKEW_MS) == "out of its time"
    assert add(signers, word(at_ms=WORD_SKEW_MS + 21), 20) == "out of its time"
    assert add(signers, word(is_withdrawn=True)) == "withdrawn already"
    assert add(signers, word(at_ms=20), 20 + WORD_SKEW_MS) == ""
    assert add(signers, word(at_ms=20)) == "known already"
    assert add(signers, word(at_ms=21)) == "named already"
    assert add(signers, word(at_ms=19, is_withdrawn=True)) == "known already"
    assert add(signers, word(at_ms=30, is_withdrawn=True)) == ""
    assert add(signers, word(at_ms=20)) == "known already"
    assert add(signers, word(at_ms=31, is_withdrawn=True)) == "withdrawn already"


def test_fj4_a_log_snapshot_is_the_owners_alone() -> None:
    signers = StreamSigners(verify)
    add(signers, word())
    assert why_not(signers, "north", 30, is_snapshot=True) == ""
    why = "a log snapshot is its owner's alone"
    assert why_not(signers, "south", 30, is_snapshot=True) == why


def test_a_log_cannot_fill_a_readers_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_signers, "SIGNER_TERMS_MAX", 2)
    signers = StreamSigners(verify)
    assert add(signers, word(at_ms=20)) == ""
    assert add(signers, word("east", at_ms=20)) == ""
    assert add(signers, word("west", at_ms=20)) == "more signers than a participant has"
    assert add(signers, word(at_ms=21, is_withdrawn=True)) == "", "this is always possible"
    assert add(signers, word(at_ms=22)) == "more signers than a participant has"


def test_what_has_to_be_stated_is_what_is_not_stated_yet() -> None:
    signers = StreamSigners(verify)
    wanted = {"speeds": ["south", "east"], "tolls": ["south"]}
    first = wanted_words("north", "roads", wanted, signers, 20)
    assert first == [word("east"), word("south"), word("south", stream="tolls")]
    assert [add(signers, each) for each in first] == ["", "", ""]
    assert wanted_words("north", "roads", wanted, signers, 30) == []
    assert wanted_words("north", "other", {}, signers, 30) == []
    assert wanted_words("north", "roads", {"speeds": ["south"]}, signers, 30) == [
        word("east", 30, is_withdrawn=True),
        word("south", 30, is_withdrawn=True, stream="tolls"),
    ]
