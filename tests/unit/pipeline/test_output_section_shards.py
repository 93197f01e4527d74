"""A pipeline file with an output that has shards: what it may say, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.operating import compose
from anabranch.pipeline import drawing
from anabranch.pipeline.access import Operation, Resource, rights
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.speakers import neighbours_of, speakers
from anabranch.protocol.errors import ConfigurationError
from anabranch.up.status import hops_of
from anabranch.up.topics import topics_of

RECORD = '{"type": "record", "name": "car", "fields": [{"name": "n", "type": "long"}]}'


def pipeline_in(folder: Path, shards: object, *, corrected: str = "", more: str = "") -> Pipeline:
    (folder / "car.avsc").write_text(RECORD)
    (folder / "stages.py").write_text("def first(cars, **_): return cars\n")
    path = folder / "pipeline.yaml"
    path.write_text(
        "pipeline: p\npartitions: 3\nsources:\n  cars:\n    topics: [cars]\n    record: car.avsc\n"
        "    event_time: {field: n}\n"
        "stages:\n  first: {reads: [cars], transform: stages:first}\n"
        f"outputs:\n  out:\n    stage: first\n    shards: {shards}\n"
        f"    corrected: {{topic: out{corrected}}}\n{more}"
    )
    return load(path)


@pytest.mark.parametrize("shards", [0, -1, 17, "two", "true", 1.5])
def test_a_number_that_is_none_is_rejected(tmp_path: Path, shards: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"outputs\.out\.shards: an integer from 1 to 16 is wanted"
    ) as raised:
        pipeline_in(tmp_path, shards)
    assert len(str(raised.value).splitlines()) == 1


def test_each_shard_needs_a_partition(tmp_path: Path) -> None:
    assert pipeline_in(tmp_path, 4, corrected=", partitions: 4").outputs["out"].shards == 4
    with pytest.raises(
        ConfigurationError, match=r"outputs\.out\.shards: its topic has 4 partitions"
    ):
        pipeline_in(tmp_path, 5, corrected=", partitions: 4")


def test_an_output_without_a_topic_has_one_mistake_with_shards(tmp_path: Path) -> None:
    path = pipeline_in(tmp_path, 2).path
    path.write_text(path.read_text().replace("    corrected: {topic: out}\n", ""))
    with pytest.raises(ConfigurationError, match="corrected is missing") as raised:
        load(path)
    assert len(str(raised.value).splitlines()) == 1


def test_shards_are_the_outputs_and_not_its_topics(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"corrected\.shards"):
        pipeline_in(tmp_path, 1, corrected=", shards: 2")


def test_an_output_may_not_have_a_name_that_kafka_takes_for_a_shards(tmp_path: Path) -> None:
    more = "  out_1: {stage: first, corrected: {topic: other}}\n"
    pipeline_in(tmp_path, 1, more=more)
    with pytest.raises(ConfigurationError, match=r"out\.1 and those of out_1"):
        pipeline_in(tmp_path, 2, more=more)


def test_each_shard_has_topics_of_its_own_and_the_output_enough_partitions(tmp_path: Path) -> None:
    found = {topic.settings.name: topic for topic in topics_of(pipeline_in(tmp_path, 4))}
    assert found["out"].settings.partitions == 4
    assert found["out.rejected"].settings.partitions == 4
    for process in ("out.0", "out.1", "out.2", "out.3"):
        assert {f"p.{process}.progress", f"p.control.delivery.{process}"} <= found.keys()
    assert not {"p.out.progress", "p.control.delivery.out"} & found.keys()
    alone = {topic.settings.name: topic for topic in topics_of(pipeline_in(tmp_path, 1))}
    assert alone["out"].settings.partitions == 3
    assert alone["out.rejected"].settings.partitions == 1
    assert {"p.out.progress", "p.control.delivery.out"} <= alone.keys()
    with pytest.raises(ConfigurationError, match="internal topic"):
        pipeline_in(tmp_path, 2, more="  x: {stage: first, corrected: {topic: p.out.1.progress}}\n")


def test_each_shard_has_rights_of_its_own(tmp_path: Path) -> None:
    found = rights(pipeline_in(tmp_path, 2, more="    live: {topic: live}\n"))

    def names(principal: str, operation: Operation, resource: Resource) -> set[str]:
        wanted = (principal, operation, resource)
        return {r.name for r in found if (r.principal, r.operation, r.resource) == wanted}

    def topics(principal: str, operation: Operation) -> set[str]:
        return names(principal, operation, Resource.TOPIC)

    first, second = "p.delivery.out.0", "p.delivery.out.1"
    assert topics(second, Operation.WRITE) == {
        "p.out.1.progress",
        "p.control.delivery.out.1",
        "out",
        "out.rejected",
    }
    assert topics(first, Operation.WRITE) == {
        "p.out.0.progress",
        "p.control.delivery.out.0",
        "out",
        "out.rejected",
        "live",
        "p.out.live.progress",
    }
    reads = topics(second, Operation.READ)
    assert {"p.out.0.progress", "p.out.1.progress", "p.first.boundaries", "out"} <= reads
    assert not {"live", "p.out.live.progress"} & reads
    ids = Resource.TRANSACTIONAL_ID
    assert names(first, Operation.WRITE, ids) == {"p.out.0.corrected", "p.out.live"}
    assert names(second, Operation.WRITE, ids) == {"p.out.1.corrected"}
    assert topics("p.consumer.out", Operation.READ) == {"out", "out.rejected", "live"}
    assert topics("p.consumer.out", Operation.WRITE) == set()


def test_a_stage_hears_every_shard(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, 2)
    heard = {"p.control.delivery.out.0", "p.control.delivery.out.1"}
    assert heard <= neighbours_of(pipeline, "first").keys()
    assert heard <= speakers(pipeline).keys()


def test_it_is_drawn_deployed_and_timed_by_its_shards(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, 2, more="    live: {topic: live}\n")
    text = [line.strip("│├└─ ") for line in drawing.text(pipeline)]
    assert [line for line in text if line.startswith("output")] == [
        "output out.0  topic out, live live",
        "output out.1  topic out",
    ]
    file = compose.text(pipeline, folder=".", image="anabranch")
    for shard in (0, 1):
        assert f"  delivery-out-{shard}:\n" in file
        assert f"ANABRANCH_NAME: out.{shard}}}" in file
    rows: list[dict[str, object]] = [
        {"service": "delivery", "name": f"out.{shard}", "age_ms": 300 + shard, "detail": {}}
        for shard in (0, 1)
    ]
    assert [hop.name for hop in hops_of(pipeline, rows)] == ["delivery/out.0", "delivery/out.1"]


def test_each_shard_is_a_process(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, 3)
    assert [name for service, name in pipeline.processes() if service == "delivery"] == [
        "out.0",
        "out.1",
        "out.2",
    ]
    output = pipeline.deliveries()["out.2"]
    assert (output.name, output.shard("out.2").index, output.shard("out.2").count) == ("out", 2, 3)
