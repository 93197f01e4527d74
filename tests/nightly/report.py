"""What each step says at its end, as numbers, and the report of all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from chaos.rate import wilson

_PYTEST: Final = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_SEEDS: Final = re.compile(r"^(\d+) seeds in ", re.MULTILINE)
_FAILED: Final = re.compile(r"^(\d+) failed ", re.MULTILINE)
_OF: Final = re.compile(r"^(\d+) of (\d+) (?:killed|runs were clean)", re.MULTILINE)
_TELLING: Final = re.compile(
    r"^(?:FAILED |ERROR |WRONG: |.*SURVIVES |seed \d+: (?!clean$|[\d.]+ min of faults )).*$",
    re.MULTILINE,
)
_TELLING_MAX: Final = 20

INTRODUCTION: Final = """\
# Evidence

What `make nightly` found when it was last run whole: every crash point, cut, operator and lost disk on a real broker and real Spark, a whole pipeline
on a secured broker, the loss of brokers, bugs planted on purpose, fresh seeds of the simulation, and real processes under faults drawn by chance. It
writes this page; nothing here is written by hand. A rate is followed by the interval in which that of all such cases lies, with 95 % confidence.
"""


class Tally(NamedTuple):
    """So many were tried, and so many of them were good."""

    good: int
    tried: int


def tally(said: str) -> Tally | None:
    """What a step says at its end; None where it broke off before."""
    if found := _OF.findall(said):
        good, tried = map(int, found[-1])
        return Tally(good, tried)
    if (seeds := _SEEDS.findall(said)) and (failed := _FAILED.findall(said)):
        return Tally(int(seeds[-1]) - int(failed[-1]), int(seeds[-1]))
    if summaries := _PYTEST.findall(said):
        counts = {
            word.rstrip("s"): int(number)
            for number, word in re.findall(r"(\d+) ([a-z]+)", summaries[-1])
        }
        good = counts.get("passed", 0)
        return Tally(good, good + counts.get("failed", 0) + counts.get("error", 0))
    return None


@dataclass(frozen=True)
class Outcome:
    """Of one step."""

    title: str
    command: str
    code: int
    said: str
    took_s: float
    alone: bool = False
    """One trial, which tells by its exit code alone."""

    @property
    def tally(self) -> Tally | None:
        return Tally(int(self.code == 0), 1) if self.alone else tally(self.said)

    @property
    def is_good(self) -> bool:
        """Nothing failed, something was tried, and it was not broken off."""
        found = self.tally
        return self.code == 0 and found is not None and found.good == found.tried > 0

    def row(self) -> str:
        """Of the table."""
        found = self.tally
        if found is None:
            counted, rate = f"broke off with {self.code}", "-"
        else:
            low, high = wilson(*found)
            counted, rate = f"{found.good:,} of {found.tried:,}", f"{low:.2%} to {high:.2%}"
            if self.code and found.good == found.tried:
                counted += f", but ended with {self.code}"
        return (
            f"| {self.title} | {counted} | {rate} | {self.took_s / 60:.0f} min | `{self.command}` |"
        )


def text(facts: Sequence[tuple[str, str]], outcomes: Sequence[Outcome]) -> str:
    """The page. ``facts``: date, commit and machine."""
    lines = [INTRODUCTION, *(f"- {name}: {value}" for name, value in facts), ""]
    lines += [
        "| What was tried | Good | Rate | Time | Command |",
        "|---|---|---|---|---|",
        *(outcome.row() for outcome in outcomes),
    ]
    for outcome in outcomes:
        if not outcome.is_good:
            lines += ["", f"## Not good: {outcome.title}", "", "```", *telling(outcome.said), "```"]
    return "\n".join(lines) + "\n"


def telling(said: str) -> list[str]:
    """The lines that name what was not good; the last ones of all where none does."""
    found = [match.group()[:200] for match in _TELLING.finditer(said)] or [
        line[:200] for line in said.splitlines()[-5:]
    ]
    return found[:_TELLING_MAX] + (
        [f"... and {len(found) - _TELLING_MAX} more lines"] if len(found) > _TELLING_MAX else []
    )
