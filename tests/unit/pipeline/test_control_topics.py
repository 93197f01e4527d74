"""Control topics: each process has its own, and writes only about itself."""

from __future__ import annotations

from anabranch.pipeline.control_topics import (
    control_topics,
    fence_topic,
    neighbour_control_topics,
    stage_control_topics,
)
from anabranch.protocol.control.records import Fence, Heartbeat, TrimPoint
from harness import outputs


def test_a_topic_for_each_process_and_two_for_the_manager() -> None:
    of = outputs.pipeline("p", replicas=2, live=True)
    found = control_topics(of)
    assert list(found) == [
        "p.control.ingestion.reports",
        "p.control.processing.totals.0",
        "p.control.processing.totals.1",
        "p.control.delivery.out",
        "p.manager",
        "p.fences",
    ]
    for service, name, replica in (
        ("ingestion", "reports", "0"),
        ("processing", "totals", "0"),
        ("processing", "totals", "1"),
        ("delivery", "out", "0"),
        ("consistency_manager", "p", "0"),
    ):
        beat = Heartbeat(service, name, replica, 1, "running", 1, 1)
        assert sum(speaker.may_say(beat) for speaker in found.values()) == 1, beat
    assert [
        topic for topic, speaker in found.items() if speaker.may_say(TrimPoint("totals", 9, 1))
    ] == ["p.manager"]
    fence = Fence("totals", "0", 1, 1, (), 1)
    assert [topic for topic, speaker in found.items() if speaker.may_say(fence)] == ["p.fences"]
    assert fence_topic(of) == {"p.fences": found["p.fences"]}


def test_each_process_of_a_passive_stage_may_be_its_replica() -> None:
    of = outputs.pipeline("p", replicas=2)
    stage = of.stages["totals"].model_copy(update={"ha": "passive"})
    found = control_topics(of.model_copy(update={"stages": {"totals": stage}}))
    primary = Heartbeat("processing", "totals", "0", 1, "running", 1, 1)
    assert [t for t, speaker in found.items() if speaker.may_say(primary)] == [
        "p.control.processing.totals.0",
        "p.control.processing.totals.1",
    ]
    standby = Heartbeat("standby", "totals", "1", 1, "running", 1, 1)
    assert [t for t, speaker in found.items() if speaker.may_say(standby)] == [
        "p.control.processing.totals.1"
    ]


def test_a_replica_reads_the_topics_of_its_neighbours_and_the_manager() -> None:
    """A process two hops away is no neighbour, whatever its name; an output may have the name of a
    stage.
    """
    of = outputs.pipeline("p", replicas=2, live=True)
    first = of.stages["totals"]
    of = of.model_copy(
        update={
            "stages": {
                "totals": first,
                "out": first.model_copy(update={"name": "out", "reads": ("totals",)}),
                "last": first.model_copy(update={"name": "last", "reads": ("out",)}),
            }
        }
    )
    manager = {"p.manager", "p.fences"}
    replicas = {stage: {f"p.control.processing.{stage}.{i}" for i in (0, 1)} for stage in of.stages}
    assert set(neighbour_control_topics(of, "totals")) == manager | {
        "p.control.ingestion.reports",
        *replicas["totals"],
        *replicas["out"],
        "p.control.delivery.out",
    }
    assert set(neighbour_control_topics(of, "last")) == manager | replicas["out"] | replicas["last"]
    assert neighbour_control_topics(of, "last")["p.manager"].is_manager
    assert set(stage_control_topics(of, "out")) == replicas["out"]
    for stage in of.stages:
        assert neighbour_control_topics(of, stage).items() <= control_topics(of).items()


def test_each_speaks_of_lives_of_the_logs_that_its_records_are_about() -> None:
    found = control_topics(outputs.pipeline("p"))
    assert {topic: dict(speaker.logs) for topic, speaker in found.items()} == {
        "p.control.processing.totals.0": {"totals": "p.totals.boundaries"},
        "p.control.delivery.out": {"out": "p.totals.boundaries"},
        "p.manager": {"totals": "p.totals.boundaries"},
        "p.fences": {"totals": "p.totals.boundaries"},
    }
