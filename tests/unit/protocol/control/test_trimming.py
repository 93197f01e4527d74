"""What may be trimmed, and every doubt."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.failure_detector import Peer
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.control.trimming import Trimming
from anabranch.protocol.limits import OBSERVED_STEP_MS, TRIM_EVERY_MS

NOW = 1_700_000_000_000
LONG_MS = 60_000
"""In place of a day."""
STAGE = [Peer("processing", "tolls", r) for r in "01"]
OUTPUT = Peer("delivery", "out", "0")


def beat(reader: Peer, bucket: int, *, epoch: int = 1, written_ms: int = NOW) -> Heartbeat:
    return Heartbeat(
        *(reader.service, reader.name, reader.replica),
        epoch,
        "running",
        99,
        written_ms,
        checkpoint_bucket=bucket,
    )


@pytest.fixture
def trimming(monkeypatch: pytest.MonkeyPatch) -> Trimming:
    monkeypatch.setattr("anabranch.protocol.control.trimming.TRIM_READER_MS", LONG_MS)
    return Trimming({"reports": STAGE, "tolls": [OUTPUT], "unread": []})


def test_tm2_the_least_of_the_readers_and_of_what_is_stable(trimming: Trimming) -> None:
    for reader, bucket in ((STAGE[0], 7), (STAGE[1], 5), (OUTPUT, 20)):
        trimming.heard(beat(reader, bucket), NOW)
    found = trimming.due(NOW, {"reports": 9, "tolls": 12})
    assert found == [TrimPoint("reports", 5, NOW), TrimPoint("tolls", 12, NOW)]
    assert (trimming.point("reports"), trimming.point("tolls"), trimming.point("unread")) == (
        5,
        12,
        0,
    )


def passes(trimming: Trimming, now_ms: int, duration_ms: int, *beats: Heartbeat) -> int:
    """Time is observed; ``beats`` are heard now and then. Returns what time it is."""
    for step in range(duration_ms // OBSERVED_STEP_MS):
        now_ms += OBSERVED_STEP_MS
        for beat in beats if step % 30 == 0 else ():
            trimming.heard(beat, now_ms)
        trimming.due(now_ms, {})
    return now_ms


def test_tm3_a_reader_never_heard_holds_it_back_for_a_day(trimming: Trimming) -> None:
    trimming.heard(beat(STAGE[0], 7), NOW)
    assert trimming.due(NOW, {"reports": 9}) == []
    late = NOW + LONG_MS
    trimming.heard(beat(STAGE[0], 8), late)
    assert trimming.due(late, {"reports": 9}) == [], "a clock that jumped has not waited"
    late = passes(trimming, late, LONG_MS, beat(STAGE[0], 8))
    assert trimming.due(late, {"reports": 9}) == [TrimPoint("reports", 8, late)]


def test_tm2_a_reader_that_was_silent_for_a_day_holds_nothing_back(trimming: Trimming) -> None:
    trimming.heard(beat(STAGE[0], 7), NOW)
    trimming.heard(beat(STAGE[1], 5), NOW)
    late = passes(trimming, NOW, LONG_MS, beat(STAGE[0], 7))
    assert [p.bucket for p in trimming.due(late, {"reports": 9})] == [5]
    late = passes(trimming, late, TRIM_EVERY_MS, beat(STAGE[0], 7))
    assert [p.bucket for p in trimming.due(late, {"reports": 9})] == [7]


@pytest.mark.parametrize("skew_ms", [-LONG_MS - 1, LONG_MS + 1])
def test_tm2_the_clock_of_a_reader_decides_nothing(trimming: Trimming, skew_ms: int) -> None:
    """A delivery whose clock is a day behind lives, and reads, all the same."""
    trimming.heard(beat(STAGE[0], 1_000), NOW)
    trimming.heard(beat(STAGE[1], 10, written_ms=NOW + skew_ms), NOW)
    assert [p.bucket for p in trimming.due(NOW, {"reports": 1_000})] == [10]


def test_tm4_without_readers_nothing_is_trimmed(trimming: Trimming) -> None:
    for reader in STAGE:
        trimming.heard(beat(reader, 7), NOW)
    late = passes(trimming, NOW, LONG_MS + OBSERVED_STEP_MS)
    assert trimming.due(late, {"reports": 9, "unread": 9}) == []


def test_tm1_it_never_falls(trimming: Trimming) -> None:
    trimming.seen(TrimPoint("reports", 6, NOW - TRIM_EVERY_MS))
    trimming.seen(TrimPoint("reports", 4, NOW))
    trimming.seen(TrimPoint("unknown", 4, NOW))
    for reader in STAGE:
        trimming.heard(beat(reader, 5), NOW)
    assert trimming.due(NOW, {"reports": 9}) == []
    assert trimming.point("reports") == 6
    assert trimming.point("unknown") == 0


def test_tm5_the_newest_process_speaks(trimming: Trimming) -> None:
    trimming.heard(beat(STAGE[0], 7), NOW)
    trimming.heard(beat(STAGE[1], 3, epoch=2), NOW)
    trimming.heard(beat(STAGE[1], 8, epoch=1), NOW)
    trimming.heard(beat(Peer("processing", "tolls", "2"), 1), NOW)
    assert [p.bucket for p in trimming.due(NOW, {"reports": 9})] == [3]


def test_not_more_often_than_it_is_worth(trimming: Trimming) -> None:
    trimming.heard(beat(OUTPUT, 5), NOW)
    assert len(trimming.due(NOW, {"tolls": 9})) == 1
    trimming.heard(beat(OUTPUT, 6), NOW)
    assert trimming.due(NOW + TRIM_EVERY_MS - 1, {"tolls": 9}) == []
    assert len(trimming.due(NOW + TRIM_EVERY_MS, {"tolls": 9})) == 1
    trimming.heard(beat(OUTPUT, 7), NOW)
    assert len(trimming.due(NOW - 3_600_000, {"tolls": 9})) == 1, (
        "a clock that was set back does not stop it"
    )


def test_tm6_of_what_others_read_the_newest_buckets_are_kept() -> None:
    trimming = Trimming({"tolls": [OUTPUT], "speeds": []}, {"tolls": 10, "speeds": 10})
    trimming.heard(beat(OUTPUT, 20), NOW)
    assert trimming.due(NOW, {"tolls": 25, "speeds": 25}) == [
        TrimPoint("tolls", 15, NOW),
        TrimPoint("speeds", 15, NOW),
    ]
    later = NOW + TRIM_EVERY_MS
    assert trimming.due(later, {"tolls": 99, "speeds": 24}) == [TrimPoint("tolls", 20, later)]
