"""Numbers that each step reports at its end, and the page of evidence, a section for each step.

A section holds a row for each time that its step was run; the other sections stay as they are, so
the page can be filled on several days.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from chaos.rate import wilson

_PYTEST: Final = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_SEEDS: Final = re.compile(r"^(\d+) seeds in ", re.MULTILINE)
_FAILED: Final = re.compile(r"^(\d+) failed ", re.MULTILINE)
_OF: Final = re.compile(
    r"^(\d+) of (\d+) (?:killed|runs were clean|movements were clean)", re.MULTILINE
)
_TELLING: Final = re.compile(
    r"^(?:FAILED |ERROR |WRONG: |LATE: |NOT JUDGED: |.*SURVIVES |seed \d+: \d+ violations).*$",
    re.MULTILINE,
)
_KINDS_MAX: Final = 20
_KIND_CHARS: Final = 120
_FOLDERS: Final = re.compile(r"(?<![\w.])(?:/[\w.@+-]+)+/")
_SEED: Final = re.compile(r"\bseed \d+: ")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_LOG: Final = re.compile(r"WRONG: ([a-z_]+)[\w.-]*\.log: ")
_SURVIVES: Final = re.compile(r"(\w+) .*SURVIVES ")
_KEPT: Final = re.compile(r"^(?:faults in all: |nothing was wrong in ).*$", re.MULTILINE)
_ROW: Final = re.compile(r"^\| \d{4}-.*?\| ([\d,]+) of ([\d,]+)\b", re.MULTILINE)

INTRODUCTION: Final = """\
# Evidence

What takes too long for `make test`, and what came of it: every crash point, cut, operator and lost
disk on a real broker and real Spark, a whole pipeline on a secured broker, the loss of brokers,
bugs planted on purpose, fresh seeds of the simulation, and real processes under faults drawn by
chance. The report of `make nightly` makes this page from what each run said. A rate is followed by
the interval in which that of all such cases lies, with 95 % confidence. A section that is not here
was not run. Rows of a section may have been judged by different commits. Below each table, failures
are counted by kind: the number is how many lines of the step's output name it.
"""
HEAD: Final = """\
| When (UTC) | Commit | Machine | Good | Rate | Time | Command |
|---|---|---|---|---|---|---|"""


class Tally(NamedTuple):
    """Number of tries, and of good ones."""

    good: int
    tried: int


def tally(output: str) -> Tally | None:
    """Parse what a step reports at its end; None if it ended before."""
    if found := _OF.findall(output):
        good, tried = map(int, found[-1])
        return Tally(good, tried)
    if (seeds := _SEEDS.findall(output)) and (failed := _FAILED.findall(output)):
        return Tally(int(seeds[-1]) - int(failed[-1]), int(seeds[-1]))
    if summaries := _PYTEST.findall(output):
        counts = {
            word.rstrip("s"): int(number)
            for number, word in re.findall(r"(\d+) ([a-z]+)", summaries[-1])
        }
        good = counts.get("passed", 0)
        return Tally(good, good + counts.get("failed", 0) + counts.get("error", 0))
    return None


class Facts(NamedTuple):
    """Time and place at which a step was run."""

    when: str
    commit: str
    machine: str
    """Nothing that names it."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one step, run once."""

    title: str
    command: str
    code: int
    output: str
    took_s: float
    facts: Facts
    alone: bool = False
    """One trial, which tells by its exit code alone."""

    @property
    def tally(self) -> Tally | None:
        return Tally(int(self.code == 0), 1) if self.alone else tally(self.output)

    @property
    def is_good(self) -> bool:
        """Nothing failed, something was tried, and it was not broken off."""
        found = self.tally
        return self.code == 0 and found is not None and found.good == found.tried > 0

    def row(self) -> str:
        """Return the outcome as a row of the table."""
        found, (when, commit, machine) = self.tally, self.facts
        if found is None:
            counted, rate = f"broke off with {self.code}", "-"
        else:
            counted, rate = f"{found.good:,} of {found.tried:,}", _rate(found)
            if self.code and found.good == found.tried:
                counted += f", but ended with {self.code}"
        return (
            f"| {when} | {commit} | {machine} | {counted} | {rate} | {self.took_s / 60:.0f} min |"
            f" `{self.command}` |"
        )

    def more(self) -> list[str]:
        """Return what follows the table: the faults that happened, and what was not good."""
        kept = "; ".join(_KEPT.findall(self.output))
        lines = [f"{self.facts.when}: {kept}."] if kept else []
        if not self.is_good:
            lines += [
                *([""] if lines else []),
                f"{self.facts.when}, not good:",
                "",
                *kinds(self.output),
            ]
        return ["", *lines] if lines else []


def _rate(found: Tally) -> str:
    low, high = wilson(*found)
    return f"{low:.2%} to {high:.2%}"


def sections(page: str) -> dict[str, str]:
    """Return the text below each title."""
    _, *parts = re.split(r"^## ", page, flags=re.MULTILINE)
    return {
        title.strip(): body.strip("\n")
        for title, _, body in (part.partition("\n") for part in parts)
    }


def added(body: str, outcome: Outcome) -> str:
    """Return a section with one row more; a new one if ``body`` is empty."""
    rows = [line for line in body.splitlines() if line.startswith("| 2")] + [outcome.row()]
    _, _, more = body.partition(f"\n{rows[-2]}\n") if len(rows) > 1 else ("", "", "")
    more = re.sub(r"\AIn all: .*\n?", "", more.strip("\n"))
    counted = [
        Tally(*(int(number.replace(",", "")) for number in found))
        for found in _ROW.findall("\n".join(rows))
    ]
    whole = Tally(sum(each.good for each in counted), sum(each.tried for each in counted))
    total = ["", f"In all: {whole.good:,} of {whole.tried:,}, {_rate(whole)}."] * (len(rows) > 1)
    lines = [HEAD, *rows, *total, *(["", more.strip("\n")] if more.strip() else [])]
    return "\n".join([*lines, *outcome.more()])


def text(page: str, outcomes: Sequence[Outcome], titles: Sequence[str], *, append: bool) -> str:
    """Return the page with the outcomes of some steps. ``titles``: of all steps, in their order.
    ``append``: keep earlier rows of these steps; else replace them.
    """
    found = sections(page)
    for title in {outcome.title for outcome in outcomes} if not append else ():
        found.pop(title, None)
    for outcome in outcomes:
        found[outcome.title] = added(found.get(outcome.title, ""), outcome)
    ordered = sorted(found, key=lambda title: (title not in titles, [*titles, title].index(title)))
    return "\n".join([INTRODUCTION, *(f"## {title}\n\n{found[title]}\n" for title in ordered)])


def kinds(output: str) -> list[str]:
    """Return the failures by kind with the number of lines of each, the most frequent first. Seeds,
    numbers and folders of the machine are left out: the output of each step is kept beside the
    report.
    """
    lines = _TELLING.findall(output) or output.splitlines()[-1:]
    counted = Counter(map(kind, lines)).most_common()
    found = [f"- {count} x {what}" for what, count in counted[:_KINDS_MAX]]
    return found + [f"- {len(counted) - _KINDS_MAX} more kinds"] * (len(counted) > _KINDS_MAX)


def kind(line: str) -> str:
    """Return what lines of the same cause have in common."""
    short = _SEED.sub("", _FOLDERS.sub("", line), count=1)
    if log := _LOG.match(short):
        return f"WRONG: an error in the log of {log[1]} that no fault explains"
    if mutant := _SURVIVES.match(short):
        return f"{mutant[1]} survives"
    if short.startswith(("FAILED ", "ERROR ")):
        return short.partition(" - ")[0]
    return ": ".join(_NUMBER.sub("N", short).split(": ")[:3])[:_KIND_CHARS]
