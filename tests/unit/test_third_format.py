"""A format that the table has only here, through all that ask it: the pipeline file, its check,
ingestion, delivery and ``anabranch produce``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.formats import FORMATS
from anabranch.codec.framing import Register, SchemaOf
from anabranch.codec.guards import Rejected
from anabranch.codec.json_records import ExtraFields, JsonDecoder
from anabranch.codec.record_schema import RecordSchema
from anabranch.operating.check import sink_mistakes
from anabranch.operating.produce import Lines
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, RecordRejected, RejectionReason
from harness import outputs, sources

READING = (
    '{"type": "record", "name": "reading", "fields": [{"name": "time", "type": "long"}, {"name":'
    ' "car", "type": "long"}, {"name": "road", "type": "string"}]}'
)
PIPELINE = """\
pipeline: p
bucket: 100ms
sources:
  reports:
    topics: [p.reports]
    record: reading.avsc
    format: csv
    event_time: {field: time, unit: ms}
    bounded: true
    max_ahead: unlimited
stages:
  totals: {reads: reports, sql: SELECT * FROM reports}
outputs:
  out: {stage: totals, corrected: {topic: p.out, format: csv, key: [car]}}
"""


class CsvCodec:
    """Lines of texts and whole numbers, without quotes."""

    def __init__(self, columns: pa.Schema) -> None:
        if any(pa.types.is_nested(column.type) for column in columns):
            raise ConfigurationError("nested columns cannot become CSV")
        self._columns = columns

    def decode(self, values: Sequence[bytes], /) -> tuple[pa.Table, Rejected]:
        rows, rejected = [], []
        for index, value in enumerate(values):
            try:
                cells = value.decode().split(",")
                rows.append(
                    {
                        column.name: int(cell) if pa.types.is_integer(column.type) else cell
                        for column, cell in zip(self._columns, cells, strict=True)
                    }
                )
            except ValueError as error:
                rejected.append((index, RecordRejected(RejectionReason.WRONG_TYPE, str(error))))
        return pa.Table.from_pylist(rows, schema=self._columns), rejected

    def encode(self, table: pa.Table, /) -> list[bytes]:
        columns = [table.column(name).to_pylist() for name in self._columns.names]
        return [",".join(map(str, row)).encode() for row in zip(*columns, strict=True)]


class CsvFormat:
    has_extra_fields = False
    schema_kind = None
    is_written = True
    needs_registry = False

    def decoder(
        self, record: RecordSchema, _: ExtraFields, _schema_of: SchemaOf | None, /
    ) -> CsvCodec:
        return CsvCodec(record.arrow_schema())

    def encoder(self, columns: pa.Schema, _name: str, _: Register | None, /) -> CsvCodec:
        return CsvCodec(columns)

    def from_json(
        self, record: RecordSchema, _: Register | None, /
    ) -> Callable[[Sequence[bytes]], list[bytes]]:
        decode, encode = JsonDecoder(record).decode, CsvCodec(record.arrow_schema()).encode
        return lambda texts: encode(decode(texts)[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(FORMATS, "csv", CsvFormat())
    (tmp_path / "reading.avsc").write_text(READING)
    return tmp_path


def loaded(folder: Path, text: str = PIPELINE) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return load(path)


def test_the_pipeline_file_and_its_check_ask_the_table(folder: Path) -> None:
    pipeline = loaded(folder)
    assert pipeline.sources["reports"].format == pipeline.outputs["out"].corrected.format == "csv"
    with pytest.raises(ConfigurationError, match=r"format: 'tsv' is not known; did you mean 'csv'"):
        loaded(folder, PIPELINE.replace("format: csv\n", "format: tsv\n"))
    nested = pa.schema([("car", pa.int64()), ("seen", pa.list_(pa.int64()))])
    (found,) = sink_mistakes(pipeline, {"totals": nested})
    assert found.endswith("output out.corrected: nested columns cannot become CSV")
    with pytest.raises(
        ConfigurationError,
        match="works only with format json, json_schema; in csv a record has just its schema's",
    ):
        loaded(folder, PIPELINE.replace("format: csv\n", "format: csv\n    extra_fields: reject\n"))


def test_ingestion_reads_what_produce_makes(folder: Path) -> None:
    pipeline = loaded(folder)
    clock = VirtualClock()
    log = LocalEventLog(clock)
    sources.create_topics(log, pipeline)
    rows = [b'{"time":%d,"car":%d,"road":"I-95"}' % (1_000 + car, car) for car in range(1, 4)]
    values = [value for _, value in Lines(pipeline.sources["reports"]).records(rows)]
    assert values[0] == b"1001,1,I-95"
    writer = log.writer()
    for value in [*values, b"no time,4,I-95", b"1005,5"]:
        writer.send(TopicPartition("p.reports", 0), value)
    writer.flush()
    process = sources.service(log, pipeline, clock, SeededEntropy(1))
    process.start()
    view = sources.StreamView(log, pipeline, clock)
    for _ in range(1_000):
        process.step()
        if view.closed() >= 11:
            break
    process.stop()
    assert view.cars() == [1, 2, 3]
    dead = [dict(h) for c in sources.everything(log, "p.reports.rejected") for h in c.headers]
    assert [headers["anabranch-reason"] for headers in dead] == [b"wrong_type"] * 2
    writer.close()
    view.close()


def test_delivery_writes_it(folder: Path) -> None:
    pipeline = loaded(folder)
    clock, entropy = VirtualClock(), SeededEntropy(1)
    log = LocalEventLog(clock)
    outputs.create_topics(log, pipeline)
    rows = outputs.rows(1, 3).select(["event_time", "car", "road"])
    outputs.Replica(log, pipeline, clock, entropy).close_buckets(1, {1: rows})
    process = outputs.service(log, pipeline, clock, entropy)
    process.start()
    for _ in range(5):
        process.step()
    process.stop()
    chunks = sources.everything(log, "p.out", pipeline.partitions)
    assert sorted((k, v) for c in chunks for k, v in zip(c.keys, c.values, strict=True)) == [
        (b'{"car":0}', b"0,I-0 north"),
        (b'{"car":1}', b"1,I-1 north"),
        (b'{"car":2}', b"2,I-2 north"),
    ]
