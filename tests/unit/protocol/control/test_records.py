"""A state is heard as it was said; who may say what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.records import (
    Alarm,
    Ask,
    AskOutcome,
    AskReply,
    ControlRecord,
    Fence,
    Heartbeat,
    NodeReport,
    ReplicaState,
    Speaker,
    TrimPoint,
)


@pytest.mark.parametrize("state", list(ReplicaState))
def test_a_state_is_heard_as_it_was_sent(state: ReplicaState) -> None:
    assert ReplicaState.parse(state.value) is state


@pytest.mark.parametrize("text", ["", "running", "STABLE"])
def test_who_says_nothing_that_is_understood_is_in_failure(text: str) -> None:
    assert ReplicaState.parse(text) is ReplicaState.FAILURE


REPLICA = Speaker(
    frozenset({("processing", "tolls", "0"), ("standby", "tolls", "1")}),
    "processing.tolls.1",
    frozenset({("tolls", "0")}),
)
MANAGER = Speaker(frozenset({("consistency_manager", "p", "0")}), trims=True)
FENCES = Speaker(frozenset(), fences=True)


def beat(service: str, name: str, replica: str = "0") -> Heartbeat:
    return Heartbeat(service, name, replica, 1, "running", 1, 1)


@pytest.mark.parametrize(
    ("entry", "by_replica", "by_manager", "as_fence"),
    [
        (beat("processing", "tolls"), True, False, False),
        (beat("standby", "tolls", "1"), True, False, False),
        (beat("standby", "tolls", "0"), False, False, False),
        (beat("processing", "means"), False, False, False),
        (beat("consistency_manager", "p"), False, True, False),
        (beat("delivery", "out"), False, False, False),
        (Ask("reports", "processing.tolls.1", 1, 1, 2, 1), True, False, False),
        (Ask("reports", "processing.tolls.0", 1, 1, 2, 1), False, False, False),
        (Ask("reports", "", 1, 1, 2, 1), False, False, False),
        (AskReply("tolls", "0", "delivery.out", 1, AskOutcome.TAKEN, "", 1), True, False, False),
        (AskReply("means", "0", "delivery.out", 1, AskOutcome.TAKEN, "", 1), False, False, False),
        (TrimPoint("reports", 9, 1), False, True, False),
        (Fence("tolls", "0", 1, 1, (), 1), False, False, True),
        (Alarm("gap", "tolls", 1, "text", 1), False, False, False),
    ],
)
def test_each_kind(
    entry: ControlRecord, by_replica: bool, by_manager: bool, as_fence: bool
) -> None:
    allowed = (REPLICA.may_say(entry), MANAGER.may_say(entry), FENCES.may_say(entry))
    assert allowed == (by_replica, by_manager, as_fence)
    assert (REPLICA.is_manager, MANAGER.is_manager, FENCES.is_manager) == (False, True, True)


def test_sk4_of_another_pipelines_process_heartbeats_count_under_the_name_here() -> None:
    other = Speaker(frozenset({("processing", "speeds", "0")}), known_as="north_speeds")
    heard = other.accept(beat("processing", "speeds"))
    assert isinstance(heard, Heartbeat)
    assert (heard.name, heard.replica) == ("north_speeds", "0")
    assert other.accept(beat("processing", "north_speeds")) is None
    assert other.accept(TrimPoint("reports", 9, 1)) is None
    assert REPLICA.accept(beat("processing", "tolls")) == beat("processing", "tolls")


def test_sk5_who_names_a_life_names_that_of_a_log() -> None:
    speaker = Speaker(frozenset(), logs={"tolls": "p.tolls.boundaries"})
    named: list[Heartbeat | Fence | TrimPoint] = [
        replace(beat("processing", "tolls"), life="a"),
        Fence("tolls", "0", 1, 1, (), 1, "a"),
        TrimPoint("tolls", 9, 1, "a"),
    ]
    assert {speaker.log_of(entry) for entry in named} == {"p.tolls.boundaries"}
    unnamed = [replace(entry, life="") for entry in named]
    unknown = replace(beat("processing", "means"), life="a")
    ask = Ask("tolls", "processing.tolls.1", 1, 1, 2, 1)
    assert {speaker.log_of(entry) for entry in (*unnamed, unknown, ask)} == {""}


def test_a_node_reports_for_itself_alone() -> None:
    """SK6."""
    own = Speaker(frozenset(), reports="north.7")
    assert own.may_say(NodeReport("north.7", 1, 2))
    assert not own.may_say(NodeReport("north.8", 1, 2))
    assert not Speaker(frozenset()).may_say(NodeReport("", 1, 2))
