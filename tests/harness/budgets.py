"""What the tests of each folder may take, and what they took.

The figures are seconds of an idle machine with two processors; together with the other steps of
``make test`` they are its seventeen minutes. A folder's tests are added up, set-up included, and
divided by the number of processes that ran them: what somebody waits for. Most of these tests wait
for brokers and for Spark, so processor time would not see what makes them slow. But a shared
machine must not fail them: of the time that passed, only the share counts that the machine's
processors were not busy for others.

A folder over its budget is named at the end of the run, with its dearest files. The run fails at
``FAILS_AT`` times the budget: a machine may be slow, which the share does not show.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
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
"""Of each folder that ``make test`` runs, without those below it that have their own. What is
marked ``nightly`` does not count.
"""

STEPS_S: Final = 100
"""Of the other steps of ``make test``: style, types, imports, and the starts of the test runs."""

TEST_S: Final = 17 * 60
"""What ``make test`` may take."""

FAILS_AT: Final = 5.2
"""Times the budget: 90 minutes in all, where CI stops."""

_DEAREST = 5
_PROC = Path("/proc")
_STOLEN = 8
"""So many fields of the line are time that somebody had; those behind count again."""


@dataclass(frozen=True)
class Verdict:
    """Of one folder."""

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

    @property
    def fails(self) -> bool:
        return self.took_s > FAILS_AT * self.budget_s

    def __str__(self) -> str:
        text = f"tests/{self.folder}: {self.took_s:.0f} s of {self.budget_s}"
        if self.is_over:
            text += "; OVER ITS BUDGET: " + ", ".join(
                f"{name} {took_s:.0f} s" for name, took_s in self.dearest
            )
        return text


def verdicts(seconds: Mapping[str, float], processes: int, share: float = 1.0) -> list[Verdict]:
    """Of each folder that has a budget. ``seconds`` by file; ``share``: of the time that
    passed, what was not others'.
    """
    by_folder: dict[str, dict[str, float]] = defaultdict(dict)
    for file, took_s in seconds.items():
        path = PurePath(file)
        for folder in path.parents:  # the innermost first
            of = str(folder.relative_to("tests")) if folder.is_relative_to("tests") else ""
            if of in BUDGET_S:
                by_folder[of][str(path.relative_to(folder))] = took_s * share / processes
                break
    return [
        Verdict(
            folder,
            sum(files.values()),
            tuple(sorted(files.items(), key=lambda file: -file[1])[:_DEAREST]),
        )
        for folder, files in sorted(by_folder.items())
    ]


@dataclass(frozen=True)
class Spent:
    """What has been spent up to a moment, in seconds: on the clock, by all processors, and by
    this process with all that it started.
    """

    clock_s: float
    busy_s: float
    own_s: float

    @classmethod
    def now(cls) -> Spent:
        return cls(time.monotonic(), _busy_s(), _own_s())

    def share(self, begun: Spent) -> float:
        """Of the processors' time since ``begun``, what was not spent for others; 1 where the
        system does not tell.
        """
        passed_s = (self.clock_s - begun.clock_s) * (os.cpu_count() or 1)
        others_s = (self.busy_s - begun.busy_s) - (self.own_s - begun.own_s)
        return 1 - min(max(others_s / passed_s, 0), 1) if passed_s > 0 and self.busy_s else 1.0


def _busy_s() -> float:
    """Of all processors, also what the host of a virtual machine gave to others; 0 where the
    system does not tell.
    """
    try:
        fields = (_PROC / "stat").read_text().partition("\n")[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, fields[:_STOLEN])
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Of this process, its living descendants, and what any of these has waited for."""
    spent, parents = {}, {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(path.parent.name)
        parents[pid], spent[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(spent.get(pid, 0) for pid in own) / os.sysconf("SC_CLK_TCK")


class Budgets:
    """The plugin, in the process that reports."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._seconds: dict[str, float] = defaultdict(float)
        self._begun = Spent.now()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "nightly" not in report.keywords:
            self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def _verdicts(self) -> list[Verdict]:
        return verdicts(self._seconds, self._processes, Spent.now().share(self._begun))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and any(
            found.fails for found in self._verdicts()
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for found in self._verdicts():
            terminalreporter.write_line(
                str(found), red=found.fails, yellow=found.is_over and not found.fails
            )


def register(config: pytest.Config) -> None:
    """Count in this session, unless it is one of several processes, whose reports go to another."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(
            Budgets(max(1, len(config.getoption("tx", None) or ()))), "budgets"
        )
