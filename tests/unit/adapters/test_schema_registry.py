"""The client of schema registries, against one that speaks the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.schema_registry import ConfluentRegistry
from anabranch.codec.writer_schema import REFERENCES_MAX, SchemaKey
from anabranch.protocol.errors import ConfigurationError, Unavailable, UnknownSchema
from harness.registries import RegistryServer

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as made:
        yield made


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.adapters.schema_registry._WAIT_MS", 1)


def avro(registry: ConfluentRegistry, key: SchemaKey) -> Any:
    """Return the Avro schema under ``key``, which refers to no other."""
    (part,) = registry.schema(key, "AVRO").parts
    return json.loads(part.content)


def test_a_schema_is_found_by_its_id_and_its_guid(server: RegistryServer) -> None:
    known = server.add(SCHEMA)
    registry = ConfluentRegistry(server.url)
    assert avro(registry, known) == avro(registry, server.guid(known)) == SCHEMA
    for unknown in (99, server.guid(99)):
        with pytest.raises(UnknownSchema, match="Schema not found"):
            registry.schema(unknown, "AVRO")
    server.has_guids = False
    with pytest.raises(UnknownSchema, match="404 Not Found"):
        registry.schema(server.guid(98), "AVRO")


def test_an_id_that_no_registry_gives_is_not_asked_for(server: RegistryServer) -> None:
    with pytest.raises(UnknownSchema, match="end at 2147483647"):
        ConfluentRegistry(server.url).schema(2**31, "AVRO")
    assert server.requests == []


def test_a_schema_of_another_kind_is_none(server: RegistryServer) -> None:
    other = server.add({"type": "object"}, schemaType="JSON")
    with pytest.raises(ConfigurationError, match="as JSON, not as AVRO"):
        ConfluentRegistry(server.url).schema(other, "AVRO")


def refers(*names: str) -> list[dict[str, object]]:
    return [{"name": name, "subject": f"{name}-value", "version": 1} for name in names]


def test_what_a_schema_refers_to_comes_before_it_and_once(server: RegistryServer) -> None:
    server.add({**SCHEMA, "name": "bottom"}, "bottom-value")
    for name in ("left", "right"):
        server.add({**SCHEMA, "name": name}, f"{name}-value", references=refers("bottom"))
    known = server.add(SCHEMA, references=refers("left", "right"))
    found = ConfluentRegistry(server.url).schema(known, "AVRO").parts
    assert [part.name for part in found] == ["bottom", "left", "right", ""]
    assert [json.loads(part.content)["name"] for part in found] == ["bottom", "left", "right", "r"]
    assert len(server.requests) == 4
    assert all("deleted=true" in each.lower() for each in server.requests[1:])


def test_what_a_schema_refers_to_may_be_missing_or_too_much(server: RegistryServer) -> None:
    registry = ConfluentRegistry(server.url)
    known = server.add(SCHEMA, references=refers("nowhere"))
    with pytest.raises(UnknownSchema, match=r"version 1 of nowhere-value: .*Version not found"):
        registry.schema(known, "AVRO")
    names = [f"n{number}" for number in range(REFERENCES_MAX + 1)]
    for name in names:
        server.add({**SCHEMA, "name": name}, f"{name}-value")
    with pytest.raises(ConfigurationError, match=f"more than {REFERENCES_MAX}"):
        registry.schema(server.add(SCHEMA, references=refers(*names)), "AVRO")


def test_schemas_that_refer_to_each_other_in_a_circle_end(server: RegistryServer) -> None:
    server.add({**SCHEMA, "name": "a"}, "a-value", references=refers("b"))
    server.add({**SCHEMA, "name": "b"}, "b-value", references=refers("a"))
    found = ConfluentRegistry(server.url).schema(1, "AVRO").parts
    assert [part.name for part in found] == ["a", "b", ""]


def test_the_same_schema_has_the_same_id(server: RegistryServer) -> None:
    first = ConfluentRegistry(server.url).register("out-value", json.dumps(SCHEMA))
    second = ConfluentRegistry(server.url).register("out-value", json.dumps(SCHEMA))
    assert first == second == 1
    assert server.subjects == {"out-value": [1]}


def test_a_schema_that_is_rejected_is_a_mistake(server: RegistryServer) -> None:
    server.rejects.add("out-value")
    with pytest.raises(ConfigurationError, match="Incompatible schema"):
        ConfluentRegistry(server.url).register("out-value", json.dumps(SCHEMA))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_in_trouble_is_unavailable(server: RegistryServer, status: int) -> None:
    server.status = status
    with pytest.raises(Unavailable, match="as the test wants it"):
        ConfluentRegistry(server.url).schema(1, "AVRO")
    assert len(server.requests) == 3, "asked again before it is given up"


def test_nobody_answers(server: RegistryServer) -> None:
    url = server.url
    server.close()
    with pytest.raises(Unavailable, match=f"schema registry {url}: no answer"):
        ConfluentRegistry(url).schema(1, "AVRO")


def test_user_and_password_come_from_the_environment(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.user = "me:so:secret"
    known = server.add(SCHEMA)
    with pytest.raises(Unavailable, match="ANABRANCH_SCHEMA_REGISTRY_USERNAME"):
        ConfluentRegistry(server.url).schema(known, "AVRO")
    secret = tmp_path / "password"
    secret.write_text("so:secret\n")
    secret.chmod(0o600)
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_USERNAME", "me")
    with pytest.raises(ConfigurationError, match="belong together"):
        ConfluentRegistry(server.url)
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_PASSWORD_FILE", str(secret))
    assert avro(ConfluentRegistry(server.url), known) == SCHEMA
    with pytest.raises(ConfigurationError, match="would be sent without TLS"):
        ConfluentRegistry("http://registry:8081")


def test_a_file_of_authorities_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_TLS_CA", "/nowhere/ca.pem")
    with pytest.raises(ConfigurationError, match="ANABRANCH_SCHEMA_REGISTRY_TLS_CA"):
        ConfluentRegistry("https://localhost:1")


def test_a_file_of_authorities_that_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_TLS_CA", str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigurationError, match="https://localhost:1"):
        ConfluentRegistry("https://localhost:1")


@pytest.mark.parametrize(
    "body", [b"<html>a proxy</html>", b"[]", b'"text"', b"null", b"\xff", b'{"references": 5}']
)
def test_an_answer_of_another_server_is_none(server: RegistryServer, body: bytes) -> None:
    known = server.add(SCHEMA)
    server.body = body
    with pytest.raises(Unavailable, match=r"is the URL right|no answer"):
        ConfluentRegistry(server.url).schema(known, "AVRO")


def test_a_path_of_another_server_lacks_no_schema(server: RegistryServer) -> None:
    """Records are not rejected for it."""
    with pytest.raises(Unavailable, match=r"404.*is the URL right"):
        ConfluentRegistry(f"{server.url}/apis").schema(1, "AVRO")


def test_a_registry_that_does_not_answer_in_time_is_unavailable(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.adapters.schema_registry._TIMEOUT_S", 0.05)
    server.awake.clear()
    with pytest.raises(Unavailable, match=r"no answer \(ReadTimeout"):
        ConfluentRegistry(server.url).schema(1, "AVRO")


def secret_file(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_token_is_read_for_each_request(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.token = "first"
    known, other = server.add(SCHEMA), server.add({**SCHEMA, "name": "other"})
    file = secret_file(tmp_path / "token", "first\n")
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_TOKEN_FILE", str(file))
    registry = ConfluentRegistry(server.url)
    assert avro(registry, known) == SCHEMA
    server.token = "second"
    with pytest.raises(Unavailable, match="ANABRANCH_SCHEMA_REGISTRY_TOKEN_FILE") as caught:
        registry.schema(other, "AVRO")
    assert "first" not in str(caught.value)
    file.write_text("second")
    assert avro(registry, other)["name"] == "other"
    file.unlink()
    with pytest.raises(Unavailable, match=r"TOKEN_FILE: .* cannot be read"):
        registry.schema(99, "AVRO")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ConfluentRegistry(server.url)


def test_a_token_goes_nowhere_without_tls_or_beside_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_TOKEN", "secret-token")
    with pytest.raises(ConfigurationError, match="TOKEN would be sent without TLS") as caught:
        ConfluentRegistry("http://registry:8081")
    assert "secret-token" not in str(caught.value)
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_USERNAME", "me")
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_PASSWORD", "secret-password")
    with pytest.raises(ConfigurationError, match="are both set: give one") as caught:
        ConfluentRegistry("https://registry:8081")
    assert "secret" not in str(caught.value)


def test_a_client_has_both_certificate_and_key_or_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate, key = secret_file(tmp_path / "c.pem", "x"), secret_file(tmp_path / "k.pem", "x")
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_TLS_CERTIFICATE", str(certificate))
    with pytest.raises(ConfigurationError, match=r"TLS_CERTIFICATE and .*TLS_KEY belong together"):
        ConfluentRegistry("https://localhost:1")
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_TLS_KEY", str(key))
    key.chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"TLS_KEY: .*is open to others"):
        ConfluentRegistry("https://localhost:1")
    key.chmod(0o600)
    with pytest.raises(ConfigurationError, match=r"https://localhost:1: .*PEM"):
        ConfluentRegistry("https://localhost:1")


def test_a_protobuf_schema_comes_as_descriptors_with_all_that_it_imports(
    server: RegistryServer,
) -> None:
    road = 'syntax = "proto3"; package acme; message Road { string name = 1; }'
    server.add(road, "road", schemaType="PROTOBUF")
    report = 'syntax = "proto3"; import "road.proto"; import "google/protobuf/timestamp.proto";'
    report += " message Report { acme.Road road = 1; google.protobuf.Timestamp at = 2; }"
    references = [{"name": "road.proto", "subject": "road", "version": 1}]
    known = server.add(report, schemaType="PROTOBUF", references=references)
    found = ConfluentRegistry(server.url).schema(known, "PROTOBUF").parts
    assert [part.name for part in found] == [
        "google/protobuf/timestamp.proto",
        "road.proto",
        "schema.proto",
    ]
    assert all("format=serialized" in each for each in server.requests)
    broken = server.add(report, schemaType="PROTOBUF")
    with pytest.raises(ConfigurationError, match=r"it is no Protobuf schema: .*road\.proto"):
        ConfluentRegistry(server.url).schema(broken, "PROTOBUF")
    server.add("message", "road", schemaType="PROTOBUF")
    references[0]["version"] = 2
    worse = server.add(report + " ", schemaType="PROTOBUF", references=references)
    with pytest.raises(ConfigurationError, match=r"road\.proto: it is no Protobuf schema"):
        ConfluentRegistry(server.url).schema(worse, "PROTOBUF")
