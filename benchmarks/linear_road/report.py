"""Report of a run for people: what its claim rests on, and the verdict, as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.linear_road.validator import LIMIT_MS, RULES, Counts, Verdict

_FAULTS: Final = ("missing", "extra", "duplicate", "wrong", "out_of_order", "late", "early")


def report(facts: Mapping[str, object], verdict: Verdict) -> str:
    """Return the report of a run. ``facts``: what ``verdict.json`` has besides the verdict."""
    faults = [name.replace("_", " ") for name in _FAULTS]
    lines = [
        f"# Linear Road: {facts['claim']}",
        "",
        f"By the rules {RULES}. The figures are also in `verdict.json`.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {_text(value)} |" for name, value in facts.items()),
        "",
        _row(["", "expected", "received", *faults, "by the clock", "emit - time", "limit"]),
        "|---" * (len(_FAULTS) + 6) + "|",
        *(_row(_cells(kind, counts)) for kind, counts in verdict.counts.items()),
        "",
        "`emit - time`: median, 99.9th percentile and maximum of the answers by the clock, in s.",
    ]
    return "\n".join(lines) + "\n"


def _cells(kind: str, counts: Counts) -> list[str]:
    times = (counts.emit_median_ms, counts.emit_p999_ms, counts.emit_max_ms)
    delays = ["-" if each is None else f"{each / 1_000:.2f}" for each in times]
    return [
        kind,
        *(str(getattr(counts, name)) for name in ("expected", "received", *_FAULTS)),
        str(counts.judged_on_time),
        ", ".join(delays),
        f"{LIMIT_MS[kind] / 1_000:g} s",
    ]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case Mapping():
            return ", ".join(f"{name} {each}" for name, each in value.items())
        case list():
            return ", ".join(map(str, value)) or "none"
        case _:
            return str(value)
