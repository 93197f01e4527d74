"""Time that the tests of each folder may take, and what they took.

The figures are seconds of an idle machine with two processors; together with the other steps of
``make test`` they are its seventeen minutes. A folder's tests are added up, set-up included, and
divided by the number of processes that ran them: what somebody waits for. Most of these tests wait
for brokers and for Spark, so processor time would not see what makes them slow.

A folder over its budget is named at the end of the run, with its dearest files. It fails no run:
on a busy machine it says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import pytest

BUDGET_S: Final = {
    "tidy": 15,
    "unit/codec": 15,
    "unit/protocol": 45,
    "unit": 110,
    "properties": 20,
    "checkers": 5,
    "simulation": 170,
    "chaos": 5,
    "moves": 5,
    "conformance": 40,
    "security": 60,
    "integration": 200,
    "spark": 230,
}
"""Budget of each folder that ``make test`` runs, in seconds, without those below it that have their
own. Tests marked ``nightly`` do not count.
"""

STEPS_S: Final = 100
"""Budget of the other steps of ``make test``, in seconds: style, types, imports, and the starts of
the test runs.
"""

TEST_S: Final = 17 * 60
"""Budget of ``make test``, in seconds."""

_DEAREST = 5


@dataclass(frozen=True)
class Verdict:
    """Verdict on one folder."""

    folder: str
    took_s: float
    dearest: tuple[tuple[str, float], ...]
    """Files and their seconds."""

    @property
    def budget_s(self) -> int:
        return BUDGET_S[self.folder]

    @property
    def is_over(self) -> bool:
        return self.took_s > self.budget_s

    def __str__(self) -> str:
        text = f"tests/{self.folder}: {self.took_s:.0f} s of {self.budget_s}"
        if self.is_over:
            text += "; OVER ITS BUDGET: " + ", ".join(
                f"{name} {took_s:.0f} s" for name, took_s in self.dearest
            )
        return text


def verdicts(seconds: Mapping[str, float], processes: int) -> list[Verdict]:
    """Return the verdict on each folder that has a budget. ``seconds`` by file."""
    by_folder: dict[str, dict[str, float]] = defaultdict(dict)
    for file, took_s in seconds.items():
        path = PurePath(file)
        for folder in path.parents:  # the innermost first
            of = str(folder.relative_to("tests")) if folder.is_relative_to("tests") else ""
            if of in BUDGET_S:
                by_folder[of][str(path.relative_to(folder))] = took_s / processes
                break
    return [
        Verdict(
            folder,
            sum(files.values()),
            tuple(sorted(files.items(), key=lambda file: -file[1])[:_DEAREST]),
        )
        for folder, files in sorted(by_folder.items())
    ]


class Budgets:
    """The plugin, in the process that reports."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "nightly" not in report.keywords:
            self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for found in verdicts(self._seconds, self._processes):
            terminalreporter.write_line(str(found), yellow=found.is_over)


def register(config: pytest.Config) -> None:
    """Count in this session, unless it is one of several processes, whose reports go to another."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(
            Budgets(max(1, len(config.getoption("tx", None) or ()))), "budgets"
        )
