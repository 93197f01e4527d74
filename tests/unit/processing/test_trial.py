"""Cases of ``anabranch test``: what is read and compared. tests/spark runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.operating.new_pipeline import write
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.processing.trial import cases_in, differences, judge, main, source_rows
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


def test_what_differs_is_counted_and_can_be_taken(pipeline: Pipeline) -> None:
    (case,) = cases_in(pipeline, pipeline.path.parent / "tests", [])
    expected = case.expected["hottest"].read_text().splitlines()
    said, good = judge(case, {"hottest": expected}, update=False)
    assert (said, good) == ([f"sample: hottest: {len(expected)} rows, as expected"], True)
    said, good = judge(case, {"hottest": [*expected[1:], '{"sensor":"x"}']}, update=False)
    assert (said[0], good) == (
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
    with pytest.raises(ConfigurationError, match="nothing is expected"):
        cases_in(pipeline, tests, [])
