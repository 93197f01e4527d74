"""Verdict on the output of a Linear Road system: is every answer right, there once, and in time?

Theory of operation. What is right is computed from the input by two oracles that share no code, and
nothing is judged unless they agree. Answers are compared as multisets, so that a missing and a
repeated one do not cancel out. A balance may be that of any moment of the minute before its query.
Whether an answer is late is judged by EMIT, which is to be the time of the receiver's clock since
the second 0 of the *schedule*: a queue in front of the system counts.

    python -m benchmarks.linear_road.validator INPUT_FOLDER OUTPUT.csv

INPUT_FOLDER has input.csv and history.csv (VID,DAY,XWAY,TOLL); ``answers`` describes the output.
Exit code: 0 valid, 1 not valid, 2 not judged.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import polars as pl

from benchmarks.linear_road import batch_oracle, event_oracle
from benchmarks.linear_road.answers import KINDS, Answers, read
from benchmarks.linear_road.stream import Expected, read_input

RULES: Final = "R04-A1"
"""Name of the rule set, as docs/experiments/linear_road.md has it. Another digit: other answers."""

LIMIT_MS: Final = {"tolls": 5_000, "accidents": 5_000, "balances": 5_000, "expenditures": 10_000}
"""Maximum time from the input to its answer, in ms."""

STALE_MAX_S: Final = 60
"""Age that a balance may have, in seconds."""

_KEYS: Final = {
    "tolls": (("vid", "time"), ("lav", "toll")),
    "accidents": (("vid", "time", "seg"), ()),
    "expenditures": (("qid",), ("time", "toll")),
}
"""Key and value of the kinds whose answers are compared with one right answer."""

_EXAMPLES: Final = 5


class OraclesDifferError(Exception):
    """Raised when the two oracles disagree: no output can be judged."""


@dataclass(frozen=True, slots=True)
class Judging:
    """Strictness of a judgement: deadlines, and the moment of balances."""

    deadlines_from_s: int | None = 0
    """Second of the run from which answers must be in time; None: never, as the input was not
    paced.
    """
    is_strict: bool = False
    """Whether a balance must be that of the moment of its query."""
    judges_lateness: bool = True
    """Whether a late answer is a fault. False: it is counted only, as in a run in which something
    was broken on purpose. Nothing is called valid then.
    """


@dataclass(slots=True)
class Counts:
    """Findings about one kind of answer, in answers."""

    expected: int = 0
    received: int = 0
    missing: int = 0
    extra: int = 0
    duplicate: int = 0
    wrong: int = 0
    late: int = 0
    early: int = 0
    """Answers that were emitted before their input was due: a clock is wrong, or it is a guess."""
    out_of_order: int = 0
    """Answers for a car that come after one for a later input of the car."""
    stale: int = 0
    """Right balances of an earlier moment than the query. Allowed unless the judging is strict."""
    stale_max_s: int = 0
    judged_on_time: int = 0
    emit_max_ms: int | None = None
    emit_p999_ms: int | None = None
    emit_median_ms: int | None = None
    examples: dict[str, list[dict[str, int]]] = field(default_factory=dict)

    @property
    def faults(self) -> int:
        """Number of answers for which the output is not valid."""
        return (
            self.missing
            + self.extra
            + self.duplicate
            + self.wrong
            + self.late
            + self.early
            + self.out_of_order
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on an output."""

    counts: dict[str, Counts]
    unreadable: tuple[str, ...]
    judges_lateness: bool = True

    @property
    def is_right(self) -> bool:
        """Whether every answer is right, there once and in order, however late."""
        return not self.unreadable and all(
            each.faults == each.late for each in self.counts.values()
        )

    @property
    def is_valid(self) -> bool:
        """Whether every answer is right, there once, in order and in time."""
        return (
            self.judges_lateness
            and self.is_right
            and not any(each.late for each in self.counts.values())
        )

    @property
    def _is_timed(self) -> bool:
        return any(each.judged_on_time for each in self.counts.values())

    @property
    def in_words(self) -> str:
        """The verdict in short. It says so where no answer was judged by the clock."""
        if self.judges_lateness:
            timed = "" if self._is_timed else ", by values, number and order: no times were judged"
            return f"{'VALID' if self.is_valid else 'NOT VALID'} by the rules {RULES}{timed}"
        return (
            f"{'RIGHT, each answer once' if self.is_right else 'NOT RIGHT'} by the rules {RULES};"
            " lateness is reported, not judged"
        )

    def as_dict(self) -> dict[str, object]:
        """Return the verdict for a JSON file."""
        is_timed = self.judges_lateness and self._is_timed
        return {
            "rules": RULES,
            "judged": ["values", "number", "order", *(["lateness"] if is_timed else [])],
            "right": self.is_right,
            "valid": self.is_valid,
            "unreadable": list(self.unreadable[:_EXAMPLES]),
            "unreadable_count": len(self.unreadable),
            "kinds": {kind: asdict(counts) for kind, counts in self.counts.items()},
        }

    def lines(self) -> list[str]:
        """Return the verdict as text."""
        columns = (
            "expected",
            "received",
            "missing",
            "extra",
            "duplicate",
            "wrong",
            "late",
            "early",
            "out_of_order",
            "stale",
        )
        text = ["".join([f"{'':14}", *(f"{name:>13}" for name in columns)])]
        for kind, counts in self.counts.items():
            values = (f"{getattr(counts, name):>13}" for name in columns)
            text.append("".join([f"{kind:14}", *values]))
        for kind, counts in self.counts.items():
            if counts.judged_on_time:
                text.append(
                    f"{kind}: {counts.judged_on_time} judged by the clock, emit - time"
                    f" median {counts.emit_median_ms} ms, p99.9 {counts.emit_p999_ms} ms,"
                    f" max {counts.emit_max_ms} ms, limit {LIMIT_MS[kind]} ms"
                )
            text += [
                f"{kind}, {what}: {row}" for what, rows in counts.examples.items() for row in rows
            ]
        if self.unreadable:
            text.append(f"{len(self.unreadable)} unreadable lines: {self.unreadable[:_EXAMPLES]}")
        text.append(self.in_words)
        return text


def truth(stream: pl.DataFrame, history: pl.DataFrame) -> Expected:
    """Return the right answers, on which both oracles agree.

    Raises:
        OraclesDifferError: they do not.
    """
    batch = batch_oracle.answers(stream, history)
    differences = batch.differences(event_oracle.answers(stream, history))
    if differences:
        raise OraclesDifferError("the oracles disagree: " + "; ".join(differences))
    return batch


def judge(expected: Expected, answers: Answers, judging: Judging) -> Verdict:
    """Compare the answers of a system with the right ones."""
    counts = {}
    for kind in KINDS:
        received = answers.table(kind)
        if kind == "balances":
            found = _judge_balances(expected, received, is_strict=judging.is_strict)
        else:
            found = _judge_values(getattr(expected, kind), received, *_KEYS[kind])
        found.out_of_order = _out_of_order(expected, kind, received)
        if judging.deadlines_from_s is not None:
            due = received.filter(pl.col("time") >= judging.deadlines_from_s)
            _judge_times(found, due, LIMIT_MS[kind])
        counts[kind] = found
    return Verdict(counts, answers.unreadable, judging.judges_lateness)


def _judge_values(
    expected: pl.DataFrame, received: pl.DataFrame, key: Sequence[str], value: Sequence[str]
) -> Counts:
    whole = [*key, *value]
    wanted = expected.group_by(whole).agg(pl.len().cast(pl.Int64).alias("wanted"))
    given = received.group_by(whole).agg(pl.len().cast(pl.Int64).alias("given"))
    both = wanted.join(given, on=whole, how="full", coalesce=True).with_columns(
        pl.col("wanted").fill_null(0), pl.col("given").fill_null(0)
    )
    repeated = both.filter((pl.col("wanted") > 0) & (pl.col("given") > pl.col("wanted")))
    absent = both.filter(pl.col("given") < pl.col("wanted")).with_columns(
        pl.col("wanted") - pl.col("given")
    )
    other = both.filter(pl.col("wanted") == 0)
    # An absent and an other answer for one key are one wrong answer.
    absent_keys = absent.group_by(key).agg(pl.col("wanted").sum())
    other_keys = other.group_by(key).agg(pl.col("given").sum())
    pairs = absent_keys.join(other_keys, on=list(key), how="inner")
    wrong = pairs.select(pl.min_horizontal("wanted", "given").sum().fill_null(0)).item()
    found = Counts(
        expected=expected.height,
        received=received.height,
        missing=absent["wanted"].sum() - wrong,
        extra=other["given"].sum() - wrong,
        duplicate=int((repeated["given"] - repeated["wanted"]).sum()),
        wrong=wrong,
    )
    _give_examples(
        found,
        {
            "missing": absent.join(pairs, on=list(key), how="anti").select(whole),
            "extra": other.join(pairs, on=list(key), how="anti").select(whole),
            "duplicate": repeated.select(whole),
            "wrong": other.join(pairs, on=list(key), how="semi").select(whole),
        },
    )
    return found


def _judge_balances(expected: Expected, received: pl.DataFrame, *, is_strict: bool) -> Counts:
    """Judge each balance by the history of the charges of its car."""
    states = (
        expected.charges.group_by("vid", "time")
        .agg(pl.col("toll").sum())
        .sort("vid", "time")
        .with_columns(pl.col("toll").cum_sum().over("vid").alias("right"))
        .select("vid", pl.col("time").alias("result_time"), "right")
        .sort("result_time")
    )
    queries = expected.balances.select("qid", "vid", pl.col("time").alias("asked"))
    judged = (
        received.join(queries, on="qid", how="left")
        .sort("result_time")
        .join_asof(states, on="result_time", by="vid", strategy="backward", check_sortedness=False)
        .with_columns(
            pl.col("right").fill_null(0), (pl.col("asked") - pl.col("result_time")).alias("age")
        )
    )
    age_max = 0 if is_strict else STALE_MAX_S
    is_right = (
        (pl.col("balance") == pl.col("right"))
        & (pl.col("time") == pl.col("asked"))
        & pl.col("age").is_between(0, age_max)
    )
    judged = judged.with_columns(is_right.fill_null(value=False).alias("is_right"))
    per_query = queries.join(
        judged.group_by("qid").agg(
            pl.col("is_right").sum().cast(pl.Int64).alias("good"),
            (~pl.col("is_right")).sum().cast(pl.Int64).alias("bad"),
        ),
        on="qid",
        how="left",
    ).with_columns(pl.col("good").fill_null(0), pl.col("bad").fill_null(0))
    unasked = judged.filter(pl.col("asked").is_null())
    is_wrong = (pl.col("good") == 0) & (pl.col("bad") > 0)
    wrong = per_query.filter(is_wrong)
    missing = per_query.filter((pl.col("good") == 0) & (pl.col("bad") == 0))
    repeated = per_query.filter(pl.col("good") > 1)
    good = judged.filter(pl.col("is_right"))
    found = Counts(
        expected=queries.height,
        received=received.height,
        missing=missing.height,
        extra=unasked.height + int(per_query["bad"].sum()) - wrong.height,
        duplicate=int(repeated["good"].sum()) - repeated.height,
        wrong=wrong.height,
        stale=good.filter(pl.col("age") > 0).height,
        stale_max_s=int(good.select(pl.col("age").max().fill_null(0)).item()),
    )
    _give_examples(
        found,
        {
            "missing": missing.select("qid", "vid", "asked"),
            "extra": unasked.select("qid", "time", "balance"),
            "duplicate": repeated.select("qid", "vid", "asked"),
            "wrong": judged.join(wrong, on="qid", how="semi").select(
                "qid", "vid", "asked", "result_time", "balance", "right"
            ),
        },
    )
    return found


def _out_of_order(expected: Expected, kind: str, received: pl.DataFrame) -> int:
    """Count the answers whose input is earlier than that of an answer before, for the same car."""
    if "vid" not in received.columns:
        owners = getattr(expected, kind).select("qid", "vid").unique("qid")
        received = received.join(owners, on="qid", how="inner", maintain_order="left")
    latest = pl.col("time").cum_max().over("vid")
    return received.filter(pl.col("time") < latest).height


def _judge_times(found: Counts, received: pl.DataFrame, limit_ms: int) -> None:
    if received.is_empty():
        return
    delay = received["emit_ms"] - received["time"] * 1_000
    found.judged_on_time = received.height
    found.late = int((delay > limit_ms).sum())
    found.early = int((delay < 0).sum())
    quantiles = {name: delay.quantile(q, "higher") for name, q in (("p999", 0.999), ("p50", 0.5))}
    found.emit_p999_ms = int(quantiles["p999"] or 0)
    found.emit_median_ms = int(quantiles["p50"] or 0)
    found.emit_max_ms = int(delay.sort()[-1])
    _give_examples(
        found, {"late": received.filter(delay > limit_ms), "early": received.filter(delay < 0)}
    )


def _give_examples(found: Counts, tables: dict[str, pl.DataFrame]) -> None:
    for what, rows in tables.items():
        if rows.height:
            found.examples[what] = rows.sort(rows.columns).head(_EXAMPLES).to_dicts()


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the output that the command line names. Return the exit code."""
    parser = argparse.ArgumentParser(description="Judges the output of a Linear Road system.")
    parser.add_argument("input", type=Path, help="folder with input.csv and history.csv")
    parser.add_argument("output", type=Path, help="file with the output lines, in their order")
    parser.add_argument("--strict", action="store_true", help="balances of the query's second only")
    parser.add_argument(
        "--qid-first", action="store_true", help="balances have QID before the result's time"
    )
    parser.add_argument(
        "--deadlines-from",
        type=int,
        default=0,
        metavar="SECOND",
        help="judge the time of answers from this second on (default 0)",
    )
    parser.add_argument(
        "--no-deadlines",
        action="store_true",
        help="do not judge times: the input was not paced. Such a run is no rating",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict here, too")
    options = parser.parse_args(arguments)
    try:
        stream, history = read_input(options.input)
        answers = read(options.output, qid_first=options.qid_first)
        expected = truth(stream, history)
    except (OSError, pl.exceptions.PolarsError, OraclesDifferError) as error:
        print(f"validator: not judged: {error}", file=sys.stderr)
        return 2
    judging = Judging(None if options.no_deadlines else options.deadlines_from, options.strict)
    verdict = judge(expected, answers, judging)
    print("\n".join(verdict.lines()))
    if options.json is not None:
        options.json.write_text(json.dumps(verdict.as_dict(), indent=2) + "\n")
    return 0 if verdict.is_valid else 1


if __name__ == "__main__":
    sys.exit(main())
