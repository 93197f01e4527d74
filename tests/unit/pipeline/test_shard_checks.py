"""Sources and outputs with shards: the keys of the file, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.access.pipeline_acls import Operation, Resource, rights
from anabranch.consistency_manager.control import readers_of
from anabranch.local.status import hops_of
from anabranch.local.topic_creation import topics_of
from anabranch.operating import compose
from anabranch.pipeline import drawing
from anabranch.pipeline.control_topics import control_topics, neighbour_control_topics
from anabranch.pipeline.file import load
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import lags
from anabranch.protocol.control.failure_detector import Peer
from anabranch.protocol.edge.handover import SourceStream
from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.errors import ConfigurationError
from harness.pipeline_files import loaded


def written(folder: Path, sources: str, stages: str, outputs: str) -> Pipeline:
    """Return a pipeline whose sources (after the first keys), stages and outputs are these
    lines.
    """
    return loaded(
        folder,
        "pipeline: p\npartitions: 3\nsources:\n  cars:\n    topics: [cars]\n    record: car.avsc\n"
        f"    event_time: {{field: n}}\n{sources}stages:\n{stages}outputs:\n{outputs}",
    )


def source_in(folder: Path, shards: object, *, more: str = "", reads: str = "[cars]") -> Pipeline:
    """Return a pipeline whose source ``cars`` has these shards."""
    return written(
        folder,
        f"    shards: {shards}\n{more}",
        f"  first: {{reads: {reads}, transform: stages:first}}\n"
        "  second: {reads: first, transform: stages:second}\n",
        "  out: {stage: second, corrected: {topic: out}}\n",
    )


def output_in(folder: Path, shards: object, *, corrected: str = "", more: str = "") -> Pipeline:
    """Return a pipeline whose output ``out`` has these shards."""
    return written(
        folder,
        "",
        "  first: {reads: [cars], transform: stages:first}\n",
        f"  out:\n    stage: first\n    shards: {shards}\n"
        f"    corrected: {{topic: out{corrected}}}\n{more}",
    )


def other(name: str, shards: int = 1) -> str:
    return (
        f"  {name}: {{topics: [in.{name}], record: car.avsc, event_time: {{field: n}},"
        f" shards: {shards}}}\n"
    )


@pytest.mark.parametrize(
    ("pipeline_in", "key"),
    [(source_in, r"8: sources\.cars\.shards"), (output_in, r"outputs\.out\.shards")],
)
@pytest.mark.parametrize("shards", [0, -1, 17, "two", "true", 1.5])
def test_a_number_that_is_none_is_rejected(
    tmp_path: Path, pipeline_in: Callable[[Path, object], Pipeline], key: str, shards: object
) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}: an integer from 1 to 16") as raised:
        pipeline_in(tmp_path, shards)
    assert len(str(raised.value).splitlines()) == 1


def test_a_stage_reads_a_limited_number_of_streams(tmp_path: Path) -> None:
    more = other("trucks", 8)
    source_in(tmp_path, 8, more=more, reads="[cars, trucks]")
    with pytest.raises(ConfigurationError, match=r"reads: its inputs have 17 streams"):
        source_in(tmp_path, 9, more=more, reads="[cars, trucks]")
    source_in(tmp_path, 9, more=more)


def test_a_stream_may_not_have_a_name_that_kafka_takes_for_a_shards(tmp_path: Path) -> None:
    more, reads = other("cars_1"), "[cars, cars_1]"
    source_in(tmp_path, 1, more=more, reads=reads)
    with pytest.raises(ConfigurationError, match=r"cars\.1 and those of cars_1"):
        source_in(tmp_path, 2, more=more, reads=reads)


def test_each_shard_of_a_source_has_topics_and_its_input_enough_partitions(tmp_path: Path) -> None:
    found = {topic.settings.name: topic for topic in topics_of(source_in(tmp_path, 4))}
    assert found["cars"].settings.partitions == 4
    for stream in ("cars.0", "cars.1", "cars.2", "cars.3"):
        assert {f"p.{stream}.boundaries", f"p.{stream}.blocks.0"} <= found.keys()
        assert f"p.control.ingestion.{stream}" in found
    assert "p.cars.boundaries" not in found
    with pytest.raises(ConfigurationError, match="internal topic"):
        source_in(tmp_path, 2, more=other("x").replace("in.x", "p.cars.1.boundaries"))


def test_each_shard_of_a_source_has_rights_of_its_own(tmp_path: Path) -> None:
    found = rights(source_in(tmp_path, 2))

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
    pipeline = source_in(tmp_path, 2)
    assert vars(lags(pipeline, "first")).keys()
    assert {"p.control.ingestion.cars.0", "p.control.ingestion.cars.1"} <= neighbour_control_topics(
        pipeline, "first"
    ).keys()


def test_what_reads_it_holds_back_the_trimming_of_every_shard(tmp_path: Path) -> None:
    readers = readers_of(source_in(tmp_path, 2))
    assert readers["cars.0"] == readers["cars.1"] == [Peer("processing", "first", "0")]


def test_a_source_has_the_streams_of_all_numbers_that_it_had_and_processes_of_the_last(
    tmp_path: Path,
) -> None:
    pipeline = source_in(tmp_path, "[0, 2, 1, 3]")
    source = pipeline.sources["cars"]
    earlier, now = ["cars.2-0", "cars.2-1", "cars.3-0"], ["cars.4-0", "cars.4-1", "cars.4-2"]
    assert (source.shards, source.numbers) == (3, [0, 2, 1, 3])
    assert (source.earlier_processes(), source.processes()) == (earlier, now)
    assert pipeline.inputs("first") == [*earlier, *now]
    assert pipeline.stream_writers("cars.2-1") == ["0"]
    assert source.shard("cars.2-1") == Shard(1, 2)
    assert source.stream("cars.3-0") == SourceStream("cars", (0, 2, 1, 3), 3)
    assert [name for service, name in pipeline.processes() if service == "ingestion"] == now
    topics = {settings.name for _, settings in internal_topics(pipeline)}
    assert {f"{pipeline.name}.{stream}.boundaries" for stream in (*earlier, *now)} <= topics
    assert f"{pipeline.name}.control.ingestion.cars.2-0" not in topics
    found = {
        (right.name, right.operation)
        for right in rights(pipeline)
        if right.principal.endswith("ingestion.cars.4-1")
    }
    log, blocks = f"{pipeline.name}.cars.2-0.boundaries", f"{pipeline.name}.cars.2-0.blocks.0"
    assert {(log, Operation.READ), (log, Operation.WRITE)} <= found
    assert (blocks, Operation.WRITE) not in found
    assert (f"{pipeline.name}.cars.4-0.boundaries", Operation.WRITE) not in found


@pytest.mark.parametrize(
    ("shards", "what"),
    [
        ("[]", "a list of 0 numbers; write the number of shards, or a list"),
        (f"[{', '.join('1' * 101)}]", "a list of 101 numbers"),
        ("[2, 0]", "an integer from 1 to 16 is wanted, not 0"),
        ("[2, 0, 3]", "an integer from 1 to 16 is wanted, not 0"),
        ("[two, 3]", "an integer from 0 to 16 is wanted, not 'two'"),
        ("[8, 9]", "its inputs have 17 streams"),
    ],
)
def test_numbers_that_a_source_cannot_have_had(tmp_path: Path, shards: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(what)):
        source_in(tmp_path, shards)


def test_a_source_is_drawn_deployed_and_timed_by_its_shards(tmp_path: Path) -> None:
    pipeline = source_in(tmp_path, 2)
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


def test_each_shard_needs_a_partition(tmp_path: Path) -> None:
    assert output_in(tmp_path, 4, corrected=", partitions: 4").outputs["out"].shards == 4
    with pytest.raises(
        ConfigurationError, match=r"outputs\.out\.shards: its topic has 4 partitions"
    ):
        output_in(tmp_path, 5, corrected=", partitions: 4")


def test_an_output_without_a_topic_has_one_mistake_with_shards(tmp_path: Path) -> None:
    path = output_in(tmp_path, 2).path
    path.write_text(path.read_text().replace("    corrected: {topic: out}\n", ""))
    with pytest.raises(ConfigurationError, match="corrected is missing") as raised:
        load(path)
    assert len(str(raised.value).splitlines()) == 1


def test_shards_are_the_outputs_and_not_its_topics(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"corrected\.shards"):
        output_in(tmp_path, 1, corrected=", shards: 2")


def test_an_output_may_not_have_a_name_that_kafka_takes_for_a_shards(tmp_path: Path) -> None:
    more = "  out_1: {stage: first, corrected: {topic: other}}\n"
    output_in(tmp_path, 1, more=more)
    with pytest.raises(ConfigurationError, match=r"out\.1 and those of out_1"):
        output_in(tmp_path, 2, more=more)


def test_each_shard_of_an_output_has_topics_and_it_enough_partitions(
    tmp_path: Path,
) -> None:
    found = {topic.settings.name: topic for topic in topics_of(output_in(tmp_path, 4))}
    assert found["out"].settings.partitions == 4
    assert found["out.rejected"].settings.partitions == 4
    for process in ("out.0", "out.1", "out.2", "out.3"):
        assert {f"p.{process}.progress", f"p.control.delivery.{process}"} <= found.keys()
    assert not {"p.out.progress", "p.control.delivery.out"} & found.keys()
    alone = {topic.settings.name: topic for topic in topics_of(output_in(tmp_path, 1))}
    assert alone["out"].settings.partitions == 3
    assert alone["out.rejected"].settings.partitions == 1
    assert {"p.out.progress", "p.control.delivery.out"} <= alone.keys()
    with pytest.raises(ConfigurationError, match="internal topic"):
        output_in(tmp_path, 2, more="  x: {stage: first, corrected: {topic: p.out.1.progress}}\n")


def test_each_shard_of_an_output_has_rights_of_its_own(tmp_path: Path) -> None:
    found = rights(output_in(tmp_path, 2, more="    live: {topic: live}\n"))

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


def test_a_stage_hears_every_shard_of_an_output(tmp_path: Path) -> None:
    pipeline = output_in(tmp_path, 2)
    heard = {"p.control.delivery.out.0", "p.control.delivery.out.1"}
    assert heard <= neighbour_control_topics(pipeline, "first").keys()
    assert heard <= control_topics(pipeline).keys()


def test_an_output_is_drawn_deployed_and_timed_by_its_shards(tmp_path: Path) -> None:
    pipeline = output_in(tmp_path, 2, more="    live: {topic: live}\n")
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


def test_each_shard_of_an_output_is_a_process(tmp_path: Path) -> None:
    pipeline = output_in(tmp_path, 3)
    assert [name for service, name in pipeline.processes() if service == "delivery"] == [
        "out.0",
        "out.1",
        "out.2",
    ]
    output = pipeline.deliveries()["out.2"]
    assert (output.name, output.shard("out.2").index, output.shard("out.2").count) == ("out", 2, 3)


def test_an_output_has_processes_of_the_last_number_and_topics_of_all(tmp_path: Path) -> None:
    pipeline = output_in(tmp_path, "[1, 3, 2]", more="    live: {topic: live}\n")
    output, names = pipeline.outputs["out"], pipeline.topic_names
    earlier, now = ["out", "out.2-0", "out.2-1", "out.2-2"], ["out.3-0", "out.3-1"]
    assert (output.shards, output.numbers) == (2, [1, 3, 2])
    assert (output.earlier_processes(), output.processes()) == (earlier, now)
    assert list(pipeline.deliveries()) == now
    assert output.shard("out.3-1") == Shard(1, 2)
    topics = {topic.settings.name: topic for topic in topics_of(pipeline)}
    assert {names.progress(each) for each in (*earlier, *now)} <= topics.keys()
    assert names.control("delivery", "out") not in topics
    assert topics["out"].settings.partitions == 3


def test_the_first_shard_alone_may_end_those_before(tmp_path: Path) -> None:
    pipeline = output_in(tmp_path, "[2, 2]")
    name = pipeline.name

    def of(process: str) -> set[tuple[str, Operation]]:
        return {
            (right.name, right.operation)
            for right in rights(pipeline)
            if right.principal == f"{name}.delivery.{process}"
        }

    ids = {(f"{name}.out.{shard}.corrected", Operation.WRITE) for shard in (0, 1)}
    writes = {(f"{name}.out.{shard}.progress", Operation.WRITE) for shard in (0, 1)}
    reads = {(f"{name}.out.{shard}.progress", Operation.READ) for shard in (0, 1)}
    assert ids | writes | reads <= of("out.2-0")
    assert reads <= of("out.2-1")
    assert not (ids | writes) & of("out.2-1")
    alters = {right.name for right in rights(pipeline) if right.operation is Operation.ALTER}
    assert alters == {"out.rejected"}


@pytest.mark.parametrize(
    ("shards", "what"),
    [
        ("[]", "a list of 0 numbers; write the number of shards, or a list of all numbers that"),
        ("[0, 2]", "an integer from 1 to 16 is wanted, not 0"),
        ("[2, 0]", "an integer from 1 to 16 is wanted, not 0"),
        ("[3, 17]", "an integer from 1 to 16 is wanted, not 17"),
    ],
)
def test_numbers_that_an_output_cannot_have_had(tmp_path: Path, shards: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(what)):
        output_in(tmp_path, shards)


def test_each_number_of_shards_needs_its_partitions(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"outputs\.out\.shards: its topic has 2"):
        output_in(tmp_path, "[3, 2]", corrected=", partitions: 2")


def test_a_source_may_have_had_no_shards_at_first(tmp_path: Path) -> None:
    assert source_in(tmp_path, "[1, 3]").sources["cars"].streams()[:2] == ["cars", "cars.2-0"]
