"""Report of a run for people: what its claim rests on, and the verdict, as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.linear_road.recovery import Recovered, Recovery
from benchmarks.linear_road.validator import LIMIT_MS, RULES, Counts, Verdict

_FAULTS: Final = ("missing", "extra", "duplicate", "wrong", "out_of_order", "late", "early")


FAULT_TITLE: Final = "## The fault"
_BORDERS_TITLE: Final = "## Border cases"
_JUDGED: Final = (
    "The verdict is on the values, number and order of the answers on the corrected topics. When"
    " they came is reported here, and judged nowhere."
)
_LEGEND: Final = (
    "`taken back`: tentative answers that have no right one. `neither in time`: right answers of"
    " which the live topic had nothing within the limit, tentative or not. A negative time was"
    " before the fault's end."
)

_LATE_COLUMNS: Final = (
    "",
    "by the clock",
    "late",
    "due before the fault",
    "input of seconds",
    "late by: median, maximum",
    "last one after the fault's end",
)
_LIVE_COLUMNS: Final = (
    "",
    "tentative at first",
    "in time",
    "right at once",
    "taken back",
    "neither in time",
    "last correction after the fault's end",
    "not corrected",
)


def report(
    facts: Mapping[str, object],
    verdict: Verdict,
    recovered: Recovered | None = None,
    borders: Verdict | None = None,
) -> str:
    """Return the report of a run.

    Args:
        facts: What ``verdict.json`` has besides verdicts and the figures of a fault.
        verdict: Verdict on the run by the clock.
        recovered: Figures of a fault; None without one.
        borders: Verdict on the border cases; None if they were left out.
    """
    lines = [
        f"# Linear Road: {facts['claim']}",
        "",
        f"By the rules {RULES}. The figures are also in `verdict.json`.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {_text(value)} |" for name, value in facts.items()),
        "",
        *_verdict_table(verdict),
        "",
        "`emit - time`: median, 99.9th percentile and maximum of the answers by the clock, in s.",
        *([] if recovered is None else _fault_section(recovered)),
        *([] if borders is None else _borders_section(borders)),
    ]
    return "\n".join(lines) + "\n"


def _verdict_table(verdict: Verdict) -> list[str]:
    faults = [name.replace("_", " ") for name in _FAULTS]
    return [
        _row(["", "expected", "received", *faults, "by the clock", "emit - time", "limit"]),
        "|---" * (len(_FAULTS) + 6) + "|",
        *(_row(_cells(kind, counts)) for kind, counts in verdict.counts.items()),
    ]


def _borders_section(verdict: Verdict) -> list[str]:
    unreadable = [f"{len(verdict.unreadable)} unreadable lines.", ""] if verdict.unreadable else []
    return [
        "",
        _BORDERS_TITLE,
        "",
        f"{verdict.in_words}. Balances are strictly judged.",
        "",
        *unreadable,
        *_verdict_table(verdict),
    ]


def _fault_section(recovered: Recovered) -> list[str]:
    begun_s, ended_s = (
        f"{each / 1_000:.1f}" for each in (recovered.window.begun_ms, recovered.window.ended_ms)
    )
    kinds, struck = recovered.kinds.items(), ", ".join(recovered.processes)
    return [
        "",
        FAULT_TITLE,
        "",
        f"{recovered.fault}: {struck}, {begun_s} to {ended_s} s of the run.",
        "",
        _JUDGED,
        "",
        _row(list(_LATE_COLUMNS)),
        "|---" * len(_LATE_COLUMNS) + "|",
        *(_row([kind, *_late_cells(each)]) for kind, each in kinds),
        "",
        "On the live topics:",
        "",
        _row(list(_LIVE_COLUMNS)),
        "|---" * len(_LIVE_COLUMNS) + "|",
        *(_row([kind, *_live_cells(each)]) for kind, each in kinds),
        "",
        _LEGEND,
    ]


def _late_cells(found: Recovery) -> list[str]:
    by = f"{_seconds(found.late_by_median_ms)}, {_seconds(found.late_by_max_ms)}"
    return [
        str(found.received),
        str(found.late),
        str(found.late_before),
        f"{found.late_first_s} to {found.late_last_s}" if found.late else "-",
        by if found.late else "-",
        _seconds(found.late_until_ms),
    ]


def _live_cells(found: Recovery) -> list[str]:
    return [
        str(found.tentative),
        str(found.tentative_in_time),
        str(found.tentative_right),
        str(found.tentative_extra),
        str(found.unanswered),
        _seconds(found.corrected_ms),
        str(found.uncorrected),
    ]


def _seconds(ms: int | None) -> str:
    return "-" if ms is None else f"{ms / 1_000:.1f} s"


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
