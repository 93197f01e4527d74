from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.codec import record_schema
from anabranch.codec.field_types import SCHEMA_DEPTH_MAX
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError
from harness.avro_schemas import (
    array_of,
    decimal_of,
    deep,
    enum_of,
    field,
    fixed_of,
    logical,
    map_of,
    of,
    record_of,
    struct,
    text,
)


def wide(count: int) -> object:
    return struct(*(field(f"f{n}", "int") for n in range(count)))


def test_fields_become_columns() -> None:
    schema = record_schema.parse(
        text(
            field("a", "int"),
            field("b", ["null", "long"], default=None),
            field("c", ["float", "null"]),
            field("d", logical("timestamp-millis")),
            field("e", "double", default=1),
            field("f", "boolean"),
            field("g", "string"),
            field("h", "bytes", default="\u00ff"),
            doc="x",
            namespace="n",
            schema_id=7,
        ),
        "rec",
        3,
    )
    assert (schema.name, schema.version, schema.schema_id) == ("rec", 3, 7)
    assert schema.arrow_schema() == pa.schema(
        [
            pa.field("a", pa.int32(), nullable=False),
            pa.field("b", pa.int64()),
            pa.field("c", pa.float32()),
            pa.field("d", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("e", pa.float64(), nullable=False),
            pa.field("f", pa.bool_(), nullable=False),
            pa.field("g", pa.string(), nullable=False),
            pa.field("h", pa.binary(), nullable=False),
        ]
    )
    assert [(f.name, f.default) for f in schema.fields if f.has_default] == [
        ("b", None),
        ("e", 1.0),
        ("h", b"\xff"),
    ]
    assert schema.field("c") is schema.fields[2]
    assert schema.field("z") is None


def test_without_an_id_of_its_own_a_version_is_its_id() -> None:
    assert record_schema.parse(text(of("int")), "r", 5).schema_id == 5


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "is not JSON"),
        ("[" * 50_000, "is not JSON"),
        ("7", "must be {"),
        ('{"type": "enum"}', "must be {"),
        ('{"type": "record", "name": "r"}', "must be {"),
        (" " * (limits.SCHEMA_BYTES_MAX + 1), "is larger than"),
        (text(), "has no fields"),
        (text(of("int"), name="a b"), "its name 'a b'"),
        (text(of("int"), colour=1), "unknown key 'colour'"),
        (text(of("int"), schema_id="x"), "schema_id 'x'"),
        (text(of("int"), schema_id=2**32), "schema_id"),
        (text(of("int"), schema_id=True), "schema_id"),
        (
            text(*(field(f"f{n}", "int") for n in range(limits.RECORD_FIELDS_MAX + 1))),
            "it has more than 500 fields",
        ),
        (text(7), "'7' is not a field"),
        (text(field("a b", "int")), "'a b' is not a field"),
        (text(of("int"), of("int")), "field a is there twice"),
        (text(of("int"), of("int", name="A")), "field A and a differ by case alone"),
        (text(of(struct(of("int"), of("int", name="A")))), "field a.A and a differ by case alone"),
        (text(of("int"), of("int", name="b", alias="a")), "field b has the same name in JSON as a"),
        (text(of("int", alias="")), "field a: alias '' is no text"),
        (text(of("int", alias=[])), "field a: alias '[]' is no text"),
        (
            text(field("event_time", "long")),
            "field event_time: 'event_time' is a column that anabranch adds",
        ),
        (text(field("Event_Time", "long")), "field Event_Time"),
        (text(of("int", colour=1)), "field a: unknown key 'colour'"),
        (text(of("date")), 'type "date" is not supported'),
        (text(of(None)), "not supported"),
        (text(of({"type": "array"})), "field a[]: type null is not supported"),
        (text(of(map_of("enum"))), 'field a[]: type "enum" is not supported'),
        (text(of(array_of([["int"], "long"]))), "not supported"),
        (text(of({"type": "enum", "name": "e"})), "an enum has symbols"),
        (text(of(enum_of("e", "A", default="B"))), "a default that"),
        (text(of({"type": "enum", "symbols": ["A"]})), "not supported"),
        (text(of({"type": "fixed", "name": "f"})), "a fixed has a size from 1"),
        (text(of(fixed_of("f", 2**21))), "a fixed has a size from 1"),
        (text(of([fixed_of(n, 2) for n in ("F", "f")])), "the same name"),
        (text(of(["int", "date"])), "not supported"),
        (text(of(["null", "null", "int"])), "not supported"),
        (text(of(["null"])), "not supported"),
        (text(of(deep(SCHEMA_DEPTH_MAX, ["int", "string"]))), "nested deeper than 8"),
        (text(of(deep(SCHEMA_DEPTH_MAX + 1))), "nested deeper than 8"),
        (text(of(wide(limits.RECORD_FIELDS_MAX))), "it has more than 500 fields"),
        (text(of(struct(field("b", "date")))), 'field a.b: type "date"'),
        (text(of(struct(of("int"), of("int")))), "field a.a is there twice"),
        (text(of(struct(of("int"), name=None))), "has no name"),
        (text(of(struct(of("int")), default={"a": "x"})), "not a value of type record"),
        (text(of(struct(of("int")), default={"b": 1})), "not a value of type record"),
        (text(of(struct(of("int")), default={})), "not a value of type record"),
        (text(of(array_of("int"), default=["x"])), "of type array"),
        (text(of(array_of("int"), default={})), "of type array"),
        (text(of(enum_of("e", "A"), default="B")), "of type enum"),
        (text(of(fixed_of("f", 2), default="B")), "of type fixed"),
        (text(of(["int", "string"], default="B")), "of type union"),
        (text(of(decimal_of(0, 0))), "a precision from 1 to 38"),
        (text(of(decimal_of(39, 0))), "a precision from 1 to 38"),
        (text(of(decimal_of(4, 5))), "a scale from 0 to the precision"),
        (text(of(decimal_of(4, 2, "fixed", name="f", size=1))), "4 digits do not fit a fixed"),
        (text(of(decimal_of(4, 2, "string"))), "not supported"),
        (text(of(decimal_of(4, 2), default="\u7fff")), "not a value of type decimal(4, 2)"),
        (text(of(decimal_of(2, 2), default="\u007f")), "not a value of type decimal(2, 2)"),
        (
            text(of(decimal_of(2, 2, "fixed", name="f", size=2), default="\u0001")),
            "not a value of type decimal(2, 2)",
        ),
        (text(of(logical("date", "int"), default=10**7)), "not a value of type date"),
        (text(of(logical("uuid", "string"), default="x")), "not a value of type uuid"),
        (text(of(["null", ["null", "int"]])), "not supported"),
        (text(of(["null", "r"])), "a recursive record cannot become columns"),
        (text(of(record_of(name="x"))), "or no fields"),
        (text(of("int", default="x")), "default 'x' is not a value of type int"),
        (text(of("int", default=2**31)), "default"),
        (text(of("int", default=True)), "default"),
        (text(of("int", default=1.5)), "default"),
        (text(of("float", default=1e300)), "default"),
        (text(of("boolean", default=1)), "default"),
        (text(of("string", default=None)), "default"),
        (text(of("bytes", default="\u0100")), "default"),
        (text(of(["null", "int"], default=1)), "default 1 is not a value of type null"),
    ],
)
def test_a_schema_that_cannot_be_carried_is_rejected(schema: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        record_schema.parse(schema, "rec")
    assert says in str(caught.value)
    assert str(caught.value).startswith("record rec: ")


def test_all_mistakes_are_reported() -> None:
    with pytest.raises(ConfigurationError) as caught:
        record_schema.parse(text(of("date"), of("int", default="x"), name=7), "r")
    assert len(str(caught.value).splitlines()) == 3


def test_a_union_with_null_behind_has_a_default_of_its_kind() -> None:
    schema = record_schema.parse(text(of(["boolean", "null"], default=True)), "r")
    assert (schema.fields[0].nullable, schema.fields[0].default) == (True, True)


def test_a_folder_has_dense_versions(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"v{number}.avsc").write_text(text(of("int", doc=str(number))))
    newest = record_schema.load_folder(tmp_path)
    assert (newest.version, [older.version for older in newest.older]) == (3, [1, 2])
    assert record_schema.load_folder(tmp_path, 2).version == 2
    with pytest.raises(ConfigurationError, match="no version 4"):
        record_schema.load_folder(tmp_path, 4)
    (tmp_path / "v2.avsc").unlink()
    with pytest.raises(ConfigurationError, match="without a gap"):
        record_schema.load_folder(tmp_path)
    (tmp_path / "v01.avsc").write_text("")
    with pytest.raises(ConfigurationError, match="belong here"):
        record_schema.load_folder(tmp_path)


def test_an_empty_folder_has_no_versions(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="without a gap"):
        record_schema.load_folder(tmp_path)


def test_versions_have_ids_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "v1.avsc").write_text(text(of("int"), schema_id=9))
    (tmp_path / "v2.avsc").write_text(text(of("int"), schema_id=9))
    with pytest.raises(ConfigurationError, match="same schema_id"):
        record_schema.load_folder(tmp_path)


def test_a_file_is_named_in_each_mistake(tmp_path: Path) -> None:
    path = tmp_path / "r.avsc"
    path.write_text(text(of("date"), of("time")))
    with pytest.raises(ConfigurationError) as caught:
        record_schema.load_file(path)
    assert [line.startswith(str(path)) for line in str(caught.value).splitlines()] == [True, True]
    with pytest.raises(ConfigurationError, match="cannot be read"):
        record_schema.load_file(tmp_path / "none.avsc")


def test_attributes_of_other_programs_are_ignored() -> None:
    connect = {"connect.name": "server.inventory.customers.Value", "connect.version": 1}
    field = of({"type": "long", **connect, "connect.default": 0}, **{"java-class": "x"}, **connect)
    schema = record_schema.parse(text(field, **connect), "r")
    assert [each.kind for each in schema.fields] == ["long"]
