"""``anabranch catalog``, and the commands that look up bindings in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.pipeline.kept_bindings import kept_path
from anabranch.protocol.errors import ConfigurationError
from harness import catalogs
from unit.federation.test_binding_lookup import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr("anabranch.adapters.kafka.log.KafkaEventLog", lambda _: made.log)
    monkeypatch.setattr("anabranch.adapters.system.clock.SystemClock", lambda: made.clock)
    monkeypatch.delenv("ANABRANCH_KAFKA", raising=False)
    return made


def do(world: World, *words: str) -> str:
    """Return what the command prints.

    Raises:
        ConfigurationError: that it ended with.
    """
    result = CliRunner().invoke(
        app, [words[0], "-f", str(world.path), "--kafka", "none:1", *words[1:]]
    )
    if isinstance(result.exception, ConfigurationError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def shown(world: World, *words: str) -> Any:
    return json.loads(do(world, "catalog", "--json", *words))


def test_the_catalog_shows_each_participants_entries(world: World) -> None:
    assert "no participant lists anything in tolls" in do(world, "catalog")
    world.lists()
    world.list_pipeline("south", world.entry("south", streams=(), offers=(catalogs.SLOW,)))
    world.list_pipeline("auditor", world.entry("auditor", streams=()))
    output = do(world, "catalog")
    for word in ("speeds", "250 ms", "offer slow v2", "listed", "nothing"):
        assert word in output
    found = shown(world, "--participant", "north")
    (entry,) = found["entries"]
    assert entry["key"] == world.keys["north"].public.hex()
    assert (entry["is_current"], entry["state"]) == (True, "listed")
    (stream,) = entry["streams"]
    assert stream["boundaries"] == "north.speeds.boundaries"
    assert stream["signers"] == ["south"]
    assert len(stream["fingerprint"]) == 16
    (offer,) = shown(world, "--participant", "south")["entries"][0]["offers"]
    assert offer == {"offer": "slow", "version": 2, "offered_to": ["north"], "terms": {}}


def test_an_entry_that_is_not_refreshed_is_unknown_since_its_lease_ended(world: World) -> None:
    world.lists()
    world.clock.advance(catalogs.LEASE_MS)
    assert "unknown since 1970-01-01T00:17:40.001Z" in do(world, "catalog")
    assert shown(world)["entries"][0]["is_current"] is False


def test_rejected_entries_are_shown_with_their_reason(world: World) -> None:
    world.lists()
    world.list_pipeline("south", world.entry("south", "north"))
    world.write(world.topics.catalog("north"), b"nonsense")
    output = do(world, "catalog")
    assert "south lists it, too" in output
    assert "rejected: 1 of north: not a record of this log" in output
    assert shown(world, "--participant", "south")["rejected"] == []


def test_unreadable_terms_are_shown_as_such(world: World) -> None:
    wrong = replace(catalogs.SLOW, terms=b"{" * 5)
    stream = replace(catalogs.SPEEDS, record=b"nonsense")
    world.list_pipeline("north", world.entry(streams=(stream,), offers=(wrong,)))
    (entry,) = shown(world)["entries"]
    assert entry["offers"][0]["terms"] is None
    assert entry["streams"][0]["record"] is None
    assert "not JSON" in entry["streams"][0]["mistake"]


def test_bindings_are_kept_by_command_and_checked(world: World) -> None:
    with pytest.raises(ConfigurationError, match="north lists nothing"):
        do(world, "check", "--no-plan")
    world.lists()
    output = do(world, "catalog", "--keep")
    assert f"kept in {kept_path(world.path)}: theirs" in output
    assert "there is no topic north.speeds.boundaries" in output
    assert "note: binding theirs: there is no topic" in do(world, "check", "--no-plan")
    world.lists(hops=4)
    with pytest.raises(ConfigurationError, match="hops changed since it was looked up"):
        do(world, "check", "--no-plan")
    do(world, "catalog", "--keep")
    assert "1 binding" in do(world, "check", "--no-plan")


def test_a_file_without_such_bindings_says_so(world: World) -> None:
    (world.path.parent / "r.avsc").write_bytes(catalogs.SPEEDS.record)
    text = world.path.read_text()
    world.path.write_text(text.replace("speeds}", "speeds, pipeline: north, record: r.avsc}"))
    assert "has no binding to look up" in do(world, "catalog", "--keep")
    assert "1 binding" in do(world, "check", "--no-plan")


def test_up_looks_up_what_is_not_kept_before_anything_starts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []
    monkeypatch.setattr(
        "anabranch.local.deployment.up", lambda file, **_: started.append(Path(file))
    )
    with pytest.raises(ConfigurationError, match="north lists nothing"):
        do(world, "up")
    assert started == []
    world.lists()
    assert "kept in" in " ".join(do(world, "up").split())
    assert started == [world.path]
