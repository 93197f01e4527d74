"""``ingestion.dead_letters``: as they came, with the reason, at least once."""

from __future__ import annotations

import pytest

from anabranch.adapters.local.log import LocalEventLog, Operation
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.dead_letters import DeadLetters
from anabranch.ports import Chunk, TopicPartition
from anabranch.protocol.errors import RecordRejected, RejectionReason, Unavailable
from anabranch.protocol.limits import ERROR_TEXT_MAX
from harness.sources import everything

CHUNK = Chunk(TopicPartition("in", 3), [7, 9], [b"{", None], [b"k", None], [1, 2], [[("trace", b"\x00\xff")], ()])


@pytest.fixture
def log() -> LocalEventLog:
    log = LocalEventLog()
    log.admin().create([TopicSettings("dead", 2)])
    return log


def test_carry_the_record_and_the_reason(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "dead", 2)
    letters.send(CHUNK, 0, RecordRejected(RejectionReason.NOT_JSON, "umlaut \u00fc " + "x" * 2 * ERROR_TEXT_MAX))
    letters.send(CHUNK, 1, RecordRejected(RejectionReason.NULL_VALUE, "no value \ud800"))
    letters.flush()
    letters.close()
    (found,) = everything(log, "dead", 2)
    assert found.at.partition == 1
    assert (found.values, found.keys) == ([b"{", None], [b"k", None])
    first, second = [dict(headers) for headers in found.headers]
    assert (first.pop("anabranch-error") or b"").decode().startswith("umlaut \u00fc xx")
    assert first == {
        "trace": b"\x00\xff", "anabranch-topic": b"in", "anabranch-partition": b"3", "anabranch-offset": b"7", "anabranch-reason": b"not_json",
    }  # fmt: skip
    assert (second["anabranch-offset"], second["anabranch-reason"]) == (b"9", b"null_value")


def test_are_sent_again_after_an_unknown_outcome(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "dead", 2)
    why = RecordRejected(RejectionReason.NOT_JSON, "no")
    letters.send(CHUNK, 0, why)
    letters.send(CHUNK, 1, why)
    log.fail_next(Operation.FLUSH, applied=1)
    log.fail_next(Operation.FLUSH, applied=0)
    letters.flush()
    (found,) = everything(log, "dead", 2)
    assert found.values == [b"{", b"{", None]


def test_that_the_topic_refuses_stop_everything(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "gone", 1)
    letters.send(CHUNK, 0, RecordRejected(RejectionReason.NOT_JSON, "no"))
    with pytest.raises(Unavailable):
        letters.flush()


def test_without_any_nothing_is_opened(log: LocalEventLog) -> None:
    letters = DeadLetters(log, "gone", 1)
    letters.flush()
    letters.close()
