"""The keys ``columns`` and ``event_time`` of a source."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.pipeline.file import load
from anabranch.pipeline.model import EventTime, Pipeline
from anabranch.protocol.errors import ConfigurationError

RECORD = """{"type": "record", "name": "reading", "fields": [
  {"name": "time", "type": "long"}, {"name": "speed", "type": "double"},
  {"name": "said", "type": "string"},
  {"name": "day", "type": {"type": "int", "logicalType": "time-millis"}},
  {"name": "nanos", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
  {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
  {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "kind", "type": {"type": "enum", "name": "e", "symbols": ["A"]}},
  {"name": "payload", "type": {"type": "record", "name": "p", "fields": [
    {"name": "ts_ms", "type": ["null", "long"], "default": null}]}}]}"""
KEY = '{"type": "record", "name": "k", "fields": [{"name": "id", "type": "long"}]}'
FILE = """\
pipeline: p
sources:
  readings:
    topics: readings
    record: reading.avsc
    columns: COLUMNS
    event_time: TIME
stages:
  a: {reads: readings, transform: stages:chain}
outputs:
  out: {stage: a, corrected: {topic: t}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reading.avsc").write_text(RECORD)
    (tmp_path / "key.avsc").write_text(KEY)
    (tmp_path / "stages.py").write_text("def chain(readings): return readings\n")
    return tmp_path


def loaded(folder: Path, columns: str = "{}", time: str = "arrival") -> Pipeline:
    text = FILE.replace("COLUMNS", columns).replace("TIME", time)
    (folder / "pipeline.yaml").write_text(text)
    return load(folder / "pipeline.yaml")


def mistake(folder: Path, columns: str = "{}", time: str = "arrival") -> str:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, columns, time)
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize(
    ("part", "kind", "is_nullable"),
    [
        ("key", pa.string(), True),
        ("{key: text}", pa.string(), True),
        ("{key: bytes}", pa.binary(), True),
        ("{key: key.avsc}", pa.struct([("id", pa.int64())]), True),
        ("{key: key.avsc, format: avro}", pa.struct([("id", pa.int64())]), True),
        ("headers.ce_time", pa.string(), True),
        ("{headers.a.b: bytes}", pa.binary(), True),
        ("timestamp", pa.timestamp("us", "UTC"), True),
        ("partition", pa.int32(), False),
        ("offset", pa.int64(), False),
        ("topic", pa.string(), False),
    ],
)
def test_a_column_is_a_part_of_the_record(
    folder: Path, part: str, kind: pa.DataType, is_nullable: bool
) -> None:
    source = loaded(folder, f"{{c: {part}}}").sources["readings"]
    assert source.rows.arrow_schema()[-1] == pa.field("c", kind, is_nullable)
    (column,) = source.columns
    names = {"headers.ce_time": "ce_time", "{headers.a.b: bytes}": "a.b"}
    assert column.header == names.get(part, "")
    assert column.format == ("avro" if part.endswith("format: avro}") else "json")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("{c: value}", "columns.c: 'value' is no part of a Kafka record; use key, headers.NAME"),
        ("{c: headers.}", "is no part of a Kafka record"),
        ("{c: [key]}", "a list is no part of a Kafka record"),
        ("{c: {key: text, topic: x}}", "a mapping is no part of a Kafka record"),
        ("{c: {offset: bytes}}", "'bytes' is no form of offset"),
        ("{c: {headers.x: key.avsc}}", "'key.avsc' is no form of headers.x"),
        ("{c: {key: k}}", "columns.c.key: there is no record k"),
        ("{c: {key: [k]}}", "columns.c.key: a text is wanted"),
        ("{c: {key: bytes, format: json}}", "columns.c.format: is that of a key with a record"),
        ("{c: {key: key.avsc, format: xml}}", "columns.c.format: 'xml' is not known"),
        ("{a-b: key}", "'a-b' cannot be a column"),
        ("{Event_Time: key}", "'Event_Time' cannot be a column"),
        ("{Speed: key}", "columns.Speed: Speed is a column already (speed)"),
        ("{c: key, C: topic}", "columns.C: C is a column already (c)"),
        ("key", "columns: a mapping is wanted"),
    ],
)
def test_what_is_no_column(folder: Path, columns: str, says: str) -> None:
    assert says in mistake(folder, columns)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("arrival", EventTime(field=None)),
        ("{timestamp: create}", EventTime(field=None, of_producer=True)),
        ("{field: time, unit: ns}", EventTime(field="time", unit="ns")),
        ("{field: speed, unit: s}", EventTime(field="speed", unit="s")),
        ("{field: payload.ts_ms}", EventTime(field="payload.ts_ms")),
        ("{field: nanos}", EventTime(field="nanos", unit="ns")),
        ("{field: seen}", EventTime(field="seen", unit="us", is_text=True)),
        ("{field: said}", EventTime(field="said", unit="us", is_text=True)),
        (
            "{field: said, zone: Europe/Berlin}",
            EventTime(field="said", unit="us", is_text=True, zone="Europe/Berlin"),
        ),
        (
            "{field: local, zone: '+02:00'}",
            EventTime(field="local", unit="us", is_text=True, zone="+02:00"),
        ),
        ("{field: sent}", EventTime(field="sent", unit="us", is_text=True)),
        ("{field: k}", EventTime(field="k", unit="us", is_text=True)),
        ("{field: at, unit: s}", EventTime(field="at", unit="s")),
        ("{field: id.id, unit: us}", EventTime(field="id.id", unit="us")),
    ],
)
def test_an_event_time_is_any_time_of_the_record(
    folder: Path, time: str, expected: EventTime
) -> None:
    columns = "{sent: timestamp, k: key, at: offset, id: {key: key.avsc}}"
    assert loaded(folder, columns, time).sources["readings"].event_time == expected


@pytest.mark.parametrize(
    ("time", "says"),
    [
        ("{timestamp: arrival}", "event_time.timestamp: 'arrival' is not known"),
        ("{field: time, unit: iso}", "event_time.unit: 'iso' is not known"),
        ("{field: payload}", "payload is no time, but record: name a number, a timestamp or a"),
        ("{field: kind}", "kind is no time, but enum"),
        ("{field: day}", "day is no time, but time-millis"),
        ("{field: payload.ts_m}", "field payload has no field ts_m; did you mean 'ts_ms'?"),
        ("{field: payload.x}", "field payload has no field x; its times are ts_ms"),
        ("{field: time.x}", "field time has no field x; its times are none"),
        ("{field: nanos, unit: ns}", "nanos is a timestamp-nanos, which sets the unit"),
        ("{field: said, unit: ms}", "said is a text, which sets the unit"),
        ("{field: local}", "local is a local-timestamp-millis, which has no zone: add it"),
        ("{field: seen, zone: UTC}", "seen is a timestamp-millis, which is in UTC"),
        ("{field: time, zone: UTC}", "time is a long, which is in UTC"),
        ("{field: said, zone: Berlin}", "event_time.zone: 'Berlin' is no zone"),
        ("{field: said, zone: 2}", "event_time.zone: 2 is no zone"),
    ],
)
def test_what_is_no_event_time(folder: Path, time: str, says: str) -> None:
    assert says in mistake(folder, time=time)


ENVELOPE = (
    '{"type": "record", "name": "Envelope", "fields": [{"name": "after", "type": ["null",'
    ' {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}]},'
    ' {"name": "op", "type": "string"}]}'
)


def changes(folder: Path, row: str, cdc: str = "debezium", more: str = "", time: str = "") -> str:
    """Return the mistakes of a source of change events; empty if there are none."""
    (folder / "reading.avsc").write_text(row)
    text = FILE.replace("columns: COLUMNS", f"cdc: {cdc}{more}\n    columns: {{place: offset}}")
    text = text.replace("    event_time: TIME\n", time)
    (folder / "pipeline.yaml").write_text(text)
    try:
        source = load(folder / "pipeline.yaml").sources["readings"]
    except ConfigurationError as error:
        return str(error)
    assert source.cdc == "debezium"
    return ""


def test_change_events_bring_their_time(folder: Path) -> None:
    assert changes(folder, KEY) == ""
    source = load(folder / "pipeline.yaml").sources["readings"]
    assert source.event_time == EventTime(field="source.ts_ms")
    assert source.rows.arrow_schema().names == ["id", "op", "place"]
    assert [field.name for field in source.values.fields] == ["before", "after", "op", "source"]
    assert changes(folder, KEY, time="    event_time: {field: place}\n") == ""
    assert changes(folder, ENVELOPE, time="    event_time: arrival\n") == ""


@pytest.mark.parametrize(
    ("row", "cdc", "more", "says"),
    [
        (KEY, "maxwell", "", "cdc: 'maxwell' is not known"),
        (KEY, "debezium", "\n    extra_fields: reject", "extra_fields: works only without cdc"),
        (
            KEY,
            "debezium",
            "\n    format: avro",
            "record: reading is a row; in avro it must be the envelope",
        ),
        (
            KEY.replace('"id"', '"op"'),
            "debezium",
            "",
            "record: record reading: the row has a column op",
        ),
        (ENVELOPE, "debezium", "", "the envelope reading has no field source.ts_ms"),
        ("{", "debezium", "", "the schema is not JSON"),
    ],
)
def test_what_is_no_source_of_change_events(
    folder: Path, row: str, cdc: str, more: str, says: str
) -> None:
    (line,) = changes(folder, row, cdc, more).splitlines()
    assert says in line
