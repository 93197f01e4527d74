"""Faults that the validator must find: right answers with one thing changed.

    python -m benchmarks.linear_road.mutants

prints the table of docs/experiments/linear_road.md: what each mutant is counted as.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

from benchmarks.linear_road.answers import COLUMNS, KINDS, Answers
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.stream import Expected
from benchmarks.linear_road.validator import LIMIT_MS, Judging, Verdict, judge, truth

PLAN: Final = Plan(half_xways=1, minutes=9, seed=3, mode=Mode.HOT)
"""Input with tolls, charges and accidents that begin and end."""

_EMIT_AFTER_MS: Final = 900


def perfect(expected: Expected) -> Answers:
    """Return the answers of a system without faults."""

    def table(kind: str, source: pl.DataFrame) -> pl.DataFrame:
        emitted = (pl.col("time") * 1_000 + _EMIT_AFTER_MS).alias("emit_ms")
        return source.sort("time", maintain_order=True).with_columns(emitted).select(COLUMNS[kind])

    return Answers(
        tolls=table("tolls", expected.tolls),
        accidents=table("accidents", expected.accidents),
        balances=table(
            "balances", expected.balances.with_columns(pl.col("time").alias("result_time"))
        ),
        expenditures=table("expenditures", expected.expenditures),
    )


Change = Callable[[Answers, Expected], Answers]


@dataclass(frozen=True, slots=True)
class Mutant:
    """Changed output, and what it must be counted as; None: it is allowed."""

    name: str
    change: Change
    kind: str
    counted_as: tuple[str, ...] | None
    judging: Judging = field(default_factory=Judging)


def _middle(table: pl.DataFrame) -> int:
    return table.height // 2


def _of(kind: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Change:
    def changed(answers: Answers, _: Expected) -> Answers:
        return answers.with_table(kind, change(answers.table(kind)))

    return changed


def _dropped(table: pl.DataFrame) -> pl.DataFrame:
    at = _middle(table)
    return pl.concat([table[:at], table[at + 1 :]])


def _repeated(table: pl.DataFrame) -> pl.DataFrame:
    at = _middle(table)
    return pl.concat([table[: at + 1], table[at:]])


def _added(column: str, amount: int) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def changed(table: pl.DataFrame) -> pl.DataFrame:
        is_chosen = pl.int_range(pl.len()) == _middle(table)
        value = pl.when(is_chosen).then(pl.col(column) + amount).otherwise(pl.col(column))
        return table.with_columns(value.alias(column))

    return changed


def _minute_later(table: pl.DataFrame) -> pl.DataFrame:
    return _added("emit_ms", 60_000)(_added("time", 60)(table))


def _delayed(kind: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return _added("emit_ms", LIMIT_MS[kind] + 1 - _EMIT_AFTER_MS)


def _swapped(column: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Exchange a column of two rows that differ in it and in their time."""

    def changed(table: pl.DataFrame) -> pl.DataFrame:
        one = _middle(table)
        first = table.row(one, named=True)
        other = next(
            at
            for at in range(one + 1, table.height)
            if all(table[name][at] != first[name] for name in (column, "time"))
        )
        values = table[column].to_list()
        values[one], values[other] = values[other], values[one]
        return table.with_columns(pl.Series(column, values, dtype=pl.Int64))

    return changed


def _reordered(answers: Answers, _: Expected) -> Answers:
    """Put the last answer for a car before its first one."""
    table = answers.tolls
    vid = table.group_by("vid").len().sort("len", "vid")["vid"][-1]
    places = table.with_row_index("place").filter(pl.col("vid") == vid)["place"].to_list()
    order = list(range(table.height))
    order.insert(places[0], order.pop(places[-1]))
    return replace(answers, tolls=table[order])


def _lost_and_repeated(table: pl.DataFrame) -> pl.DataFrame:
    at = _middle(table)
    return pl.concat([table[: at + 1], table[at : at + 1], table[at + 2 :]])


def _none(table: pl.DataFrame) -> pl.DataFrame:
    return table.clear()


def _stale(age_s: int) -> Change:
    """Answer a query with the balance of ``age_s`` before: one that was charged in between."""

    def changed(answers: Answers, expected: Expected) -> Answers:
        rows = answers.balances.to_dicts()
        owner = dict(expected.balances.select("qid", "vid").iter_rows())
        charges = expected.charges
        for row in rows:
            mine = charges.filter(pl.col("vid") == owner[row["qid"]])
            before = mine.filter(pl.col("time") <= row["time"] - age_s)["toll"].sum()
            if (
                before != row["balance"]
                and mine.filter(
                    pl.col("time").is_between(row["time"] - age_s + 1, row["time"] - 2)
                ).height
            ):
                row |= {"result_time": row["time"] - age_s, "balance": before}
                break
        else:
            raise LookupError(f"no query has a charge in the {age_s} s before it")
        schema = dict.fromkeys(COLUMNS["balances"], pl.Int64)
        return replace(answers, balances=pl.DataFrame(rows, schema=schema))

    return changed


def _balance_of_later(answers: Answers, _: Expected) -> Answers:
    return replace(answers, balances=_added("result_time", 1)(answers.balances))


def _stale_claimed_fresh(answers: Answers, expected: Expected) -> Answers:
    """Answer with an old balance and say that it is of now."""
    stale = _stale(50)(answers, expected).balances
    return replace(answers, balances=stale.with_columns(pl.col("time").alias("result_time")))


def _crash_of(expected: Expected) -> dict[str, int]:
    """Return an accident that was cleared, and of which cars were told in its last minute."""
    for crash in expected.crashes.filter(pl.col("cleared") >= 0).to_dicts():
        if _told(expected, crash, crash["cleared"] // 60).height:
            return crash
    raise LookupError("no accident whose last minute has a notification")


def _told(expected: Expected, crash: dict[str, int], minute: int) -> pl.DataFrame:
    """Return the toll notifications of cars that enter the range of an accident in a minute,
    counted from 0.
    """
    low, high = (
        (crash["seg"] - 4, crash["seg"]) if crash["dir"] == 0 else (crash["seg"], crash["seg"] + 4)
    )
    return expected.tolls.filter(
        (pl.col("xway") == crash["xway"])
        & (pl.col("dir") == crash["dir"])
        & pl.col("seg").is_between(low, high)
        & (pl.col("time") // 60 == minute)
    )


def _crash_ends_earlier(answers: Answers, expected: Expected) -> Answers:
    """Leave out the notifications of the minute in which the accident is cleared."""
    crash = _crash_of(expected)
    told = _told(expected, crash, crash["cleared"] // 60).select("vid", "time")
    kept = answers.accidents.join(told, on=["vid", "time"], how="anti", maintain_order="left")
    return replace(answers, accidents=kept)


def _crash_ends_later(answers: Answers, expected: Expected) -> Answers:
    """Notify cars of the accident in the minute after it was cleared, too."""
    crash = _crash_of(expected)
    told = _told(expected, crash, crash["cleared"] // 60 + 1)
    if told.is_empty():
        raise LookupError("no car enters the range of the accident after its end")
    new = told.with_columns(
        pl.lit(crash["seg"], pl.Int64).alias("seg"),
        (pl.col("time") * 1_000 + _EMIT_AFTER_MS).alias("emit_ms"),
    ).select(COLUMNS["accidents"])
    every = pl.concat([answers.accidents, new]).unique(maintain_order=True).sort("time")
    return replace(answers, accidents=every)


def _unreadable(answers: Answers, _: Expected) -> Answers:
    return replace(answers, unreadable=("0,17,120",))


def _mutants() -> list[Mutant]:
    key = {"tolls": "vid", "accidents": "vid", "balances": "qid", "expenditures": "qid"}
    value = {"tolls": "toll", "balances": "balance", "expenditures": "toll"}
    found = []
    for kind in KINDS:
        is_by_query = key[kind] == "qid"
        shifted = ("wrong",) if is_by_query else ("missing", "extra")
        swapped = ("wrong",) if is_by_query else ("missing", "extra")
        found += [
            Mutant(f"{kind}: one dropped", _of(kind, _dropped), kind, ("missing",)),
            Mutant(f"{kind}: one repeated", _of(kind, _repeated), kind, ("duplicate",)),
            Mutant(
                f"{kind}: one lost, another repeated",
                _of(kind, _lost_and_repeated),
                kind,
                ("missing", "duplicate"),
            ),
            Mutant(f"{kind}: one a minute later", _of(kind, _minute_later), kind, shifted),
            Mutant(
                f"{kind}: {key[kind]} of two swapped", _of(kind, _swapped(key[kind])), kind, swapped
            ),
            Mutant(
                f"{kind}: one 1 ms behind the limit", _of(kind, _delayed(kind)), kind, ("late",)
            ),
            Mutant(
                f"{kind}: one 1 ms before its input",
                _of(kind, _added("emit_ms", -_EMIT_AFTER_MS - 1)),
                kind,
                ("early",),
            ),
            Mutant(f"{kind}: none at all", _of(kind, _none), kind, ("missing",)),
        ]
        if kind in value:
            found.append(
                Mutant(
                    f"{kind}: {value[kind]} off by one",
                    _of(kind, _added(value[kind], 1)),
                    kind,
                    ("wrong",),
                )
            )
    found += [
        Mutant("tolls: lav off by one", _of("tolls", _added("lav", -1)), "tolls", ("wrong",)),
        Mutant("tolls: last before first of a car", _reordered, "tolls", ("out_of_order",)),
        Mutant(
            "accidents: segment off by one",
            _of("accidents", _added("seg", 1)),
            "accidents",
            ("missing", "extra"),
        ),
        Mutant("accidents: end a minute earlier", _crash_ends_earlier, "accidents", ("missing",)),
        Mutant("accidents: end a minute later", _crash_ends_later, "accidents", ("extra",)),
        Mutant("balances: 61 s old", _stale(61), "balances", ("wrong",)),
        Mutant("balances: 60 s old", _stale(60), "balances", None),
        Mutant(
            "balances: 50 s old, strictly judged",
            _stale(50),
            "balances",
            ("wrong",),
            Judging(is_strict=True),
        ),
        Mutant("balances: of a second after the query", _balance_of_later, "balances", ("wrong",)),
        Mutant("balances: old, said to be new", _stale_claimed_fresh, "balances", ("wrong",)),
        Mutant("an unreadable line", _unreadable, "", ("unreadable",)),
    ]
    return found


MUTANTS: Final = _mutants()


def counted(verdict: Verdict) -> dict[str, dict[str, int]]:
    """Return the faults of each kind that has some."""
    names = ("missing", "extra", "duplicate", "wrong", "late", "early", "out_of_order")
    found = {
        kind: {name: getattr(counts, name) for name in names if getattr(counts, name)}
        for kind, counts in verdict.counts.items()
    }
    if verdict.unreadable:
        found[""] = {"unreadable": len(verdict.unreadable)}
    return {kind: faults for kind, faults in found.items() if faults}


def main() -> int:
    """Print what each mutant is counted as. Return 1 if one is not found."""
    world = generate(PLAN)
    expected = truth(world.stream, world.history)
    right = perfect(expected)
    print("| mutant | verdict | counted as |\n|---|---|---|")
    survivors = 0
    for mutant in MUTANTS:
        verdict = judge(expected, mutant.change(right, expected), mutant.judging)
        faults = counted(verdict)
        survivors += verdict.is_valid is not (mutant.counted_as is None)
        text = ", ".join(
            f"{count} {name}" for each in faults.values() for name, count in each.items()
        )
        print(f"| {mutant.name} | {'valid' if verdict.is_valid else 'not valid'} | {text or '-'} |")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
