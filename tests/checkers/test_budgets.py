"""``harness.budgets``: what a folder takes is added up, compared, and fails a run only when
it is far too much.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

import pytest

from harness.budgets import BUDGET_S, FAILS_AT, Budgets, Spent, verdicts

SIMULATION, UNIT = BUDGET_S["simulation"], BUDGET_S["unit"]


def test_the_files_of_a_folder_are_added_up_over_its_processes() -> None:
    seconds = {
        "tests/unit/a/test_a.py": 3.0,
        "tests/unit/test_b.py": 5.0,
        "tests/unit/codec/test_e.py": 1.0,
        "tests/tidy/test_c.py": 1.0,
        "tests/nightly/test_d.py": 9.0,
    }
    tidy, unit, codec = verdicts(seconds, 2)
    assert (tidy.folder, tidy.took_s) == ("tidy", 0.5)
    assert (unit.folder, unit.took_s, unit.dearest) == (
        "unit",
        4,
        (("test_b.py", 2.5), ("a/test_a.py", 1.5)),
    )
    assert str(unit) == f"tests/unit: 4 s of {UNIT}"
    assert (codec.folder, codec.dearest) == ("unit/codec", (("test_e.py", 0.5),)), "its own"


@pytest.mark.parametrize(
    ("times", "over", "fails"),
    [
        (0.9, False, False),
        (1.1, True, False),
        (FAILS_AT - 0.1, True, False),
        (FAILS_AT + 0.1, True, True),
    ],
)
def test_a_folder_over_its_budget_is_named_and_fails_when_it_is_far_over(
    times: float, over: bool, fails: bool
) -> None:
    (found,) = verdicts({"tests/unit/test_a.py": times * UNIT}, 1)
    assert (found.is_over, found.fails) == (over, fails)
    assert ("OVER ITS BUDGET: test_a.py" in str(found)) is over


def test_time_of_others_does_not_count() -> None:
    (found,) = verdicts({"tests/unit/test_a.py": 2.0 * UNIT}, 1, 0.25)
    assert found.took_s == UNIT / 2


@pytest.mark.parametrize(
    ("busy_s", "own_s", "share"), [(10, 10, 1), (20, 5, 0.25), (20, 0, 0), (12, 13, 1)]
)
def test_what_others_spend_is_known(
    busy_s: float, own_s: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds of two processors."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert Spent(110, 1_000 + busy_s, 7 + own_s).share(Spent(100, 1_000, 7)) == pytest.approx(share)


def test_what_this_process_and_its_children_spend_is_seen() -> None:
    begun = Spent.now()
    if begun.busy_s == 0:  # another system: no share is known, all time counts
        assert begun.share(begun) == 1
        return
    burn = "from time import process_time\nwhile process_time() < 0.5: pass"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{burn}\nprint(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    alive = Spent.now()
    assert alive.own_s - begun.own_s >= 0.4
    child.communicate(b"\n")
    ended = Spent.now()
    assert ended.own_s >= alive.own_s
    assert ended.busy_s - begun.busy_s >= 0.4


def ran(seconds: float, *marks: str) -> pytest.TestReport:
    keywords: dict[str, Literal[1]] = dict.fromkeys(marks, 1)
    return pytest.TestReport(
        "tests/simulation/test_a.py::test",
        ("", 0, ""),
        keywords,
        "passed",
        None,
        "call",
        duration=seconds,
    )


class Session:
    exitstatus = pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("seconds", "marks", "exits"),
    [
        (FAILS_AT * SIMULATION + 1, (), pytest.ExitCode.TESTS_FAILED),
        (FAILS_AT * SIMULATION - 1, (), pytest.ExitCode.OK),
        (FAILS_AT * SIMULATION + 1, ("nightly",), pytest.ExitCode.OK),
    ],
)
def test_a_run_fails_when_a_folder_took_far_too_much(
    seconds: float, marks: tuple[str, ...], exits: pytest.ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(Spent, "now", lambda: Spent(next(clock), 0, 0))
    plugin, session = Budgets(1), Session()
    plugin.pytest_runtest_logreport(ran(seconds, *marks))
    plugin.pytest_sessionfinish(session)  # type: ignore[arg-type]
    assert session.exitstatus == exits
