"""``make chaos MINUTES=n SEED=k``: exit code 0 only when nothing at all was wrong."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table

from anabranch.protocol.errors import Unavailable
from chaos import judgement
from chaos.judgement import Injected, Recovery
from chaos.rate import in_words
from chaos.run import CALM_S, POOL, WARM_S, Verdict, as_json, kinds, run, schedule_text
from chaos.schedule import ELASTIC, OVERLOAD, Kind, draw, kinds_of
from demo.comparing import percentile_ms
from demo.deployment import DeploymentError

GIB = 1024**3
_TARGETS = (
    "kafka/kafka redis/redis proxy/proxy ingestion/reports_0 ingestion/reports_1"
    " ingestion/reports_2 processing/north.0 processing/north.1 delivery/tolls"
    " consistency_manager/toll-road"
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="chaos", description="The toll road under load while a nemesis breaks it; then judged."
    )
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="how long there are faults (default 3)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="which faults, when, to whom; and the traffic (default 1)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        help="so many, of this seed and those after it: how many are clean (default 1)",
    )
    parser.add_argument(
        "--faults",
        type=_kinds,
        help=f"only these, with commas: {','.join(Kind)}",
    )
    own_pipeline = parser.add_mutually_exclusive_group()
    own_pipeline.add_argument(
        "--overload",
        action="store_true",
        help=(
            "the first stage is slow and may leave out rows, and every other fault is a rush of"
            " reports"
        ),
    )
    own_pipeline.add_argument(
        "--elastic",
        action="store_true",
        help=(
            "replicas move to a pool and back, and a shard is split, among the other faults; no"
            " disk is lost"
        ),
    )
    parser.add_argument(
        "--rest",
        type=float,
        metavar="S",
        help=(
            "so long without a fault after each, and none meets another: for recovery times on few"
            " cores"
        ),
    )
    parser.add_argument(
        "--replicas", type=int, default=2, help="of each stage (default 2; 1 GiB of memory each)"
    )
    parser.add_argument(
        "--rate",
        type=int,
        default=50,
        help="reports per second and expressway, of which there are three (default 50)",
    )
    parser.add_argument(
        "--bad-share",
        type=float,
        default=0.005,
        help="share of records that are bad on purpose, above 0 (default 0.005)",
    )
    parser.add_argument(
        "--quiet-deadline",
        type=float,
        default=180.0,
        metavar="S",
        help="all must be there so long after the last heal (default 180)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append the outcome here as well, a line per run"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help=(
            "where to keep state, logs and journal (default: a new one; removed after a clean run)"
        ),
    )
    parser.add_argument("--keep", action="store_true", help="keep them after a clean run, too")
    parser.add_argument("--show", action="store_true", help="only show what would happen")
    options = parser.parse_args(arguments)
    possible = kinds_of(is_elastic=options.elastic, is_overload=options.overload)
    for kind in options.faults or ():
        if kind not in possible:
            option = "--overload" if kind in OVERLOAD else "--elastic"
            needs = "with" if kind in OVERLOAD | ELASTIC else "without"
            parser.error(f"{kind}: only {needs} {option}")
    return options


def _kinds(text: str) -> tuple[Kind, ...]:
    try:
        return tuple(Kind(name) for name in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; there are {', '.join(Kind)}") from error


def report(verdict: Verdict) -> Table:
    """Recovery by kind and service."""
    table = Table(title=f"chaos, seed {verdict.seed}: seconds until a new stable result")
    for column in (
        "fault",
        "of",
        "faults",
        "clear",
        "from its begin p50 p99 max",
        "from its end p50 p99 max",
        "goal",
        "kept",
    ):
        table.add_column(column, justify="left" if column in {"fault", "of"} else "right")
    usual_ms = percentile_ms(verdict.usual_ms, 0.99) or 0
    for (kind, service), group in judgement.grouped(verdict.found).items():
        clear = [each for each in group if not each.is_disturbed]
        table.add_row(
            str(kind),
            service,
            str(len(group)),
            str(len(clear)),
            *_figures(clear, verdict, usual_ms),
        )
    table.add_section()
    table.add_row("none", "", "", "", _shares(verdict.usual_ms), "", "", "")
    return table


def _figures(clear: Sequence[Recovery], verdict: Verdict, usual_ms: int) -> list[str]:
    waits = ([each.during_ms for each in clear], [each.after_ms for each in clear])
    cells = [_shares([value for value in values if value is not None]) for values in waits]
    if not clear:
        return [*cells, "", ""]
    goals = [
        judgement.goal_ms(each.fault.kind, each.fault.target, verdict.targets, usual_ms)
        for each in clear
    ]
    kept = sum(
        (value := getattr(each, f"{what}_ms")) is not None and value <= limit
        for each, (what, limit) in zip(clear, goals, strict=True)
    )
    what, limit = goals[0]
    return [
        *cells,
        f"{'masked' if what == 'during' else 'end +'} {limit / 1_000:.0f}",
        f"{kept} of {len(clear)}",
    ]


def _shares(values_ms: Sequence[int]) -> str:
    """p50, p99 and the longest, in seconds."""
    if not values_ms:
        return "-"
    return " ".join(
        f"{(percentile_ms(values_ms, share) or 0) / 1_000:5.1f}" for share in (0.5, 0.99, 1.0)
    )


def counts(verdict: Verdict) -> Table:
    """Return the table of what was counted and compared."""
    table = Table(show_header=False)
    table.add_row("records in", f"{verdict.records_in:,}")
    for name, compared in verdict.comparisons.items():
        table.add_row(
            f"{name}: results (expected)", f"{compared.delivered:,} ({compared.expected:,})"
        )
        numbers = (compared.missing, compared.duplicated, compared.wrong, compared.out_of_order)
        table.add_row(
            f"{name}: missing / duplicated / wrong / out of order", " / ".join(map(str, numbers))
        )
    table.add_row(
        "dead letters (expected)", f"{verdict.rejections.found:,} ({verdict.rejections.expected:,})"
    )
    for where, number in verdict.repeats.items():
        table.add_row(f"repeated before de-duplication: {where}", f"{number:,}")
    table.add_row("results that lack rows", f"{verdict.shed:,}")
    for stream, rejected in verdict.rejected_boundaries.items():
        table.add_row(
            f"boundary records of {stream}",
            ", ".join(f"{what} {number:,}" for what, number in sorted(rejected.items())),
        )
    table.add_row("faults", _counted(verdict.faults))
    table.add_row("faults left out", str(verdict.left_out))
    table.add_row("shards whose halves took over", ", ".join(verdict.split) or "none")
    longest_ms = max((each.length_ms for each in verdict.stalls), default=0)
    table.add_row(
        "stalls of the machine (longest)", f"{len(verdict.stalls)} ({longest_ms / 1_000:.1f} s)"
    )
    table.add_row("peak memory", f"{verdict.memory_peak_bytes / GIB:.1f} GiB")
    table.add_row("time", f"{verdict.seconds:.0f} s")
    return table


def _counted(faults: Sequence[Injected]) -> str:
    kinds = judgement.by_kind(faults)
    return ", ".join(f"{kind} {number}" for kind, number in kinds.items()) or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run chaos and return the exit code."""
    options = parse(arguments)
    console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 200)
    if options.show:
        console.print(
            schedule_text(
                draw(
                    options.seed,
                    options.minutes * 60,
                    [*_TARGETS.split(), *([f"processing/{POOL}"] if options.elastic else [])],
                    kinds(options),
                    options.rest,
                )
            )
        )
        return 0
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # as Ctrl-C: the deployment is ended first
    outcomes, faults = {}, []
    for seed in range(options.seed, options.seed + options.runs):
        outcome, injected = one(argparse.Namespace(**{**vars(options), "seed": seed}), console)
        outcomes[seed] = outcome
        faults += injected
    console.print(f"faults in all: {_counted(faults)}\n{in_words(outcomes)}", markup=False)
    return 1 if any(outcomes.values()) else 0


def one(options: argparse.Namespace, console: Console) -> tuple[str, list[Injected]]:
    """One run, told on the way; in short what came of it, empty if it was clean, and the faults."""
    folder = (
        Path(tempfile.mkdtemp(prefix="anabranch-chaos-"))
        if options.folder is None
        else options.folder / str(options.seed)
    )
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        console.print(
            f"{folder} is not empty: what an earlier run left there would be judged, too; name"
            " another --folder",
            markup=False,
        )
        return "not run", []
    console.print(
        f"seed {options.seed}: {options.minutes:g} min of faults after {WARM_S + CALM_S:g} s"
        f" without; in {folder}"
    )
    begun = time.monotonic()
    try:
        verdict = run(options, folder, lambda text: console.print(text, markup=False))
    except (DeploymentError, Unavailable, KafkaException) as error:
        console.print(
            f"{error}\nafter {time.monotonic() - begun:.0f} s; state, logs and journal: {folder}",
            markup=False,
        )
        return f"broke off: {error}".splitlines()[0], []
    if options.json is not None:
        with options.json.open("a", encoding="utf-8") as file:
            file.write(as_json(verdict) + "\n")
    console.print(report(verdict))
    console.print(counts(verdict))
    for text in verdict.wrong:
        console.print(f"WRONG: {text}", markup=False)
    for text in verdict.late:
        console.print(f"LATE: {text}", markup=False)
    if verdict.stalled.stalled:
        console.print(f"NOT JUDGED: of what came late, {verdict.stalled}", markup=False)
    if verdict.too_slow:
        console.print(
            f"NOT JUDGED: recovery times and the bound of the live topic: {verdict.too_slow}",
            markup=False,
        )
    if verdict.outcome:
        console.print(
            f"not clean; the same plan again with SEED={options.seed}; state, logs and journal:"
            f" {folder}",
            markup=False,
        )
    else:
        console.print("clean")
    return verdict.outcome, verdict.faults


if __name__ == "__main__":
    sys.exit(main())
