"""Who may say what: one of each kind, by whoever may and by the others."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.records import (
    Alarm,
    Ask,
    AskOutcome,
    AskReply,
    ControlRecord,
    Fence,
    Heartbeat,
    TrimPoint,
)
from anabranch.protocol.control.speaking import Speaker

REPLICA = Speaker(
    frozenset({("processing", "tolls", "0"), ("standby", "tolls", "1")}),
    "processing.tolls.1",
    frozenset({("tolls", "0")}),
)
MANAGER = Speaker(frozenset({("consistency_manager", "p", "0")}), is_manager=True)


def beat(service: str, name: str, replica: str = "0") -> Heartbeat:
    return Heartbeat(service, name, replica, 1, "running", 1, 1)


@pytest.mark.parametrize(
    ("entry", "by_replica", "by_manager"),
    [
        (beat("processing", "tolls"), True, False),
        (beat("standby", "tolls", "1"), True, False),
        (beat("standby", "tolls", "0"), False, False),
        (beat("processing", "means"), False, False),
        (beat("consistency_manager", "p"), False, True),
        (beat("delivery", "out"), False, False),
        (Ask("reports", "processing.tolls.1", 1, 1, 2, 1), True, False),
        (Ask("reports", "processing.tolls.0", 1, 1, 2, 1), False, False),
        (Ask("reports", "", 1, 1, 2, 1), False, False),
        (AskReply("tolls", "0", "delivery.out", 1, AskOutcome.TAKEN, "", 1), True, False),
        (AskReply("means", "0", "delivery.out", 1, AskOutcome.TAKEN, "", 1), False, False),
        (TrimPoint("reports", 9, 1), False, True),
        (Fence("tolls", "0", 1, "why", 1), False, True),
        (Alarm("gap", "tolls", 1, "text", 1), False, False),
    ],
)
def test_each_kind(entry: ControlRecord, by_replica: bool, by_manager: bool) -> None:
    assert (REPLICA.may_say(entry), MANAGER.may_say(entry)) == (by_replica, by_manager)


def test_sk4_of_another_pipelines_process_heartbeats_count_under_the_name_here() -> None:
    other = Speaker(frozenset({("processing", "speeds", "0")}), known_as="north_speeds")
    heard = other.heard(beat("processing", "speeds"))
    assert isinstance(heard, Heartbeat)
    assert (heard.name, heard.replica) == ("north_speeds", "0")
    assert other.heard(beat("processing", "north_speeds")) is None
    assert other.heard(TrimPoint("reports", 9, 1)) is None
    assert REPLICA.heard(beat("processing", "tolls")) == beat("processing", "tolls")
