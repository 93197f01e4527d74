"""Figures of a run with a fault: which answers came late, which were tentative, when all was right.

Nothing here is judged: the validator says whether the answers of the corrected topics are right.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import polars as pl

from benchmarks.linear_road.answers import COLUMNS, KINDS, Answers
from benchmarks.linear_road.stream import Expected
from benchmarks.linear_road.validator import LIMIT_MS

_KEYS: Final = {
    "tolls": ["vid", "time"],
    "accidents": ["vid", "time"],
    "balances": ["qid"],
    "expenditures": ["qid"],
}
"""Columns that tell which answer a row is; the others of ``COLUMNS`` are its value."""


@dataclass(frozen=True, slots=True)
class Window:
    """Times of a fault, in ms since the run's beginning."""

    begun_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """Figures for one kind of answer: those to input by the clock alone count."""

    received: int
    """Answers on the corrected topic."""
    late: int
    """Answers that came to the corrected topic after their limit."""
    late_before: int
    """Late ones whose limit had passed when the fault began: it did not delay them."""
    late_first_s: int | None
    late_last_s: int | None
    """First and last second of the run whose input was answered late; None: none was."""
    late_by_median_ms: int | None
    late_by_max_ms: int | None
    """Time from the limit to the late answer, in ms."""
    late_until_ms: int | None
    """Time from the fault's end to the arrival of the last late answer, in ms."""
    tentative: int
    """Answers whose first record on the live topic was tentative."""
    tentative_in_time: int
    tentative_right: int
    """Tentative answers that had the value of the right one from the start."""
    tentative_extra: int
    """Tentative answers without a right one: they were taken back."""
    unanswered: int
    """Right answers of which the live topic had no record at all within the limit."""
    corrected_ms: int | None
    """Time from the fault's end until the last tentative answer was replaced by what is right, in
    ms; None: there was none.
    """
    uncorrected: int
    """Tentative answers that were not replaced until the end of the run."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Figures of a run with a fault."""

    fault: str
    processes: tuple[str, ...]
    window: Window
    kinds: dict[str, Recovery]

    @property
    def is_corrected(self) -> bool:
        """Whether no tentative answer is left."""
        return not any(each.uncorrected for each in self.kinds.values())

    def as_dict(self) -> dict[str, object]:
        """Return the figures for a JSON file."""
        return {**asdict(self), "lateness": "reported, not judged"}


def recovery(
    kind: str,
    expected: Expected,
    received: pl.DataFrame,
    live: pl.DataFrame,
    *,
    from_s: int,
    window: Window,
) -> Recovery:
    """Return the figures of one kind.

    Args:
        kind: One of ``KINDS``.
        expected: The right answers.
        received: Answers of the corrected topic.
        live: Records of the live topic in their order, with ``is_tentative`` and ``corrected_ms``,
            the time at which their bucket was corrected (null: never).
        from_s: Second of the run at which the part by the clock begins.
        window: Times of the fault.
    """
    by_clock = pl.col("time") >= from_s
    limit_ms = LIMIT_MS[kind]
    due_ms = pl.col("time") * 1_000 + limit_ms
    answers = received.filter(by_clock)
    late = answers.with_columns((pl.col("emit_ms") - due_ms).alias("by")).filter(pl.col("by") > 0)
    first = live.filter(by_clock).unique(_KEYS[kind], keep="first", maintain_order=True)
    right = _right(kind, expected).filter(by_clock)
    in_time = pl.col("emit_ms") <= due_ms
    tentative = first.filter("is_tentative")
    return Recovery(
        received=answers.height,
        late=late.height,
        late_before=late.filter(due_ms < window.begun_ms).height,
        late_first_s=_number(late["time"].min()),
        late_last_s=_number(late["time"].max()),
        late_by_median_ms=_number(late["by"].quantile(0.5, "higher")),
        late_by_max_ms=_number(late["by"].max()),
        late_until_ms=_number((late["emit_ms"] - window.ended_ms).max()),
        tentative=tentative.height,
        tentative_in_time=tentative.filter(in_time).height,
        tentative_right=tentative.join(right, on=right.columns, how="semi").height,
        tentative_extra=tentative.join(right, on=_KEYS[kind], how="anti").height,
        unanswered=right.join(first.filter(in_time), on=_KEYS[kind], how="anti").height,
        corrected_ms=_number((tentative["corrected_ms"] - window.ended_ms).max()),
        uncorrected=tentative["corrected_ms"].null_count(),
    )


def recoveries(
    expected: Expected, answers: Answers, live: dict[str, pl.DataFrame], from_s: int, window: Window
) -> dict[str, Recovery]:
    """Return the figures of each kind."""
    return {
        kind: recovery(
            kind, expected, answers.table(kind), live[kind], from_s=from_s, window=window
        )
        for kind in KINDS
    }


def _right(kind: str, expected: Expected) -> pl.DataFrame:
    """Return the right answers with the columns of received ones, except for their time."""
    table: pl.DataFrame = getattr(expected, kind)
    if kind == "balances":
        table = table.with_columns(pl.col("time").alias("result_time"))
    return table.select(name for name in COLUMNS[kind] if name != "emit_ms")


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
