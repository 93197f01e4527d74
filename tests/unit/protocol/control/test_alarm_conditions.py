"""Tests of when a condition of a process, or an output that is away, raises an alarm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.alarm_conditions import (
    OVERLOAD_LASTS,
    ROOM_WARNED_MS,
    AlarmConditions,
)
from anabranch.protocol.control.records import INPUT_MISSING, INPUT_REFUSED, Heartbeat
from anabranch.protocol.control.trimming import OUTPUT_AWAY_MS, TRIM_READER_MS, OutputAway

SOURCE = Heartbeat("ingestion", "reports", "0", 0, "running", 9, 0)
REPLICA = Heartbeat("processing", "totals", "0", 0, "running", 9, 0)
SHEDS = replace(REPLICA, branch=3)
FULL_SOON = replace(SHEDS, room_left_ms=ROOM_WARNED_MS - 1)


@pytest.mark.parametrize(("beat", "state"), [(SOURCE, INPUT_MISSING), (REPLICA, INPUT_REFUSED)])
def test_ac2_a_state_raises_an_alarm_each_time_that_it_begins(beat: Heartbeat, state: str) -> None:
    conditions, lasts = AlarmConditions(), replace(beat, state=state)
    assert [conditions.begun(each) for each in (beat, lasts, lasts, beat, lasts)] == [
        [],
        [state],
        [],
        [],
        [state],
    ]


def test_ac1_each_process_has_conditions_of_its_own() -> None:
    conditions, lasts = AlarmConditions(), replace(REPLICA, state=INPUT_REFUSED)
    assert conditions.begun(lasts) == [INPUT_REFUSED]
    for other in (replace(lasts, replica="1"), replace(lasts, name="other")):
        assert conditions.begun(other) == [INPUT_REFUSED]
    assert conditions.begun(replace(FULL_SOON, state=INPUT_REFUSED)) == [OVERLOAD_LASTS]
    assert conditions.begun(replace(FULL_SOON, name="third", state=INPUT_REFUSED)) == [
        OVERLOAD_LASTS,
        INPUT_REFUSED,
    ]


@pytest.mark.parametrize("service", ["standby", "delivery", "ingestion"])
def test_what_other_services_say_means_nothing(service: str) -> None:
    said = replace(FULL_SOON, service=service, state=INPUT_REFUSED)
    assert AlarmConditions().begun(said) == []


def test_ac3_an_overload_lasts_until_the_replica_has_no_branch() -> None:
    conditions = AlarmConditions()
    for beat in (SHEDS, replace(SHEDS, room_left_ms=ROOM_WARNED_MS)):
        assert conditions.begun(beat) == []
    assert conditions.begun(FULL_SOON) == [OVERLOAD_LASTS]
    for beat in (FULL_SOON, SHEDS, replace(SHEDS, room_left_ms=ROOM_WARNED_MS), FULL_SOON):
        assert conditions.begun(beat) == [], "forecasts vary"
    assert conditions.begun(replace(FULL_SOON, branch=None)) == [], "it has just ended"
    assert conditions.begun(FULL_SOON) == [OVERLOAD_LASTS]


def test_ac4_an_output_raises_an_alarm_when_it_is_away_and_when_its_place_is_lost() -> None:
    conditions = AlarmConditions()
    out = OutputAway("out", "totals", OUTPUT_AWAY_MS)
    other, lost = replace(out, output="other"), replace(out, silent_ms=TRIM_READER_MS)
    assert conditions.newly_away([out]) == [out]
    assert conditions.newly_away([replace(out, silent_ms=OUTPUT_AWAY_MS + 1)]) == []
    assert conditions.newly_away([other, out]) == [other]
    assert conditions.newly_away([other, lost]) == [lost]
    assert conditions.newly_away([other, lost]) == []
    assert conditions.newly_away([]) == []
    assert conditions.newly_away([out]) == [out], "the next time it is away"
