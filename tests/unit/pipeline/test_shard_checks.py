"""A pipeline file with a source that has shards: what it may say, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.consistency_manager.control import readers_of
from anabranch.operating import compose
from anabranch.pipeline import drawing
from anabranch.pipeline.access import Operation, rights
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.shape import lags
from anabranch.pipeline.speakers import neighbours_of
from anabranch.protocol.control.failure_detector import Peer
from anabranch.protocol.errors import ConfigurationError
from anabranch.up.status import hops_of
from anabranch.up.topics import topics_of

RECORD = '{"type": "record", "name": "car", "fields": [{"name": "n", "type": "long"}]}'


def pipeline_in(folder: Path, shards: object, *, more: str = "", reads: str = "[cars]") -> Pipeline:
    (folder / "car.avsc").write_text(RECORD)
    (folder / "stages.py").write_text(
        "def first(cars, **_): return cars\n\ndef second(first): return first\n"
    )
    path = folder / "pipeline.yaml"
    path.write_text(
        "pipeline: p\npartitions: 3\nsources:\n  cars:\n    topics: [cars]\n    record: car.avsc\n"
        f"    event_time: {{field: n}}\n    shards: {shards}\n{more}"
        f"stages:\n  first: {{reads: {reads}, transform: stages:first}}\n"
        "  second: {reads: first, transform: stages:second}\n"
        "outputs:\n  out: {stage: second, corrected: {topic: out}}\n"
    )
    return load(path)


def other(name: str, shards: int = 1) -> str:
    return (
        f"  {name}: {{topics: [in.{name}], record: car.avsc, event_time: {{field: n}},"
        f" shards: {shards}}}\n"
    )


@pytest.mark.parametrize("shards", [0, -1, 17, "two", "true", 1.5])
def test_a_number_that_is_none_is_rejected(tmp_path: Path, shards: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"8: sources\.cars\.shards: an integer from 1 to 16 is wanted"
    ) as raised:
        pipeline_in(tmp_path, shards)
    assert len(str(raised.value).splitlines()) == 1


def test_a_stage_reads_a_limited_number_of_streams(tmp_path: Path) -> None:
    more = other("trucks", 8)
    pipeline_in(tmp_path, 8, more=more, reads="[cars, trucks]")
    with pytest.raises(ConfigurationError, match=r"reads: its inputs have 17 streams"):
        pipeline_in(tmp_path, 9, more=more, reads="[cars, trucks]")
    pipeline_in(tmp_path, 9, more=more)


def test_a_stream_may_not_have_a_name_that_kafka_takes_for_a_shards(tmp_path: Path) -> None:
    more, reads = other("cars_1"), "[cars, cars_1]"
    pipeline_in(tmp_path, 1, more=more, reads=reads)
    with pytest.raises(ConfigurationError, match=r"cars\.1 and those of cars_1"):
        pipeline_in(tmp_path, 2, more=more, reads=reads)


def test_each_shard_has_topics_of_its_own_and_the_input_enough_partitions(tmp_path: Path) -> None:
    found = {topic.settings.name: topic for topic in topics_of(pipeline_in(tmp_path, 4))}
    assert found["cars"].settings.partitions == 4
    for stream in ("cars.0", "cars.1", "cars.2", "cars.3"):
        assert {f"p.{stream}.boundaries", f"p.{stream}.blocks.0"} <= found.keys()
        assert f"p.control.ingestion.{stream}" in found
    assert "p.cars.boundaries" not in found
    with pytest.raises(ConfigurationError, match="internal topic"):
        pipeline_in(tmp_path, 2, more=other("x").replace("in.x", "p.cars.1.boundaries"))


def test_each_shard_has_rights_of_its_own(tmp_path: Path) -> None:
    found = rights(pipeline_in(tmp_path, 2))

    def names(principal: str, operation: Operation) -> set[str]:
        return {r.name for r in found if (r.principal, r.operation) == (principal, operation)}

    assert names("p.ingestion.cars.1", Operation.WRITE) == {
        "p.cars.1.boundaries",
        "p.cars.1.blocks.0",
        "p.control.ingestion.cars.1",
        "cars.rejected",
    }
    reads = names("p.ingestion.cars.1", Operation.READ)
    assert {"cars", "p.cars.0.boundaries", "p.cars.1.boundaries"} <= reads
    assert "p.cars.0.blocks.0" not in reads
    assert names("p.processing.local.0", Operation.READ) >= {
        f"p.cars.{shard}.{topic}" for shard in (0, 1) for topic in ("boundaries", "blocks.0")
    }
    assert names("p.operator", Operation.WRITE) >= {"p.cars.0.boundaries", "p.cars.1.boundaries"}


def test_a_stage_waits_for_every_shard_and_hears_all_of_them(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, 2)
    assert vars(lags(pipeline, "first")).keys()
    assert {"p.control.ingestion.cars.0", "p.control.ingestion.cars.1"} <= neighbours_of(
        pipeline, "first"
    ).keys()


def test_what_reads_it_holds_back_the_trimming_of_every_shard(tmp_path: Path) -> None:
    readers = readers_of(pipeline_in(tmp_path, 2))
    assert readers["cars.0"] == readers["cars.1"] == [Peer("processing", "first", "0")]


def test_it_is_drawn_deployed_and_timed_by_its_shards(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, 2)
    text = list(drawing.text(pipeline))
    assert [line for line in text if line.startswith("source")] == [
        "source cars.0  topic cars (json)",
        "source cars.1  topic cars (json)",
    ]
    file = compose.text(pipeline, folder=".", image="anabranch")
    for shard in (0, 1):
        assert f"  ingestion-cars-{shard}:\n" in file
        assert f"ANABRANCH_NAME: cars.{shard}}}" in file
    rows: list[dict[str, object]] = [
        {"service": "ingestion", "name": f"cars.{shard}", "age_ms": 300 + shard, "detail": {}}
        for shard in (0, 1)
    ]
    rows.append(
        {
            "service": "processing",
            "name": "local.0",
            "age_ms": None,
            "detail": {"stages": [{"stage": "first", "age_ms": 900}]},
        }
    )
    assert [(hop.name, hop.added_ms) for hop in hops_of(pipeline, rows)] == [
        ("ingestion/cars.0", 300),
        ("ingestion/cars.1", 301),
        ("processing/first", 599),
    ]
