"""Lines of JSON on their way into a topic, on a log in memory."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.schema_registry import ConfluentRegistry
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.edge import Decoder
from anabranch.codec.field_types import Field
from anabranch.codec.partitions import partition_of
from anabranch.codec.record_schema import from_avro
from anabranch.operating.produce import Lines, Target, read_lines, registering
from anabranch.pipeline.file import load
from anabranch.pipeline.model import EventTime, KafkaColumn, Pipeline, Source
from anabranch.ports import TopicPartition
from anabranch.protocol.edge.delivery import BEGINNING
from anabranch.protocol.errors import ConfigurationError
from harness.registries import RegistryServer

READING = (
    '{"type": "record", "name": "reading", "fields": [{"name": "at", "type": "long"}, {"name":'
    ' "sensor", "type": "string"}, {"name": "note", "type": ["null", "string"], "default": null}]}'
)
ROW = b'{"at":1000,"sensor":"roof"}'


def pipeline_in(folder: Path, source: str = "") -> Pipeline:
    (folder / "reading.avsc").write_text(READING)
    (folder / "stages.py").write_text("def f(readings):\n    return readings\n")
    (folder / "pipeline.yaml").write_text(
        "pipeline: p\nsources:\n  readings: {topics: [readings, more], record: reading.avsc,"
        " event_time: {field: at, unit: s}"
        + source
        + "}\nstages:\n  f: {reads: readings, transform: stages:f}\noutputs:\n  out: {stage: f,"
        " corrected: {topic: out}}\n"
    )
    return load(folder / "pipeline.yaml")


class Broker:
    """A log in memory with the topic of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.log = LocalEventLog()
        self.log.admin().create([TopicSettings("readings", 3)])
        self.target = Target(self.log, pipeline, "readings", None)

    def there(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """(partition, key, value) of all records."""
        reader = self.log.reader()
        reader.assign({TopicPartition("readings", number): 0 for number in range(3)})
        chunks = reader.fetch(1_000, 0)
        return [
            (chunk.at.partition, key, value)
            for chunk in chunks
            for key, value in zip(chunk.keys, chunk.values, strict=True)
        ]


def test_lines_go_round_the_partitions_as_they_are(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    broker = Broker(pipeline)
    lines = [b'{"at": %d, "sensor": "roof"}' % number for number in range(4)]
    assert broker.target.send(Lines(pipeline.sources["readings"]).records(lines)) == 4
    assert sorted(broker.there()) == sorted(
        (number % 3, None, line) for number, line in enumerate(lines)
    )


def test_a_key_chooses_the_partition_that_other_clients_choose(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    broker = Broker(pipeline)
    broker.target.send(Lines(pipeline.sources["readings"], "sensor").records([ROW, ROW]))
    place = partition_of(b"roof", BEGINNING, 3)
    assert broker.there() == [(place, b"roof", ROW)] * 2
    with pytest.raises(
        ConfigurationError,
        match="--key place: record reading has no such field; it has at, sensor, note",
    ):
        Lines(pipeline.sources["readings"], "place")


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    lines = Lines(pipeline_in(tmp_path).sources["readings"])
    assert lines.mistake([ROW, ROW]) is None
    found = lines.mistake([ROW, b'{"at":"noon","sensor":"roof"}', b"{"])
    assert found is not None
    assert found[0] == 1
    assert found[1].startswith("not a record reading: ")


def test_event_times_are_moved_in_their_own_unit(tmp_path: Path) -> None:
    lines = Lines(pipeline_in(tmp_path).sources["readings"])
    assert lines.newest([ROW, b'{"at":7,"sensor":"x"}']) == 1_000
    assert lines.now(5_000_999) == 5_000
    ((_, value),) = lines.records([ROW], shift=500)
    assert json.loads(value) == {"at": 1_500, "sensor": "roof"}
    arrival = pipeline_in(tmp_path)
    source = arrival.sources["readings"].model_copy(
        update={
            "event_time": arrival.sources["readings"].event_time.model_copy(update={"field": None})
        }
    )
    assert Lines(source).newest([ROW]) is None


@pytest.mark.parametrize("kind", ["timestamp-millis", "timestamp-micros"])
@pytest.mark.parametrize("format_", ["json", "avro"])
def test_event_times_that_are_timestamps_are_moved(kind: str, format_: str) -> None:
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": kind}},
        {"name": "tags", "type": ["string", "null"], "default": "x"},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ]
    source = Source(
        name="s",
        topics=["t"],
        record=from_avro({"type": "record", "name": "r", "fields": fields}, "r"),
        format=format_,
        event_time=EventTime(field="at", unit="us", is_text=True),
        dead_letter="d",
    )
    lines = Lines(source)
    row = b'{"at":"2026-05-01T16:00:00.250+02:00","counts":{"b":1,"a":2}}'
    assert lines.mistake([row]) is None
    assert lines.newest([row]) == 1_777_644_000_250_000
    assert lines.now(1_777_644_000_251) == 1_777_644_000_251_000
    ((_, value),) = lines.records([row], shift=1_000)
    decoded = Decoder(source.record, source.format).decode([value])
    assert decoded.table.to_pylist() == [
        {
            "at": datetime(2026, 5, 1, 14, 0, 0, 251_000, tzinfo=UTC),
            "tags": "x",
            "counts": [("a", 2), ("b", 1)],
        }
    ]


def test_a_source_in_avro_gets_what_its_decoder_reads(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, ", format: avro")
    source = pipeline.sources["readings"]
    values = [
        value
        for _, value in Lines(source).records([ROW, b'{"at":2,"sensor":"cellar","note":"wet"}'])
    ]
    decoded = Decoder(source.record, "avro").decode(values)
    assert decoded.rejected == []
    assert decoded.table.to_pylist() == [
        {"at": 1_000, "sensor": "roof", "note": None},
        {"at": 2, "sensor": "cellar", "note": "wet"},
    ]


def test_a_missing_source_or_topic_is_reported(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    log = LocalEventLog()
    for source, topic, why in (
        ("readings", None, "topic readings does not exist on this broker: `anabranch up` makes it"),
        ("readings", "other", "--topic other: source readings reads readings, more"),
        ("nothing", None, "no source 'nothing'; there are: readings"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            Target(log, pipeline, source, topic)


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_lines_are_numbered_as_an_editor_does_whatever_the_pieces(piece: int) -> None:
    class Slow(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return super().read1(min(piece, size or 1))

    found = [
        (first + place, line)
        for first, run in read_lines(Slow(b"a\n\n  \nb\r\nc\n\nd"))
        for place, line in enumerate(run)
    ]
    assert found == [(1, b"a"), (4, b"b"), (5, b"c"), (7, b"d")]
    assert list(read_lines(io.BytesIO(b""))) == []


def test_the_id_of_avro_is_the_one_that_a_registry_gives(tmp_path: Path) -> None:
    source = pipeline_in(tmp_path, ", format: avro").sources["readings"]
    with RegistryServer() as server:
        server.add("another")
        registry = ConfluentRegistry(server.url)
        for topic in (None, None, "more"):
            lines = Lines(source, None, registering(registry, source, topic))
            ((_, value),) = lines.records([ROW])
            assert value[:5] == b"\0\0\0\0\2"
        assert server.subjects == {"readings-value": [2], "more-value": [2]}


def test_nothing_is_sent_while_the_registry_does_not_answer(tmp_path: Path) -> None:
    source = pipeline_in(tmp_path, ", format: avro").sources["readings"]
    with RegistryServer() as server:
        server.status = 503
        with pytest.raises(
            ConfigurationError, match=r"^schema registry .* Nothing was sent: start"
        ):
            Lines(source, None, registering(ConfluentRegistry(server.url), source, None))
    with pytest.raises(ConfigurationError, match=r": no answer .* Nothing was sent: start"):
        Lines(source, None, registering(ConfluentRegistry(server.url), source, None))


@pytest.mark.parametrize(
    ("rule", "row", "moved"),
    [
        ({"field": "p.at", "unit": "ns"}, {"P": {"@at": 5}}, {"P": {"@at": 15}}),
        ({"field": "p.at", "unit": "ns"}, {"P": None}, {"P": None}),
        ({"field": "f", "unit": "s"}, {"f": 0.5}, {"f": 10.5}),
        ({"field": "t", "unit": "us", "is_text": True}, {"t": "x"}, {"t": "x"}),
        (
            {"field": "t", "unit": "us", "is_text": True},
            {"t": "2026-05-01T14:00:00.123456789Z"},
            {"t": "2026-05-01T14:00:00.123010Z"},
        ),
        (
            {"field": "t", "unit": "us", "is_text": True, "zone": "Europe/Berlin"},
            {"t": "2026-05-01T14:00"},
            {"t": "2026-05-01T14:00:00.000"},
        ),
        ({"field": "sent", "unit": "us", "is_text": True}, {"f": 1}, {"f": 1}),
    ],
)
def test_event_times_are_moved_where_they_are(
    rule: dict[str, Any], row: dict[str, object], moved: dict[str, object]
) -> None:
    inner = {"name": "at", "type": "long", "alias": "@at"}
    nested = {"type": "record", "name": "p", "fields": [inner]}
    fields = [
        {"name": "p", "type": ["null", nested], "default": None, "alias": "P"},
        {"name": "f", "type": "double", "default": 0},
        {"name": "t", "type": "string", "default": "x"},
    ]
    source = Source(
        name="s",
        topics=["t"],
        record=from_avro({"type": "record", "name": "r", "fields": fields}, "r"),
        columns=(KafkaColumn(field=Field("sent", "timestamp-millis"), part="timestamp"),),
        event_time=EventTime(**rule),
        dead_letter="d",
    )
    ((_, value),) = Lines(source).records([json.dumps(row).encode()], shift=10)
    assert json.loads(value) == moved


def test_lines_without_a_time_have_no_newest(tmp_path: Path) -> None:
    assert Lines(pipeline_in(tmp_path).sources["readings"]).newest([b'{"sensor":"x"}']) is None


def test_a_row_whose_key_field_is_null_has_no_key(tmp_path: Path) -> None:
    """Records without a key go round the partitions, and do not all go to one."""
    lines = [
        b'{"at":1,"sensor":"a","note":null}',
        b'{"at":1,"sensor":"a","note":"x"}',
        b'{"at":1,"sensor":"a"}',
    ]
    found = Lines(pipeline_in(tmp_path).sources["readings"], "note").records(lines)
    assert [key for key, _ in found] == [None, b"x", None]
    ((key, _),) = Lines(pipeline_in(tmp_path).sources["readings"], "at").records(lines[:1])
    assert key == b"1"


def test_a_key_is_named_by_its_column(tmp_path: Path) -> None:
    source = pipeline_in(tmp_path).sources["readings"]
    aliased = READING.replace('"sensor"', '"sensor", "alias": "sensor-id"')
    record = from_avro(json.loads(aliased), "reading")
    source = source.model_copy(update={"record": record})
    ((key, _),) = Lines(source, "sensor").records([b'{"at":1,"sensor-id":"roof"}'])
    assert key == b"roof"
