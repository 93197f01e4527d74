"""``ingestion.dead_letters``: as they came, with the reason, at least once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.adapters.memory.log import FailingOperation, LocalEventLog, LocalLogWriter
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.dead_letters import ERROR_CHARACTERS_MAX, TRUNCATED, DeadLetters
from anabranch.ingestion.source_topics import DEAD_LETTER_ROOM_BYTES
from anabranch.ports import Chunk, Headers, RecordPosition, TopicPartition
from anabranch.protocol.errors import RecordRejected, RecordTooLarge, RejectionReason, Unavailable
from anabranch.protocol.limits import (
    DEAD_LETTER_CUT_BYTES,
    DEAD_LETTER_CUT_MORE_BYTES,
    NAME_CHARACTERS_MAX,
    WRITE_TRIES_MAX,
)
from harness.sources import everything

AT = TopicPartition("in", 3)
CHUNK = Chunk(
    TopicPartition("in", 3),
    [7, 9],
    [b"{", None],
    [b"k", None],
    [1, 2],
    [[("trace", b"\x00\xff")], ()],
)


@pytest.fixture
def log() -> LocalEventLog:
    log = LocalEventLog()
    log.admin().create([TopicSettings("dead", 2)])
    return log


def test_go_nowhere_before_they_are_flushed(log: LocalEventLog) -> None:
    """The records that made them late may not be in the log yet."""
    letters = DeadLetters(log, "dead", 2)
    letters.add(CHUNK, 0, RecordRejected(RejectionReason.LATE, "late"))
    assert everything(log, "dead", 2) == []
    letters.flush()
    assert [chunk.values for chunk in everything(log, "dead", 2)] == [[b"{"]]
    letters.close()


def test_carry_the_record_and_the_reason(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "dead", 2)
    letters.add(
        CHUNK,
        0,
        RecordRejected(RejectionReason.NOT_JSON, "umlaut \u00fc " + "x" * 2 * ERROR_CHARACTERS_MAX),
    )
    letters.add(CHUNK, 1, RecordRejected(RejectionReason.NULL_VALUE, "no value \ud800"))
    letters.flush()
    letters.close()
    (found,) = everything(log, "dead", 2)
    assert found.at.partition == 1
    assert (found.values, found.keys) == ([b"{", None], [b"k", None])
    first, second = [dict(headers) for headers in found.headers]
    assert (first.pop("anabranch-error") or b"").decode().startswith("umlaut \u00fc xx")
    assert first == {
        "trace": b"\x00\xff",
        "anabranch-topic": b"in",
        "anabranch-partition": b"3",
        "anabranch-offset": b"7",
        "anabranch-reason": b"not_json",
    }
    assert (second["anabranch-offset"], second["anabranch-reason"]) == (b"9", b"null_value")


def test_headers_of_senders_are_not_taken_for_ours(log: LocalEventLog) -> None:
    sent = [
        ("anabranch-offset", b"1"),
        ("Anabranch-Truncated", b"9"),
        ("trace", None),
        ("anabranch-reason", b"x"),
        ("anabranch-reason", None),
    ]
    letters = DeadLetters(log, "dead", 2)
    letters.add(
        replace(CHUNK, headers=[sent, ()]), 0, RecordRejected(RejectionReason.NOT_JSON, "no")
    )
    letters.flush()
    ((headers,),) = [chunk.headers for chunk in everything(log, "dead", 2)]
    assert list(headers[:5]) == [
        ("sender-anabranch-offset", b"1"),
        ("sender-Anabranch-Truncated", b"9"),
        ("trace", None),
        ("sender-anabranch-reason", b"x"),
        ("sender-anabranch-reason", None),
    ]
    assert [text for name, text in headers if name == "anabranch-offset"] == [b"7"]


def test_are_sent_again_after_an_unknown_outcome(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "dead", 2)
    why = RecordRejected(RejectionReason.NOT_JSON, "no")
    letters.add(CHUNK, 0, why)
    letters.add(CHUNK, 1, why)
    log.fail_next(FailingOperation.FLUSH, applied=1)
    log.fail_next(FailingOperation.FLUSH, applied=-1)
    log.fail_next(FailingOperation.FLUSH, applied=0)
    letters.flush()
    (found,) = everything(log, "dead", 2)
    assert found.values == [b"{", None, b"{", None]


def test_a_log_that_never_says_what_became_of_them_is_given_up(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "dead", 2)
    letters.add(CHUNK, 0, RecordRejected(RejectionReason.NOT_JSON, "no"))
    for _ in range(WRITE_TRIES_MAX):
        log.fail_next(FailingOperation.FLUSH, applied=0)
    with pytest.raises(Unavailable, match="attempts to write"):
        letters.flush()


class TestTooLarge:
    """The topic takes 100 KB."""

    WHY = RecordRejected(RejectionReason.TOO_LARGE, "too large")

    @pytest.fixture
    def letters(self) -> DeadLetters:
        self.log = LocalEventLog()
        self.log.admin().create([TopicSettings("dead", 1, config={"max.message.bytes": "100000"})])
        return DeadLetters(self.log, "dead", 1)

    def send(
        self, letters: DeadLetters, *records: tuple[bytes | None, bytes | None, Headers]
    ) -> None:
        for offset, (value, key, headers) in enumerate(records):
            letters.add(Chunk(AT, [offset], [value], [key], [1], [headers]), 0, self.WHY)
        letters.flush()

    def found(self) -> list[tuple[int, bytes | None, bytes | None, dict[str, bytes | None]]]:
        found = []
        for chunk in everything(self.log, "dead", 1):
            for value, key, headers in zip(chunk.values, chunk.keys, chunk.headers, strict=True):
                named = dict(headers)
                found.append((int(named["anabranch-offset"] or b""), value, key, named))
        return found

    def test_ones_are_cut_and_their_neighbours_are_not(self, letters: DeadLetters) -> None:
        large = b"y" * 99_000
        self.send(
            letters,
            (b"a", b"k", ()),
            (b"x" * 200_000, b"k", [("trace", b"1")]),
            (large, b"k", ()),
            (None, None, ()),
            (b"z", b"k", ()),
        )
        found = self.found()
        assert {offset for offset, *_ in found} == {0, 1, 2, 3, 4}
        for offset, value, key, headers in found:
            if offset != 1:
                assert (value, key) == {
                    0: (b"a", b"k"),
                    2: (large, b"k"),
                    3: (None, None),
                    4: (b"z", b"k"),
                }[offset]
                assert TRUNCATED not in headers
        ((_, value, key, headers),) = [each for each in found if each[0] == 1]
        assert (value, key, headers["trace"]) == (b"x" * DEAD_LETTER_CUT_BYTES, b"k", b"1")
        assert (headers[TRUNCATED], headers["anabranch-topic"], headers["anabranch-reason"]) == (
            b"200007",
            b"in",
            b"too_large",
        )

    @pytest.mark.parametrize("value", [b"v", None])
    def test_key_and_headers_are_cut_too(self, letters: DeadLetters, value: bytes | None) -> None:
        self.send(letters, (value, b"k" * 90_000, [("h", b"x" * 90_000), ("none", None)]))
        ((_, found, key, headers),) = self.found()
        assert (found, key) == (value, b"k" * DEAD_LETTER_CUT_MORE_BYTES)
        assert "h" not in headers
        assert headers[TRUNCATED] == str(180_005 + len(value or b"")).encode()

    def test_the_largest_that_is_left_fits_into_the_room_that_every_topic_has(self) -> None:
        log = LocalEventLog()
        log.admin().create(
            [TopicSettings("dead", 1, config={"max.message.bytes": str(DEAD_LETTER_ROOM_BYTES)})]
        )
        letters = DeadLetters(log, "dead", 1)
        why = RecordRejected(RejectionReason.TOO_LARGE, "\U0001f4a5" * 2 * ERROR_CHARACTERS_MAX)
        at = TopicPartition("t" * NAME_CHARACTERS_MAX, 3)
        letters.add(
            Chunk(
                at,
                [2**62],
                [bytes(10**6)],
                [bytes(10**6)],
                [1],
                [[("h", bytes(DEAD_LETTER_CUT_MORE_BYTES - 1))]],
            ),
            0,
            why,
        )
        letters.flush()
        ((value, *_),) = [chunk.values for chunk in everything(log, "dead", 1)]
        assert value is not None

    def test_small_ones_that_are_rejected_together_go_one_by_one(
        self, letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A broker judges what is sent together."""
        flush = LocalLogWriter.flush

        def strict(writer: LocalLogWriter) -> list[RecordPosition]:
            if len(writer._sent) > 1:
                writer._sent.clear()
                raise RecordTooLarge("together")
            return flush(writer)

        monkeypatch.setattr(LocalLogWriter, "flush", strict)
        self.send(letters, (b"a", None, ()), (b"b", None, ()), (b"c" * 50_000, None, ()))
        assert [(offset, value) for offset, value, _, _ in self.found()] == [
            (0, b"a"),
            (1, b"b"),
            (2, b"c" * 50_000),
        ]

    def test_an_unknown_outcome_of_a_cut_one_sends_the_cut_one_again(
        self, letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flush, flushes = LocalLogWriter.flush, []

        def unsure(writer: LocalLogWriter) -> list[RecordPosition]:
            flushes.append(1)
            if len(flushes) == 2:
                self.log.fail_next(FailingOperation.FLUSH, applied=0)
            return flush(writer)

        monkeypatch.setattr(LocalLogWriter, "flush", unsure)
        self.send(letters, (b"x" * 200_000, None, ()))
        assert [(offset, value) for offset, value, _, _ in self.found()] == [
            (0, b"x" * DEAD_LETTER_CUT_BYTES)
        ]
        assert len(flushes) == 3

    def test_where_not_even_the_cut_one_is_taken_everything_stops(self) -> None:
        log = LocalEventLog()
        log.admin().create([TopicSettings("dead", 1, config={"max.message.bytes": "100"})])
        letters = DeadLetters(log, "dead", 1)
        with pytest.raises(RecordTooLarge):
            self.send(letters, (b"x" * 200, None, ()))


def test_that_the_topic_rejects_stop_everything(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "gone", 1)
    letters.add(CHUNK, 0, RecordRejected(RejectionReason.NOT_JSON, "no"))
    with pytest.raises(Unavailable):
        letters.flush()


def test_without_any_nothing_is_opened(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "gone", 1)
    letters.flush()
    letters.close()
