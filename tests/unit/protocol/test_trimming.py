"""What may be trimmed, and every doubt."""

from __future__ import annotations

import pytest

from anabranch.protocol.control import Heartbeat, TrimPoint
from anabranch.protocol.limits import OBSERVED_STEP_MS, TRIM_EVERY_MS, TRIM_READER_MS
from anabranch.protocol.trimming import StreamReader, Trimming

NOW = 1_700_000_000_000
STAGE = [StreamReader("processing", "tolls", r) for r in "01"]
OUTPUT = StreamReader("delivery", "out", "0")


def beat(reader: StreamReader, bucket: int, *, epoch: int = 1, written_ms: int = NOW) -> Heartbeat:
    return Heartbeat(*(reader.service, reader.name, reader.replica), epoch, "running", 99, written_ms, checkpoint_bucket=bucket)


@pytest.fixture
def trimming() -> Trimming:
    return Trimming({"reports": STAGE, "tolls": [OUTPUT], "unread": []})


def test_t2_the_least_of_the_readers_and_of_what_is_stable(trimming: Trimming) -> None:
    for reader, bucket in ((STAGE[0], 7), (STAGE[1], 5), (OUTPUT, 20)):
        trimming.heard(beat(reader, bucket))
    found = trimming.due(NOW, {"reports": 9, "tolls": 12})
    assert found == [TrimPoint("reports", 5, NOW), TrimPoint("tolls", 12, NOW)]
    assert (trimming.point("reports"), trimming.point("tolls"), trimming.point("unread")) == (5, 12, 0)


def test_t3_a_reader_never_heard_holds_it_back_for_a_day(trimming: Trimming) -> None:
    trimming.heard(beat(STAGE[0], 7))
    assert trimming.due(NOW, {"reports": 9}) == []
    late = NOW + TRIM_READER_MS
    trimming.heard(beat(STAGE[0], 8, written_ms=late))
    assert trimming.due(late, {"reports": 9}) == [], "a clock that jumped has not waited"
    for step in range(TRIM_READER_MS // OBSERVED_STEP_MS):
        late += OBSERVED_STEP_MS
        if step % 3_600 == 0:
            trimming.heard(beat(STAGE[0], 8, written_ms=late))
        trimming.due(late, {})
    assert trimming.due(late, {"reports": 9}) == [TrimPoint("reports", 8, late)]


def test_t2_a_reader_that_was_silent_for_a_day_holds_nothing_back(trimming: Trimming) -> None:
    trimming.heard(beat(STAGE[0], 7, written_ms=NOW))
    trimming.heard(beat(STAGE[1], 5, written_ms=NOW - TRIM_READER_MS))
    assert [p.bucket for p in trimming.due(NOW, {"reports": 9})] == [5]
    assert [p.bucket for p in trimming.due(NOW + TRIM_EVERY_MS, {"reports": 9})] == [7]


def test_t4_without_readers_nothing_is_trimmed(trimming: Trimming) -> None:
    for reader in STAGE:
        trimming.heard(beat(reader, 7, written_ms=NOW - TRIM_READER_MS - 1))
    assert trimming.due(NOW, {"reports": 9, "unread": 9}) == []


def test_t1_it_never_falls(trimming: Trimming) -> None:
    trimming.seen(TrimPoint("reports", 6, NOW - TRIM_EVERY_MS))
    trimming.seen(TrimPoint("reports", 4, NOW))
    trimming.seen(TrimPoint("unknown", 4, NOW))
    for reader in STAGE:
        trimming.heard(beat(reader, 5))
    assert trimming.due(NOW, {"reports": 9}) == []
    assert trimming.point("reports") == 6
    assert trimming.point("unknown") == 0


def test_t5_the_newest_process_speaks(trimming: Trimming) -> None:
    trimming.heard(beat(STAGE[0], 7))
    trimming.heard(beat(STAGE[1], 3, epoch=2))
    trimming.heard(beat(STAGE[1], 8, epoch=1))
    trimming.heard(beat(StreamReader("processing", "tolls", "2"), 1))
    assert [p.bucket for p in trimming.due(NOW, {"reports": 9})] == [3]


def test_not_more_often_than_it_is_worth(trimming: Trimming) -> None:
    trimming.heard(beat(OUTPUT, 5))
    assert len(trimming.due(NOW, {"tolls": 9})) == 1
    trimming.heard(beat(OUTPUT, 6))
    assert trimming.due(NOW + TRIM_EVERY_MS - 1, {"tolls": 9}) == []
    assert len(trimming.due(NOW + TRIM_EVERY_MS, {"tolls": 9})) == 1
    trimming.heard(beat(OUTPUT, 7))
    assert len(trimming.due(NOW - 3_600_000, {"tolls": 9})) == 1, "a clock that was set back does not stop it"
