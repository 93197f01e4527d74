"""The section ``federation`` of a pipeline file, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.access.federation_acls import federation_rights
from anabranch.access.pipeline_acls import Operation, Right, rights
from anabranch.local.deployment import _offered
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.file import load
from anabranch.pipeline.model import AgentPolicy, Pipeline
from anabranch.protocol.errors import ConfigurationError

RECORD = '{"type": "record", "name": "speed", "fields": [{"name": "segment", "type": "long"}]}'
FILE = """\
pipeline: north
sources:
  sightings: {topics: [sightings], record: speed.avsc, event_time: arrival}
stages:
  speeds: {participant: north, reads: [sightings], transform: "stages:speeds", HA}
  sums: {participant: north, reads: [speeds], transform: "stages:speeds", replicas: 2}
  bills: {participant: billing, reads: [speeds], transform: "stages:speeds"}
outputs:
  out: {stage: sums, corrected: {topic: out}}
"""
HA = "ha: upstream_backup, state_horizon: 1s"
SECTION = """\
federation:
  name: tolls
  participant: north
  partners: {south: [speeds]}
  hosts: {west: west.yaml}
  agent: {capacity: 400, scale: 1000, rest: 7s, take_up: [south, west]}
"""


def loaded(folder: Path, section: str, *, ha: str = HA) -> Pipeline:
    (folder / "speed.avsc").write_text(RECORD)
    (folder / "stages.py").write_text("def speeds(**inputs): ...\n")
    file = FILE.replace("HA", ha)
    (folder / "west.yaml").write_text(file.replace("pipeline: north", "pipeline: west"))
    (folder / "north.yaml").write_text(file + section)
    return load(folder / "north.yaml")


def test_what_it_says(tmp_path: Path) -> None:
    found = loaded(tmp_path, SECTION)
    assert found.federation is not None
    assert found.federation.agent == AgentPolicy(
        capacity_units=400, scale_micro=1_000, rest_ms=7_000, take_up=("south", "west")
    )
    assert found.federation.hosts == {"west": tmp_path / "west.yaml"}
    assert found.partner_nodes == {"south.0": ["speeds"]}
    assert ("agent", "north") in found.processes()
    assert found.partner_processes() == [("processing", "south.0")]
    assert ("processing", "south.0") not in found.processes()
    assert found.audited_stages() == []
    assert not any("agent" in topic for topic in control_topics(found))


def test_an_auditor_is_another_participants_process(tmp_path: Path) -> None:
    found = loaded(tmp_path, SECTION + "  auditor: audit\n")
    assert found.partner_processes() == [("processing", "south.0"), ("auditor", "audit")]
    assert ("auditor", "audit") not in found.own_processes()
    assert found.audited_stages() == ["speeds"]
    without = SECTION.replace("  partners: {south: [speeds]}\n", "")
    alone = loaded(tmp_path, without + "  auditor: audit\n")
    assert (alone.partner_processes(), alone.audited_stages()) == ([], [])


def test_a_participant_may_draw_its_cost_and_say_what_gain_it_wants(tmp_path: Path) -> None:
    policy = (
        "{capacity: 400, cost: {corners: [[0, 2], [100, 30]]}, margin_permille: 20,"
        " recall_permille: 80}"
    )
    section = SECTION[: SECTION.index("{capacity")] + policy + "\n"
    found = loaded(tmp_path, section).federation
    assert found is not None
    assert found.agent is not None
    assert [found.agent.cost()(units) for units in (100, 110)] == [200, 500]
    assert (found.agent.margin_permille, found.agent.recall_permille) == (20, 80)
    plain = loaded(tmp_path, SECTION).federation
    assert plain is not None
    assert plain.agent is not None
    assert plain.agent.cost()(200) == 1_000


def test_without_a_policy_nobody_trades(tmp_path: Path) -> None:
    found = loaded(tmp_path, "federation: {name: tolls, participant: north}\n")
    assert [service for service, _ in found.processes()].count("agent") == 0
    assert found.partner_nodes == {}


def test_a_partners_node_is_started_by_its_whole_name_alone(tmp_path: Path) -> None:
    found = loaded(tmp_path, SECTION)
    guest = ("processing", "south.0")
    assert guest in _offered(found, ["processing/south.0"])
    for only in ([], ["processing"], ["processing/north.0"]):
        assert guest not in _offered(found, only)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("partners: {billing: [speeds]}", "billing has stages in this pipeline"),
        ("partners: {South: [speeds]}", "South"),
        ("partners: {south: [nothing]}", "there is no stage nothing; there are speeds, sums"),
        ("partners: {south: [bills]}", "bills is a stage of billing"),
        ("partners: {south: [sums]}", "sums has 2 replicas"),
        ("partners: [south]", "a mapping is wanted"),
        ("hosts: {west: east.yaml}", "there is no file east.yaml"),
        ("hosts: {west: [a]}", "hosts.west"),
        ("agent: {scale: 3}", "agent.capacity"),
        ("agent: {capacity: 1, scale: 3}", "an integer from 2"),
        ("agent: {capacity: 9, scale: 3, rest: soon}", "agent.rest"),
        ("agent: {capacity: 9, scale: 3, greed: 1}", "greed"),
        ("agent: {capacity: 9, scale: 3, margin_permille: -1}", "agent.margin_permille"),
        ("agent: {capacity: 9, scale: 3, take_up: []}", "is empty; name at least one participant"),
        ("agent: {capacity: 9, scale: 3, take_up: South}", "South"),
        ("agent: {capacity: 9, scale: 3, take_up: [west, north]}", "north does not pay itself"),
        ("agent: {capacity: 9, cost: 3}", "agent.cost: a mapping is wanted"),
        ("agent: {capacity: 9, cost: {corners: 3}}", "agent.cost.corners: a list of [units"),
        ("agent: {capacity: 9, cost: {corners: [[0, 1], [2]]}}", "[units, micro-units] is wanted"),
        ("agent: {capacity: 9, cost: {corners: [[0, a]]}}", "an integer from 0"),
        ("agent: {capacity: 9, cost: {corners: [[1, 2]]}}", "they begin at 0 and grow"),
        ("agent: {capacity: 9, cost: {corners: [[0, 5], [9, 2]]}}", "at least as much"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, section: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=r"north\.yaml:") as error:
        loaded(tmp_path, f"federation:\n  name: tolls\n  participant: north\n  {section}\n")
    assert says in str(error.value)


@pytest.mark.parametrize("ha", ["ha: active", "ha: amnesia, state_horizon: 1s"])
def test_a_stage_for_partners_makes_its_state_anew_from_its_input(tmp_path: Path, ha: str) -> None:
    """Owners share no checkpoints: such a move would never end, or go on from a state that nobody
    signed.
    """
    with pytest.raises(ConfigurationError) as error:
        loaded(tmp_path, SECTION, ha=ha)
    assert f"federation.partners.south[0]: speeds has {ha.partition(',')[0]}" in str(error.value)
    assert "write ha: upstream_backup and its state_horizon" in str(error.value)
    loaded(tmp_path, SECTION.replace("  partners: {south: [speeds]}\n", ""), ha=ha)


def may(found: list[Right], principal: str, operation: Operation) -> set[str]:
    return {
        right.name
        for right in found
        if (right.principal, right.operation) == (principal, operation)
        and right.resource.value == "topic"
    }


@pytest.mark.parametrize(
    ("by_participant", "guest"),
    [(False, "north.processing.south.0"), (True, "north.participant.south")],
)
def test_a_partners_node_may_write_what_it_may_run_and_nothing_else(
    tmp_path: Path, by_participant: bool, guest: str
) -> None:
    found = rights(loaded(tmp_path, SECTION), by_participant=by_participant)
    assert may(found, guest, Operation.WRITE) == {
        "north.speeds.boundaries",
        "north.speeds.blocks.0",
        "north.control.processing.speeds.0",
    }
    read = may(found, guest, Operation.READ)
    assert {"north.sightings.boundaries", "north.sightings.blocks.0", "north.placement"} <= read
    assert "north.sums.boundaries" not in read


def test_an_agent_moves_its_own_stages_and_reads_what_load_is_measured_by(tmp_path: Path) -> None:
    found = federation_rights(loaded(tmp_path, SECTION), ["c"])
    assert may(found, "north.agent", Operation.WRITE) == {
        "north.placement",
        "tolls.contract.c",
        "tolls.offers.c",
    }
    read = may(found, "north.agent", Operation.READ)
    logs = {f"north.{stream}.boundaries" for stream in ("sightings", "speeds", "sums")}
    assert logs <= read
    assert "north.control.processing.speeds.0" in read
    assert "tolls.offers.c" in read
    assert may(found, "north.agent.south", Operation.READ) == {
        "north.speeds.boundaries",
        "north.sightings.boundaries",
    }
    assert may(found, "north.agent.south", Operation.WRITE) == set()
