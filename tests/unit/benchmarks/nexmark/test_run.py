"""The run of Nexmark: its command line, the pipeline files, the table and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from benchmarks.nexmark import flink_queries, plain_queries, report
from benchmarks.nexmark.__main__ import heading, parse
from benchmarks.nexmark.generator import Plan, generate
from benchmarks.nexmark.oracle import ORACLES
from benchmarks.nexmark.queries import path_of
from benchmarks.nexmark.session import Figures, Input
from benchmarks.nexmark.systems import OUT_OF_ORDERNESS_MS, System, pipeline_copy
from benchmarks.nexmark.verdict import Verdict

PAGE = Path(__file__).parents[4] / "docs/experiments/nexmark.md"


def test_each_system_has_each_query() -> None:
    assert plain_queries.QUERIES.keys() == flink_queries.QUERIES.keys() == ORACLES.keys()


@pytest.mark.parametrize("query", ORACLES)
def test_the_answers_have_the_columns_of_the_oracle(query: str) -> None:
    columns = flink_queries.QUERIES[query][0].replace("`", "")
    named = [each.split()[0] for each in columns.split(", ")]
    right = ORACLES[query](generate(Plan(5_000, 0)))
    assert named == right.columns


@pytest.mark.parametrize("query", ORACLES)
def test_a_session_has_topics_of_its_own(query: str, tmp_path: Path) -> None:
    pipeline = load(pipeline_copy(query, tmp_path, "some.events", "some.answers"))
    (source,) = pipeline.sources.values()
    (output,) = pipeline.outputs.values()
    assert pipeline.name == "some-answers"
    assert source.topics == ["some.events"]
    assert source.out_of_orderness_ms == OUT_OF_ORDERNESS_MS
    assert output.corrected is not None
    assert output.corrected.topic == "some.answers"


@pytest.mark.parametrize("query", ORACLES)
def test_a_join_in_time_is_wide_enough_for_the_stream(query: str) -> None:
    bound = re.findall(
        r"event_time \+ INTERVAL (\d+) SECONDS$", path_of(query).read_text(), re.MULTILINE
    )
    assert all(int(s) * 1_000 >= Plan(1, 0).longest_auction_ms for s in bound)
    assert bool(bound) == (query == "q4")


def test_the_command_line() -> None:
    options = parse(["--queries", "q5,q7", "--systems", "flink,anabranch", "--no-page"])
    assert options.queries == ("q5", "q7")
    assert options.systems == ("anabranch", "flink")
    assert options.page is None
    assert parse([]).queries == tuple(ORACLES)
    assert parse([]).page == PAGE


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--queries", "q6"], "q6: there are q0, q1"),
        (["--systems", "storm"], "storm: there are anabranch, pyspark, flink"),
        (["--events", "0"], "at least 1"),
        (["--warm-up", "100000"], "--warm-up 150000"),
    ],
)
def test_a_mistake_on_the_command_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(arguments)
    assert raised.value.code == 2
    assert problem in capsys.readouterr().err


def test_the_input_ends_behind_all_windows() -> None:
    plan = Plan(1_000, 0)
    given = Input.of(plan, 100, generate(plan))
    assert given.measured == 900
    assert json.loads(given.end) == {"at": 100 + 30_000}


def figures(query: str, system: System, cpu_s: float, missing: int = 0) -> Figures:
    return Figures(query, system, 100_000, 10.0, cpu_s, 5.0, 3.0, Verdict(7, missing, 0))


def test_the_table_has_the_median_of_each_system() -> None:
    measured = [figures("q5", "anabranch", cpu_s) for cpu_s in (4.0, 20.0, 5.0)]
    measured += [figures("q5", "pyspark", 50.0, missing=1), figures("q0", "flink", 8.0)]
    rows = report.table(measured)[2:]
    assert rows == [
        "| q0 | - | - | 12 500 | -, -, 10 | 0.5 to 0.5 | 7 | all |",
        "| q5 | 20 000 | 2 000 | - | 10, 10, - | 0.5 to 0.5 | 7 | not pyspark |",
    ]


def test_the_page_takes_the_figures(tmp_path: Path) -> None:
    page = tmp_path / "nexmark.md"
    page.write_text(PAGE.read_text())
    for text in (["first figures"], [*heading(parse([]), [figures("q5", "flink", 8.0)]), "second"]):
        report.write(page, text)
    written = page.read_text()
    assert "first figures" not in written
    assert "second" in written
    assert written.startswith(PAGE.read_text().partition(report.BEGIN)[0])
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no line"):
        report.write(page, [])
