"""The key ``shed`` of a stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.model import Pipeline, Shed
from anabranch.pipeline.transforms import import_roots
from anabranch.pipeline.waits import describe_shedding, too_short_to_shed
from anabranch.protocol.errors import ConfigurationError
from harness.pipeline_files import loaded


def pipeline_in(
    folder: Path, stage: str, reads: str = "cars", output: str = "first", live: str = ""
) -> Pipeline:
    return loaded(
        folder,
        "pipeline: p\nsources:\n"
        "  cars: {topics: [cars], record: car.avsc, event_time: {field: n}}\n"
        "  jams: {topics: [jams], record: car.avsc, event_time: {field: n}}\n"
        f"stages:\n  first:\n    reads: {reads}\n    transform: stages:first\n    {stage}\n"
        f"  second: {{reads: first, sql: q}}\n"
        f"outputs:\n  out: {{stage: {output}, corrected: {{topic: out}}, {live}}}\n",
        "def first(cars, **_): return cars\n\ndef matters(rows): return rows['n']\n",
    )


def shed(folder: Path, stage: str, reads: str = "cars") -> Shed:
    return pipeline_in(folder, stage, reads, "second").stages["first"].shed


@pytest.mark.parametrize("word", ["off", "false"])
def test_a_stage_can_be_told_to_leave_out_nothing(tmp_path: Path, word: str) -> None:
    assert shed(tmp_path, f"shed: {word}") == Shed()
    assert shed(tmp_path, f"shard_by: n\n    shed: {word}") == Shed()


def test_nothing_is_left_out_unless_the_file_says_so(tmp_path: Path) -> None:
    assert shed(tmp_path, "version: 1") == Shed()
    assert shed(tmp_path, "shard_by: n") == Shed()
    assert shed(tmp_path, "shard_by: n\n    on_missing_input: suspend") == Shed()


def test_keys_are_those_that_rows_are_dealt_out_by(tmp_path: Path) -> None:
    found = shed(tmp_path, "shard_by: n\n    shed: keys")
    assert found == Shed(kind="keys", by={"cars": ("n",)})


def test_an_input_that_each_shard_reads_whole_is_not_cut(tmp_path: Path) -> None:
    by = "shard_by: {cars: [n, event_time], jams: []}"
    both = "[cars, jams]"
    assert shed(tmp_path, f"{by}\n    shed: keys", both).by == {"cars": ("n", "event_time")}
    assert shed(tmp_path, f"{by}\n    shed: rows", both) == Shed(kind="rows", by={"cars": ()})


def test_rows_are_left_out_of_each_input(tmp_path: Path) -> None:
    found = shed(tmp_path, "shed: rows", "[cars, jams]")
    assert found == Shed(kind="rows", by={"cars": (), "jams": ()})


def test_a_function_may_say_which_rows_matter(tmp_path: Path) -> None:
    found = shed(tmp_path, "shed: {transform: stages:matters}", "[cars, jams]")
    assert found == Shed(kind="transform", function="stages:matters", by={"cars": (), "jams": ()})
    pipeline = pipeline_in(tmp_path, "shed: {transform: stages:matters}")
    assert import_roots([pipeline.stages["first"]], pipeline.path) == [str(tmp_path.resolve())]


def test_an_expression_may_say_which_rows_matter(tmp_path: Path) -> None:
    found = shed(tmp_path, 'shed: {by: "n > 3 AND n < 9"}', "[cars, jams]")
    assert found == Shed(kind="by", expression="n > 3 AND n < 9", by={"cars": (), "jams": ()})


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("version: 1", []),
        ("shed: rows", ["a part of the rows of cars, jams, by chance"]),
        (
            "shards: 2\n    shard_by: {cars: [n, event_time], jams: []}\n    shed: keys",
            ["all rows of some keys, cars by n, event_time"],
        ),
        (
            "shed: {by: n * 2}",
            ["those rows of cars, jams for which n * 2 is largest"],
        ),
        (
            "shed: {transform: stages:matters}",
            ["those rows of cars, jams that stages:matters finds most important"],
        ),
    ],
)
def test_people_are_told_what_an_overloaded_stage_keeps(
    tmp_path: Path, stage: str, words: list[str]
) -> None:
    seen = pipeline_in(tmp_path, stage, "[cars, jams]", live="live: {topic: live}")
    assert describe_shedding(seen) == [
        f"stage first: while it is overloaded, keeps {each}, tentatively" for each in words
    ]
    unseen = pipeline_in(tmp_path, stage, "[cars, jams]")
    assert [each.partition(" has")[0] for each in describe_shedding(unseen)] == [
        "stage first: shed" for _ in words
    ], "without a live topic it waits"


@pytest.mark.parametrize("stage", ["shed: rows", "shards: 2\n    shard_by: n\n    shed: keys"])
def test_a_stage_whose_overloaded_batches_get_too_little_time_is_named(
    tmp_path: Path, stage: str
) -> None:
    def found(stage: str, max_delay_ms: int, live: str = "live: {topic: live}") -> list[str]:
        pipeline = pipeline_in(tmp_path, stage, "cars", "second", live)
        return too_short_to_shed(pipeline.model_copy(update={"max_delay_ms": max_delay_ms}))

    assert found(stage, 4_200) == []
    (sentence,) = found(stage, 4_199)
    assert sentence.startswith("stage first: max_delay of out leaves each batch less than 1000 ms")
    assert sentence.endswith(": allow 1 ms more")
    assert found(stage, 4_199, live="") == [], "nothing is shed"
    assert found("shed: off", 4_199) == []


def test_each_shard_leaves_out_rows_and_their_union_none(tmp_path: Path) -> None:
    stages = pipeline_in(tmp_path, "shards: 2\n    shard_by: n\n    shed: keys").stages
    assert {name: stage.shed.kind for name, stage in stages.items()} == {
        "first.0": "keys",
        "first.1": "keys",
        "first": "off",
        "second": "off",
    }


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("shed: row", "9: stages.first.shed: 'row' is not known; did you mean 'rows'?"),
        ("shed: 300", "9: stages.first.shed: 300 is not known; use off, rows, keys"),
        (
            "shed: keys",
            "9: stages.first.shed: keys needs the columns of the key; add shard_by: [COLUMN]",
        ),
        ('shed: {by: "n *"}', "9: stages.first.shed.by: not an SQL expression: unable to parse"),
        ("shed: {by: 7}", "9: stages.first.shed.by: "),
        ('shed: {by: "7"}', "9: stages.first.shed.by: it names no column"),
        (
            "shed: {by: n, transform: f}",
            "9: stages.first.shed.transform: unknown key; known are by",
        ),
        ("shed: {}", "9: stages.first.shed.transform: is missing"),
        ("shed: {function: f}", "9: stages.first.shed.function: unknown key; known are transform"),
        (
            "shed: {transform: stages:matter}",
            (
                "9: stages.first.shed.transform: module stages has no function matter; did you mean"
                " matters?"
            ),
        ),
        (
            "shed: {transform: stages:first}",
            "9: stages.first.shed.transform: first needs an argument cars",
        ),
        (
            "shed:\n      transform: matters",
            "10: stages.first.shed.transform: 'matters' is not of the form module:function",
        ),
        (
            "shed: rows\n    on_missing_input: suspend",
            "9: stages.first.shed: rows gives tentative results, and on_missing_input: suspend",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, stage: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        pipeline_in(tmp_path, stage)
    assert f"pipeline.yaml:{words}" in str(raised.value)
