"""The client of schema registries, against one that speaks the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.adapters.schema_registry import ConfluentRegistry
from anabranch.protocol.errors import ConfigurationError, Unavailable
from harness.registries import RegistryServer

SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as made:
        yield made


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.adapters.schema_registry._WAIT_MS", 1)


def test_a_schema_is_found_by_its_id(server: RegistryServer) -> None:
    known = server.add(SCHEMA)
    registry = ConfluentRegistry(server.url)
    assert json.loads(registry.schema(known)) == SCHEMA
    with pytest.raises(ConfigurationError, match="Schema not found"):
        registry.schema(99)


def test_what_does_not_stand_for_itself_is_no_schema(server: RegistryServer) -> None:
    registry = ConfluentRegistry(server.url)
    other = server.add({"type": "object"}, schemaType="JSON")
    with pytest.raises(ConfigurationError, match="as JSON, not as Avro"):
        registry.schema(other)
    parts = [{"name": "x", "subject": "x", "version": 1}]
    with pytest.raises(ConfigurationError, match="refers to other schemas"):
        registry.schema(server.add(SCHEMA, references=parts))


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
        ConfluentRegistry(server.url).schema(1)
    assert len(server.requests) == 3, "asked again before it is given up"


def test_nobody_answers(server: RegistryServer) -> None:
    url = server.url
    server.close()
    with pytest.raises(Unavailable, match=f"schema registry {url}: no answer"):
        ConfluentRegistry(url).schema(1)


def test_user_and_password_come_from_the_environment(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.user = "me:so:secret"
    known = server.add(SCHEMA)
    with pytest.raises(Unavailable, match="ANABRANCH_SCHEMA_REGISTRY_USERNAME"):
        ConfluentRegistry(server.url).schema(known)
    secret = tmp_path / "password"
    secret.write_text("so:secret\n")
    secret.chmod(0o600)
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_USERNAME", "me")
    with pytest.raises(ConfigurationError, match="belong together"):
        ConfluentRegistry(server.url)
    monkeypatch.setenv("ANABRANCH_SCHEMA_REGISTRY_PASSWORD_FILE", str(secret))
    assert json.loads(ConfluentRegistry(server.url).schema(known)) == SCHEMA
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
