"""``anabranch up`` as a person uses it: its command line, the topics and an ordinary client;
a real broker, Redis and Spark of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer

from anabranch.adapters.system.clock import SystemClock
from anabranch.local.processes import MARK, mark_of, marked
from anabranch.local.status import rows_of, stages_of
from demo.consuming import TopicReader, header
from harness.stages import RECORD
from harness.waiting import given_s, wait_until

pytestmark = pytest.mark.integration

STOP_MS = 15_000
STOPS_WITHIN_S = 180
"""Whatever the machine."""
NODE = "north.0"
T = 1_700_000_000_000
WINDOW_MS = 1_000
POISON = 0
WEIGHT = 5

FUNCTIONS = """
from pyspark.sql import functions as F

def totals(readings):
    windows = readings.groupBy(F.window("event_time", "1 second"), "key").agg(
        F.sum("value").alias("total")
    )
    return windows.select(
        "key",
        "total",
        (F.unix_millis("window.end") - 1_700_000_000_000).alias("end"),
        F.col("window.end").alias("event_time"),
    )

def shaky(readings):
    share = F.udf(lambda value: 1_000 // value, "bigint")
    return readings.select("time", share("value").alias("share"), "event_time")
"""

WITH_WEIGHT = FUNCTIONS.replace(
    """share("value").alias("share")""",
    """(share("value") + F.coalesce("weight", F.lit(0))).alias("share")""",
)
RECORD_WITH_WEIGHT = RECORD.replace(
    """{"name": "note",""",
    """{"name": "weight", "type": ["null", "long"], "default": null}, {"name": "note",""",
)

PIPELINE = """
pipeline: up
bucket: 100ms
max_delay: 3s
partitions: 2
sources:
  readings:
    topics: [readings]
    record: reading.avsc
    event_time: {field: time, unit: ms}
    max_ahead: unlimited
stages:
  totals: {participant: north, reads: [readings], transform: "functions:totals"}
  shaky: {participant: north, reads: [readings], transform: "functions:shaky", version: 1}
outputs:
  totals: {stage: totals, corrected: {topic: totals, format: json, key: [key]}}
  shaky: {stage: shaky, corrected: {topic: shaky, format: json}}
"""

Reading = tuple[int, int, int]
"""(time since T, key, value)"""


def readings_of(begin_ms: int, end_ms: int) -> list[Reading]:
    return [(time, time // 10 % 7, 1 + time % 13) for time in range(begin_ms + 5, end_ms, 10)]


def expect_totals(readings: list[Reading], end_ms: int) -> Counter[tuple[int, int, int]]:
    """(window's end, key, total) of the windows that end until ``end_ms``."""
    found: Counter[tuple[int, int]] = Counter()
    for time, key, value in readings:
        found[time // WINDOW_MS * WINDOW_MS + WINDOW_MS, key] += value
    return Counter((end, key, total) for (end, key), total in found.items() if end <= end_ms)


def expect_shaky(readings: list[Reading], weight: int = 0) -> Counter[tuple[int, int]]:
    return Counter((T + time, 1_000 // value + weight) for time, _, value in readings)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from anabranch.cli import main; main()", *arguments]


class Up:
    """One ``anabranch up``, in a process group of its own as a shell gives it."""

    def __init__(self, file: Path, state_dir: Path) -> None:
        self._state_dir, self._clock = state_dir, SystemClock()
        self._log = file.with_name("up.log")
        self._begin = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command("up", "-f", str(file), "--state-dir", str(state_dir)),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._readers: list[TopicReader] = []
        self.totals: list[tuple[str, tuple[int, int, int]]] = []
        self.shaky: list[tuple[str, tuple[int, int]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.stop()
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(STOPS_WITHIN_S)

    def ready(self) -> None:
        """Until all runs; then its outputs are read from their beginning."""

        def is_ready() -> bool:
            assert self._process.poll() is None, self._log.read_text()[-3_000:]
            return "\nready  kafka" in self._log.read_text()[self._begin :]

        wait_until(is_ready, 400, "the ready line", every_s=0.1)
        kafka = next(str(row["address"]) for row in self.status() if row["service"] == "kafka")
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
        self._partitions = len(
            self._producer.list_topics("readings", timeout=20).topics["readings"].partitions
        )

        def total(value: dict[str, Any]) -> tuple[int, int, int]:
            return value["end"], value["key"], value["total"]

        def share(value: dict[str, Any]) -> tuple[int, int]:
            return value["time"], value["share"]

        self._read(kafka, "totals", self.totals, total)
        self._read(kafka, "shaky", self.shaky, share)

    def _read(
        self,
        kafka: str,
        topic: str,
        found: list[tuple[str, Any]],
        row: Callable[[dict[str, Any]], Any],
    ) -> None:
        reader = TopicReader(
            kafka,
            topic,
            lambda message: found.append(
                (header(message, "anabranch-id"), row(json.loads(message.value() or b"")))
            ),
        )
        reader.start()
        self._readers.append(reader)

    def produce(
        self, readings: list[Reading], closed_ms: int | None = None, **more: object
    ) -> None:
        """Write records to all partitions in turn, with the fields of ``more``; then close each
        partition up to ``closed_ms``.
        """
        for number, (time, key, value) in enumerate(readings):
            record = {
                "key": key,
                "value": value,
                "note": None,
                "level": 0.5,
                "time": T + time,
                **more,
            }
            self._producer.produce(
                "readings", json.dumps(record), partition=number % self._partitions
            )
        for partition in range(self._partitions if closed_ms is not None else 0):
            says = [("anabranch-heartbeat", str(T + (closed_ms or 0) + 1))]
            self._producer.produce("readings", None, partition=partition, headers=says)
        assert self._producer.flush(20) == 0

    def await_results(self, totals: Counter[Any], shaky: Counter[Any]) -> None:
        """Until as many are there; they are these, each once."""
        wanted = (totals.total(), shaky.total())

        def are_there() -> bool:
            assert [each.error for each in self._readers] == [None] * len(self._readers)
            return len(self.totals) >= wanted[0] and len(self.shaky) >= wanted[1]

        wait_until(
            are_there,
            200,
            f"{wanted} results",
        )
        for found, expected in ((self.totals, totals), (self.shaky, shaky)):
            assert Counter(row for _, row in found) == expected
            assert len({ident for ident, _ in found}) == len(found)

    def status(self) -> list[dict[str, Any]]:
        """``anabranch status --json``."""
        arguments = command("status", "--state-dir", str(self._state_dir), "--json")
        done = subprocess.run(arguments, capture_output=True, timeout=60, check=True, text=True)
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def stop(self) -> None:
        """Send Ctrl-C to the whole group, as a terminal does: all ends in time, and nothing is
        left.
        """
        begun_s = given_s()
        os.killpg(self._process.pid, signal.SIGINT)
        code = self._process.wait(STOPS_WITHIN_S)
        took_ms = round(1_000 * (given_s() - begun_s))
        print(f"stopped after {took_ms} ms")
        assert code == 0, self._log.read_text()[-3_000:]
        assert took_ms <= STOP_MS
        assert marked(MARK, mark_of(self._state_dir)) == []


def change(file: Path) -> None:
    """Add an optional field to a source, and use it in a function, as a user does."""
    file.with_name("reading.avsc").write_text(RECORD_WITH_WEIGHT)
    file.with_name("functions.py").write_text(WITH_WEIGHT)
    file.write_text(PIPELINE.replace("version: 1", "version: 2"))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "reading.avsc").write_text(RECORD)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    yield path
    for pid in marked(MARK, mark_of(tmp_path / "state")):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.nightly  # by day: that it goes on, test_new_pipeline.py; one fails alone, test_node.py
def test_up_goes_on_where_it_was_stopped_and_a_function_that_raises_stops_its_stage_alone(
    file: Path, tmp_path: Path
) -> None:
    first = readings_of(0, 4_000)
    open_at_the_end = readings_of(4_000, 5_500)
    second = readings_of(5_500, 7_000)
    with Up(file, tmp_path / "state") as up:
        up.ready()
        up.produce(first, 4_000)
        up.await_results(expect_totals(first, 4_000), expect_shaky(first))
        up.produce(open_at_the_end)
        up.stop()
    change(file)
    with Up(file, tmp_path / "state") as up:
        up.ready()
        up.produce(second, 7_000, weight=WEIGHT)
        readings = first + open_at_the_end + second
        shaky = expect_shaky(first + open_at_the_end) + expect_shaky(second, WEIGHT)
        up.await_results(expect_totals(readings, 7_000), shaky)

        third = [(7_002, 3, POISON), *readings_of(7_000, 8_000)]
        up.produce(third, 8_000)

        def failed() -> str:
            """Its restart is tried again and again: what the command line shows, asked more
            often.
            """
            stages = [
                stage for row in rows_of(tmp_path / "state") or [] for stage in stages_of(row)
            ]
            return next(
                (
                    str(stage["error"])
                    for stage in stages
                    if (stage["stage"], stage["state"]) == ("shaky", "failed")
                ),
                "",
            )

        wait_until(failed, 200, "the stage is shown as failed")
        error = wait_until(
            lambda: next(row["error"] for row in up.status() if row["name"] == NODE),
            200,
            "why, by `status`",
        )
        assert error.startswith("shaky.0: "), error
        assert "function functions:shaky" in error, error
        assert "ZeroDivisionError" in error, error
        named = re.search(r"buckets (\d+)\.\.(\d+)", error)
        assert named, error
        assert int(named[1]) <= (T + 7_100) // 100 <= int(named[2])
        fourth = readings_of(8_000, 9_000)
        up.produce(fourth, 9_000)
        up.await_results(expect_totals(readings + third + fourth, 9_000), shaky)

        def all_others_run() -> bool:
            """Return whether all other processes run; one that does not answer in time is asked
            again.
            """
            states = {row["name"]: row["state"] for row in up.status() if row["name"] != NODE}
            (node,) = (row for row in up.status() if row["name"] == NODE)
            states |= {
                f"stage {stage['stage']}": stage["state"]
                for stage in node["detail"].get("stages", ())
                if stage["stage"] != "shaky"
            }
            bad = {"failed", "restarting"} & {*states.values()}
            assert not bad, states
            return "stage totals" in states and "starting" not in states.values()

        wait_until(all_others_run, 300, "all but the stage that fails run")
        up.stop()


def test_a_stage_that_cannot_be_analysed_ends_the_start_in_the_words_of_check(
    file: Path, tmp_path: Path
) -> None:
    """In the background, too, where somebody waits for the ready line."""
    wrong = """
  wrong:
    participant: north
    reads: [readings]
    sql: SELECT key, event_time FORM readings
outputs:"""
    file.write_text(PIPELINE.replace("\noutputs:", wrong, 1))
    state_dir = tmp_path / "state"
    started = subprocess.run(
        command("up", "-d", "-f", str(file), "--state-dir", str(state_dir)),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    output = started.stdout + started.stderr
    assert started.returncode == 2, output
    error = output[output.index(": stage wrong: sql, line 1, position 29: [PARSE_SYNTAX_ERROR]") :]
    assert "SELECT key, event_time FORM readings" in error, output
    assert "\nready  kafka" not in output
    assert marked(MARK, mark_of(state_dir)) == []
