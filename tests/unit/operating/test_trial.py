"""Cases of ``anabranch test``: what is read and compared. tests/spark runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.codec.field_types import Field
from anabranch.operating.new_pipeline import write
from anabranch.operating.trial import (
    bound_rows,
    cases_in,
    differences,
    judge,
    main,
    source_rows,
)
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Binding, KafkaColumn, Pipeline
from anabranch.protocol.errors import ConfigurationError


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    write(tmp_path / "new", "sensors")
    return load(tmp_path / "new" / "pipeline.yaml")


def test_rows_are_compared_in_any_order_and_differences_stand_beside_each_other() -> None:
    assert (
        differences(
            ['{"a":1,"b":2}', '{"a":2}'], ['{"a":2,"event_time":9}', '{"b":2,"a":1,"event_time":9}']
        )
        == []
    )
    assert differences(['{"a":1}', '{"a":1}', '{"a":3}'], ['{"a":1}', '{"a":4}']) == [
        '- {"a": 1}',
        '- {"a": 3}',
        '+ {"a": 4}',
    ]


def test_the_time_counts_where_it_is_expected() -> None:
    assert differences(['{"a":1,"event_time":8}'], ['{"a":1,"event_time":9}']) == [
        '- {"a": 1, "event_time": 8}',
        '+ {"a": 1, "event_time": 9}',
    ]


def test_differences_are_counted_and_can_become_the_expected_rows(pipeline: Pipeline) -> None:
    (case,) = cases_in(pipeline, pipeline.path.parent / "tests", [])
    expected = case.expected["hottest"].read_text().splitlines()
    lines, good = judge(case, {"hottest": expected}, update=False)
    assert (lines, good) == ([f"sample: hottest: {len(expected)} rows, as expected"], True)
    lines, good = judge(case, {"hottest": [*expected[1:], '{"sensor":"x"}']}, update=False)
    assert (lines[0], good) == (
        f"sample: hottest: {len(expected)} rows, 1 rows are missing (-), 1 are not expected (+)",
        False,
    )
    judge(case, {"hottest": ['{"sensor":"x"}']}, update=True)
    assert case.expected["hottest"].read_text() == '{"sensor":"x"}\n'


def test_rows_have_their_event_time(pipeline: Pipeline) -> None:
    table = source_rows(pipeline, "readings", pipeline.path.parent / "tests/sample/readings.jsonl")
    assert [time.timestamp() * 1_000 for time in table["event_time"].to_pylist()] == table[
        "at"
    ].to_pylist()
    assert source_rows(pipeline, "readings", None).num_rows == 0


def bound(pipeline: Pipeline) -> Pipeline:
    record = pipeline.sources["readings"].record
    binding = Binding(name="theirs", pipeline="q", stream="s", record=record)
    return pipeline.model_copy(update={"bindings": {"theirs": binding}})


def test_rows_of_another_pipeline_bring_their_event_time(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    rows = tmp_path / "theirs.jsonl"
    row = {"at": 1, "sensor": "roof", "celsius": 1.5}
    rows.write_text("\n" + json.dumps(row | {"event_time": 2_000}) + "\n")
    table = bound_rows(bound(pipeline), "theirs", rows)
    (found,) = table.to_pylist()
    assert found.pop("event_time").timestamp() == 2
    assert found == row
    assert bound_rows(bound(pipeline), "theirs", None).num_rows == 0


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"at": 1}', "rows.jsonl:2: not a row with its event_time in ms"),
        ('{"at": 1, "event_time": "noon"}', "not a row with its event_time"),
        ('{"at": 1, "event_time": -1}', "not a row with its event_time"),
        ("[1]", "not a row with its event_time"),
        ('{"at": 1, "event_time"', "not a row with its event_time"),
        ('{"at": "noon", "event_time": 1}', "rows.jsonl:2: not a record reading"),
        (
            '{"at": 1, "sensor": "a", "celsius": 1, "more": 1, "event_time": 1}',
            "not a record reading",
        ),
    ],
)
def test_an_invalid_row_of_another_pipeline_is_named(
    pipeline: Pipeline, tmp_path: Path, row: str, says: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"at": 1, "sensor": "a", "celsius": 1, "event_time": 1}}\n{row}\n')
    with pytest.raises(ConfigurationError) as error:
        bound_rows(bound(pipeline), "theirs", path)
    assert says in str(error.value)


def test_mistakes_name_their_file_and_line(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = pipeline.path.parent / "tests"
    with pytest.raises(
        ConfigurationError,
        match=r"there are no cases in .*: put records into tests/CASE/SOURCE.jsonl",
    ):
        cases_in(pipeline, tests / "nothing", [])
    with pytest.raises(ConfigurationError, match=r"there is no folder .*other"):
        cases_in(pipeline, tests, ["other"])
    rows = tests / "sample" / "readings.jsonl"
    rows.write_text(f'{rows.read_text()}\n{{"at":"noon"}}\n')
    with pytest.raises(ConfigurationError, match=r"readings\.jsonl:12: not a record reading"):
        source_rows(pipeline, "readings", rows)
    (tests / "sample" / "coldest.expected.jsonl").touch()
    assert main([str(pipeline.path), str(tests)]) == 2
    assert "the pipeline has no stage coldest; it has hottest" in capsys.readouterr().err
    (tests / "sample" / "coldest.expected.jsonl").unlink()
    (tests / "sample" / "hottest.expected.jsonl").unlink()
    with pytest.raises(ConfigurationError, match="no file of expected rows"):
        cases_in(pipeline, tests, [])


def test_lines_may_have_the_further_columns_of_the_source(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    columns = (
        KafkaColumn(field=Field("k", "string", nullable=True), part="key"),
        KafkaColumn(field=Field("place", "long"), part="offset"),
        KafkaColumn(field=Field("of", "string"), part="topic"),
    )
    source = pipeline.sources["readings"].model_copy(update={"columns": columns})
    pipeline = pipeline.model_copy(update={"sources": {"readings": source}})
    sample = pipeline.path.parent / "tests/sample/readings.jsonl"
    row = json.loads(sample.read_text().splitlines()[0])
    path = tmp_path / "readings.jsonl"
    path.write_text(f"{json.dumps(row)}\n{json.dumps(row | {'k': 'a', 'place': 7, 'of': 't'})}\n")
    table = source_rows(pipeline, "readings", path)
    assert table.drop_columns("event_time").schema == source.rows.arrow_schema()
    assert table.select(["k", "place", "of"]).to_pylist() == [
        {"k": None, "place": 0, "of": source.topics[0]},
        {"k": "a", "place": 7, "of": "t"},
    ]


def test_a_line_without_a_usable_time_is_named(pipeline: Pipeline, tmp_path: Path) -> None:
    sample = pipeline.path.parent / "tests/sample/readings.jsonl"
    row = json.loads(sample.read_text().splitlines()[0])
    path = tmp_path / "readings.jsonl"
    path.write_text(f"{json.dumps(row)}\n{json.dumps(row | {'at': -1})}\n")
    with pytest.raises(ConfigurationError, match="record 2: field at is -1: not between"):
        source_rows(pipeline, "readings", path)
