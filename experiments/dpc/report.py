"""The table of published, asked and measured figures; RESULTS.md and its plots."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.machine import machine
from experiments.dpc.figures import Cut, Trace, spread
from experiments.dpc.plan import CHAIN_DELAY_MS, EXPERIMENTS, RATE
from experiments.dpc.plots import Line, plot
from experiments.dpc.published import FIGURES, NOTHING, Figure, failures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.dpc.results import SessionResult
    from experiments.dpc.virtual import Costs

_WHY: Final = [
    "## Where real processes are slower than virtual time, and what was done about it",
    "",
    (
        "- *Between records* is what a batch of Spark takes, at least a bucket; virtual time uses"
        " the figure of one node for every node. *Added by each node* is a batch and the wait for"
        " the next one. In virtual time each node has two cores, as each published node had a"
        " machine; here all nodes, the broker and the sources share those of one machine, and a"
        " failure doubles the queries: branch and successor of every node. Compare the column *CPU"
        " used*; where it is near 100 %, batches wait for each other."
    ),
    (
        "- The first failure of a session is the slowest: branching, correcting and failover run"
        " for the first time in its processes, on code that Java has neither loaded nor compiled"
        " yet. The bound is for every failure, so it stands in the table all the same."
    ),
    (
        "- The first tentative batch needs nothing to be started or restored: the warm query"
        " becomes the branch, and the successor is started only after the branch's first result."
        " Batches take no shell command per file, no adaptive planning and no optimising compiler,"
        " results of small batches are written from the driver, and the workers and their Kafka"
        " clients are used again (`adapters/spark/`)."
    ),
    (
        "- What remains is reserved from `max_delay` before anything is waited for: one hop of 600"
        " ms per stage and 400 ms of slack (`protocol/limits.py`), which two shared cores need"
        " while a branch and a successor run. That is the part of D that the wait does not use."
    ),
    "",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure."""

    experiment: int
    what: str
    published: str
    target: str
    real: str
    virtual: str
    holds: str
    """Whether what was measured (on real processes, if it was) is what was asked: yes, NO, or -. A
    bound that was kept while the corrections did not end is NO: it would not have been kept for
    ever.
    """


def _three(values: Sequence[float], unit: str = "s") -> str:
    """Least / median / max of milliseconds, as seconds, or of counts."""
    if not values:
        return NOTHING
    scale, digits = {"s": (1000.0, 2), "x": (1.0, 1)}.get(unit, (1.0, 0))
    least, middle, greatest = (f"{value / scale:.{digits}f}" for value in spread(values))
    return (
        f"{middle} {unit}".strip()
        if least == greatest
        else f"{least} / {middle} / {greatest} {unit}".strip()
    )


def _unended(results: Sequence[SessionResult], names: Sequence[str]) -> int:
    """Failures of these sessions whose corrections did not end."""
    return sum(not figures.is_corrected for figures in failures(results, names))


def rows(real: Sequence[SessionResult], virtual: Sequence[SessionResult]) -> list[Row]:
    """Return the rows of the table, without figures that no session measured."""
    found = [_row(figure, real, virtual) for figure in FIGURES]
    return [row for row in found if row.real != NOTHING or row.virtual != NOTHING]


def _row(figure: Figure, real: Sequence[SessionResult], virtual: Sequence[SessionResult]) -> Row:
    measured, simulated = figure.values(real), figure.values(virtual)
    return Row(
        figure.experiment,
        figure.what,
        figure.published,
        figure.target,
        _cell(figure, real, measured),
        _cell(figure, virtual, simulated),
        _holds(figure, real, measured)
        if measured
        else _holds(figure, virtual, simulated, " (virtual)"),
    )


def _cell(figure: Figure, results: Sequence[SessionResult], values: Sequence[float]) -> str:
    unended = _unended(results, figure.sessions) if figure.is_end else 0
    ended = _three(values, figure.unit)
    if not unended:
        return ended
    return f"{ended}; {unended} did not end" if values else f"{unended} did not end"


def _holds(
    figure: Figure, results: Sequence[SessionResult], values: Sequence[float], where: str = ""
) -> str:
    if not values or (figure.at_most is None and figure.above is None):
        return NOTHING
    if _unended(results, figure.sessions):
        return f"NO, the corrections did not end{where}"
    is_kept = (figure.at_most is None or max(values) <= figure.at_most) and (
        figure.above is None or min(values) > figure.above
    )
    return f"{'yes' if is_kept else 'NO'}{where}"


def text(table: Sequence[Row]) -> str:
    """For a terminal."""
    cells = [
        ("", "what", "published", "asked", "real: min / median / max", "virtual time", "holds")
    ]
    cells += [
        (str(r.experiment), r.what, r.published, r.target, r.real, r.virtual, r.holds)
        for r in table
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def write_report(
    path: Path,
    real: Sequence[SessionResult],
    virtual: Sequence[SessionResult],
    costs: Costs,
    arguments: Sequence[str],
) -> None:
    """RESULTS.md and the plots beside it."""
    lines = [
        "# Delay, Process, and Correct: measured",
        "",
        *_settings(arguments, costs),
        "",
        "## Published, asked, measured",
        "",
    ]
    lines += [
        "| experiment | figure | published | asked | real processes | virtual time | holds |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.experiment} | {r.what} | {r.published} | {r.target} | {r.real} | {r.virtual} |"
        f" {r.holds} |"
        for r in rows(real, virtual)
    ]
    lines += ["", *(f"{number}. {name}." for number, name in EXPERIMENTS.items()), ""]
    plots = _plots(real, virtual)
    for name, (title, drawing) in plots.items():
        path.with_name(f"{name}.svg").write_text(drawing)
        lines += [f"![{title}]({name}.svg)", ""]
    for title, results in (("Real processes", real), ("Virtual time", virtual)):
        if results:
            lines += [
                f"## {title}: every failure",
                "",
                *_failure_table(results),
                *_session_table(results),
            ]
    lines += _WHY
    failed = [
        f"- {r.session.name}: {r.error.splitlines()[0][:300]}" for r in (*real, *virtual) if r.error
    ]
    if failed:
        lines += ["## Sessions that did not end well", "", *failed, ""]
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text("\n".join(lines))
    unfinished.replace(path)


def _settings(arguments: Sequence[str], costs: Costs) -> list[str]:
    return [
        (
            f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())},"
            f" `{' '.join(['python -m experiments.dpc', *arguments])}`"
        ),
        "",
        (
            f"- Machine: {machine()}. Broker, sources, all stages (one Spark each) and the reader"
            " share it; in the published runs every node was a machine of its own."
        ),
        (
            f"- Three sources with {RATE} tuples/s each (17 a bucket), buckets of 100 ms, stateless"
            " stages handing on what they read, one replica each; experiment 5 a windowed sum at a"
            " part of its measured capacity; experiment 6 two replicas."
        ),
        (
            "- Failure: one source's boundaries are withheld while its tuples keep coming, as in"
            " the published runs."
        ),
        (
            "- Delay of a new result: from the end of its bucket (when its input was due) to the"
            " first boundary record, stable or tentative, that closes it, at a reader of the last"
            " stage's log. Procnew: the longest from the failure's first bucket to 1.5 s after the"
            " corrections. Delaynew: Procnew minus the median of the four seconds before the"
            " failure in the same run."
        ),
        (
            "- D and X are `max_delay` of the whole pipeline. Published D is a wait per node; a"
            " stage here waits what `max_delay` leaves after one hop (600 ms) per stage from it to"
            " the output and 400 ms of slack. Two nodes run with the least bound that they can"
            " hold, 2.2 s."
        ),
        (
            "- Virtual time: the same rules, records and driver, an engine whose batches take"
            f" {costs.batch_ms:.0f} ms and {1000 * costs.rows_ms:.1f} us per tuple, and"
            f" {costs.cores:g} cores {'for all nodes together' if costs.is_shared else 'per node'}."
        ),
    ]


def _failure_table(results: Sequence[SessionResult]) -> list[str]:
    lines = [
        (
            "| session | nodes | policy | X s | first waits s | failure s | Procnew s | by node s |"
            " Delaynew s | first tentative s | later, at most s | tentative tuples | heal to"
            " done s |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        session = result.session
        waits = " ".join(f"{wait / 1000:.1f}" for wait in result.waits_ms)
        for figures, nodes in zip(result.failures, result.by_node, strict=True):
            by_node = " ".join(f"{f.longest_ms / 1000:.2f}" for f in nodes)
            cells = [
                figures.longest_ms,
                figures.delay_ms,
                figures.first_ms,
                figures.later_ms,
                figures.done_ms,
            ]
            longest, delay, first, later, done = (
                NOTHING if cell is None else f"{cell / 1000:.2f}" for cell in cells
            )
            lines.append(
                f"| {session.name} | {session.nodes} | {session.policy} |"
                f" {session.max_delay_ms / 1000:g} | {waits} | {figures.seconds:.0f} | {longest} |"
                f" {by_node} | {delay} | {first} | {later} | {figures.tentative_rows} | {done} |"
            )
    return [*lines, ""]


def _session_table(results: Sequence[SessionResult]) -> list[str]:
    lines = [
        (
            "| session | tuples/s | capacity tuples/s | between records ms | added by each node ms"
            " | CPU used | while failing | CPU of others | latest source record ms | stable buckets"
            " compared | wrong | s |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        hops = " ".join(f"{hop:.0f}" for hop in r.hop_ms)
        lines.append(
            f"| {r.session.name} | {r.rate} | {r.capacity or NOTHING} | {r.batch_ms:.0f} | {hops}"
            f" | {r.busy:.0%} | {r.busy_failing:.0%} | {r.others:.0%} | {r.lag_ms:.0f} |"
            f" {r.compared} | {r.wrong} | {r.seconds:.0f} |"
        )
    return [*lines, ""]


def _plots(
    real: Sequence[SessionResult], virtual: Sequence[SessionResult]
) -> dict[str, tuple[str, str]]:
    """File name -> (title, drawing)."""
    found: dict[str, tuple[str, str]] = {}
    for name, session in (("delay-two-nodes", "two-process"), ("delay-correction", "correction")):
        results = [
            (kind, r)
            for kind, rs in (("real", real), ("virtual", virtual))
            for r in rs
            if r.session.name == session and r.cuts
        ][:2]
        if results:
            title = (
                f"Delay of new results, {results[0][1].session.nodes} node(s), X ="
                f" {results[0][1].session.max_delay_ms / 1000:g} s"
            )
            lines = [line for kind, r in results for line in _delays(kind, r.traces[-1], r.cuts[0])]
            heal_s = results[0][1].cuts[0].seconds
            found[name] = (
                title,
                plot(
                    title,
                    "s since the failure began",
                    "delay s",
                    lines,
                    [(0, "cut"), (heal_s, "heal")],
                ),
            )
    kinds = (("real", real, False), ("virtual", virtual, True))
    lines = [
        line
        for kind, rs, is_dashed in kinds
        for policy in ("process", "delay")
        for line in _by_nodes(kind, rs, policy, is_dashed)
    ]
    if lines:
        title = f"Longest delay of new results, 15 s failure, X = {CHAIN_DELAY_MS / 1000:g} s"
        found["chains-delay"] = (title, plot(title, "nodes", "Procnew s", lines))
    lines = [line for kind, rs, is_dashed in kinds for line in _by_failure(kind, rs, is_dashed)]
    if lines:
        title = f"Tentative tuples at the output, X = {CHAIN_DELAY_MS / 1000:g} s"
        found["chains-tentative"] = (title, plot(title, "failure s", "tentative tuples", lines))
    return found


def _delays(kind: str, trace: Trace, cut: Cut) -> list[Line]:
    """Each new result around a failure: stable and tentative ones."""
    until_ms = cut.heal_ms + max(8_000, cut.heal_ms - cut.at_ms)
    near = [r for r in trace.new_results() if cut.at_ms - 3_000 <= r.at_ms <= until_ms]
    thin = max(1, len(near) // 400)
    points = [
        (((r.at_ms - cut.at_ms) / 1000, r.delay_ms / 1000), r.is_tentative) for r in near[::thin]
    ]
    return [
        Line(
            f"{kind}: {word}",
            [p for p, tentative in points if tentative is wanted],
            is_joined=False,
        )
        for word, wanted in (("stable", False), ("tentative", True))
    ]


def _by_nodes(
    kind: str, results: Sequence[SessionResult], policy: str, is_dashed: bool
) -> list[Line]:
    points = sorted(
        (float(r.session.nodes), f.longest_ms / 1000)
        for r in results
        if r.session.name.startswith("chain-") and r.session.policy == policy
        for f in r.failures
        if round(f.seconds) == 15
    )
    return [Line(f"{kind}: {policy}", points, is_dashed=is_dashed)] if points else []


def _by_failure(kind: str, results: Sequence[SessionResult], is_dashed: bool) -> list[Line]:
    return [
        Line(
            f"{kind}: {r.session.nodes} node(s), {r.session.policy}",
            [(f.seconds, float(f.tentative_rows)) for f in r.failures],
            is_dashed=is_dashed,
        )
        for r in results
        if r.session.name in {"chain-1-process", "chain-4-process", "chain-4-delay"} and r.failures
    ]
