"""The validator of the smart grid finds each planted fault and takes right results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.smart_grid import mutants
from benchmarks.smart_grid.generator import World
from benchmarks.smart_grid.mutants import MUTANTS, Mutant, counted, kinds
from benchmarks.smart_grid.oracle import Expected, expected
from benchmarks.smart_grid.validator import judge, share_of

PAGE = Path(__file__).parents[4] / "docs/experiments/smart_grid.md"


@pytest.fixture(scope="module")
def truth() -> Expected:
    return expected(World(mutants.PLAN).readings().iter_rows())


def test_right_results_are_valid(truth: Expected) -> None:
    verdict = judge(truth, truth.predictions.items(), truth.shares.items())
    assert verdict.is_valid
    assert verdict.lines()[-1] == "valid"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: f"{each.query}: {each.name}")
def test_a_fault_is_found_and_named(mutant: Mutant, truth: Expected) -> None:
    found = counted(mutant, truth)
    assert tuple(kinds(found)) == mutant.counted_as
    assert not found.is_valid
    assert found.shown


def test_a_window_of_another_length_than_it_says_is_refused() -> None:
    row = {"hours": 1, "start": 0, "stop": 3_600, "house_id": 1, "above": 1, "plugs": 2}
    assert share_of(row)[1] == (1, 2)
    with pytest.raises(ValueError, match="not a window of 24 h"):
        share_of({**row, "hours": 24})


def test_the_page_has_the_table_that_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert mutants.main() == 0
    assert capsys.readouterr().out in PAGE.read_text()
