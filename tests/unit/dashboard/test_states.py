"""States as words and tones."""

from __future__ import annotations

import pytest

from anabranch.dashboard.states import (
    GONE,
    NO_HEARTBEAT,
    State,
    Tone,
    process_state,
    replica_state,
    stage_state,
)
from anabranch.protocol.control.records import Heartbeat


def beat(state: str = "running", replica_state: str = "") -> Heartbeat:
    return Heartbeat("processing", "s", "0", 0, state, 1, 0, replica_state=replica_state)


@pytest.mark.parametrize(
    ("heard", "tone", "word"),
    [
        (None, Tone.OFF, "not heard"),
        (beat("ended", "stable"), Tone.OFF, "ended"),
        (beat(replica_state="stable"), Tone.GOOD, "STABLE"),
        (beat(replica_state="up_failure"), Tone.WARN, "UP_FAILURE"),
        (beat(replica_state="stabilization"), Tone.BUSY, "STABILIZATION"),
        (beat(replica_state="failure"), Tone.BAD, "FAILURE"),
        (beat(), Tone.BAD, "starting"),
        (beat(replica_state="<b>"), Tone.BAD, "FAILURE"),
    ],
)
def test_a_replica(heard: Heartbeat | None, tone: Tone, word: str) -> None:
    assert replica_state(heard) == State(tone, word)


@pytest.mark.parametrize(
    ("state", "tone"),
    [
        ("running", Tone.GOOD),
        ("waiting", Tone.GOOD),
        ("stopping", Tone.OFF),
        ("failed", Tone.BAD),
        ("starting", Tone.BUSY),
    ],
)
def test_another_process(state: str, tone: Tone) -> None:
    assert process_state(beat(state)) == State(tone, state)
    assert process_state(None) == NO_HEARTBEAT


def test_of_several_replicas_the_best_counts() -> None:
    assert stage_state([GONE, State(Tone.GOOD, "STABLE")]).word == "STABLE"
    assert stage_state([]) == NO_HEARTBEAT
