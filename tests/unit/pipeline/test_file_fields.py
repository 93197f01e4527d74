"""Keys of a pipeline file that concern the fields of a source's records."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.errors import ConfigurationError

RECORD = (
    '{"type": "record", "name": "reading", "fields": [{"name": "time", "type": "long"},'
    ' {"name": "vid", "type": "int"}, {"name": "speed", "type": "double"}]}'
)
JSON = """\
pipeline: p
sources:
  readings:
    topics: readings
    record: reading.avsc
    format: json
    event_time: arrival
stages:
  a: {reads: readings, transform: stages:chain}
outputs:
  out: {stage: a, corrected: {topic: t}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reading.avsc").write_text(RECORD)
    (tmp_path / "stages.py").write_text("def chain(readings): return readings\n")
    return tmp_path


def loaded(folder: Path, text: str) -> Pipeline:
    (folder / "pipeline.yaml").write_text(text)
    return load(folder / "pipeline.yaml")


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, text)
    return str(caught.value).splitlines()


def test_fields_that_the_record_has_not_are_left_out_or_rejected(folder: Path) -> None:
    rejecting = JSON.replace("    format:", "    extra_fields: reject\n    format:")
    assert loaded(folder, JSON).sources["readings"].extra_fields == "ignore"
    assert loaded(folder, rejecting).sources["readings"].extra_fields == "reject"
    (wrong,) = mistakes(folder, rejecting.replace("extra_fields: reject", "extra_fields: keep"))
    assert "sources.readings.extra_fields: 'keep' is not known" in wrong
    (wrong,) = mistakes(
        folder, rejecting.replace("format: json\n    event", "format: avro\n    event")
    )
    assert "sources.readings.extra_fields: works only with format json" in wrong


@pytest.mark.parametrize("kind", ["timestamp-millis", "timestamp-micros"])
def test_a_timestamp_is_an_event_time_without_a_unit(folder: Path, kind: str) -> None:
    typed = f'{{"type": "long", "logicalType": "{kind}"}}'
    (folder / "reading.avsc").write_text(RECORD.replace('"long"', typed, 1))
    good = JSON.replace("event_time: arrival", "event_time: {field: time}")
    found = loaded(folder, good).sources["readings"].event_time
    assert (found.field, found.unit, found.is_text) == ("time", "us", True)
    (wrong,) = mistakes(folder, good.replace("{field: time}", "{field: time, unit: ms}"))
    assert f"event_time.unit: time is a {kind}, which sets the unit; leave it out" in wrong


def test_a_field_of_the_reserved_name_is_one_mistake(folder: Path) -> None:
    (folder / "reading.avsc").write_text(RECORD.replace('"time"', '"event_time"'))
    for time in ("arrival", "{field: event_time}"):
        (wrong,) = mistakes(folder, JSON.replace("event_time: arrival", f"event_time: {time}"))
        assert "field event_time: 'event_time' is a column that anabranch adds" in wrong


def test_a_schema_registry_has_a_url(folder: Path) -> None:
    named = "schema_registry: http://registry:8081\n" + JSON
    assert loaded(folder, named).schema_registry == "http://registry:8081"
    assert loaded(folder, JSON).schema_registry is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("7", "write the URL of a schema registry"),
        ("ftp://registry", "write the URL of a schema registry"),
        ("http://registry?a=b", "write the URL of a schema registry"),
        ("http://me:secret@registry", "ANABRANCH_SCHEMA_REGISTRY_PASSWORD_FILE"),
    ],
)
def test_what_is_no_url_of_a_registry(folder: Path, value: str, says: str) -> None:
    (wrong,) = mistakes(folder, f"schema_registry: {value}\n" + JSON)
    assert ":1: schema_registry: " in wrong
    assert says in wrong
    assert "secret" not in wrong


@pytest.mark.parametrize("form", ["json_schema", "protobuf"])
def test_a_format_with_schemas_of_a_registry_needs_one_and_is_only_read(
    folder: Path, form: str
) -> None:
    text = JSON.replace("    format: json", f"    format: {form}")
    line = text.splitlines().index(f"    format: {form}") + 1
    (wrong,) = mistakes(folder, text)
    assert f":{line}: sources.readings.format: format {form} needs the registry" in wrong
    named = "schema_registry: http://registry:8081\n" + text
    assert loaded(folder, named).sources["readings"].format == form
    written = JSON.replace("corrected: {", f"corrected: {{format: {form}, ")
    assert written != JSON
    (wrong,) = mistakes(folder, written)
    assert f"corrected.format: format {form} is only for sources; use json, avro" in wrong


def test_a_key_of_such_a_format_needs_a_registry_too(folder: Path) -> None:
    key = "    columns: {k: {key: reading.avsc, format: protobuf}}\n    format: json"
    text = JSON.replace("    format: json", key)
    (wrong,) = mistakes(folder, text)
    assert "sources.readings.columns.k.format: format protobuf needs the registry" in wrong
    named = "schema_registry: http://registry:8081\n" + text
    assert loaded(folder, named).sources["readings"].columns[0].format == "protobuf"


def test_keys_have_a_format_and_schemas_have_subjects(folder: Path) -> None:
    sinks = "corrected: {topic: t, key: [vid], key_format: avro, subject: record}, live: {topic: l}"
    text = JSON.replace("corrected: {topic: t}", sinks)
    assert text != JSON
    output = loaded(folder, "schema_registry: http://registry:8081\n" + text).outputs["out"]
    assert (output.corrected.key_format, output.corrected.subject) == ("avro", "record")
    assert output.live is not None
    assert (output.live.key, output.live.key_format, output.live.subject) == (
        ["vid"],
        "avro",
        "topic",
    )
    (wrong,) = mistakes(folder, text)
    assert "outputs.out.corrected.subject: names schemas in a registry" in wrong
    for other in ("key: [vid]", "key_format: json"):
        own = text.replace("live: {topic: l", f"live: {{topic: l, {other}")
        output = loaded(folder, "schema_registry: http://registry:8081\n" + own).outputs["out"]
        assert output.live is not None
        assert output.live.key_format == "json"


def test_a_format_of_no_key_is_a_mistake(folder: Path) -> None:
    text = JSON.replace("corrected: {topic: t}", "corrected: {topic: t, key_format: avro}")
    (wrong,) = mistakes(folder, text)
    assert "outputs.out.corrected.key_format: there is no key" in wrong
    text = JSON.replace("{topic: t}", "{topic: t, key: [vid], key_format: protobuf}")
    (wrong,) = mistakes(folder, text)
    assert "corrected.key_format: format protobuf is only for sources" in wrong
    text = JSON.replace("{topic: t}", "{topic: t, subject: topics}")
    assert "subject: 'topics' is not known" in mistakes(folder, text)[0]
