"""Protobuf schemas in the forms in which registries have them."""

from __future__ import annotations

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from anabranch.adapters import protobuf_files
from anabranch.adapters.protobuf_files import file_of, with_built_in
from anabranch.codec.writer_schema import SchemaDocument
from anabranch.protocol.errors import ConfigurationError, Unavailable

ROAD = 'syntax = "proto3"; package acme; message Road { string name = 1; }'
REPORT = """syntax = "proto3";
package acme;
import "road.proto";
import "google/protobuf/timestamp.proto";
import "google/type/money.proto";
import 'confluent/meta.proto';
message Report {
  Road road = 1;
  google.protobuf.Timestamp at = 2;
  google.type.Money toll = 3 [(confluent.field_meta) = {doc: "toll"}];
}
"""


def found(part: SchemaDocument) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(part.content)


def test_text_is_compiled_with_what_it_imports() -> None:
    road = file_of("road.proto", ROAD, [])
    report = file_of("report.proto", REPORT, [road])
    assert (found(road).name, found(report).name) == ("road.proto", "report.proto")
    fields = {field.name: field.type_name for field in found(report).message_type[0].field}
    assert fields == {
        "road": ".acme.Road",
        "at": ".google.protobuf.Timestamp",
        "toll": ".google.type.Money",
    }


def test_a_descriptor_in_base64_is_taken_as_it_is() -> None:
    road = file_of("road.proto", ROAD, [])
    text = base64.b64encode(road.content).decode()
    assert file_of("other/name.proto", text, []).content != road.content
    assert file_of("road.proto", text, []) == road


def test_built_in_files_come_first_and_each_after_its_own_imports() -> None:
    road = file_of("road.proto", ROAD, [])
    report = file_of("report.proto", REPORT, [road])
    names = [part.name for part in with_built_in([road, report])]
    assert names[-2:] == ["road.proto", "report.proto"]
    assert names.index("google/protobuf/descriptor.proto") < names.index("confluent/meta.proto")
    assert {"google/protobuf/timestamp.proto", "google/type/money.proto"} < set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("message", "it is no Protobuf schema: line 1:"),
        ('syntax = "proto3"; message A { Missing b = 1; }', '"Missing" is not defined'),
        ('syntax = "proto3"; import "google/protobuf/nothing.proto";', "nothing.proto"),
        ('syntax = "proto3"; import "../../../etc/passwd";', "passwd"),
        ('syntax = "proto3"; import "/etc/passwd";', "passwd"),
    ],
)
def test_text_that_is_no_schema_is_a_mistake_in_the_compilers_words(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        file_of("../../etc/x.proto", text, [])
    assert says in str(caught.value)


def test_a_compiler_that_does_not_end_says_nothing_about_the_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protobuf_files, "_COMPILE_S", 0.001)
    with pytest.raises(Unavailable, match="did not end within"):
        file_of("road.proto", ROAD, [])
