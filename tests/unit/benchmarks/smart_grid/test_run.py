"""Words and exit code of the smart grid benchmark for the verdicts of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.smart_grid.__main__ import (
    Outcome,
    exit_code,
    overload,
)
from benchmarks.smart_grid.feeder import Fed
from benchmarks.smart_grid.generator import FIRST_S
from benchmarks.smart_grid.oracle import Expected, Prediction
from benchmarks.smart_grid.receiver import LIVE, OUTLIERS, PREDICTIONS, Receiver, Shown
from benchmarks.smart_grid.validator import judge

NAME = Prediction(FIRST_S + 30, 1, FIRST_S + 120, 0, 1, 2)
START_S = 1_700_000_000.0


def outcome_of(first: dict[Prediction, Shown], truth: dict[Prediction, int]) -> Outcome:
    fed = Fed(100, 10.0, 0.0, {FIRST_S + second: START_S + second for second in range(29)})
    expected = Expected(predictions=truth)
    return Outcome(judge(expected, [], []), fed, expected, first, 20.0, 1.0, 0.0)


def test_what_the_live_topic_showed_first_is_judged() -> None:
    other, never = NAME._replace(plug=3), NAME._replace(plug=4)
    late = NAME._replace(due=FIRST_S + 60)
    outcome = outcome_of(
        {
            NAME: Shown(900, START_S + 30, is_tentative=True, shed_permille=400),
            other: Shown(500, START_S + 29, is_tentative=False, shed_permille=0),
        },
        {NAME: 1_000, other: 500, never: 1, late: 1},
    )
    found = overload(outcome, FIRST_S, FIRST_S + 30)
    assert found.latencies_s == (2.0, 1.0), "nothing was fed in the pane's last second"
    assert found.errors == (0.1,)
    assert found.errors_mw == (100.0,)
    assert (found.shed_permille, found.unshown) == (400, 1)
    assert outcome.readings_per_s == 5


@pytest.mark.parametrize(
    ("came_s", "per_s"),
    [
        ({}, 5),
        ({10: 40.0, 20: 45.0, 29: 50.0}, 9 / 29 * 100 / 5),
        ({10: 50.0, 20: 50.0}, 5),  # one batch had it all
        ({10: 1.0, 20: 2.0, 29: 50.0}, 5),  # never less than that of the whole run
    ],
)
def test_the_rate_of_a_warm_node_is_that_of_the_second_half(
    came_s: dict[int, float], per_s: float
) -> None:
    found = {FIRST_S + due: START_S + at_s for due, at_s in came_s.items()}
    outcome = replace(outcome_of({}, {}), came_s=found)
    assert outcome.warm_readings_per_s == pytest.approx(per_s)


class Message:
    """Record as the client library gives it."""

    def __init__(self, topic: str, value: dict[str, Any], **headers: str) -> None:
        self._topic, self._value = topic, value
        self._headers = [
            (f"anabranch-{name.replace('_', '-')}", text.encode()) for name, text in headers.items()
        ]

    def topic(self) -> str:
        return self._topic

    def value(self) -> bytes:
        return json.dumps(self._value).encode()

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers


def test_records_become_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.consuming.TopicReader", lambda *_: None)
    receiver = Receiver("", live=True)
    at = str((FIRST_S + 30) * 1_000)
    row = {"house_id": 0, "household_id": 1, "plug_id": 2, "minutes": 1, "start": FIRST_S + 120}
    share = {"hours": 1, "house_id": 0, "start": 0, "stop": 3_600, "above": 1, "plugs": 4}
    for message in (
        Message(PREDICTIONS, {**row, "load_mw": 5}, event_time=at),
        Message(OUTLIERS, share, event_time=at),
        Message(LIVE, {**row, "load_mw": 4}, event_time=at, kind="tentative", shed="250"),
        Message(LIVE, {}, kind="undo"),
        Message(LIVE, {**row, "load_mw": 5}, event_time=at, kind="insertion"),
    ):
        receiver._take(message)
    assert receiver.received() == (1, 1)
    assert list(receiver.came_s) == [FIRST_S + 30]
    assert receiver.predictions() == [(NAME, 5)]
    assert [value for _, value in receiver.shares()] == [(1, 4)]
    shown = receiver.first[NAME]
    assert (shown.load_mw, shown.is_tentative, shown.shed_permille) == (4, True, 250)


def test_a_run_in_which_nothing_was_left_out_shows_no_overload() -> None:
    assert exit_code(is_valid=True, shed_permille=120) == 0
    assert exit_code(is_valid=True, shed_permille=0) == 2
    assert exit_code(is_valid=False, shed_permille=0) == 1
