"""Offers in their owner's pipeline file, and in the files of terms for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.offers import known_offers, terms_for, types_of
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.offered_stages import Parameter, ParameterKind

CAR = """{"type": "record", "name": "car", "fields": [
  {"name": "speed", "type": "long"},
  {"name": "tags", "type": {"type": "array", "items": "string"}},
  {"name": "at", "type": {"type": "record", "name": "place", "fields": [
    {"name": "x", "type": "int"}]}},
  {"name": "note", "type": ["null", "string"], "default": null}]}"""
COUNT = '{"type": "record", "name": "count", "fields": [{"name": "n", "type": "long"}]}'
FUNCTIONS = "def counts(cars, below=40, name=''): ...\ndef two(cars, trucks): ...\n"
FILE = """\
pipeline: south
sources:
  cars: {topics: [cars], record: car.avsc, event_time: arrival}
stages:
  counts: {participant: south, reads: [cars], transform: "stages:counts"}
publish: {counts: }
federation:
  name: tolls
  participant: south
"""
OFFER = """\
  offers:
    counts:
      to: [north, west]
      transform: stages:counts
      reads: {cars: car.avsc}
      gives: count.avsc
      parameters:
        below: {type: integer, default: 40, min: 1, max: 200}
        name: {type: text, max: 8}
      rows_per_s: 500
      version: 3
    open:
      sql: SELECT 1 AS n, event_time FROM cars
      reads: {cars: car.avsc}
      gives: count.avsc
      rows_per_s: 10
"""


def loaded(folder: Path, offers: str) -> Pipeline:
    (folder / "car.avsc").write_text(CAR)
    (folder / "count.avsc").write_text(COUNT)
    (folder / "stages.py").write_text(FUNCTIONS)
    (folder / "south.yaml").write_text(FILE + offers)
    return load(folder / "south.yaml")


def test_what_the_owner_offers(tmp_path: Path) -> None:
    federation = loaded(tmp_path, OFFER).federation
    assert federation is not None
    counts, everyones = federation.offers["counts"], federation.offers["open"]
    assert counts.offered_to == ["north", "west"]
    assert (counts.transform, counts.sql, counts.path) == (
        ["stages:counts"],
        None,
        tmp_path / "south.yaml",
    )
    assert counts.terms.parameters == {
        "below": Parameter(ParameterKind.INTEGER, 40, 1, 200),
        "name": Parameter(ParameterKind.TEXT, high=8),
    }
    assert (counts.terms.version, counts.terms.rows_per_s) == (3, 500)
    assert counts.terms.gives == {"n": "long"}
    assert everyones.offered_to is None
    assert everyones.sql is not None


def test_types_are_named_whole(tmp_path: Path) -> None:
    source = loaded(tmp_path, OFFER).sources["cars"]
    assert types_of(source.record) == {
        "speed": "long",
        "tags": "array(string)",
        "at": "record(x int)",
        "note": "string or null",
    }


def kept(folder: Path, definer: str = "north") -> Path:
    federation = loaded(folder, OFFER).federation
    assert federation is not None
    path = folder / "south.offers.json"
    path.write_text(terms_for(federation, definer))
    return path


def test_the_terms_are_the_same_without_the_code(tmp_path: Path) -> None:
    known = known_offers(kept(tmp_path), "tolls", "south", "north")
    federation = loaded(tmp_path, OFFER).federation
    assert federation is not None
    assert {name: offer.terms for name, offer in known.items()} == {
        name: offer.terms for name, offer in federation.offers.items()
    }
    text = (tmp_path / "south.offers.json").read_text()
    for kept_back in ("stages:counts", "SELECT", "west"):
        assert kept_back not in text
    assert not any(offer.transform or offer.sql or offer.offered_to for offer in known.values())


def test_nobody_gets_the_terms_of_what_others_are_offered(tmp_path: Path) -> None:
    assert list(json.loads(kept(tmp_path, "east").read_text())["offers"]) == ["open"]
    federation = loaded(tmp_path, OFFER[: OFFER.index("    open:")]).federation
    assert federation is not None
    with pytest.raises(ConfigurationError, match="south offers nothing to east"):
        terms_for(federation, "east")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("      rows_per_s: 500\n", "", "offers.counts.rows_per_s: an integer from 1"),
        ("rows_per_s: 500", "rows_per_s: 0", "an integer from 1"),
        ("transform: stages:counts", "transform: stages:gone", "has no function gone"),
        ("transform: stages:counts", "transform: stages:two", "no argument below"),
        ("      transform: stages:counts\n", "", "counts.transform: is missing"),
        ("transform: stages:counts", "transform: stages:counts\n      sql: x", "either"),
        ("      gives: count.avsc\n      par", "      par", "counts.gives: is missing"),
        ("gives: count.avsc", "gives: {type: record}", "the schema must be"),
        ("gives: count.avsc", "gives: nothing", "there is no record nothing"),
        (
            "reads: {cars: car.avsc}\n      gives: count.avsc\n      p",
            "gives: count.avsc\n      p",
            "counts.reads: is missing",
        ),
        ("reads: {cars: car.avsc}", "reads: {}", "counts.reads: is missing"),
        ("reads: {cars: car.avsc}", "reads: {Cars: car.avsc}", "Cars"),
        (
            "reads: {cars: car.avsc}",
            "reads: {" + ", ".join(f"c{n}: car.avsc" for n in range(17)) + "}",
            "at most 16 inputs",
        ),
        ("to: [north, west]", "to: [south]", "south is the owner of the offer; leave it out"),
        ("to: [north, west]", "to: [North]", "North"),
        ("type: integer,", "type: whole,", "'whole' is not known"),
        ("default: 40", "default: 0", "an integer from 1 to 200 is wanted, not 0"),
        ("default: 40", "default: null", "an integer from 1 to 200 is wanted, not nothing"),
        ("min: 1,", "min: 300,", "200 is less than min, 300"),
        ("min: 1,", "min: 1.5,", "an integer is wanted, not 1.5"),
        ("type: text, max", "type: boolean, max", "leave it out"),
        ("below: {", "be-low: {", "a parameter is an argument of a function"),
        ("name: {type: text", "cars: {type: text", "cars is an input of it already"),
        ("version: 3", "version: 0", "an integer from 1"),
        ("    counts:\n", "    Counts:\n", "Counts"),
        ("    open:\n", "    closed: 3\n    open:\n", "offers.closed: a mapping is wanted"),
        ("to: [north, west]", "for: [north]", "unknown key"),
    ],
)
def test_mistakes_of_the_owner_are_reported(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in OFFER
    with pytest.raises(ConfigurationError, match=r"south\.yaml:") as error:
        loaded(tmp_path, OFFER.replace(old, new, 1))
    assert says in str(error.value)


def test_there_are_not_too_many_parameters(tmp_path: Path) -> None:
    many = "".join(f"        p{n}: {{type: boolean}}\n" for n in range(65))
    with pytest.raises(ConfigurationError, match="at most 64 parameters"):
        loaded(tmp_path, OFFER.replace("      parameters:\n", f"      parameters:\n{many}", 1))


def spoilt(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"federation": "other"}, "federation: these are terms for 'other', not 'tolls'"),
        ({"owner": "west"}, "owner: these are terms for 'west', not 'south'"),
        ({"definer": "west"}, "definer: these are terms for 'west', not 'north'"),
        ({"offers": []}, "offers: a mapping is wanted"),
        ({"more": 1}, "unknown key"),
        ({"offers": {"x": {"transform": "os:system"}}}, "offers.x.transform: unknown key"),
        ({"offers": {"x": {"gives": "/etc/passwd.avsc"}}}, "a record's schema is wanted"),
    ],
)
def test_terms_that_are_others_or_no_terms_are_rejected(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    path = spoilt(kept(tmp_path), **changes)
    with pytest.raises(ConfigurationError, match=r"south\.offers\.json:") as error:
        known_offers(path, "tolls", "south", "north")
    assert says in str(error.value)
