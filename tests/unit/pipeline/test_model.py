from __future__ import annotations

import pytest

from anabranch.pipeline.model import Federation, Output, Pipeline, Sink, Stage
from anabranch.protocol.edge.shards import Shard
from harness import plain_pipelines
from harness.plain_pipelines import stage
from harness.sources import pipeline as harness_pipeline

NAMES = ("north", "south")


def pipeline(*stages: Stage) -> Pipeline:
    outputs = {"out": Output(name="out", stage=stages[0].name, corrected=Sink(topic="t"))}
    return plain_pipelines.pipeline(*stages, outputs=outputs)


def test_stages_come_after_what_they_read() -> None:
    found = pipeline(stage("c", "b", "a"), stage("b", "a"), stage("a", "s"), stage("d", "s"))
    assert found.order() == ["a", "b", "c", "d"]
    assert found.streams() == ["a", "b", "c", "d"]


def test_a_deep_lattice_is_ordered_without_walking_every_path() -> None:
    layers = [[f"s{layer}-{i}" for i in range(4)] for layer in range(40)]
    stages = [
        stage(name, *(layers[n - 1] if n else ["in"]))
        for n, layer in enumerate(layers)
        for name in layer
    ]
    order = pipeline(*reversed(stages)).order()
    assert sorted(order) == sorted(entry.name for entry in stages)
    assert all(
        order.index(read) < order.index(entry.name)
        for entry in stages
        for read in entry.reads
        if read != "in"
    )


def test_a_source_with_shards_is_a_stream_for_each() -> None:
    found = harness_pipeline("p", shards=2).model_copy(
        update={"stages": {"a": stage("a", "reports", "b"), "b": stage("b", "reports")}}
    )
    assert found.streams() == ["reports.0", "reports.1", "b", "a"]
    assert found.inputs("a") == ["reports.0", "reports.1", "b"]
    assert found.readers("reports.1") == ["a", "b"]
    assert found.readers("b") == ["a"]
    assert found.stream_writers("reports.1") == ["0"]
    with pytest.raises(KeyError):
        found.stream_writers("reports")
    assert found.is_of("north", "reports.0")
    assert found.processes()[:2] == [("ingestion", "reports.0"), ("ingestion", "reports.1")]
    assert found.sources["reports"].shard("reports.1") == Shard(1, 2)
    assert not found.sources["reports"].shard("reports.1").has(2)


def test_sources_and_the_stages_of_a_participant_are_its_own() -> None:
    south = stage("c", "b").model_copy(update={"participant": "south"})
    found = pipeline(stage("a", "s"), stage("b", "a"), south)
    found = found.model_copy(update={"sources": {"s": object()}, "bindings": {"other": object()}})
    own = {who: [n for n in ("s", "a", "b", "c", "other") if found.is_of(who, n)] for who in NAMES}
    assert own == {"north": ["s", "a", "b"], "south": ["s", "c"]}


def test_where_partners_may_run_stages_no_stream_is_its_own() -> None:
    traded = Federation(name="tolls", participant="north", partners={"south": ["a"]})
    found = pipeline(stage("a", "s"), stage("b", "a"))
    found = found.model_copy(update={"sources": {"s": object()}})
    assert all(found.is_of("north", stream) for stream in ("s", "a", "b"))
    found = found.model_copy(update={"federation": traded})
    assert not any(found.is_of("north", stream) for stream in ("s", "a", "b"))
    alone = traded.model_copy(update={"partners": {}})
    assert found.model_copy(update={"federation": alone}).is_of("north", "a")
