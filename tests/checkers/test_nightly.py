"""``nightly``: what the steps say is read rightly, and nothing that failed or broke off looks
good.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nightly import __main__ as nightly
from nightly.report import Facts, Outcome, Tally, sections, tally, text

PYTEST = (
    "FAILED tests/a.py::test_b - assert 1\n3 failed, 41 passed, 1 skipped, 2 errors in 92.19s"
    " (0:01:32)\n"
)
SEEDS = (
    "5000 seeds in 10.0 s (0.002 s each), 7 steps, 8 s of virtual time\n250 were run twice, each\n2"
    " failed [7, 9]; with none failed\n"
)
MUTANTS = (
    "no_read_back  1.0 s  SURVIVES 1000 seeds\nsecond  2.0 s  seed 7: wrong\n55 of 56 killed\n"
)
CHAOS = (
    "seed 4: 3 min of faults after 30 s without; in x\nWRONG: two were lost\nseed 4: 2 wrong\nseed"
    " 5: clean\nfaults in all: kill 3, cut 2\n1 of 2 runs were clean: 9% to 91%\n"
)
HERE = Facts("2026-03-04 05:06", "`abc`", "2 x fast")


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (PYTEST, Tally(41, 46)),
        ("........ [100%]\n8 passed in 1.00s\n", Tally(8, 8)),
        ("== 8 passed, 3 deselected in 1.00s ==\n", Tally(8, 8)),
        ("3 deselected in 1.00s\n", Tally(0, 0)),
        (SEEDS, Tally(4_998, 5_000)),
        (MUTANTS, Tally(55, 56)),
        (CHAOS, Tally(1, 2)),
        ("movements 8 of 10, each with a kill\n8 of 10 movements were clean\n", Tally(8, 10)),
        ("Traceback (most recent call last):\nKeyError: 1\n", None),
        ("5000 seeds in 10.0 s\n", None),
    ],
)
def test_what_a_step_says_is_counted(output: str, found: Tally | None) -> None:
    assert tally(output) == found


def outcome(
    output: str, code: int = 0, *, alone: bool = False, title: str = "bugs", facts: Facts = HERE
) -> Outcome:
    return Outcome(title, f"make {title}", code, output, 125, facts, alone)


@pytest.mark.parametrize(
    ("given", "good", "counted"),
    [
        (outcome("9 of 9 killed"), True, "9 of 9 | 70.09% to 100.00%"),
        (outcome("8 of 9 killed", 1), False, "8 of 9 | 56.50% to 98.01%"),
        (outcome("9 of 9 killed", 1), False, "9 of 9, but ended with 1 | 70.09% to 100.00%"),
        (outcome("KeyError", 1), False, "broke off with 1 | -"),
        (outcome(""), False, "broke off with 0 | -"),
        (outcome("3 deselected in 1.00s"), False, "0 of 0 | 0.00% to 100.00%"),
        (outcome("clean", alone=True), True, "1 of 1 | 20.65% to 100.00%"),
        (outcome("WRONG: x", 1, alone=True), False, "0 of 1 | 0.00% to 79.35%"),
    ],
)
def test_only_what_was_tried_and_never_failed_is_good(
    given: Outcome, good: bool, counted: str
) -> None:
    row = f"| 2026-03-04 05:06 | `abc` | 2 x fast | {counted} | 2 min | `make bugs` |"
    assert (given.is_good, given.row()) == (good, row)
    page = text("", [given], ["bugs"], append=False)
    assert row in page
    assert ("not good:" in page) is not good


def test_every_step_is_run_and_reported_whatever_came_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step here is a small program of its own."""

    def fake(name: str, output: str, code: int) -> nightly.Step:
        (tmp_path / "tests" / f"{name}.py").write_text(
            f"print({output!r})\nraise SystemExit({code})\n"
        )
        return nightly.Step(name, name, f"make {name}", (name,), needs_path=True)

    (tmp_path / "tests").mkdir()
    steps = [fake("first_step", "2 of 3 killed", 1), fake("second_step", "3 of 3 killed", 0)]
    monkeypatch.setattr(nightly, "steps", lambda _: steps)
    monkeypatch.setattr(nightly, "facts", lambda: HERE)
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "LOGS", tmp_path / "logs")
    report = tmp_path / "report.md"
    assert nightly.main(["--report", str(report)]) == 1
    page = report.read_text()
    assert "| 2 of 3 |" in sections(page)["first_step"]
    assert "| 3 of 3 |" in sections(page)["second_step"]
    assert (tmp_path / "logs" / "first_step.txt").read_text() == "2 of 3 killed\n"
    del steps[0]
    assert nightly.main(["--report", str(report), "--append"]) == 0
    assert "In all: 6 of 6" in sections(report.read_text())["second_step"]
    assert sections(report.read_text())["first_step"] == sections(page)["first_step"]
