"""Tables of the demo: the progress of a run and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.progress_bar import ProgressBar
from rich.table import Table

from demo.comparing import Comparison, Rejections
from demo.story import FailureReport, longest_ms_max

GIB = 1024**3
MEMORY_BYTES_MAX = 4 * GIB
TOLLS_MIN = 50
"""Minimum number of results with a toll, below which they would not show that tolls are right."""
BAR_WIDTH = 30


@dataclass(frozen=True, slots=True)
class Sofar:
    """Progress of a run."""

    records_in: int
    records_total: int
    """Approximate number of records that will be written."""
    rejected: int
    results: int
    lag_ms: int | None
    memory_bytes: int
    results_total: int | None = None
    """Number of expected results; None until all traffic is written."""


def progress(passed_s: float, traffic_s: float, sofar: Sofar) -> Table:
    """Return the progress table. ``traffic_s``: seconds for which records are written; afterwards
    the demo waits for the last results.
    """
    table = Table.grid(padding=(0, 3))
    bar = Table.grid(padding=(0, 2))
    what = (
        f"{passed_s:.0f} of {traffic_s:.0f} s"
        if passed_s < traffic_s
        else f"written; waiting for the last results, {passed_s - traffic_s:.0f} s"
    )
    bar.add_row(
        ProgressBar(total=traffic_s, completed=min(passed_s, traffic_s), width=BAR_WIDTH), what
    )
    table.add_row("traffic", bar)
    results = Table.grid(padding=(0, 2))
    if sofar.results_total is None:
        results.add_row(f"{sofar.results:,}")
    else:
        results.add_row(
            ProgressBar(
                total=sofar.results_total,
                completed=min(sofar.results, sofar.results_total),
                width=BAR_WIDTH,
            ),
            f"{sofar.results:,} of {sofar.results_total:,}",
        )
    table.add_row("records in", f"{sofar.records_in:,} of about {sofar.records_total:,}")
    table.add_row("rejected", f"{sofar.rejected:,}")
    table.add_row("results out", results)
    table.add_row("lag of the newest result", _ms(sofar.lag_ms))
    table.add_row("memory of all processes", f"{sofar.memory_bytes / GIB:.2f} GiB")
    return table


@dataclass(frozen=True, slots=True)
class Outcome:
    """Findings of a run."""

    records_in: int
    records_min: int
    """Minimum number of good reports of the traffic."""
    tolls: int
    """Number of expected results with a toll."""
    rejections: Rejections
    outputs: dict[str, Comparison]
    """Comparison of each output with the oracle, read after everything had stopped."""
    changed: list[str]
    """Differences, in words, that a reader saw which followed the topics during the run."""
    latency_p50_ms: int | None
    latency_p99_ms: int | None
    memory_peak_bytes: int
    generator_behind_ms: int
    killed: list[str]
    left_processes: list[int]
    seconds: float
    failure: FailureReport | None = None
    """Report of the cut, if there was one."""
    pressure: Mapping[str, float] = field(default_factory=dict)
    """Share of the time in which something on the machine waited for a resource, per resource."""

    def is_good(self) -> bool:
        """Return whether the promise was kept, on enough of everything that a wrong result would
        have been seen.
        """
        return (
            all(output.is_equal() for output in self.outputs.values())
            and bool(self.outputs)
            and not self.changed
            and self.records_in >= self.records_min > 0
            and self.tolls >= TOLLS_MIN
            and self.rejections.is_equal()
            and not self.left_processes
            and (self.failure is None or self.failure.is_good())
        )


def report(outcome: Outcome) -> Table:
    """Return the table at the end of a run."""
    table = Table(title="toll road", show_header=False)
    table.add_row("records in", f"{outcome.records_in:,}")
    table.add_row(
        "rejected (expected)", f"{outcome.rejections.found:,} ({outcome.rejections.expected:,})"
    )
    for name, output in outcome.outputs.items():
        table.add_section()
        table.add_row(
            f"{name}: results out (expected)", f"{output.delivered:,} ({output.expected:,})"
        )
        for what, count in (
            ("missing", output.missing),
            ("duplicated", output.duplicated),
            ("wrong", output.wrong),
            ("out of order", output.out_of_order),
        ):
            table.add_row(f"{name}: {what}", f"[{'red' if count else 'green'}]{count:,}[/]")
    if outcome.failure is not None:
        _report_failure(table, outcome.failure)
    table.add_section()
    table.add_row(
        "latency p50 / p99", f"{_ms(outcome.latency_p50_ms)} / {_ms(outcome.latency_p99_ms)}"
    )
    peak = outcome.memory_peak_bytes
    table.add_row(
        "peak memory (limit)",
        f"[{'red' if peak > MEMORY_BYTES_MAX else 'green'}]{peak / GIB:.2f} GiB[/] (4 GiB)",
    )
    if outcome.pressure:
        table.add_row(
            "pressure on the machine meanwhile",
            ", ".join(f"{name} {share:.0%}" for name, share in outcome.pressure.items()),
        )
    table.add_row("killed on the way", ", ".join(outcome.killed) or "nothing")
    table.add_row("processes left", ", ".join(map(str, outcome.left_processes)) or "none")
    table.add_row("time", f"{outcome.seconds:.0f} s")
    return table


def _report_failure(table: Table, failure: FailureReport) -> None:
    table.add_section()
    table.add_row("cut off from Kafka", f"{failure.cut}, {failure.cut_ms / 1_000:.1f} s")
    table.add_row(
        "live: tentative results",
        f"{failure.tentative:,} (without {', '.join(failure.missing) or 'anything missing'})",
    )
    table.add_row(
        "live: of these undone",
        f"{failure.undone:,} by {failure.undos} undo, in {failure.failures} failure",
    )
    table.add_row(
        "live: corrected results",
        f"{failure.corrected:,}, the last {_ms(failure.stable_again_ms)} after the heal",
    )
    added, bound = failure.added_ms, failure.max_delay_ms
    good = failure.is_in_time() and failure.keeps_up()
    longest = (
        f"{_ms(failure.longest_ms)} ({_ms(longest_ms_max(bound))}); before the cut"
        f" {_ms(failure.usual_max_ms)}"
    )
    table.add_row("live: longest delay of new results (bound)", longest)
    table.add_row(
        "live: so the failure added (bound)",
        f"[{'green' if good else 'red'}]{_ms(added)}[/] ({_ms(bound)})",
    )
    table.add_row(
        "live: delays not judged", f"{failure.apart.stalled:,} of {failure.apart.total:,}"
    )
    compared = failure.answer
    counts = " / ".join(
        map(str, (compared.missing, compared.duplicated, compared.wrong, compared.out_of_order))
    )
    colour = "green" if compared.is_equal() else "red"
    table.add_row(
        "live, answer of the client library: missing / duplicated / wrong / out of order",
        f"[{colour}]{counts}[/]",
    )
    table.add_row(
        "live: promises not kept",
        f"[{'red' if failure.broken else 'green'}]{len(failure.broken)}[/]",
    )


def _ms(value: int | None) -> str:
    return "-" if value is None else f"{value:,} ms"
