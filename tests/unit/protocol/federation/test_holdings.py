"""Tests of where each task is."""

from __future__ import annotations

import pytest

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.federation.holdings import (
    TRANSITIONS,
    Holding,
    Holdings,
    TaskEvent,
    TaskPlace,
    Term,
)
from anabranch.protocol.federation.load_average import LoadAverage

CAME, WENT = Term("m1", "north-south", 900, 10_000), Term("m2", "south-east", 800, 5_000)


def holding(place: TaskPlace, came: Term | None = None, went: Term | None = None) -> Holding:
    return Holding("a", LoadAverage.of(10), place, came, went)


@pytest.mark.parametrize("place", TaskPlace)
@pytest.mark.parametrize("event", TaskEvent)
def test_fh1_a_row_leads_to_its_place_and_what_is_no_row_is_a_bug(
    place: TaskPlace, event: TaskEvent
) -> None:
    task = holding(place, CAME, WENT)
    holdings = Holdings({"a": task})
    if (place, event) not in TRANSITIONS:
        with pytest.raises(
            LocalProtocolError, match=f"task a is {place.value}: it cannot be {event.value}"
        ):
            holdings.apply_event(task, event, 7)
        return
    holdings.apply_event(task, event, 7)
    after = TRANSITIONS[place, event]
    assert [each.place for each in holdings.tasks.values()] == ([] if after is None else [after])
    assert after is None or task.since_ms == 7


def test_each_place_is_reached_and_left_and_each_event_has_a_row() -> None:
    assert {after for after in TRANSITIONS.values() if after} == set(TaskPlace) - {
        TaskPlace.PROMISED
    }
    assert {before for before, _ in TRANSITIONS} == set(TaskPlace)
    assert {event for _, event in TRANSITIONS} == set(TaskEvent)


def test_fh2_all_that_is_not_away_is_load() -> None:
    holdings = Holdings({place.value: holding(place) for place in TaskPlace})
    assert holdings.level() == 10 * (len(TaskPlace) - 1)
    assert [each.place for each in holdings.at(TaskPlace.AWAY)] == [TaskPlace.AWAY]


@pytest.mark.parametrize(
    ("place", "event", "hold_ms"),
    [
        (TaskPlace.PROMISED, TaskEvent.TAKEN, 10_000),
        (TaskPlace.LEAVING, TaskEvent.LEFT, 5_000),
        (TaskPlace.AWAY, TaskEvent.BACK, 5_000),
        (TaskPlace.OFFERED, TaskEvent.REJECTED, -7),
    ],
)
def test_fh3_a_task_that_has_moved_is_held(
    place: TaskPlace, event: TaskEvent, hold_ms: int
) -> None:
    task = holding(place, CAME, WENT)
    Holdings({"a": task}).apply_event(task, event, 7)
    assert task.hold_until_ms == 7 + hold_ms
    assert (task.went is None) == (event is TaskEvent.BACK)


def test_a_task_is_found_by_either_movement() -> None:
    task = holding(TaskPlace.AWAY, CAME, WENT)
    holdings = Holdings({"x": Holding("x", LoadAverage.of(1), TaskPlace.HERE), "a": task})
    assert holdings.by_movement("m1") is task
    assert holdings.by_movement("m2") is task
    assert holdings.by_movement("m3") is None
