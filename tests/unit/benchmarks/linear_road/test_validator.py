from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from benchmarks.linear_road import answers as answers_module
from benchmarks.linear_road import event_oracle, mutants, validator
from benchmarks.linear_road.answers import KINDS, Answers, parse, read
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.mutants import MUTANTS, Mutant, counted, perfect
from benchmarks.linear_road.stream import Expected, World
from benchmarks.linear_road.validator import Judging, OraclesDifferError, judge, truth

PAGE = Path(__file__).parents[4] / "docs/experiments/linear_road.md"


@pytest.fixture(scope="module")
def expected() -> Expected:
    world = generate(mutants.PLAN)
    return truth(world.stream, world.history)


@pytest.fixture(scope="module")
def right(expected: Expected) -> Answers:
    return perfect(expected)


@pytest.fixture(scope="module")
def small() -> World:
    return generate(Plan(1, 6, 1, Mode.HOT))


FORMS = {
    "tolls": "0,{vid},{time},{emit},{lav},{toll}",
    "accidents": "1,{time},{emit},{vid},{seg}",
    "balances": "2,{time},{emit},{result_time},{qid},{balance}",
    "expenditures": "3,{time},{emit},{qid},{toll}",
}


def lines_of(answers: Answers) -> list[str]:
    """Write answers as output lines."""
    return [
        form.format(emit=row["emit_ms"] / 1000, **row)
        for kind, form in FORMS.items()
        for row in answers.table(kind).iter_rows(named=True)
    ]


def test_right_answers_are_valid(expected: Expected, right: Answers) -> None:
    for judging in (Judging(), Judging(is_strict=True), Judging(None)):
        verdict = judge(expected, right, judging)
        assert verdict.is_valid, verdict.lines()
        assert counted(verdict) == {}
    counts = judge(expected, right, Judging()).counts
    assert {kind: each.received for kind, each in counts.items()} == {
        kind: getattr(expected, kind).height for kind in counts
    }
    assert counts["tolls"].emit_max_ms == 900


@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.name for each in MUTANTS])
def test_each_mutant_is_counted_as_what_it_is(
    mutant: Mutant, expected: Expected, right: Answers
) -> None:
    changed = mutant.change(right, expected)
    verdict = judge(expected, changed, mutant.judging)
    if mutant.counted_as is None:
        assert verdict.is_valid, verdict.lines()
        assert verdict.counts["balances"].stale == 1
        assert verdict.counts["balances"].stale_max_s == 60
        return
    assert not verdict.is_valid
    assert {kind: tuple(faults) for kind, faults in counted(verdict).items()} == {
        mutant.kind: mutant.counted_as
    }
    assert "NOT VALID" in verdict.lines()[-1]


def test_the_table_of_mutants_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main() == 0
    table = capsys.readouterr().out.strip()
    assert table in PAGE.read_text()


def test_deadlines_count_from_a_second_on(expected: Expected, right: Answers) -> None:
    late = right.tolls.with_columns(
        pl.when(pl.col("time") < 300).then(10**9).otherwise(pl.col("emit_ms")).alias("emit_ms")
    )
    answers = right.with_table("tolls", late)
    assert not judge(expected, answers, Judging(299)).is_valid
    verdict = judge(expected, answers, Judging(300))
    assert verdict.is_valid
    assert verdict.counts["tolls"].judged_on_time == late.filter(pl.col("time") >= 300).height
    assert judge(expected, answers, Judging(None)).is_valid


def test_one_right_and_one_wrong_answer_of_a_query_are_not_valid(
    expected: Expected, right: Answers
) -> None:
    row = right.balances[:1]
    wrong = row.with_columns(pl.col("balance") + 1)
    verdict = judge(
        expected, right.with_table("balances", pl.concat([right.balances, wrong])), Judging()
    )
    assert counted(verdict)["balances"]["extra"] == 1


def test_an_answer_without_a_question_is_extra(expected: Expected, right: Answers) -> None:
    for kind in ("balances", "expenditures"):
        table = right.table(kind)
        other = table[:1].with_columns(pl.lit(10**9, pl.Int64).alias("qid"))
        verdict = judge(expected, right.with_table(kind, pl.concat([table, other])), Judging())
        assert counted(verdict) == {kind: {"extra": 1}}


def test_lines_of_each_form_are_read() -> None:
    lines = [
        "0, 7, 61, 62.5, -1, 0",
        "1,61,62.0015,7,12",
        "1,61,62,0,12,1,8",
        "",
        "2,70,70,65,3,18",
        "3,80,81,4,55",
    ]
    found = parse(lines)
    assert found.tolls.rows() == [(7, 61, 62_500, -1, 0)]
    assert found.accidents.rows() == [(7, 61, 62_002, 12), (8, 61, 62_000, 12)]
    assert found.balances.rows() == [(3, 70, 70_000, 65, 18)]
    assert found.expenditures.rows() == [(4, 80, 81_000, 55)]
    assert found.unreadable == ()
    assert parse(["2,70,70,3,65,18"], qid_first=True).balances.equals(found.balances)


def test_lines_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["1,61,62,7,12", "x", "1,61,62,0,13,1,8", "3,80,81,4,55", "", "1,60,61,9,14", "y"]
    whole = parse(lines)
    assert whole.accidents["vid"].to_list() == [7, 8, 9]
    path = tmp_path / "output.csv"
    path.write_text("\n".join(lines))
    monkeypatch.setattr(answers_module, "_LINES", 2)
    for found in (parse(lines), read(path)):
        assert found.unreadable == whole.unreadable == ("x", "y")
        assert all(found.table(kind).equals(whole.table(kind)) for kind in KINDS)
    assert parse([]).tolls.schema == whole.tolls.schema


@pytest.mark.parametrize(
    "line",
    [
        "0,7,61,62,1",
        "4,1,2,3,4",
        "1,61,62,12",
        "0,a,61,62,1,2",
        "3,80,x,4,55",
        "x",
        "0,7,61,nan,1,2",
        "0,7,61,-inf,1,2",
        "0,7,61,1e30,1,2",
        f"0,7,{10**20},62,1,2",
    ],
)
def test_other_lines_are_unreadable(line: str) -> None:
    assert parse(["3,80,81,4,55", line]).unreadable == (line,)


def test_the_command_judges_files(
    small: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write(tmp_path)
    lines = lines_of(perfect(truth(small.stream, small.history)))
    output, report = tmp_path / "output.csv", tmp_path / "verdict.json"
    arguments = [str(tmp_path), str(output), "--strict", "--json", str(report)]
    output.write_text("\n".join(lines))
    assert validator.main(arguments) == 0
    assert json.loads(report.read_text())["valid"] is True
    assert capsys.readouterr().out.endswith("VALID by the rules R04-A1\n")
    assert validator.main([*arguments, "--no-deadlines"]) == 0
    assert capsys.readouterr().out.endswith(
        "VALID by the rules R04-A1, by values, number and order: no times were judged\n"
    )
    output.write_text("\n".join(lines[1:]))
    assert validator.main(arguments) == 1
    assert json.loads(report.read_text())["kinds"]["tolls"]["missing"] == 1
    output.write_bytes("\n".join([*lines, "0,7,61,62,1,"]).encode() + b"\xff\n")
    assert validator.main(arguments) == 1
    assert json.loads(report.read_text())["unreadable_count"] == 1
    output.write_text("\n".join([*lines, "garbage"]))
    assert validator.main([*arguments, "--no-deadlines"]) == 1
    assert validator.main([str(tmp_path), str(tmp_path / "none.csv")]) == 2


def test_nothing_is_judged_while_the_oracles_disagree(
    small: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(event_oracle.Road, "volume", lambda *_: 0)
    with pytest.raises(OraclesDifferError, match="tolls: "):
        truth(small.stream, small.history)
    small.write(tmp_path)
    (tmp_path / "output.csv").write_text("")
    assert validator.main([str(tmp_path), str(tmp_path / "output.csv")]) == 2
    assert "the oracles disagree" in capsys.readouterr().err
