"""A stage that another participant offers, with real Spark and a real broker: north names it and
gets its stream, south runs it with code that north does not have. What does not fit is rejected.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.local import state_file
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.offers import terms_for
from harness.stage_processes import StageProcess
from harness.stages import RECORD, WIDTH_MS, Feed, Output, create_topics, readings, rows_of
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "remote_definition"
PASSED = """{"type": "record", "name": "passed", "fields": [
  {"name": "key", "type": "long"}, {"name": "value", "type": "long"}]}"""
SOUTH: Final = """\
pipeline: PREFIX_south
bucket: 100ms
sources:
  rows: {topics: [PREFIX.a], record: reading.avsc, event_time: {field: time}}
stages:
  all: {participant: south, reads: [rows], transform: "souths:above"}
publish: {all: }
federation:
  name: PREFIX
  participant: south
  offers:
    above:
      to: [north]
      transform: souths:above
      reads: {rows: reading.avsc}
      gives: passed.avsc
      parameters: {least: {type: integer, default: 0, min: -10, max: 10}}
      rows_per_s: 5000
    few:
      to: [north]
      sql: SELECT * FROM rows WHERE value >= :least
      reads: {rows: passed.avsc}
      gives: passed.avsc
      parameters: {least: {type: integer}}
      rows_per_s: 5000
    twice:
      to: [north]
      sql: SELECT key, 2 * value AS value, event_time FROM rows
      reads: {rows: passed.avsc}
      gives: passed.avsc
      rows_per_s: 5000
"""
FUNCTIONS: Final = """\
def above(rows, least=0):
    return rows.where(rows.value >= least).select("key", "value", "event_time")
"""
NORTH: Final = """\
pipeline: PREFIX_north
bucket: 100ms
max_delay: 2s
partitions: 2
sources:
  a: {topics: [PREFIX_north.a], record: reading.avsc, event_time: {field: time}}
stages:
  high: {participant: south, offered: above, reads: [a], parameters: {least: 3}}
  own:
    participant: north
    reads: [a, high]
    sql: SELECT value, event_time FROM a UNION ALL SELECT value + 100, event_time FROM high
outputs:
  out: {stage: own, corrected: {topic: PREFIX.out}, live: {topic: PREFIX.live}}
federation:
  name: PREFIX
  participant: north
  offered: {south: south.offers.json}
"""


class Both:
    """Each has a folder of its own; of north's south has the file and the records."""

    def __init__(self, kafka: str, folder: Path, prefix: str) -> None:
        self.kafka, self._prefix = kafka, prefix.replace("-", "_")
        self.north = folder / "north" / "north.yaml"
        self.south = folder / "south" / "south.yaml"
        self.state = folder / "state"
        for path in (self.north, self.south):
            path.parent.mkdir()
            (path.parent / "reading.avsc").write_text(RECORD)
            (path.parent / "passed.avsc").write_text(PASSED)
        (self.south.parent / "souths.py").write_text(FUNCTIONS)
        self.write(self.south, SOUTH)
        self.hand_over()
        self.write(self.north, NORTH)

    def write(self, path: Path, text: str) -> None:
        path.write_text(text.replace("PREFIX", self._prefix))

    def hand_over(self) -> None:
        federation = load(self.south).federation
        assert federation is not None
        (self.north.parent / "south.offers.json").write_text(terms_for(federation, "north"))

    def pipeline(self) -> Pipeline:
        return load(self.north)

    def souths_node(self) -> StageProcess:
        pipeline = load(self.north, self.south)
        return StageProcess(
            pipeline, "south.0", self.kafka, self.state / "south", offers=self.south
        )

    def norths_node(self) -> StageProcess:
        return StageProcess(self.pipeline(), "north.0", self.kafka, self.state / "north")


@pytest.fixture
def both(kafka: str, tmp_path: Path, topic_prefix: str) -> Both:
    return Both(kafka, tmp_path, topic_prefix)


@pytest.fixture
def feed(both: Both) -> Iterator[Feed]:
    create_topics(both.kafka, both.pipeline())
    found = Feed(both.kafka, both.pipeline(), "a")
    yield found
    found.close()


def values_of(output: Output, last: int) -> list[tuple[int, int]]:
    """Return (event time, value) of each row of the stream up to bucket ``last``, sorted."""
    return sorted(
        (row["event_time"], row["value"])
        for rows in output.buckets(1, last).values()
        for row in rows
    )


def expected(last: int) -> list[tuple[int, int]]:
    """Return the same as north's stage and the one at south must make it."""
    given = [(time, value) for bucket in range(1, last + 1) for time, _, value in rows_of(bucket)]
    return sorted(given + [(time, value + 100) for time, value in given if value >= 3])


def test_north_gets_its_stream_from_south(both: Both, feed: Feed) -> None:
    output = Output(both.kafka, both.pipeline(), "own")
    with both.norths_node() as north, both.souths_node() as south:
        for bucket in range(1, 21):
            feed.append(readings(rows_of(bucket)), bucket)
        output.wait_closed(20, north, 300)
        south.check()
    found = values_of(output, 20)
    output.close()
    assert found == expected(20)


def fetched_bytes(kafka: str, pipeline: Pipeline, stream: str) -> int:
    """Return the bytes that the broker sends to a reader of the whole stream: log and blocks."""
    received = {"bytes": 0}

    def take(statistics: str) -> None:
        received["bytes"] = json.loads(statistics)["rx_bytes"]

    topics = pipeline.topic_names.boundaries(stream), pipeline.topic_names.blocks(stream, "0")
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "bytes",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "statistics.interval.ms": 50,
            "stats_cb": take,
        }
    )
    found = consumer.list_topics(timeout=30).topics
    ends = [
        TopicPartition(topic, each, OFFSET_BEGINNING)
        for topic in topics
        for each in found[topic].partitions
    ]
    with closing(consumer):
        consumer.assign(ends)
        left = {(each.topic, each.partition) for each in ends}

        def is_read() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is not None:
                left.discard((message.topic(), message.partition()))
            return not left

        wait_until(is_read, 60, "the whole stream", every_s=0)
        before = received["bytes"]
        # A report after the last byte: its answers without records are a few dozen bytes each.
        wait_until(
            lambda: consumer.poll(0.1) is None and received["bytes"] >= before > 0, 30, "sum"
        )
        return received["bytes"]


@pytest.mark.nightly
def test_the_bytes_that_cross_fall_by_the_selectivity_of_norths_filter(both: Both) -> None:
    """One row in ten passes: a reader of the filtered stream gets a tenth of the bytes, and what
    each bucket costs whatever is in it.
    """
    rng, rows_per_bucket, last = random.Random(1), 20_000, 10
    rows = {
        bucket: [
            (bucket * WIDTH_MS - number % WIDTH_MS, rng.getrandbits(62), rng.randrange(100))
            for number in range(rows_per_bucket)
        ]
        for bucket in range(1, last + 1)
    }
    pipeline = filtered_at_south(both, least=90)
    with closing(Feed(both.kafka, load(both.south), "all")) as theirs, both.souths_node() as south:
        output = Output(both.kafka, pipeline, "few")
        for bucket, given in rows.items():
            table = readings(given).select(["key", "value", "event_time"])
            theirs.append(table, bucket)
        output.wait_closed(last, south, 300)
        output.close()
    whole = fetched_bytes(both.kafka, pipeline, "theirs")
    crossed = fetched_bytes(both.kafka, pipeline, "few")
    passed = sum(value >= 90 for given in rows.values() for _, _, value in given)
    selectivity = passed / (rows_per_bucket * last)
    assert 0.09 < selectivity < 0.11
    assert crossed / whole == pytest.approx(selectivity, rel=0.3), (crossed, whole)


def filtered_at_south(both: Both, least: int) -> Pipeline:
    """Let north bind south's stream, and have it filtered there; make the topics of both."""
    start, end = NORTH.index("sources:"), NORTH.index("outputs:")
    at_sender = (
        "bindings:\n"
        "  theirs: {pipeline: PREFIX_south, stream: all, record: passed.avsc}\n"
        "stages:\n"
        "  few: {participant: south, offered: few, reads: [theirs],"
        f" parameters: {{least: {least}}}}}\n"
    )
    both.write(
        both.north, (NORTH[:start] + at_sender + NORTH[end:]).replace("stage: own", "stage: few")
    )
    create_topics(both.kafka, both.pipeline())
    create_topics(both.kafka, load(both.south))
    return both.pipeline()


@pytest.mark.nightly
def test_of_souths_stream_only_what_passes_norths_filter_crosses_over(both: Both) -> None:
    filtered_at_south(both, least=12)
    with closing(Feed(both.kafka, load(both.south), "all")) as theirs:
        output = Output(both.kafka, both.pipeline(), "few")
        with both.souths_node() as south:
            for bucket in range(1, 31):
                theirs.append(readings(rows_of(bucket)), bucket)
            output.wait_closed(30, south)
        found = [row for rows in output.buckets(1, 30).values() for row in rows]
        output.close()
    given = [row for bucket in range(1, 31) for row in rows_of(bucket)]
    wanted = [(time, value) for time, _, value in given if value >= 12]
    assert sorted((row["event_time"], row["value"]) for row in found) == sorted(wanted)
    assert 0 < len(wanted) < len(given) / 5


def test_south_starts_its_node_and_nothing_of_norths(both: Both) -> None:
    create_topics(both.kafka, both.pipeline())
    there = KafkaEventLog(both.kafka).admin().named(both.pipeline().name)
    files = ["-f", str(both.north), "--offers", str(both.south)]
    command = [sys.executable, "-m", "anabranch.cli", "up", *files, "--kafka", both.kafka]
    up = subprocess.Popen(
        [*command, "--state-dir", str(both.state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert up.stdout is not None
        lines = []
        for line in up.stdout:
            lines.append(line)
            if line.startswith("ready"):
                break
        found = state_file.read(both.state)
        assert found is not None, "".join(lines)
        assert [(row.service, row.name) for row in found.processes] == [("processing", "south.0")]
        assert found.redis is None
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)
    assert up.returncode == 0
    assert KafkaEventLog(both.kafka).admin().named(both.pipeline().name) == there


def test_south_does_not_start_what_it_has_changed(both: Both) -> None:
    both.write(both.south, SOUTH.replace("min: -10", "min: 5").replace("default: 0", "default: 5"))
    process = StageProcess(both.pipeline(), "south.0", both.kafka, both.state, offers=both.south)
    with process:
        assert process.wait(60) == 2
    logged = process.all_of_its_log()
    assert "parameter least is an integer from 5 to 10" in logged
    assert "spark_started" not in logged


@pytest.mark.nightly
def test_columns_that_are_known_at_run_time_only_are_rejected_there(both: Both, feed: Feed) -> None:
    chained = (
        "  text: {participant: north, reads: [a],"
        ' sql: "SELECT key, note AS value, event_time FROM a"}\n'
        "  high: {participant: south, offered: twice, reads: [text]}\n"
    )
    start, end = NORTH.index("  high:"), NORTH.index("  own:")
    both.write(both.north, NORTH[:start] + chained + NORTH[end:])
    create_topics(both.kafka, both.pipeline())
    feed.append(readings(rows_of(1)), 1)
    with both.norths_node(), both.souths_node() as south:
        wait_until(lambda: "cannot be the input rows" in south.all_of_its_log(), 180, "a rejection")
        assert "its column value is string; int64 is wanted" in south.all_of_its_log()
        south.check()


def test_the_examples_stage_gives_what_stands_beside_it() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "anabranch.operating.trial",
            str(EXAMPLE / "north" / "north.yaml"),
            str(EXAMPLE / "north" / "tests"),
            "--offers",
            str(EXAMPLE / "south" / "south.yaml"),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "sample: slow_at_south: 1 rows, as expected",
            "sample: speeds: 3 rows, as expected",
        ],
    ), done.stderr
