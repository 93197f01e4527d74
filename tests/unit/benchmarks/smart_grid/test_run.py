"""The command, what it says about a run, and what is between it and Kafka."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from anabranch.pipeline.file import load
from benchmarks import input_writer
from benchmarks.smart_grid import feeder
from benchmarks.smart_grid.__main__ import (
    Outcome,
    exit_code,
    overload,
    write_pipeline,
)
from benchmarks.smart_grid.feeder import Fed, Feeder
from benchmarks.smart_grid.generator import FIRST_S, Plan, World
from benchmarks.smart_grid.oracle import Expected, Prediction
from benchmarks.smart_grid.receiver import LIVE, OUTLIERS, PREDICTIONS, Receiver, Shown
from benchmarks.smart_grid.validator import judge

PLAN = Plan(houses=2, days=1, minutes=1)
NAME = Prediction(FIRST_S + 30, 1, FIRST_S + 120, 0, 1, 2)
START_S = 1_700_000_000.0


def test_the_exact_run_has_no_stage_that_may_leave_out_rows(tmp_path: Path) -> None:
    exact = load(write_pipeline(tmp_path / "exact", shed=False))
    assert "shed" not in (tmp_path / "exact/pipeline.yaml").read_text().replace("# under", "")
    assert all(output.live is None for output in exact.outputs.values())
    whole = load(write_pipeline(tmp_path / "shed", shed=True))
    assert all(output.live is not None for output in whole.outputs.values())


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


class Broker:
    """Producer that keeps what it is given, and a clock that moves while it is polled."""

    def __init__(self) -> None:
        self.records: list[tuple[int, dict[str, Any] | None, int, float]] = []
        """Partition, value, time of a heartbeat in ms, and when it was produced."""
        self.now_s = START_S
        self.full = 1
        self.fails = False
        self.left = 0

    def produce(
        self, _: str, value: bytes | None, *, partition: int, on_delivery: Any, headers: Any = ()
    ) -> None:
        if self.full:
            self.full -= 1
            raise BufferError
        beat = int(headers[0][1]) if headers else 0
        record = None if value is None else json.loads(value)
        self.records.append((partition, record, beat, self.now_s))
        on_delivery(KafkaError(KafkaError._ALL_BROKERS_DOWN) if self.fails else None, None)

    def poll(self, seconds: float) -> None:
        self.now_s += seconds

    def flush(self, _: float) -> int:
        return self.left


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(input_writer, "Producer", lambda _: made)
    monkeypatch.setattr(feeder, "_now_s", lambda: made.now_s)
    return made


def test_readings_are_fed_in_order_by_house_and_each_second_ends_with_heartbeats(
    broker: Broker,
) -> None:
    fed = Feeder("", 2).feed(World(PLAN).blocks())
    readings = World(PLAN).readings().to_dicts()
    written = [(partition, row) for partition, row, _, _ in broker.records if row is not None]
    assert written == [(row["house_id"] % 2, row) for row in readings]
    assert fed.readings == len(readings)
    assert sorted(fed.written_s) == sorted({row["timestamp"] for row in readings})
    over: dict[int, int] = {0: 0, 1: 0}
    for partition, row, beat, _ in broker.records:
        if row is None:
            over[partition] = beat
        else:
            assert row["timestamp"] * 1_000 >= over[partition], "a heartbeat was too early"
    assert set(over.values()) == {(max(fed.written_s) + 3_600) * 1_000}


def test_a_record_that_is_not_written_ends_the_feeding(broker: Broker) -> None:
    broker.fails = True
    with pytest.raises(KafkaException):
        Feeder("", 1).feed(World(PLAN).blocks())
    broker.fails, broker.left = False, 3
    with pytest.raises(KafkaException, match="3 records are not written"):
        Feeder("", 1).feed(World(PLAN).blocks())


def test_a_run_in_which_nothing_was_left_out_shows_no_overload() -> None:
    assert exit_code(is_valid=True, shed_permille=120) == 0
    assert exit_code(is_valid=True, shed_permille=0) == 2
    assert exit_code(is_valid=False, shed_permille=0) == 1
