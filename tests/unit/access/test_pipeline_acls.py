"""Rights as data. tests/security tests on a real broker that none is missing and none is
superfluous; these tests cover how they are derived.
"""

from __future__ import annotations

from pathlib import Path

from anabranch.access.pipeline_acls import (
    CLOCK_TOPIC,
    UNUSED_GROUP,
    Operation,
    Resource,
    Right,
    rights,
)
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.local.topic_creation import topics_of
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Scaling

PIPELINE = load(Path(__file__).parents[2] / "security" / "pipeline.yaml")


def of(found: list[Right], principal: str, operation: Operation) -> set[str]:
    return {
        r.name
        for r in found
        if (r.principal, r.operation, r.resource) == (principal, operation, Resource.TOPIC)
    }


def test_every_topic_of_the_pipeline_and_no_other() -> None:
    named = {right.name for right in rights(PIPELINE) if right.resource is Resource.TOPIC}
    assert named == {topic.settings.name for topic in topics_of(PIPELINE)} | {CLOCK_TOPIC}


def test_the_group_is_the_one_that_readers_name() -> None:
    for settings in (KafkaSettings("a:1"), KafkaSettings("a:1", client_id="page")):
        assert settings.consumer(committed=True)["group.id"] == UNUSED_GROUP


def test_each_right_once() -> None:
    found = rights(PIPELINE)
    assert len({(r.principal, r.resource, r.name, r.operation) for r in found}) == len(found)


def test_a_prefix_of_ones_own() -> None:
    assert {right.principal.partition("-")[0] for right in rights(PIPELINE, prefix="prod-")} == {
        "prod"
    }
    assert "consumer.out" in {right.principal for right in rights(PIPELINE, prefix="")}


def test_one_principal_for_a_participant() -> None:
    found = rights(PIPELINE, by_participant=True)
    assert of(found, "secure.participant.north", Operation.WRITE) == {
        "secure.totals.boundaries",
        "secure.totals.blocks.0",
        "secure.totals.blocks.1",
        "secure.control.processing.totals.0",
        "secure.control.processing.totals.1",
    }
    assert of(found, "secure.participant.south", Operation.READ) == {
        "secure.payments.boundaries",
        "secure.payments.blocks.0",
        "secure.audits.boundaries",
        "secure.placement",
        *control_topics(PIPELINE),
    }
    assert not [right for right in found if ".processing." in right.principal]


def test_a_source_hears_the_stages_that_read_it_and_nobody_else() -> None:
    found = rights(PIPELINE)
    heard = {
        source: {
            topic
            for topic in of(found, f"secure.ingestion.{source}", Operation.READ)
            if ".control." in topic
        }
        for source in PIPELINE.sources
    }
    assert heard == {
        "reports": {"secure.control.processing.totals.0", "secure.control.processing.totals.1"},
        "payments": {"secure.control.processing.audits.0"},
    }


def test_where_a_pipeline_is_scaled_the_manager_moves_replicas_and_nodes_report() -> None:
    scaled = PIPELINE.model_copy(
        update={
            "scaling": Scaling(pool=["north.7"], above_permille=700, for_ms=1, rest_ms=1),
            "named_nodes": PIPELINE.named_nodes | {"north.7": []},
        }
    )
    found = rights(scaled)
    assert "secure.placement" in of(found, "secure.consistency_manager", Operation.WRITE)
    assert "secure.placement" in of(found, "secure.consistency_manager", Operation.READ)
    assert "secure.placement" not in of(
        rights(PIPELINE), "secure.consistency_manager", Operation.READ
    )
    assert of(found, "secure.processing.north.7", Operation.WRITE) == {
        "secure.control.node.north.7"
    }
    writers = {
        r.principal
        for r in found
        if (r.name, r.operation) == ("secure.control.node.north.0", Operation.WRITE)
    }
    assert writers == {"secure.processing.north.0"}
    assert "secure.control.node.north.7" in of(
        rights(scaled, by_participant=True), "secure.participant.north", Operation.WRITE
    )


def test_the_operator_alone_says_where_replicas_are() -> None:
    found = rights(PIPELINE)
    assert {
        r.principal for r in found if (r.name, r.operation) == ("secure.placement", Operation.WRITE)
    } == {"secure.operator"}
    readers = {
        r.principal for r in found if (r.name, r.operation) == ("secure.placement", Operation.READ)
    }
    assert readers == {
        "secure.operator",
        *(r.principal for r in found if r.principal.startswith("secure.processing.")),
    }
    stages = {"secure.totals.boundaries", "secure.audits.boundaries"}
    assert of(found, "secure.operator", Operation.READ) >= stages, "it asks for the newest epoch"
    assert not of(found, "secure.operator", Operation.WRITE) & stages


def test_only_deliveries_have_transactional_ids() -> None:
    found = {
        (r.principal, r.name) for r in rights(PIPELINE) if r.resource is Resource.TRANSACTIONAL_ID
    }
    assert found == {
        *(
            (f"secure.delivery.{output}", f"secure.{output}.{half}")
            for output in ("out", "audit")
            for half in ("corrected", "live")
        ),
        ("secure.delivery.out_eu", "secure.out_eu.corrected"),
    }


def test_no_prefix_covers_a_neighbour() -> None:
    """``out_eu`` begins with ``out``: a prefixed right of ``out`` must not match a name of
    ``out_eu``.
    """
    found = rights(PIPELINE)
    prefixes = [right for right in found if right.prefixed]
    assert {right.name for right in prefixes if right.principal == "secure.consumer.out"} == {
        "secure.consumer.out."
    }
    for right in prefixes:
        others = {r.principal for r in found} - {right.principal}
        assert not [other for other in others if other.startswith(right.name)]
