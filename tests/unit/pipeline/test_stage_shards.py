"""Stages with shards: the keys of the file, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.access.pipeline_acls import Operation, rights
from anabranch.consistency_manager.control import readers_of
from anabranch.local.topic_creation import topics_of
from anabranch.pipeline import drawing
from anabranch.pipeline.control_topics import neighbour_control_topics
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import (
    depth,
    has_live,
    normal_ms,
    out_of_orderness_ms,
    strictest_output,
)
from anabranch.protocol.control.failure_detector import Peer
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import HOP_MS, SHARE_CHARACTERS_MAX
from anabranch.protocol.stage.availability import Ahead
from anabranch.protocol.stage.intervals import Interval
from anabranch.protocol.stage.shares import Share
from harness.pipeline_files import loaded

TWO = "shards: 2, shard_by: n"


def pipeline_in(
    folder: Path,
    first: str,
    *,
    second: str = "",
    reads: str = "cars",
    output: str = "second",
    more: str = "",
    source: str = "",
) -> Pipeline:
    """Return a pipeline in which ``first`` reads ``cars`` and ``jams``, and ``second`` reads
    ``first``.
    """
    return loaded(
        folder,
        "pipeline: p\nsources:\n"
        f"  cars: {{topics: [cars], record: car.avsc, event_time: {{field: n}}{source}}}\n"
        "  jams: {topics: [jams], record: car.avsc, event_time: {field: n}, out_of_orderness: 1s}\n"
        f"stages:\n  first: {{reads: {reads}, transform: stages:first, {first}}}\n"
        f"  second: {{reads: first, transform: stages:second{second}}}\n"
        f"outputs:\n  out: {{stage: {output}, corrected: {{topic: out}}, live: {{topic: live}}}}\n"
        f"{more}",
    )


def mistake(folder: Path, first: str, **options: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        pipeline_in(folder, first, **options)
    (line,) = str(raised.value).splitlines()
    return line


def test_each_shard_is_a_stage_which_readers_read_together(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, f"{TWO}, replicas: 2, parameters: {{a: 1}}")
    assert pipeline.order() == ["first.0", "first.1", "second"]
    zero, one = pipeline.stages["first.0"], pipeline.stages["first.1"]
    assert zero.share == Share(Interval("0"), {"cars": ("n",)})
    assert one.model_copy(update={"name": "first.0", "share": zero.share}) == zero
    assert (one.functions, one.parameters, one.replicas) == (["stages:first"], {"a": 1}, 2)
    assert pipeline.input_streams("first") == pipeline.inputs("second") == ["first.0", "first.1"]
    assert [pipeline.readers(stream) for stream in ("cars", "first.1", "first")] == [
        ["first.0", "first.1"],
        ["second"],
        [],
    ]
    assert set(pipeline.nodes()["local.1"]) == {"first.0.1", "first.1.1"}


@pytest.mark.parametrize("published", [False, True])
def test_a_stage_of_its_name_unites_them_for_who_is_no_stage(
    tmp_path: Path, published: bool
) -> None:
    pipeline = pipeline_in(
        tmp_path,
        f"{TWO}, ha: upstream_backup, state_horizon: 9s, parameters: {{a: 1}},"
        " resources: {cores: 2}",
        output="second" if published else "first",
        more="publish: {first: {keep: 1h}}\n" if published else "",
    )
    union = pipeline.stages["first"]
    assert (union.sql, union.reads, union.share) == ("SELECT * FROM `first`", ["first"], None)
    assert (union.ha, union.state_horizon_ms, union.parameters) == ("upstream_backup", 0, {})
    assert [stage.resources.cores for stage in pipeline.stages.values()] == [2, 2, None, None]
    assert pipeline.inputs("first") == pipeline.inputs("second") == ["first.0", "first.1"]
    assert pipeline.readers("first.0") == ["first", "second"]
    assert pipeline.readers("first") == []


def test_times_count_with_the_shards(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, f"{TWO}", reads="[cars, jams]", output="first")
    assert [depth(pipeline, name) for name in ("first.0", "first.1", "first", "second")] == [
        0,
        0,
        1,
        1,
    ]
    assert [strictest_output(pipeline, name) for name in ("first.0", "first")] == [
        Ahead(pipeline.max_delay_ms, 2, "out"),
        Ahead(pipeline.max_delay_ms, 1, "out"),
    ]
    assert has_live(pipeline, "first.1")
    assert not has_live(pipeline, "second")
    assert out_of_orderness_ms(pipeline, "second") == 1_000
    assert normal_ms(pipeline, "second") == normal_ms(pipeline, "first.0") == 1_250
    mixed = pipeline_in(tmp_path, TWO, second="}\n  third: {sql: q, reads: [first, jams]")
    assert normal_ms(mixed, "third") == 1_250 + HOP_MS


def test_it_has_topics_rights_and_readers_by_its_shards(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, TWO, output="first", source=", shards: 2")
    topics = {topic.settings.name for topic in topics_of(pipeline)}
    for stream in ("first", "first.0", "first.1"):
        assert {f"p.{stream}.boundaries", f"p.{stream}.blocks.0"} <= topics
    found = rights(pipeline, by_participant=False)
    written = {
        r.name for r in found if r.operation == Operation.WRITE and "processing" in r.principal
    }
    assert {"p.first.0.boundaries", "p.first.1.blocks.0", "p.first.boundaries"} <= written
    hears = neighbour_control_topics(pipeline, "first.1")
    assert {"p.control.processing.first.0", "p.control.processing.second.0"} <= hears.keys()
    assert "p.control.processing.first.0.0" not in hears
    readers = readers_of(pipeline)
    for stream in ("first.0", "first.1"):
        assert readers[stream] == [Peer("processing", name, "0") for name in ("first", "second")]
    for stream in ("cars.0", "cars.1"):
        assert readers[stream] == [Peer("processing", f"first.{i}", "0") for i in (0, 1)]
    assert readers["first"] == [Peer("delivery", "out", "0")]
    drawn = list(drawing.text(pipeline))
    assert "├─ stage first.0  stages:first on local.0" in drawn


def test_columns_may_be_named_for_each_input(tmp_path: Path) -> None:
    by = "shards: 4, shard_by: {cars: [n, event_time], jams: []}"
    pipeline = pipeline_in(tmp_path, by, reads="[cars, jams]")
    assert pipeline.inputs("second") == ["first.00", "first.01", "first.10", "first.11"]
    share = pipeline.stages["first.10"].share
    assert share == Share(Interval("10"), {"cars": ("n", "event_time"), "jams": ()})
    both = pipeline_in(tmp_path, "shards: 2, shard_by: [n]", reads="[cars, jams]")
    assert both.stages["first.0"].share == Share(Interval("0"), {"cars": ("n",), "jams": ("n",)})
    assert pipeline_in(tmp_path, "shards: 1, shard_by: n").stages["first"].share is None


def test_the_whole_is_known_to_who_only_looks(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, TWO, output="first")
    whole = pipeline.unsplit()
    assert whole.order() == ["first", "second"]
    assert whole.stages["first"] == pipeline_in(tmp_path, "shards: 1").stages["first"]
    assert whole.inputs("second") == ["first"]


def test_a_partner_may_run_one_or_all(tmp_path: Path) -> None:
    federation = "federation:\n  name: f\n  participant: local\n  partners: {{south: [{}]}}\n"
    backed_up = "ha: upstream_backup, state_horizon: 1s"

    def partners(stage: str) -> dict[str, list[str]]:
        more = federation.format(stage)
        pipeline = pipeline_in(tmp_path, f"{TWO}, {backed_up}", output="first", more=more)
        assert pipeline.federation is not None
        return pipeline.federation.partners

    assert partners("first.1") == {"south": ["first.1"]}
    assert partners("first") == {"south": ["first.0", "first.1"]}
    assert "there is no stage first.2; there are first.0, first.1, first, second" in mistake(
        tmp_path, TWO, output="first", more=federation.format("first.2")
    )


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("shards: 0, shard_by: n", "stages.first.shards: an integer from 1 to 16 is wanted"),
        (
            "shards: 3, shard_by: n",
            "6: stages.first.shards: its rows are halved again and again, so a stage has 1, 2, 4",
        ),
        ("shards: 2", "stages.first.shard_by: is missing; name the key columns"),
        ("shards: 2, shard_by: []", "stages.first.shard_by: is empty; name at least one column"),
        ("shards: 2, shard_by: {cars: []}", "every shard would compute all results"),
        ("shards: 2, shard_by: {jams: n}", "jams"),
        (
            f"shards: 2, shard_by: {'n' * SHARE_CHARACTERS_MAX}",
            f"at most {SHARE_CHARACTERS_MAX} are possible",
        ),
    ],
)
def test_what_cannot_be_is_a_mistake(tmp_path: Path, first: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        pipeline_in(tmp_path, first)
    assert words in str(raised.value)


def test_each_input_is_named_or_none(tmp_path: Path) -> None:
    by = "shards: 2, shard_by: {cars: n}"
    assert "jams is missing" in mistake(tmp_path, by, reads="[cars, jams]")


def test_names_and_numbers_fit(tmp_path: Path) -> None:
    assert "first.0 and those of first_0 would have names that Kafka takes for equal" in mistake(
        tmp_path, TWO, second="}\n  first_0: {reads: cars, transform: stages:first"
    )
    assert "its inputs have 32 streams, a stage reads at most 16" in mistake(
        tmp_path,
        "shards: 16, shard_by: n",
        second="}\n  both: {sql: q, reads: [first, other]}\n"
        "  other: {reads: cars, transform: stages:first, shards: 16, shard_by: n",
    )


def test_what_is_wrong_with_all_shards_is_said_once(tmp_path: Path) -> None:
    assert "its inputs have 17 streams" in mistake(
        tmp_path, TWO, reads="[cars, jams]", source=", shards: 16"
    )


HALVED = f"{TWO}, halvings: 1, state_horizon: 1s"


def test_the_halves_of_shards_are_stages_from_the_beginning(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, HALVED, output="first")
    halves = ["first.00", "first.01", "first.10", "first.11"]
    assert pipeline.inputs("first") == ["first.0", "first.1", *halves]
    assert pipeline.begins_with("first") == ["first.0", "first.1"]
    assert [pipeline.halves(each) for each in ("first.1", "first.10")] == [halves[2:], []]
    assert [pipeline.stages[each].parent for each in ("first.1", "first.10")] == ["", "first.1"]
    assert pipeline.stages["first.10"].share == Share(Interval("10"), {"cars": ("n",)})
    assert {f"{half}.0" for half in halves} < set(pipeline.nodes()["local.0"])
    assert list(pipeline.unsplit().stages) == ["first", "second"]
    assert readers_of(pipeline)["first.00"] == [
        Peer("processing", "first", "0"),
        Peer("processing", "second", "0"),
    ]


def test_a_stage_may_begin_whole_and_be_halved_twice(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, "shard_by: n, halvings: 2, state_horizon: 0ms")
    assert pipeline.begins_with("first") == ["first"]
    assert pipeline.stages["first"].share is None
    assert pipeline.halves("first.1") == ["first.10", "first.11"]
    assert len(pipeline.inputs("second")) == 7
    assert list(pipeline.unsplit().stages) == ["first", "second"]


@pytest.mark.parametrize(
    ("first", "options", "text"),
    [
        (f"{TWO}, halvings: 1", {}, "needs state_horizon, the time after which a record"),
        (f"{HALVED}, ha: passive, replicas: 2", {}, "is for ha: active, and this stage has"),
        ("shards: 8, shard_by: n, halvings: 2, state_horizon: 1s", {}, "32 shards could run"),
        (
            "shard_by: n, halvings: 1, state_horizon: 1s",
            {"output": "first"},
            "needs shards: 2 or more where an output or another pipeline reads the stage",
        ),
        ("halvings: 1, state_horizon: 1s", {}, "needs shard_by, the key by which the rows"),
        ("shards: 8, shard_by: n, halvings: 1, state_horizon: 1s", {}, "a stage reads at most 16"),
    ],
)
def test_a_stage_that_cannot_be_halved_is_a_mistake(
    tmp_path: Path, first: str, options: dict[str, str], text: str
) -> None:
    assert text in mistake(tmp_path, first, **options)


def test_a_replica_may_answer_a_split_of_its_shard_alone(tmp_path: Path) -> None:
    pipeline = pipeline_in(
        tmp_path,
        HALVED,
        more="nodes: {a: [first.0.0], b: [first.00.0], c: [second.0], d: [first.01.0]}\n",
    )
    found = {(right.principal, right.name, right.operation) for right in rights(pipeline)}
    moves = {who for who, topic, may in found if (topic, may) == ("p.placement", Operation.WRITE)}
    assert moves == {"p.processing.a", "p.processing.local.0", "p.operator"}, (
        "the second has first.1"
    )
    assert ("p.consistency_manager", "p.placement", Operation.READ) in found
    for who, stream in (("a", "first.00"), ("a", "first.01"), ("b", "first.0")):
        at = f"p.processing.{who}", f"p.{stream}.boundaries"
        assert (*at, Operation.READ) in found
        assert (*at, Operation.WRITE) not in found
    assert ("p.processing.b", "p.first.01.boundaries", Operation.READ) not in found
