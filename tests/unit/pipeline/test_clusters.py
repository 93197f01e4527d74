"""Clusters of other owners: the section of the file, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.access.federation_acls import federation_rights
from anabranch.access.pipeline_acls import UNUSED_GROUP, Operation, Right, rights
from anabranch.pipeline.addresses import variables_of
from anabranch.pipeline.clusters import check_own
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.errors import ConfigurationError

RECORD = '{"type": "record", "name": "speed", "fields": [{"name": "segment", "type": "long"}]}'
BILLING = """\
pipeline: billing
clusters:
  north: {kafka: "${NORTH:-north-1:9092,north-2:9092}"}
bindings:
  north_speeds: {pipeline: north, stream: speeds, record: speed.avsc, cluster: north,
    participant: north}
  south_speeds: {pipeline: south, stream: speeds, record: speed.avsc}
stages:
  tolls: {participant: billing, reads: [north_speeds, south_speeds], transform: stages:tolls}
  later: {participant: billing, reads: [tolls], transform: stages:later}
outputs:
  tolls: {stage: later, corrected: {topic: tolls}}
federation: {name: tolls, participant: billing}
"""


VARIABLES = "ANABRANCH_CLUSTER_NORTH_"


def loaded(folder: Path, text: str = BILLING) -> Pipeline:
    (folder / "speed.avsc").write_text(RECORD)
    (folder / "stages.py").write_text(
        "def tolls(north_speeds, south_speeds): ...\ndef later(tolls): ...\n"
    )
    (folder / "billing.yaml").write_text(text)
    return load(folder / "billing.yaml")


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, text)
    return [line.partition(": ")[2] for line in str(caught.value).splitlines()]


def test_a_binding_is_on_the_cluster_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = loaded(tmp_path)
    assert found.clusters == {"north": "north-1:9092,north-2:9092"}
    assert [found.cluster_of(s) for s in ("north_speeds", "south_speeds", "tolls")] == [
        "north",
        "",
        "",
    ]
    assert [found.reads_elsewhere(stage) for stage in ("tolls", "later")] == [True, False]
    monkeypatch.setenv("NORTH", "elsewhere:1")
    assert loaded(tmp_path).clusters == {"north": "elsewhere:1"}


def test_a_cluster_that_is_not_there_and_one_that_nobody_uses(tmp_path: Path) -> None:
    assert mistakes(tmp_path, BILLING.replace("cluster: north,", "cluster: nroth,")) == [
        "clusters.north: no binding is on it; leave it out, or write cluster: north",
        "bindings.north_speeds.cluster: there is no cluster nroth; did you mean 'north'?",
    ]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("north", "write the brokers' address, HOST:PORT[,HOST:PORT...]"),
        ("north:9092, south:9092", "write the brokers' address, HOST:PORT[,HOST:PORT...]"),
        (
            "me:secret@north:9092",
            (
                "it holds a password; set user and secret in the environment variables"
                f" {VARIABLES}... instead"
            ),
        ),
    ],
)
def test_an_address_is_that_of_brokers(tmp_path: Path, address: str, text: str) -> None:
    found = mistakes(tmp_path, BILLING.replace("north-1:9092,north-2:9092", address))
    assert found == [f"clusters.north.kafka: {text}"]


def test_what_else_is_wrong_with_the_section(tmp_path: Path) -> None:
    assert mistakes(
        tmp_path,
        BILLING.replace('{kafka: "${NORTH:-north-1:9092,north-2:9092}"}', "north:9092"),
    ) == ["clusters.north: a mapping is wanted with keys kafka, not 'north:9092'"]
    assert mistakes(
        tmp_path, BILLING.replace('{kafka: "${NORTH:-north-1:9092,north-2:9092}"}', "{}")
    ) == ["clusters.north.kafka: is missing; add it, kafka: VALUE"]
    two = BILLING.replace(
        "bindings:", "  nor-th: {kafka: 'north-2:9092'}\n  nor_th: {kafka: 'c:1'}\nbindings:"
    ).replace("south, stream: speeds,", "south, stream: speeds, cluster: nor-th,")
    assert mistakes(tmp_path, two) == [
        "clusters.nor-th.kafka: it is the cluster north; give it one name",
        "clusters.nor_th: its variables are those of nor-th; give it another name",
        "clusters.nor_th: no binding is on it; leave it out, or write cluster: nor_th",
    ]


def test_a_binding_that_is_looked_up_names_a_cluster_that_is_there(tmp_path: Path) -> None:
    text = BILLING.replace(
        "pipeline: north, stream: speeds, record: speed.avsc, ", "stream: speeds, "
    )
    (mistake,) = mistakes(tmp_path, text)
    assert "look up speeds of north" in mistake
    assert mistakes(tmp_path, text.replace("cluster: north,", "cluster: away,")) == [
        "clusters.north: no binding is on it; leave it out, or write cluster: north",
        "bindings.north_speeds.cluster: there is no cluster away; there are north",
    ]


def test_what_others_run_reads_nothing_there(tmp_path: Path) -> None:
    text = BILLING.replace(
        "participant: billing}", "participant: billing, partners: {east: [tolls]}}"
    ).replace("stages:tolls}", "stages:tolls, ha: upstream_backup, state_horizon: 1s}")
    (mistake,) = mistakes(tmp_path, text)
    assert mistake.startswith(
        "stages.tolls.reads[0]: north_speeds is on the cluster north, and a stage that"
    )
    later = "stages:later, ha: upstream_backup, state_horizon: 0ms}"
    loaded(
        tmp_path,
        text.replace("east: [tolls]", "east: [later]").replace("stages:later}", later),
    )


def test_none_is_the_own_one(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    check_own(found, "own:9092")
    with pytest.raises(
        ConfigurationError, match=r"clusters.north.kafka: north-2:9092 is the pipeline"
    ):
        check_own(found, "own:9092, North-2:9092")


def test_rights_are_of_the_cluster_on_which_the_topics_are(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    all_of_them = [*rights(found, prefix=""), *federation_rights(found, [], prefix="")]
    there = {
        (right.principal, right.name, right.operation) for right in all_of_them if right.cluster
    }
    node, read = "processing.billing.0", Operation.READ
    assert {right.cluster for right in all_of_them} == {"", "north"}
    assert there == {
        (node, "north.speeds.boundaries", read),
        (node, "north.speeds.boundaries", Operation.DESCRIBE_CONFIGS),
        (node, "north.speeds.blocks.0", read),
        (node, "north.control.processing.speeds.0", read),
        (node, "tolls.keys.", read),
        (node, "tolls.keys.", Operation.DESCRIBE_CONFIGS),
        (node, UNUSED_GROUP, Operation.DESCRIBE),
        ("operator", "north.speeds.boundaries", Operation.DESCRIBE),
        ("operator", UNUSED_GROUP, Operation.DESCRIBE),
        ("operator", "tolls.keys.", read),
        ("operator", "tolls.keys.", Operation.DESCRIBE_CONFIGS),
        ("operator", "tolls.catalog.", read),
        ("operator", "tolls.catalog.", Operation.DESCRIBE_CONFIGS),
    }
    own = {right.name for right in all_of_them if not right.cluster}
    assert "south.speeds.boundaries" in own
    assert not any(name.startswith("north.") for name in own)
    assert len(set(all_of_them)) == len({replaced(right) for right in set(all_of_them)})


def replaced(right: Right) -> tuple[object, ...]:
    return right.cluster, right.principal, right.resource, right.name, right.operation, right.why


def test_the_variables_of_a_cluster_are_its_own() -> None:
    assert variables_of("north-2_x") == "ANABRANCH_CLUSTER_NORTH_2_X_"
