"""Stages that are instances of another participant's offers, as the definer and as the owner read
them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.access.pipeline_acls import Operation, rights
from anabranch.adapters.spark.query import functions_of
from anabranch.local.deployment import _offered, selected
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.offers import terms_for
from anabranch.pipeline.transforms import import_roots
from anabranch.protocol.errors import ConfigurationError

CAR = '{"type": "record", "name": "car", "fields": [{"name": "speed", "type": "long"}]}'
COUNT = '{"type": "record", "name": "count", "fields": [{"name": "n", "type": "long"}]}'
SOUTH = """\
pipeline: south
sources:
  cars: {topics: [cars], record: car.avsc, event_time: arrival}
stages:
  counts: {participant: south, reads: [cars], transform: "souths:counts"}
publish: {counts: }
federation:
  name: tolls
  participant: south
  offers:
    counts:
      to: [north]
      transform: souths:counts
      reads: {cars: car.avsc}
      gives: count.avsc
      parameters: {below: {type: integer, default: 40, min: 1, max: 200}}
      rows_per_s: 500
      version: 3
    again:
      sql: SELECT n, event_time FROM rows
      reads: {rows: count.avsc}
      gives: count.avsc
      rows_per_s: 500
"""
NORTH = """\
pipeline: north
sources:
  sightings: {topics: [sightings], record: car.avsc, event_time: arrival}
stages:
  slow:
    participant: south
    offered: counts
    reads: [sightings]
    parameters: {below: 30}
  slower: {participant: south, offered: again, reads: [slow]}
  own: {participant: north, reads: [slower], transform: "norths:own"}
outputs:
  out: {stage: own, corrected: {topic: out}}
federation:
  name: tolls
  participant: north
  offered: {south: south.offers.json}
"""


class Both:
    """Folders of the definer and the owner. They share only the files that the participants give
    each other.
    """

    def __init__(self, folder: Path) -> None:
        self.north = folder / "north" / "north.yaml"
        self.south = folder / "south" / "south.yaml"
        self.given = folder / "south" / "given" / "north.yaml"
        for path in (self.north, self.south, self.given):
            path.parent.mkdir(parents=True)
            (path.parent / "car.avsc").write_text(CAR)
            (path.parent / "count.avsc").write_text(COUNT)
        (self.north.parent / "norths.py").write_text("def own(slower): ...\n")
        (self.south.parent / "souths.py").write_text("def counts(cars, below=40): return below\n")
        self.write_south(SOUTH)
        for path in (self.north, self.given):
            federation = load(self.south).federation
            assert federation is not None
            (path.parent / "south.offers.json").write_text(terms_for(federation, "north"))
        self.write_north(NORTH)

    def write_south(self, text: str) -> None:
        self.south.write_text(text)

    def write_north(self, text: str) -> None:
        for path in (self.north, self.given):
            path.write_text(text)

    def definers(self) -> Pipeline:
        return load(self.north)

    def owners(self) -> Pipeline:
        return load(self.given, self.south)


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


def test_the_definer_knows_all_but_the_code(both: Both) -> None:
    found = both.definers()
    slow = found.stages["slow"]
    assert (slow.version, slow.parameters, slow.arguments) == (3, {"below": 30}, ["cars"])
    assert (slow.transform, slow.sql, slow.functions) == ([], None, ["south/counts"])
    assert slow.rows_per_s == 500
    with pytest.raises(ConfigurationError, match="only at participant south"):
        functions_of(slow, found)


def test_the_definer_does_not_run_it(both: Both) -> None:
    found = both.definers()
    assert found.nodes() == {"south.0": ["slow.0", "slower.0"], "north.0": ["own.0"]}
    assert found.offering_nodes == {"south.0": "south"}
    nodes = [name for service, name in found.own_processes() if service == "processing"]
    assert nodes == ["north.0"]
    with pytest.raises(ConfigurationError, match="it runs what south offers, with code that south"):
        _offered(found, ["processing/south.0"])


def test_what_others_write_and_read_is_looked_through(both: Both) -> None:
    found = both.definers()
    assert not any(
        found.is_of(who, stream) for who in ("north", "south") for stream in ("slow", "own")
    )


def test_the_owner_runs_it_and_nothing_else(both: Both) -> None:
    found = both.owners()
    assert found.own_processes() == [("processing", "south.0")]
    assert selected(_offered(found, []), []) == [("processing", "south.0")]
    assert found.host == "south"


def test_the_code_comes_from_the_owners_folder(both: Both) -> None:
    found = both.owners()
    (both.given.parent / "souths.py").write_text("def counts(cars, below): return 'theirs'\n")
    (function,) = functions_of(found.stages["slow"], found)
    assert function(None, below=3) == 3
    offered = [stage for stage in found.stages.values() if stage.offered is not None]
    assert import_roots(offered, found.path) == [str(both.south.parent)]
    assert found.stages["slower"].sql == "SELECT n, event_time FROM rows"
    assert found.stages["slower"].arguments == ["rows"]


def test_the_definers_code_and_files_need_not_be_there(both: Both) -> None:
    agent = "  hosts: {west: west.yaml}\n  agent: {capacity: 9, scale: 3}\n"
    both.write_north(NORTH + agent)
    found = both.owners()
    assert found.federation is not None
    assert (found.federation.hosts, found.federation.agent) == ({}, None)
    assert "there is no file west.yaml" in rejected(both.definers)


def test_the_owners_environment_does_not_go_into_the_definers_file(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELOW", "7")
    inline = "parameters: {below: 30}"
    both.write_north(NORTH.replace(inline, "parameters:\n      below: ${BELOW}"))
    assert both.definers().stages["slow"].parameters == {"below": 7}
    assert "variable BELOW is not set" in rejected(both.owners)
    both.write_north(NORTH.replace(inline, "parameters:\n      below: ${BELOW:-9}"))
    assert both.owners().stages["slow"].parameters == {"below": 9}


def test_all_hear_the_owners_node(both: Both) -> None:
    for found in (both.definers(), both.owners()):
        topics = {topic for topic in control_topics(found) if ".processing." in topic}
        assert topics == {
            f"north.control.processing.{stage}.0" for stage in ("slow", "slower", "own")
        }


def rejected(load_it: object) -> str:
    assert callable(load_it)
    with pytest.raises(ConfigurationError) as error:
        load_it()
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("below: 30", "below: 0", "slow.parameters.below: an integer from 1 to 200 is wanted"),
        ("below: 30", "below: '30'", "slow.parameters.below: an integer from 1 to 200 is wanted"),
        ("below: 30", "above: 30", "the offer has no parameter above"),
        ("offered: counts", "offered: sums", "south does not offer sums to north; it offers"),
        ("offered: counts", "offered: 3", "slow.offered: a text is wanted"),
        ("reads: [sightings]", "reads: [sightings, own]", "counts of south reads 1 streams, cars"),
        (
            "reads: [slow]",
            "reads: [sightings]",
            "sightings cannot be the input rows of again: it has no column n",
        ),
        ("reads: [sightings]", "reads: [slower]", "slower cannot be the input cars of counts"),
        ("reads: [slow]}", "reads: [slow], ha: passive}", "slower.ha: the owner of the offer"),
        ("reads: [slow]}", "reads: [slow], sql: SELECT 1}", "slower.sql: the owner of the offer"),
        (
            "reads: [slow]}",
            "reads: [slow], replicas: 2}",
            "slower.replicas: the owner of the offer",
        ),
        (
            "slow:\n    participant: south",
            "slow:\n    participant: north",
            "north is the owner of this file; name the owner of the offer",
        ),
        (
            "slow:\n    participant: south",
            "slow:\n    participant: west",
            "the offers of west are not known",
        ),
        (
            "participant: north, reads: [slower]",
            "participant: south, reads: [slower]",
            "south runs nothing in this pipeline but what it offers",
        ),
        ("offered: {south: south.offers.json}", "offered: {south: gone.json}", "gone.json"),
        (
            "offered: {south: south.offers.json}",
            "offered: {south: [1]}",
            "federation.offered.south: a text",
        ),
        (
            "  participant: north\n  offered",
            "  participant: west\n  offered",
            "these are terms for 'north', not 'west'",
        ),
        (
            "outputs:",
            "resources: {south.0: {memory: 64g}}\noutputs:",
            "it is a node of south, which sets this; leave it out",
        ),
        (
            "offered: {south: south.offers.json}",
            "partners: {south: [own]}\n  offered: {south: south.offers.json}",
            "south has stages in this pipeline",
        ),
    ],
)
def test_what_the_definer_has_wrong_both_sides_refuse(
    both: Both, old: str, new: str, says: str
) -> None:
    assert old in NORTH
    both.write_north(NORTH.replace(old, new, 1))
    assert says in rejected(both.definers)
    assert says in rejected(both.owners)


def test_without_a_federation_nobody_is_known(both: Both) -> None:
    both.write_north(NORTH[: NORTH.index("federation:")])
    assert "the offers of south are not known" in rejected(both.definers)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("to: [north]", "to: [west]", "it is not offered to north"),
        ("    counts:\n", "    sums:\n", "it is not offered, or not any more"),
        ("max: 200", "max: 20", "parameter below is an integer from 1 to 20, 40"),
        (
            "rows_per_s: 500\n      version: 3",
            "rows_per_s: 50\n      version: 3",
            "rows_per_s is 50, and was 500",
        ),
        ("version: 3", "version: 4", "version is 4, and was 3"),
    ],
)
def test_what_the_owner_has_changed_it_refuses_and_says_what(
    both: Both, old: str, new: str, says: str
) -> None:
    assert old in SOUTH
    both.write_south(
        SOUTH.replace(old, new, 1).replace(
            "default: 40, min: 1, max: 20}", "default: 20, min: 1, max: 20}"
        )
    )
    assert both.definers().stages["slow"].version == 3
    text = rejected(both.owners)
    assert "south does not run counts: " in text
    assert says.replace("20, 40", "20, 20") in text
    assert "anabranch offers --to north" in text


def test_code_that_the_definer_names_is_not_run_at_the_owner(both: Both) -> None:
    own = 'own: {participant: south, reads: [sightings], transform: "os:system"}'
    both.write_north(
        NORTH.replace('own: {participant: north, reads: [slower], transform: "norths:own"}', own)
    )
    assert "south runs nothing in this pipeline but what it offers" in rejected(both.owners)
    alone = NORTH[: NORTH.index("  slow:")] + f"  {own}\n" + NORTH[NORTH.index("outputs:") :]
    both.write_north(alone)
    text = rejected(both.owners)
    assert "south runs nothing in this pipeline but what it offers" in text
    assert "no stage is what south offers" in text


def test_who_offers_nothing_runs_nothing(both: Both) -> None:
    both.write_south(SOUTH[: SOUTH.index("  offers:")])
    assert "south.yaml offers nothing: it has no federation.offers" in rejected(both.owners)


def test_the_owners_node_may_write_what_it_runs_and_no_more(both: Both) -> None:
    found = rights(both.definers())
    writes = {
        right.name
        for right in found
        if right.principal == "north.processing.south.0" and right.operation is Operation.WRITE
    }
    assert writes == {
        *(
            f"north.{stage}.{topic}"
            for stage in ("slow", "slower")
            for topic in ("boundaries", "blocks.0")
        ),
        *(f"north.control.processing.{stage}.0" for stage in ("slow", "slower")),
    }
