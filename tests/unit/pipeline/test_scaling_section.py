"""The section ``scaling`` of a pipeline file: the pool, the thresholds, and their mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import Scaling
from anabranch.pipeline.scaling import describe_scaling, rules_of
from anabranch.protocol.control.scaling import ScalingRules
from harness.pipeline_files import loaded, mistakes

ONE = """\
pipeline: p
sources: {a: {topics: [a], record: car.avsc, event_time: arrival}}
stages:
  s: {reads: [a], sql: SELECT * FROM a, replicas: 2}
  t: {reads: [a], sql: SELECT * FROM a, replicas: 2, ha: passive}
outputs:
  o: {stage: s, corrected: {topic: o}}
"""


def test_a_pool_has_nodes_that_run_nothing(tmp_path: Path) -> None:
    found = loaded(
        tmp_path, ONE + "scaling: {nodes: [local.7, local.8], above: 80%, for: 5s, rest: 1m}\n"
    )
    assert found.scaling == Scaling(
        pool=["local.7", "local.8"], above_permille=800, for_ms=5_000, rest_ms=60_000
    )
    assert list(found.nodes()) == ["local.7", "local.8", "local.0", "local.1"]
    assert [name for service, name in found.processes() if service == "processing"] == list(
        found.nodes()
    )
    assert found.scaling is not None
    assert rules_of(found, found.scaling) == ScalingRules(
        ("local.7", "local.8"), 800, 5_000, 60_000, 250, frozenset({"t.0", "t.1"})
    )


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    found = loaded(tmp_path, ONE + "scaling: {nodes: [local.7]}\nnodes: {local.7: []}\n").scaling
    assert found == Scaling(pool=["local.7"], above_permille=700, for_ms=10_000, rest_ms=30_000)


SPLITS = ONE.replace(
    "  t:",
    "  k: {reads: [a], sql: SELECT * FROM a, shard_by: id, halvings: 1, state_horizon: 1s}\n  t:",
)
SPLITS = SPLITS.replace("  t: {reads: [a]", "  t: {reads: [k]").replace(
    "a, replicas: 2, ha", "k, replicas: 2, ha"
)


def test_what_a_lost_node_had_may_be_split(tmp_path: Path) -> None:
    text = SPLITS + "scaling: {nodes: [local.7, local.8], parallel: 2}\n"
    found = loaded(tmp_path, text)
    assert found.scaling is not None
    assert rules_of(found, found.scaling).is_parallel
    assert [name for name in found.stages if found.is_recovered_in_parallel(name)] == ["k"]
    assert "a shard whose node is lost is split" in describe_scaling(found)[1]
    serial = loaded(tmp_path, text.replace("parallel: 2", "parallel: 1"))
    assert not serial.is_recovered_in_parallel("k")
    assert serial.scaling is not None
    assert not rules_of(serial, serial.scaling).is_parallel
    assert not loaded(tmp_path, SPLITS).is_recovered_in_parallel("k")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            ONE + "scaling: {nodes: [local.7, local.8], parallel: 2}",
            "8: scaling.parallel: splits the shards of a lost node, and no stage has shards",
        ),
        (
            SPLITS + "scaling: {nodes: [local.7], parallel: 2}",
            "9: scaling.parallel: needs a node of the pool for each half of a shard",
        ),
        (SPLITS + "scaling: {nodes: [local.7, local.8], parallel: 3}", "9: scaling.parallel: "),
    ],
)
def test_where_nothing_can_be_split_it_says_so(tmp_path: Path, text: str, says: str) -> None:
    (line,) = mistakes(tmp_path, text + "\n")
    assert says in line


def test_every_node_has_a_topic_for_its_reports_where_there_is_a_pool_and_only_there(
    tmp_path: Path,
) -> None:
    scaled = control_topics(loaded(tmp_path, ONE + "scaling: {nodes: [local.7]}\n"))
    plain = control_topics(loaded(tmp_path, ONE))
    added = {topic: scaled[topic].reports for topic in scaled.keys() - plain.keys()}
    assert added == {f"p.control.node.{node}": node for node in ("local.0", "local.1", "local.7")}
    assert loaded(tmp_path, ONE).scaling is None


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{}", "8: scaling.nodes: is missing; name the nodes of the pool"),
        ("{above: 70%}", "8: scaling.nodes: is missing; name the nodes of the pool"),
        ("[]", "8: scaling: a mapping is wanted with keys "),
        ("{nodes: []}", "8: scaling.nodes: "),
        ("{nodes: [local.1]}", "8: scaling.nodes[0]: local.1 has replicas of its own, s.1, t.1: "),
        (
            "{nodes: [spare]}",
            "8: scaling.nodes[0]: a node of the pool has no replicas, so its name",
        ),
        ("{nodes: [north.7]}", "call it PARTICIPANT.NUMBER, as local.7, with one of local"),
        ("{nodes: [local.7], above: 70}", "8: scaling.above: 70 is no share; write it in percent"),
        ("{nodes: [local.7], above: 100%}", "'100%' is no share; write it in percent"),
        ("{nodes: [local.7], for: 1s}", "8: scaling.for: "),
        ("{nodes: [local.7], rest: 30}", "8: scaling.rest: 30 has no unit"),
        ("{nodes: [local.7], abov: 70%}", "unknown key; did you mean 'above'?"),
    ],
)
def test_mistakes_say_where_and_what_to_do(tmp_path: Path, section: str, says: str) -> None:
    (line,) = mistakes(tmp_path, ONE + f"scaling: {section}\n")
    assert says in line


def test_where_the_places_of_the_file_are_wrong_they_come_first(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path, ONE + "nodes: {local.7: [x.0]}\nscaling: {nodes: [local.7]}\n")
    assert "there is no replica x.0" in line


def test_check_names_the_stages_that_the_scaler_cannot_split(tmp_path: Path) -> None:
    stages = """\
pipeline: p
sources: {a: {topics: [a], record: car.avsc, event_time: arrival}}
stages:
  whole: {reads: [a], sql: SELECT * FROM a}
  fixed: {reads: [a], sql: SELECT * FROM a, shards: 2, shard_by: id}
  may: {reads: [a], sql: SELECT * FROM a, shard_by: id, halvings: 1, state_horizon: 1s}
  last: {reads: [may], sql: SELECT * FROM may}
outputs:
  o: {stage: whole, corrected: {topic: o}}
  f: {stage: fixed, corrected: {topic: f}}
  l: {stage: last, corrected: {topic: l}}
"""
    assert describe_scaling(loaded(tmp_path, stages)) == []
    first, *others = describe_scaling(
        loaded(tmp_path, stages + "scaling: {nodes: [local.7, local.8]}\n")
    )
    assert first.endswith("overloaded or lost move to local.7, local.8")
    assert [line.partition(":")[0] for line in others] == [
        "stage whole",
        "stage fixed",
        "stage last",
    ]
    assert all("cannot be split" in line for line in others)
