"""Catalog entries of a pipeline file, and the bindings that readers make of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.pipeline.catalog_entry import LEASE_MS, binding_of, entry_of, known_formats
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.offers import terms_for
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.lookup import CatalogEntry, FoundStream, RecordFormat

RECORD = '{"type": "record", "name": "speed", "fields": [{"name": "segment", "type": "long"}]}'
KEY = bytes(32)
NORTH = """\
pipeline: roads
bucket: 500ms
sources:
  sightings:
    topics: [sightings]
    record: speed.avsc
    event_time: {field: segment, unit: ms}
    out_of_orderness: 700ms
stages:
  clean:
    participant: north
    reads: [sightings]
    transform: "stages:clean"
    ha: upstream_backup
    state_horizon: 0ms
  speeds: {participant: north, reads: [clean], transform: "stages:speeds", replicas: 2}
  slow: {participant: south, offered: slow, reads: [speeds]}
publish:
  speeds: {record: speed.avsc}
  clean:
  slow:
federation:
  name: tolls
  participant: north
  partners: {east: [clean]}
  offered: {south: south.json}
  offers:
    fast: {sql: SELECT * FROM cars, reads: {cars: speed.avsc}, gives: speed.avsc, rows_per_s: 9}
"""
SOUTH = """\
pipeline: south
sources:
  sightings: {topics: [s], record: speed.avsc, event_time: arrival}
stages:
  own: {participant: south, reads: [sightings], transform: "stages:clean"}
publish: {own: }
federation:
  name: tolls
  participant: south
  offers:
    slow:
      to: [north]
      sql: SELECT * FROM rows
      reads: {rows: speed.avsc}
      gives: speed.avsc
      rows_per_s: 9
      version: 4
"""


def loaded(folder: Path, text: str = NORTH) -> Pipeline:
    (folder / "speed.avsc").write_text(RECORD)
    (folder / "stages.py").write_text("def clean(sightings): ...\ndef speeds(clean): ...\n")
    (folder / "south.yaml").write_text(SOUTH)
    south = load(folder / "south.yaml").federation
    assert south is not None
    (folder / "south.json").write_text(terms_for(south, "north"))
    (folder / "north.yaml").write_text(text)
    return load(folder / "north.yaml")


def entry(folder: Path, text: str = NORTH) -> CatalogEntry:
    pipeline = loaded(folder, text)
    assert pipeline.federation is not None
    return entry_of(pipeline, pipeline.federation, KEY, 5)


def test_it_lists_streams_whose_columns_are_stated_and_offers(tmp_path: Path) -> None:
    found = entry(tmp_path)
    assert (found.participant, found.pipeline, found.at_ms) == ("north", "roads", 5)
    assert (found.lease_ms, found.public) == (LEASE_MS, KEY)
    assert found.mistake() == ""
    assert [each.stream for each in found.streams] == ["speeds", "slow"], "clean states none"
    speeds, slow = found.streams
    assert json.loads(speeds.record) == json.loads(RECORD)
    assert (speeds.bucket_ms, speeds.replicas, speeds.hops) == (500, 2, 2)
    assert speeds.out_of_orderness_ms == 700
    assert (speeds.signers, speeds.made_by) == ((), "")
    assert (slow.made_by, slow.offer, slow.offer_version) == ("south", "slow", 4)
    assert (slow.signers, slow.hops) == (("south",), 3)
    assert set(speeds.formats) <= set(known_formats())
    assert {each.name for each in speeds.formats} >= {"boundary_record", "log_snapshot"}
    assert [(each.offer, each.version, each.is_for_all) for each in found.offers] == [
        ("fast", 1, True)
    ]
    terms = json.loads(found.offers[0].terms)
    assert terms["rows_per_s"] == 9
    assert "sql" not in terms, "the code is its owner's"


def test_who_may_use_an_offer_is_stated(tmp_path: Path) -> None:
    loaded(tmp_path)
    south = load(tmp_path / "south.yaml")
    assert south.federation is not None
    offers = entry_of(south, south.federation, KEY, 5).offers
    assert [(each.is_for_all, each.offered_to) for each in offers] == [(False, ("north",))]


def test_a_reader_gets_what_it_would_write_out(tmp_path: Path) -> None:
    found = entry(tmp_path)
    kept = binding_of(FoundStream(found, found.streams[0]))
    assert kept.model_dump() == {
        "participant": "north",
        "pipeline": "roads",
        "stream": "speeds",
        "record": json.loads(RECORD),
        "bucket_ms": 500,
        "replicas": 2,
        "hops": 2,
        "out_of_orderness_ms": 700,
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"record": b"nonsense"}, "not JSON"),
        ({"record": b"[" * 60_000}, "not JSON"),
        ({"record": b"\xff"}, "not JSON"),
        ({"record": b" " * 70_000}, "larger than"),
        ({"record": b'{"type": "record", "name": "r", "fields": []}'}, "no fields"),
        ({"replicas": 0}, "not valid"),
        ({"replicas": 17}, "not valid"),
        ({"hops": 0}, "not valid"),
        ({"hops": 65}, "not valid"),
        ({"out_of_orderness_ms": -1}, "not valid"),
    ],
)
def test_what_no_stream_can_be_is_rejected(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    found = entry(tmp_path)
    with pytest.raises(ConfigurationError, match=message):
        binding_of(FoundStream(found, replace(found.streams[0], **fields)))


def test_the_owner_of_an_offer_states_its_columns(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"publish.slow.record: the owner of the offer sets"
    ):
        entry(tmp_path, NORTH.replace("  slow:\n", "  slow: {record: speed.avsc}\n"))


def test_formats_are_those_of_boundary_logs() -> None:
    assert RecordFormat("boundary_record", 1) in known_formats()
