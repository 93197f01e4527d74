"""Bindings that are looked up in the catalog, and kept."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import topic_settings
from anabranch.federation.binding_lookup import (
    BindingLookup,
    check_kept,
    keep_anew,
    keep_missing,
)
from anabranch.pipeline.file import load
from anabranch.pipeline.kept_bindings import kept_path, read_kept
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.lookup import CatalogEntry
from harness import catalogs
from harness.catalogs import BEGIN_MS, SPEEDS
from harness.federations import FederationWorld

FILE = """\
pipeline: billing
bindings:
  theirs: {participant: north, stream: speeds}
stages:
  tolls: {participant: billing, reads: [theirs], transform: "stages:one"}
outputs:
  tolls: {stage: tolls, corrected: {topic: tolls}}
federation: {name: tolls, participant: billing}
"""


class World(FederationWorld):
    """North lists ``speeds``; billing has a file that names it."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock(BEGIN_MS)
        self.elsewhere = LocalEventLog(self.clock)
        super().__init__(LocalEventLog(self.clock))
        self.path = folder / "billing.yaml"
        self.path.write_text(FILE)
        (folder / "stages.py").write_text("def one(theirs): ...\n")

    def entry(self, who: str = "north", pipeline: str = "", **fields: Any) -> CatalogEntry:
        self.clock.advance(1)
        fields = {"at_ms": self.clock.now_ms(), "public": self.keys[who].public} | fields
        stream = replace(SPEEDS, formats=())
        return catalogs.entry(who, pipeline, **{"streams": (stream,), **fields})

    def lists(self, **stream: Any) -> None:
        streams = (replace(SPEEDS, formats=(), **stream),)
        self.list_pipeline("north", self.entry(streams=streams))

    def lookup(self) -> BindingLookup:
        return BindingLookup(self.log, self.clock, self.other_cluster)

    def other_cluster(self, name: str, kafka: str) -> LocalEventLog:
        assert (name, kafka) == ("elsewhere", "north:9092")
        return self.elsewhere


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.lists()
    return made


def test_what_is_not_kept_is_looked_up_and_every_process_reads_it(world: World) -> None:
    with pytest.raises(ConfigurationError, match="anabranch catalog --keep"):
        load(world.path)
    lines = keep_missing(world.path, None, world.lookup())
    assert lines == [f"kept in {kept_path(world.path)}: theirs"]
    bound = load(world.path).bindings["theirs"]
    assert (bound.pipeline, bound.stream, bound.participant) == ("north", "speeds", "north")
    assert [field.name for field in bound.record.fields] == ["segment"]
    assert keep_missing(world.path, None, world.lookup()) == []
    assert list(world.path.parent.glob("*.new")) == []


def test_a_kept_binding_stays_although_the_catalog_has_changed(world: World) -> None:
    keep_missing(world.path, None, world.lookup())
    before = load(world.path).bindings
    world.lists(hops=5)
    assert keep_missing(world.path, None, world.lookup()) == []
    world.clock.advance(catalogs.LEASE_MS)
    assert keep_missing(world.path, None, world.lookup()) == []
    assert load(world.path).bindings == before


def test_check_keeps_what_is_new_and_says_what_changed(world: World) -> None:
    assert check_kept(world.path, None, world.lookup()).bindings["theirs"].hops == 1
    assert check_kept(world.path, None, world.lookup()).bindings["theirs"].hops == 1
    world.lists(hops=5, replicas=2)
    with pytest.raises(ConfigurationError) as caught:
        check_kept(world.path, None, world.lookup())
    assert str(caught.value) == (
        f"{world.path}: bindings.theirs: replicas, hops changed since it was looked up; to"
        " accept the change: anabranch catalog --keep"
    )
    assert load(world.path).bindings["theirs"].hops == 1
    lines = keep_anew(world.path, None, world.lookup())
    assert lines == [
        "bindings.theirs: replicas, hops changed since it was looked up",
        f"kept in {kept_path(world.path)}: theirs",
    ]
    assert check_kept(world.path, None, world.lookup()).bindings["theirs"].hops == 5


def test_a_binding_that_no_catalog_lists_is_an_error(world: World) -> None:
    world.clock.advance(catalogs.LEASE_MS)
    for how in (check_kept, keep_missing, keep_anew):
        with pytest.raises(
            ConfigurationError,
            match=r"billing.yaml:3: bindings.theirs: what north lists is not refreshed, and unknown"
            r" since 1970-01-01T00:17:40.001Z",
        ):
            how(world.path, None, world.lookup())
    assert not kept_path(world.path).exists()


def test_a_pipeline_that_two_participants_list_needs_a_pinned_key(world: World) -> None:
    world.list_pipeline("south", world.entry("south", "north"))
    with pytest.raises(ConfigurationError, match="both list pipeline north"):
        check_kept(world.path, None, world.lookup())
    key = world.keys["north"].public.hex()
    world.path.write_text(FILE.replace("speeds}", f"speeds, keys: [{key}]}}"))
    assert check_kept(world.path, None, world.lookup()).bindings["theirs"].keys == [key]


def test_columns_that_cannot_be_carried_are_not_kept(world: World) -> None:
    world.lists(record=b"nonsense")
    with pytest.raises(ConfigurationError, match=r"billing.yaml:3: .*not JSON"):
        check_kept(world.path, None, world.lookup())


def test_a_stream_whose_log_is_not_seen_is_reported(world: World) -> None:
    lookup = world.lookup()
    pipeline = check_kept(world.path, None, lookup)
    assert world.lookup().unreadable_logs(pipeline) == []  # it was looked up before
    (note,) = lookup.unreadable_logs(pipeline)
    assert note.startswith("binding theirs: there is no topic north.speeds.boundaries, or")
    world.log.admin().create([topic_settings("boundaries", "north.speeds.boundaries")])
    assert lookup.unreadable_logs(pipeline) == []


def test_a_stream_on_another_cluster_is_looked_up_there(world: World) -> None:
    world.path.write_text(
        FILE.replace("speeds}", "speeds, cluster: elsewhere}")
        + 'clusters: {elsewhere: {kafka: "north:9092"}}\n'
    )
    with pytest.raises(ConfigurationError, match=r"bindings.theirs: north lists nothing"):
        keep_missing(world.path, None, world.lookup())
    there = FederationWorld(world.elsewhere)
    world.clock.advance(1)
    key = there.keys["north"]
    stream = replace(SPEEDS, formats=(), hops=3)
    entry = catalogs.entry(
        "north", "", at_ms=world.clock.now_ms(), public=key.public, streams=(stream,)
    )
    there.list_pipeline("north", entry)
    lookup = world.lookup()
    pipeline = check_kept(world.path, None, lookup)
    assert pipeline.bindings["theirs"].cluster == "elsewhere"
    assert pipeline.bindings["theirs"].hops == 3
    notes = world.lookup().unreadable_logs(pipeline)  # looked up or not: it is asked for there
    (note,) = notes
    assert "no topic north.speeds.boundaries on cluster elsewhere" in note


def test_each_cluster_that_does_not_answer_is_named(world: World) -> None:
    (world.path.parent / "r.avsc").write_bytes(SPEEDS.record)
    world.path.write_text(
        FILE.replace("speeds}", "speeds, pipeline: north, record: r.avsc, cluster: away}")
        + 'clusters: {away: {kafka: "north:9092"}}\n'
    )

    def nobody(name: str, kafka: str) -> LocalEventLog:
        raise Unavailable(f"nobody at {kafka}, which is {name}")

    with pytest.raises(Unavailable, match="cluster away: nobody at north:9092"):
        BindingLookup(world.log, world.clock, nobody).unreadable_logs(load(world.path))


def test_bindings_that_are_written_out_need_no_catalog(world: World) -> None:
    record = world.path.parent / "r.avsc"
    record.write_bytes(SPEEDS.record)
    world.path.write_text(FILE.replace("speeds}", "speeds, pipeline: north, record: r.avsc}"))
    lookup = world.lookup()
    for how in (keep_missing, keep_anew):
        assert how(world.path, None, lookup) == []
    assert check_kept(world.path, None, lookup).bindings["theirs"].hops == 1
    assert not kept_path(world.path).exists()


def test_a_folder_that_cannot_be_written_is_reported(world: World) -> None:
    kept_path(world.path).with_name(f"billing.bindings.json.{os.getpid()}.new").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        keep_anew(world.path, None, world.lookup())


def test_a_new_binding_does_not_change_the_kept_ones(world: World) -> None:
    keep_missing(world.path, None, world.lookup())
    kept = json.loads(kept_path(world.path).read_text())
    kept["bindings"]["theirs"]["hops"] = 7
    kept_path(world.path).write_text(json.dumps(kept))
    two = FILE.replace("stages:", "  more: {participant: north, stream: speeds}\nstages:", 1)
    world.path.write_text(two)
    keep_missing(world.path, None, world.lookup())
    assert {name: each.hops for name, each in read_kept(world.path).items()} == {
        "theirs": 7,
        "more": 1,
    }
