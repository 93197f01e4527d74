"""The command, its claims, and what is between it and Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import KafkaError, KafkaException

from benchmarks import input_writer
from benchmarks.linear_road import feeder
from benchmarks.linear_road.__main__ import Options, Outcome, RunError, claim, main
from benchmarks.linear_road.answers import parse
from benchmarks.linear_road.feeder import HISTORY_TOPIC, TRAFFIC_TOPIC, Fed, Feeder
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.mutants import perfect
from benchmarks.linear_road.receiver import line_of
from benchmarks.linear_road.validator import Judging, judge, truth

START_MS = 1_700_000_000_000
BY_BACKLOG = (
    "valid for the last 15 of 180 minutes at L = 2, the first of which were drained as a backlog:"
    " not an L-rating"
)


def options_of(*words: str) -> Options:
    """Parse a command line, which is not run."""
    found: list[Options] = []

    def run(options: Options, _: Path) -> int:
        found.append(options)
        return 0

    assert main(words, run) == 0
    return found[0]


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (
            [],
            "valid for 15 hot minutes at L = 0.5, the last 3 of them by the clock: not an L-rating",
        ),
        (["--last", "15"], "valid for 15 hot minutes at L = 0.5: not an L-rating"),
        (
            ["--xways", "2", "--minutes", "180", "--last", "15"],
            BY_BACKLOG,
        ),
        (["--xways", "1.5", "--minutes", "180"], "L-rating: at least 1.5"),
        (
            ["--minutes", "180", "--mode", "hot"],
            "valid for 180 hot minutes at L = 0.5: not an L-rating",
        ),
    ],
)
def test_a_run_is_called_what_it_is(words: list[str], label: str) -> None:
    options = options_of(*words)
    assert options.label(is_valid=True) == label
    assert options.label(is_valid=False) == "not valid: no rating"


@pytest.mark.parametrize("words", [["--last", "16"], ["--last", "0"], ["--mode", "border"]])
def test_other_options_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options_of(*words)
    assert ended.value.code == 2


def test_what_cannot_be_judged_has_a_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Options, __: Path) -> int:
        raise RunError("the broker has no topic x")

    assert main(["--keep", str(tmp_path)], fail) == 2
    assert "not judged: the broker has no topic x" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1])
def test_the_folder_stays_where_something_is_wrong(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(folder))
    assert main([], lambda *_: code) == code
    assert folder.exists() is (code == 1)


def test_a_claim_names_what_it_rests_on() -> None:
    options = options_of("--minutes", "6")
    world = generate(options.plan)
    expected = truth(world.stream, world.history)
    verdict = judge(expected, perfect(expected), Judging())
    fed = Fed(world.stream.height, 12, 0)
    facts = claim(options, world, Outcome(verdict, fed, None, 30.0, 5.0, 400.0))
    assert facts["claim"] == "valid for 6 hot minutes at L = 0.5: not an L-rating"
    assert facts["generator"] == {
        "version": 1,
        "seed": 1,
        "mode": "hot",
        "sha256": world.digest(),
    }
    assert facts["cpu_s_per_million_lines"] == round(30e6 / world.stream.height, 1)
    json.dumps(facts)


def test_rows_become_output_lines() -> None:
    toll = {"type": 0, "vid": 7, "time": 61, "lav": 30, "toll": 2, "seg": 5}
    balance = {"type": 2, "vid": 7, "time": 70, "result_time": 70, "qid": 3, "amount": 18}
    rows = [toll, {**toll, "type": 1}, balance, {**balance, "type": 3}]
    lines = [line_of(row, 62_345) for row in rows]
    assert lines == [
        "0,7,61,62.345,30,2",
        "1,61,62.345,7,5",
        "2,70,62.345,70,3,18",
        "3,70,62.345,3,18",
    ]
    assert parse([line for line in lines if line]).unreadable == ()
    assert line_of({**toll, "type": 5}, 0) is None


class Broker:
    """Producer that keeps what it is given, and a clock that moves while it is polled."""

    def __init__(self, _: object) -> None:
        self.records: list[tuple[str, int, dict[str, Any] | None, int, int]] = []
        """Topic, partition, value, time of a heartbeat, and when it was produced."""
        self.now_ms = START_MS
        self.full = 0
        self.fails = False

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int,
        on_delivery: Any,
        headers: Any = (),
    ) -> None:
        if self.full:
            self.full -= 1
            raise BufferError
        beat = int(headers[0][1]) if headers else 0
        record = None if value is None else json.loads(value)
        self.records.append((topic, partition, record, beat, self.now_ms))
        on_delivery(KafkaError(KafkaError._ALL_BROKERS_DOWN) if self.fails else None, None)

    def poll(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1_000)

    def flush(self, _: float) -> int:
        return 0


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker(None)
    monkeypatch.setattr(input_writer, "Producer", lambda _: made)
    monkeypatch.setattr(feeder, "_now_ms", lambda: made.now_ms)
    return made


def test_each_second_is_written_when_it_is_due_and_then_ended(broker: Broker) -> None:
    world = generate(Plan(2, 2, 1, Mode.HOT))
    backlog_s = 70
    start_ms = START_MS - 60_000  # the paced part begins ten seconds from now
    broker.full = 1
    given = Feeder("", {TRAFFIC_TOPIC: 2, HISTORY_TOPIC: 1}).feed(world, start_ms, backlog_s)
    assert given.lines == world.stream.height
    assert given.behind_max_ms <= 50
    lines = [each for each in broker.records if each[2] is not None and each[0] == TRAFFIC_TOPIC]
    assert [each[2]["vid"] for each in lines if each[2]] == world.stream["vid"].to_list()
    assert all(partition == value["vid"] % 2 for _, partition, value, *_ in lines if value)
    for _, _, value, _, at_ms in lines:
        assert value is not None
        due_ms = start_ms + value["time"] * 1_000
        assert value["at"] == due_ms + 1
        if value["time"] >= backlog_s:
            assert 0 <= at_ms - due_ms <= 50
        else:
            assert at_ms <= START_MS + 100
    over = {0: start_ms, 1: start_ms}
    for topic, partition, value, beat, _ in broker.records:
        if topic == TRAFFIC_TOPIC and value is None:
            assert beat == max(over[partition], start_ms) + (
                1_001 if over[partition] == start_ms else 1_000
            )
            over[partition] = beat
        elif topic == TRAFFIC_TOPIC and value is not None:
            assert value["at"] >= over[partition]
    assert set(over.values()) == {start_ms + 120_001}


def test_the_history_comes_before_the_run(broker: Broker) -> None:
    world = generate(Plan(1, 2, 1, Mode.HOT))
    Feeder("", {TRAFFIC_TOPIC: 1, HISTORY_TOPIC: 1}).feed(world, START_MS, 120)
    rows = [value for topic, _, value, *_ in broker.records if topic == HISTORY_TOPIC and value]
    assert [row["vid"] for row in rows] == world.history["vid"].to_list()
    assert {row["at"] for row in rows} == {START_MS - 59_999}
    beats = [
        beat for topic, _, value, beat, _ in broker.records if topic == HISTORY_TOPIC and not value
    ]
    assert beats == [START_MS + 1 + 1_000 * second for second in range(121)]


def test_a_record_that_is_not_written_ends_the_feeding(broker: Broker) -> None:
    broker.fails = True
    with pytest.raises(KafkaException):
        Feeder("", {TRAFFIC_TOPIC: 1, HISTORY_TOPIC: 1}).feed(
            generate(Plan(1, 1, 1, Mode.HOT)), START_MS, 60
        )


def test_event_times_lie_within_their_second() -> None:
    times = pl.DataFrame({"time": [0, 59]}).select(feeder.event_time_ms(START_MS))
    assert times.to_series().to_list() == [START_MS + 1, START_MS + 59_001]
