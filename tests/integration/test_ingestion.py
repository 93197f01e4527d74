"""Ingestion on a real broker: what only real clients, sizes and kills show. The rest is shown on
the log in memory, which passes the same conformance suite: ``tests/unit/ingestion``.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from typer.testing import CliRunner

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.cli import app
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.change_schema import SOURCE_TIME
from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import from_avro
from anabranch.ingestion.service import IngestionService
from anabranch.local import probe
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import EventTime, KafkaColumn, Pipeline, Stage
from anabranch.pipeline.topic_uses import collides
from anabranch.ports import Headers, TopicPartition
from anabranch.protocol.control.records import Ask, AskOutcome, AskReply
from anabranch.protocol.edge.ingestion import END_SILENCE_MS, LOOK_GAP_MS
from anabranch.protocol.errors import AnabranchError
from anabranch.protocol.limits import DEAD_LETTER_CUT_BYTES
from anabranch.streams.heartbeats import ControlReader
from harness import debezium, service_processes
from harness.control_topics import say
from harness.kafka import trim
from harness.raw_headers import produce
from harness.service_processes import ModuleProcess
from harness.sources import REPORT, StreamView, create_topics, everything, pipeline, report, service
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60
ID = from_avro({"type": "record", "name": "k", "fields": [{"name": "id", "type": "long"}]}, "k")
YEAR_2100_MS = 4_102_444_800_000
SILENCE_MS = END_SILENCE_MS + LOOK_GAP_MS


@pytest.fixture
def log(kafka: str) -> KafkaEventLog:
    return KafkaEventLog(kafka)


class Source:
    """One source on the broker."""

    def __init__(self, log: KafkaEventLog, of: Pipeline) -> None:
        self.log, self.pipeline = log, of
        self.topic = of.sources["reports"].topics[0]
        self.view = StreamView(log, of, SystemClock())
        self.started: list[IngestionService] = []
        self._writer = log.writer()

    def produce(self, partition: int, *values: bytes | None, headers: Headers = ()) -> None:
        for value in values:
            self._writer.send(
                TopicPartition(self.topic, partition), value, key=b"key", headers=headers
            )
        self._writer.flush()

    def process(self) -> IngestionService:
        self.started.append(service(self.log, self.pipeline, SystemClock(), SystemEntropy()))
        self.started[-1].start()
        return self.started[-1]

    def run(self, process: IngestionService, closed: int) -> None:
        def reached() -> bool:
            process.step()
            return self.view.closed() >= closed

        wait_until(reached, DEADLINE_S, f"bucket {closed} is not closed", every_s=0)

    def dead(self) -> list[tuple[bytes | None, dict[str, bytes]]]:
        chunks = everything(self.log, f"{self.topic}.rejected")
        return [
            (value, {name: text or b"" for name, text in headers})
            for chunk in chunks
            for value, headers in zip(chunk.values, chunk.headers, strict=True)
        ]

    def shrink_dead_letters(self, address: str, size_bytes: int) -> None:
        """Let the dead-letter topic take less than it did when the process looked."""
        entry = ConfigEntry(
            "max.message.bytes", str(size_bytes), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(
            ResourceType.TOPIC, f"{self.topic}.rejected", incremental_configs=[entry]
        )
        admin = AdminClient({"bootstrap.servers": address})
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(timeout=DEADLINE_S)

    def close(self) -> None:
        for process in self.started:
            process.stop()
        self._writer.close()
        self.view.close()


@pytest.fixture
def source(log: KafkaEventLog, topic_prefix: str) -> Iterator[Source]:
    of = pipeline(topic_prefix, bounded=True, out_of_orderness_ms=500, extra_fields="reject")
    create_topics(log, of)
    made = Source(log, of)
    yield made
    made.close()


def test_headers_that_are_not_as_one_expects_disturb_nobody(source: Source, kafka: str) -> None:
    """Names that are not UTF-8, which the Python client cannot give; and values that are not
    there. A dead letter has them all.
    """
    at = TopicPartition(source.topic, 0)
    source.produce(0, report(1_000, 1), headers=[("n", None)])
    produce(kafka, at, report(1_001, 2), [(b"good", b"1"), (b"\xff\xfe", b"2")])
    produce(kafka, at, b"{", [(b"n", b"1"), (b"caf\xe9", b"2"), (b"n", b"3"), (b"n", b"1")])
    source.produce(0, b"[]", headers=[("n", None), ("n", b""), ("n", None), ("anabranch-x", None)])
    source.produce(0, b"", headers=[("anabranch-heartbeat", None)])
    produce(kafka, at, b"7", [(b"\xfe", b"1"), (b"n", b"2"), (b"\xffx", b"3")])
    produce(kafka, at, b"8", [(b"anabranch-heartbeat", b"1002"), (b"\xfe", b"1")])
    source.produce(0, report(1_002, 3), headers=[("case", b"last")])
    source.run(source.process(), 11)
    assert source.view.cars() == [1, 2, 3]
    (chunk,) = everything(source.log, f"{source.topic}.rejected")
    own = [
        [each for each in headers if not each[0].startswith("anabranch-")]
        for headers in chunk.headers
    ]
    assert list(zip(chunk.values, own, strict=True)) == [
        (b"{", [("n", b"1"), ("caf\\xe9", b"2"), ("n", b"3"), ("n", b"1")]),
        (b"[]", [("n", None), ("n", b""), ("n", None), ("sender-anabranch-x", None)]),
        (b"", [("sender-anabranch-heartbeat", None)]),
        (b"7", [("\\xfe", b"1"), ("n", b"2"), ("\\xff", b"3")]),
    ]


@pytest.mark.parametrize("write", [debezium.bare, debezium.with_schema, debezium.avro])
def test_change_events_of_a_table_are_its_rows(
    log: KafkaEventLog, topic_prefix: str, write: Callable[[dict[str, Any]], bytes]
) -> None:
    """Inserts, updates, deletes and their tombstones, in order, at the time of the database."""
    start_ms = 1_777_644_000_000
    columns = (
        KafkaColumn(
            field=Field("k", "record", nullable=True, inner=ID.fields), part="key", record=ID
        ),
        KafkaColumn(field=Field("place", "long"), part="offset"),
    )
    of = pipeline(
        topic_prefix,
        bucket_ms=1_000,
        bounded=True,
        record=from_avro(debezium.avro_schema(), "customers"),
        format="avro" if write is debezium.avro else "json",
        cdc="debezium",
        columns=columns,
        event_time=EventTime(field=SOURCE_TIME),
    )
    create_topics(log, of, 1)
    source = Source(log, of)
    writer = log.writer()
    at = TopicPartition(source.topic, 0)
    headers: Headers = [("__debezium.context.connectorName", b"postgresql"), ("null", None)]
    for number, payload, has_tombstone in debezium.history(start_ms):
        key = json.dumps({"schema": {"type": "struct"}, "payload": {"id": number}}).encode()
        writer.send(at, write(payload), key=key, headers=headers)
        if has_tombstone:
            writer.send(at, None, key=key, headers=headers)
    writer.flush()
    writer.close()
    source.run(source.process(), start_ms // 1_000 + 30)
    rows = pa.concat_tables(source.view.stable().values()).sort_by("place").to_pylist()
    assert [
        (r["k"]["id"], r["id"], r["name"], r["op"], r["place"], r["event_time"] - start_ms)
        for r in rows
    ] == [
        (1, 1, "Ada", "r", 0, 0),
        (2, 2, "Grace", "r", 1, 0),
        (1, 1, "Ada", "u", 2, 10_000),
        (2, 2, "Grace", "d", 3, 20_000),
        (3, 3, "Alan", "c", 5, 30_000),
        (3, 3, "A. Turing", "u", 6, 30_000),
    ]
    assert source.dead() == []
    source.close()


def test_a_larger_record_is_read_where_the_file_allows_it(
    log: KafkaEventLog, topic_prefix: str
) -> None:
    """The topic that is created has room for it, beside its key and headers."""
    of = pipeline(topic_prefix, bounded=True, max_record_bytes=4 * 1024 * 1024)
    create_topics(log, of, 1, config=of.sources["reports"].topic_config)
    source = Source(log, of)
    large = report(1_001, 2, road="x" * (4 * 1024 * 1024 - 1_000))
    header = ("h", b"x" * 900_000)
    source.produce(0, report(1_000, 1), large, headers=[header])
    source.produce(0, large + b" " * 1_000, report(1_002, 3))
    source.run(source.process(), 11)
    assert source.view.cars() == [1, 2, 3]
    ((value, headers),) = source.dead()
    assert (value, headers["anabranch-reason"]) == (large + b" " * 1_000, b"too_large")
    source.close()


def test_kafka_refuses_topics_whose_names_differ_by_dots_alone(
    log: KafkaEventLog, topic_prefix: str
) -> None:
    """Kafka itself refuses what ``anabranch check`` reports."""
    admin = log.admin()
    admin.create([TopicSettings(f"{topic_prefix}.orders.v1", 1)])
    with pytest.raises(AnabranchError, match="collides"):
        admin.create([TopicSettings(f"{topic_prefix}.orders_v1", 1)])
    admin.close()
    assert collides(f"{topic_prefix}.orders.v1", f"{topic_prefix}.orders_v1")


def test_a_record_that_the_dead_letter_topic_cannot_take_as_it_is(
    log: KafkaEventLog, kafka: str, topic_prefix: str
) -> None:
    """17 MiB that the user's compression made small; 6 MB that nothing makes small, where the
    input took them by itself.
    """
    of = pipeline(topic_prefix, bounded=True)
    create_topics(log, of, 1, config={"max.message.bytes": str(8 * 1024 * 1024)})
    source = Source(log, of)
    users = Producer(
        {
            "bootstrap.servers": kafka,
            "compression.type": "gzip",
            "message.max.bytes": 64 * 1024 * 1024,
            "linger.ms": 0,
            "log_level": 2,  # it lasts longer than its broker, and would say so
        }
    )
    zeros, noise = bytes(17 * 1024 * 1024), random.Random(1).randbytes(6_000_000)
    for value in (report(1_000, 1), zeros, b"{", noise, report(1_001, 2)):
        users.produce(source.topic, value, key=b"key", partition=0, headers=[("case", b"large")])
        assert users.flush(DEADLINE_S) == 0
    process = source.process()
    source.shrink_dead_letters(kafka, 1_000_000)
    source.run(process, 11)
    assert source.view.cars() == [1, 2]
    dead = {headers["anabranch-offset"]: (value, headers) for value, headers in source.dead()}
    assert sorted(dead) == [b"1", b"2", b"3"]
    assert dead[b"2"][0] == b"{"
    assert "anabranch-truncated" not in dead[b"2"][1]
    for offset, original in ((b"1", zeros), (b"3", noise)):
        found, headers = dead[offset]
        assert found == original[:DEAD_LETTER_CUT_BYTES]
        assert (headers["case"], headers["anabranch-reason"]) == (b"large", b"too_large")
        assert int(headers["anabranch-truncated"]) == len(original) + len(
            b"key" + b"case" + b"large"
        )
    source.close()


def test_records_deleted_while_the_process_stood_still_are_given_up_by_the_command(
    kafka: str, source: Source, tmp_path: Path
) -> None:
    """A process that is started again waits and says what is missing, as often as it is started;
    after the command it goes on, and the results name the source.
    """
    file = _pipeline_file(tmp_path, source)
    log_file = tmp_path / "ingestion.log"

    def told(count: int) -> bool:
        return log_file.read_text().count("offsets 10 to 14 were deleted before they were") >= count

    for partition in (0, 1):
        source.produce(partition, *(report(1_000 + i, 100 * partition + i) for i in range(10)))
    with _process(kafka, file, tmp_path) as stopped:
        wait_until(lambda: _positions(source) == 20, DEADLINE_S, "the records are not read")
        stopped.process.send_signal(signal.SIGSTOP)
        source.produce(0, *(report(2_000 + i, 10 + i) for i in range(10)))
        trim(kafka, TopicPartition(source.topic, 0), 15)
    for count in (1, 2):
        with _process(kafka, file, tmp_path) as waiting:
            wait_until(lambda count=count: told(count), DEADLINE_S, "it does not say what is gone")  # type: ignore[misc]
            assert waiting.alive(), "it waits"
    assert _positions(source) == 20
    with _process(kafka, file, tmp_path) as child:
        words = [
            "give-up",
            "reports",
            "--missing",
            "--until",
            "1970-01-01T00:00:02Z",
            "--yes",
            "-f",
            str(file),
            "--kafka",
            kafka,
        ]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{result.output} {result.exception}"
        source.produce(1, report(8_000, 110))
        source.produce(0, report(8_000, 20))
        wait_until(lambda: source.view.closed() >= 80, DEADLINE_S, "it does not go on", every_s=0.1)
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(timeout=20) == 0
    assert source.view.cars() == [*range(10), *range(15, 21), *range(100, 111)]
    assert source.view.log_state().given_up.names(20) == ("reports",)
    assert source.dead() == []


def test_kills_neither_lose_nor_repeat(kafka: str, source: Source, tmp_path: Path) -> None:
    """The service as a process, killed again and again while data comes in: whole buckets each
    time, since it closes what it has when nothing more comes for a while.
    """
    file = _pipeline_file(tmp_path, source)
    count, cars = 30_000, iter(range(30_000))
    seen = 0
    for number in range(6):
        for partition in (0, 1):
            source.produce(
                partition,
                *(
                    report(1_001 + car // 10, car)
                    for car in (next(cars) for _ in range(count // 12))
                ),
            )
        with _process(kafka, file, tmp_path) as child:
            floor = seen
            wait_until(
                lambda floor=floor: _positions(source) > floor,  # type: ignore[misc]
                DEADLINE_S,
                f"process {number} reads nothing",
                every_s=0.005,
            )
        seen = _positions(source)
    with _process(kafka, file, tmp_path) as child:
        wait_until(
            lambda: source.view.closed() >= (1_000 + count // 10) // 100,
            DEADLINE_S,
            "the end is not closed",
        )
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(timeout=20) == 0
    assert source.view.cars() == list(range(count))
    assert source.dead() == []


def test_neither_a_record_from_the_year_2100_nor_silence_closes_anything(
    kafka: str, source: Source, tmp_path: Path
) -> None:
    clock = SystemClock()
    file = _pipeline_file(
        tmp_path,
        source,
        settings=(
            "out_of_orderness: 500ms",
            "max_ahead: 1m",
            "idle_timeout: {partition: 300ms, source: never}",
        ),
    )
    with _process(kafka, file, tmp_path) as child:
        now_ms = clock.now_ms()
        source.produce(0, report(now_ms, 1))
        source.produce(1, report(now_ms, 2))
        closed = (now_ms - 500 + 99) // 100 - 1
        wait_until(
            lambda: source.view.closed() >= closed,
            DEADLINE_S,
            "what is not newer than the out_of_orderness is closed",
        )
        assert source.view.closed() == closed

        source.produce(0, report(YEAR_2100_MS, 3))
        ((value, headers),) = wait_until(
            source.dead, DEADLINE_S, "the record from the year 2100 is rejected"
        )
        assert value == report(YEAR_2100_MS, 3)
        assert headers["anabranch-reason"] == b"beyond_max_ahead"

        port: int | None = wait_until(
            lambda: probe.metrics_port(tmp_path, "ingestion", "reports", child.process.pid),
            DEADLINE_S,
            "its port",
        )
        silent_since = clock.monotonic_ms()

        def is_silent_for_long() -> bool:
            """Longer than any of its time-outs about silence, and it says itself that it waits."""
            assert source.view.closed() == closed
            long = clock.monotonic_ms() - silent_since > SILENCE_MS
            return long and port is not None and bool((probe.status(port) or {}).get("waiting_for"))

        wait_until(is_silent_for_long, DEADLINE_S, "a long silence")
        source.produce(1, report(closed * 100 + 1, 4), report(now_ms + 1_000, 5))
        wait_until(
            lambda: source.view.closed() > closed,
            DEADLINE_S,
            "it goes on, without the partition that stays silent",
        )
        assert source.view.cars() == [1, 2, 4], "what came after the silence is not late"
        assert len(source.dead()) == 1


def _positions(source: Source) -> int:
    source.view.closed()
    last = source.view.last()
    return 0 if last is None else sum(position.offset_next for position in last.positions)


def _process(kafka: str, file: Path, state_dir: Path) -> ModuleProcess:
    return service_processes.service("ingestion", "reports", file, kafka, state_dir)


def _pipeline_file(
    folder: Path,
    source: Source,
    settings: Sequence[str] = (
        "out_of_orderness: 5s",
        "max_ahead: unlimited",
        "bounded: true",
        "idle_timeout: {partition: never}",
    ),
) -> Path:
    lines = "\n    ".join(settings)
    (folder / "functions.py").write_text("def same(reports):\n    return reports\n")
    (folder / "report.avsc").write_text(json.dumps(REPORT.avro))
    file = folder / "pipeline.yaml"
    file.write_text(f"""
pipeline: {source.pipeline.name}
bucket: 100ms
max_delay: 1s
partitions: 2
sources:
  reports:
    topics: [{source.topic}]
    record: report.avsc
    format: json
    event_time: {{field: time, unit: ms}}
    {lines}
stages:
  same: {{participant: north, reads: [reports], transform: "functions:same"}}
outputs:
  out: {{stage: same, corrected: {{topic: {source.pipeline.name}.out, format: json}}}}
""")
    return file


def test_deleted_blocks_are_made_again_from_the_input(
    log: KafkaEventLog, topic_prefix: str
) -> None:
    stage = Stage(name="next", participant="north", reads=["reports"], transform=["m:f"])
    of = pipeline(topic_prefix.rstrip("-")).model_copy(update={"stages": {"next": stage}})
    create_topics(log, of)
    source, clock = Source(log, of), SystemClock()
    process = source.process()
    for bucket in range(1, 21):
        for partition in (0, 1):
            source.produce(partition, *(report(100 * bucket - i, bucket) for i in (0, 50)))
        process.step()
    source.produce(0, report(150, 999), report(2_200, 0))  # the first one is late
    source.produce(1, report(2_200, 0))
    source.run(process, 21)
    cars = source.view.cars()
    assert len(cars) == 80
    names = of.topic_names
    with closing(log.admin()) as admin, closing(log.reader()) as reader:
        places = [TopicPartition(names.blocks("reports", "0"), each) for each in (0, 1)]
        admin.delete_before({at: reader.offsets(at)[1] for at in places})
    replies = ControlReader(log, control_topics(of))
    say(log, of, Ask("reports", "processing.next.0", 1, 1, 21, clock.now_ms()))
    found: list[AskReply] = []

    def is_answered() -> bool:
        process.step()
        found.extend(each for each in replies.poll() if isinstance(each, AskReply))
        return bool(found) and found[-1].outcome is not AskOutcome.TAKEN

    wait_until(is_answered, DEADLINE_S, "an answer", every_s=0)
    replies.close()
    assert [(each.outcome, each.reason) for each in found] == [
        (AskOutcome.TAKEN, ""),
        (AskOutcome.RECOMPUTED, ""),
    ]
    with closing(StreamView(log, of, clock)) as view:
        assert view.cars() == cars
    source.produce(0, report(2_400, 5))
    source.produce(1, report(2_400, 5))
    source.run(process, 23)
    process.stop()
