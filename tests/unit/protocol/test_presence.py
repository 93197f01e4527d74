"""Who counts as alive, and as which process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control import Heartbeat
from anabranch.protocol.limits import FAILURE_AFTER_MS, HEARTBEAT_LIFETIME_MS
from anabranch.protocol.presence import Presence

BEAT = Heartbeat("processing", "tolls", "0", 7, "running", 3, 1_000)


@pytest.fixture
def presence() -> Presence:
    return Presence("processing", "tolls", ["1", "0"])


def test_p2_alive_for_as_long_as_it_was_heard_lately(presence: Presence) -> None:
    assert presence.heard(BEAT, 1_000, 50)
    assert list(presence.alive(50 + FAILURE_AFTER_MS - 1)) == ["0"]
    assert presence.alive(50 + FAILURE_AFTER_MS) == {}
    assert presence.last("0") == BEAT
    assert presence.last("1") is None
    assert presence.heard(replace(BEAT, replica="1"), 1_000, 51)
    assert list(presence.alive(51)) == ["0", "1"]


@pytest.mark.parametrize("other", [{"service": "delivery"}, {"name": "totals"}, {"replica": "2"}])
def test_others_are_not_heard(presence: Presence, other: dict[str, str]) -> None:
    assert not presence.heard(replace(BEAT, **other), 1_000, 0)  # type: ignore[arg-type]
    assert presence.alive(0) == {}


def test_what_was_written_long_ago_is_history(presence: Presence) -> None:
    assert not presence.heard(BEAT, 1_001 + HEARTBEAT_LIFETIME_MS, 0)
    assert presence.heard(BEAT, 1_000 + HEARTBEAT_LIFETIME_MS, 0)


def test_p1_a_zombie_does_not_speak_for_its_replacement(presence: Presence) -> None:
    presence.heard(replace(BEAT, epoch=9), 1_000, 0)
    assert not presence.heard(BEAT, 1_000, 10)
    assert presence.alive(10)["0"].epoch == 9


def test_p3_one_that_repeats_itself_has_stalled(presence: Presence) -> None:
    assert presence.stalled("0", 0, 100)
    presence.heard(BEAT, 1_000, 0)
    presence.heard(replace(BEAT, written_ms=1_100), 1_100, 100)
    assert not presence.stalled("0", 99, 100)
    assert presence.stalled("0", 100, 100)
    assert "0" in presence.alive(100)
    presence.heard(replace(BEAT, bucket=4), 1_200, 200)
    assert not presence.stalled("0", 299, 100)
