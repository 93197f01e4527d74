"""Progress steps between processes: printed as lines, only if requested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.adapters.system import progress
from anabranch.adapters.system.progress import Step, step_of

PROGRAM = (
    "from anabranch.adapters.system.progress import printed; print('begun', flush=True);"
    " printed()('stages of a pipeline', 2, 7)"
)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_process_prints_its_steps_where_they_are_wanted(wanted: bool) -> None:
    environment = {"PYTHONPATH": str(Path(progress.__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=progress.with_lines(environment) if wanted else environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    begun, *steps = done.stdout.splitlines(keepends=True)
    assert step_of(begun) is None
    assert step_of(f"{begun[:3]}{progress._MARK}1 2 jars") is None, "two wrote at once"
    assert [step_of(line) for line in steps] == [Step("stages of a pipeline", 2, 7)] * wanted


def test_where_nobody_waits_nothing_happens(capsys: pytest.CaptureFixture[str]) -> None:
    progress.unwatched("jars", 1, 2)
    assert capsys.readouterr().out == ""
