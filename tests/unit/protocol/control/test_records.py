"""Control records are values; a state is heard as it was said."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from anabranch.protocol.control.records import (
    Alarm,
    Ask,
    AskReply,
    ControlRecord,
    DeliveryProgress,
    Fence,
    Heartbeat,
    Move,
    ReplicaState,
    TrimPoint,
)


@pytest.mark.parametrize("state", list(ReplicaState))
def test_a_state_is_heard_as_it_was_said(state: ReplicaState) -> None:
    assert ReplicaState.heard(state.value) is state


@pytest.mark.parametrize("text", ["", "running", "STABLE"])
def test_who_says_nothing_that_is_understood_is_in_failure(text: str) -> None:
    assert ReplicaState.heard(text) is ReplicaState.FAILURE


def test_a_control_record_is_a_value() -> None:
    """Equal by content, usable as a key, never changed: what was read from a log stays what
    it was.
    """
    one = DeliveryProgress(
        output="o", first_bucket=1, last_bucket=2, positions=((0, 3),), written_ms=4
    )
    other = DeliveryProgress("o", 1, 2, ((0, 3),), 4, 0, 0)
    assert one == other
    assert len({one, other}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.last_bucket = 9  # type: ignore[misc]


def test_buckets_are_written_whole_unless_positions_say_otherwise() -> None:
    whole = DeliveryProgress("o", 1, 2, (), 4)
    assert (whole.first_position, whole.next_position) == (0, 0)


def test_each_kind_of_control_record_is_named() -> None:
    assert set(get_args(ControlRecord)) == {
        Heartbeat,
        Fence,
        TrimPoint,
        DeliveryProgress,
        Alarm,
        Ask,
        AskReply,
        Move,
    }
