"""Which topics a pipeline has, and how they are made: on the log in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.codec.catalog import BROKERS_OWN, TopicSettings
from anabranch.local.topic_creation import Topic, prepare, topics_of
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.ports import EventLog, LogAdmin
from anabranch.protocol.errors import ConfigurationError, Unavailable

_FILE = Path(__file__).parents[3] / "examples" / "toll_road" / "pipeline.yaml"


class _Admin:
    """Only what ``prepare`` asks."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics = topics
        self.requested: list[TopicSettings] = []

    def partitions(self, topics: list[str]) -> dict[str, int]:
        return {name: self.topics[name] for name in topics if name in self.topics}

    def create(self, topics: list[TopicSettings]) -> list[str]:
        self.requested = list(topics)
        for topic in topics:
            self.topics.setdefault(topic.name, topic.partitions)
        return ["topic x has a=1 instead of 2"]

    def grow(self, topic: str, partitions: int) -> None:
        self.topics[topic] = partitions

    def settings(self, topic: str) -> dict[str, str]:
        if topic == "reports.0":
            raise Unavailable("not allowed")
        return {
            "min.insync.replicas": "1",
            "cleanup.policy": "delete",
            "retention.ms": "1",
            "unclean.leader.election.enable": "true",
        }

    def close(self) -> None:
        pass


class _Log:
    def __init__(self, admin: _Admin) -> None:
        self._admin = admin

    def admin(self) -> LogAdmin:
        return self._admin  # type: ignore[return-value]


def _log(**topics: int) -> tuple[EventLog, _Admin]:
    admin = _Admin(dict(topics))
    return _Log(admin), admin  # type: ignore[return-value]


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return load(_FILE)


def _named(topics: list[Topic]) -> dict[str, Topic]:
    return {topic.settings.name: topic for topic in topics}


def test_all_topics_of_the_example(pipeline: Pipeline) -> None:
    found = _named(topics_of(pipeline))
    streams = ["reports_0", "reports_1", "reports_2", "segment_statistics", "tolls"]
    assert set(found) == {
        *(f"reports.{n}" for n in range(3)),
        *(
            f"reports.{n}.rejected" if n == 0 else found_name
            for n in range(3)
            for found_name in [pipeline.sources[f"reports_{n}"].dead_letter]
        ),
        *(f"toll-road.{stream}.boundaries" for stream in streams),
        *(f"toll-road.{stream}.blocks.0" for stream in streams),
        *(f"toll-road.control.ingestion.reports_{n}" for n in range(3)),
        *(f"toll-road.control.processing.{stage}.0" for stage in pipeline.stages),
        "toll-road.control.delivery.tolls",
        "toll-road.manager",
        "toll-road.fences",
        "toll-road.control.alarms",
        "toll-road.placement",
        "toll-road.tolls.progress",
        "toll-road.tolls.live.progress",
        "tolls",
        "tolls.rejected",
        "tolls.live",
    }
    assert found["toll-road.tolls.boundaries"].settings.partitions == 1
    assert found["toll-road.tolls.blocks.0"].settings.partitions == pipeline.partitions
    assert found["tolls"].settings.partitions == pipeline.partitions
    assert {topic.owner for name, topic in found.items() if name.startswith("toll-road.")} == {
        "internal"
    }


def test_the_embedded_broker_keeps_users_records_for_ever(pipeline: Pipeline) -> None:
    embedded, given = (
        _named(topics_of(pipeline, embedded=True)),
        _named(topics_of(pipeline, replication=3)),
    )
    assert embedded["reports.0"].settings.config["retention.ms"] == "-1"
    assert given["reports.0"].settings.config["retention.ms"] != "-1"
    assert given["tolls"].settings.replication == 3
    assert given["tolls"].settings.config["min.insync.replicas"] == "2"


def test_copies_are_the_clusters_own_unless_given(pipeline: Pipeline) -> None:
    """One copy each, on a cluster of three brokers, would quietly be less than every other
    topic there has.
    """
    for topic in topics_of(pipeline):
        assert topic.settings.replication == BROKERS_OWN
        assert "min.insync.replicas" not in topic.settings.config
    assert {topic.settings.replication for topic in topics_of(pipeline, embedded=True)} == {1}
    assert {
        topic.settings.replication for topic in topics_of(pipeline, embedded=True, replication=3)
    } == {3}


def test_a_missing_input_on_a_given_broker_is_an_error_that_says_so(pipeline: Pipeline) -> None:
    log, admin = _log(**{"reports.0": 7})
    with pytest.raises(ConfigurationError) as caught:
        prepare(log, topics_of(pipeline), create_inputs=False, say=print)
    assert [line.split(" does not exist")[0] for line in str(caught.value).splitlines()] == [
        "input topic reports.1",
        "input topic reports.2",
    ]
    assert admin.requested == []


def test_each_shard_of_an_output_gets_a_partition_of_rejected_results(pipeline: Pipeline) -> None:
    output = pipeline.outputs["tolls"].model_copy(update={"shards": 3, "shards_before": [1]})
    several = pipeline.model_copy(update={"outputs": {"tolls": output}})
    for there, then in ((1, 3), (3, 3), (7, 7)):
        log, admin = _log(**{"tolls.rejected": there})
        prepare(log, topics_of(several), create_inputs=True, say=lambda _: None)
        assert admin.topics["tolls.rejected"] == then


def test_missing_topics_are_created_and_existing_users_topics_left_alone(
    pipeline: Pipeline,
) -> None:
    log, admin = _log(**{"reports.0": 7, "tolls": 9, "toll-road.manager": 1})
    notes: list[str] = []
    created = prepare(log, topics_of(pipeline), create_inputs=True, say=notes.append)
    names = {topic.name for topic in admin.requested}
    assert "reports.0" not in names
    assert "tolls" not in names
    assert "toll-road.manager" in names
    assert set(created) == names - {"toll-road.manager"}
    assert notes[:2] == [
        "note: topic x has a=1 instead of 2",
        "note: the settings of topic reports.0 could not be read: not allowed",
    ]
    (note,) = notes[2:]
    assert note.startswith(
        "note: topic tolls has unclean.leader.election.enable=true instead of false: acknowledged"
        " records would be lost"
    )


def test_a_wrong_number_of_partitions_of_ours_or_of_a_pinned_output_is_an_error(
    pipeline: Pipeline,
) -> None:
    log, _ = _log(**{"toll-road.tolls.blocks.0": 5})
    with pytest.raises(
        ConfigurationError,
        match=r"toll-road\.tolls\.blocks\.0 has 5 partitions, the pipeline needs 2",
    ):
        prepare(log, topics_of(pipeline), create_inputs=True, say=print)
    output = pipeline.outputs["tolls"]
    pinned = output.model_copy(
        update={"corrected": output.corrected.model_copy(update={"partitions": 4})}
    )
    changed = pipeline.model_copy(update={"outputs": {"tolls": pinned}})
    log, _ = _log(tolls=9)
    with pytest.raises(ConfigurationError, match="tolls has 9 partitions, the pipeline needs 4"):
        prepare(log, topics_of(changed), create_inputs=True, say=print)
