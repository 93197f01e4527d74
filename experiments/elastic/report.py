"""Page docs/experiments/elastic.md: tables and plots of the runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from experiments.dpc.plots import Line, plot
from experiments.elastic.files import Files
from experiments.elastic.lost_shard import LostShard
from experiments.elastic.measuring import AGES_S, Move, Recovery, Restart
from experiments.elastic.splitting import Split, Threshold, Throughput
from experiments.pages import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Row: TypeAlias = Files | Restart | Move | Recovery | LostShard | Split | Throughput | Threshold
_Kind = TypeVar("_Kind", bound=Row)


class Measured(NamedTuple):
    """Rows of one run, and what they were measured with."""

    day: str
    commit: str
    machine: str
    busy: float
    """Number of programs that could run at once while it was measured, for each core."""
    rows: Sequence[Row]

    def cells(self, row: Row) -> list[str]:
        """Return the last cells of ``row``."""
        return [f"{row.wrong} of {row.judged}", f"{self.busy:.1f}", self.day, f"`{self.commit}`"]


_LAST = ("wrong", "busy", "date", "commit")
AGES_RATE: Final = 500
"""Rate, in rows per second, at which recovery is drawn against the age of the checkpoint."""


def _files(row: Files) -> list[str]:
    return [f"{row.state_mb:.0f} MB", row.step, f"{row.cpu_s:.2f} s", f"{row.wall_s:.2f} s"]


def _restart(row: Restart) -> list[str]:
    return [
        f"{row.state_mb:.0f} MB",
        row.mode,
        f"{row.again_s:.1f} s",
        f"{row.fill_rows_per_s:.0f} rows/s",
    ]


def _move(row: Move) -> list[str]:
    return [
        f"{row.state_mb:.0f} MB",
        f"{row.before_p99_s:.2f} s",
        f"{row.during_p99_s:.2f} s",
        f"{row.during_p99_s - row.before_p99_s:+.2f} s",
        f"{row.longest_s:.2f} s",
        f"{row.prefetch_s:.1f} s",
        f"{row.moved_s:.1f} s",
        f"{row.prefetch_mb:.1f} MB",
        f"{row.rest_mb:.1f} MB",
    ]


def _split(row: Split) -> list[str]:
    return [
        str(row.nodes),
        str(row.rows_per_s),
        f"{row.before_p99_s:.2f} s",
        f"{row.during_p99_s:.2f} s",
        f"{row.during_p99_s - row.before_p99_s:+.2f} s",
        f"{row.longest_s:.2f} s",
        f"{row.proven_s:.0f} s",
    ]


def _recovery(row: Recovery) -> list[str]:
    return [
        str(row.rows_per_s),
        row.mode,
        f"{row.age_s:.0f} s" if row.age_s else "-",
        f"{row.detect_s:.1f} s",
        f"{row.restore_s:.1f} s",
        f"{row.catch_up_s:.1f} s",
        f"{row.again_s:.1f} s",
    ]


def _lost_shard(row: LostShard) -> list[str]:
    return [
        f"{row.rows_per_s:.0f}",
        str(row.nodes),
        f"{row.age_s:.0f} s",
        f"{row.detect_s:.1f} s",
        f"{row.proven_s:.1f} s" if row.proven_s else "-",
        f"{row.again_s:.1f} s",
        f"{row.level_s:.1f} s",
    ]


def _throughput(one: float | None, row: Throughput) -> list[str]:
    """Return the first cells of a ramp. ``one``: rows per second of one node, if measured."""
    return [
        str(row.nodes),
        str(row.used),
        f"{row.rows_per_s:.0f}" if row.has_ended else f"at least {row.rows_per_s:.0f}",
        f"{row.rows_per_s / one:.2f}" if one else "-",
        str(row.splits),
        str(row.moves),
    ]


def _threshold(row: Threshold) -> list[str]:
    return [
        f"{row.above} %",
        str(row.used),
        str(row.splits),
        f"{row.p50_s:.2f} s",
        f"{row.p99_s:.2f} s",
    ]


def _one_node(found: Sequence[Measured]) -> float | None:
    """Return the rows per second of the ramp on one node; None if it was not measured."""
    rows = [row for each in found for row in each.rows if isinstance(row, Throughput)]
    return next((row.rows_per_s for row in rows if row.nodes == 1), None)


def _rows_of(
    found: Sequence[Measured], kind: type[_Kind], first: Callable[[_Kind], Sequence[str]]
) -> list[list[str]]:
    """Return a line of a table for each row of ``kind``. ``first``: its first cells."""
    return [
        [*first(row), *each.cells(row)]
        for each in found
        for row in each.rows
        if isinstance(row, kind)
    ]


def tables(found: Sequence[Measured]) -> dict[str, str]:
    """Return the blocks of the page, by name; none without a run of its kind."""
    steps = _rows_of(found, Files, _files)
    restarts = _rows_of(found, Restart, _restart)
    moves = _rows_of(found, Move, _move)
    recoveries = _rows_of(found, Recovery, _recovery)
    blocks: dict[str, str] = {}
    if found:
        machines = sorted({each.machine for each in found})
        blocks["machine"] = f"Measured on {'; '.join(machines)}."
    head: tuple[str, ...]
    if steps:
        head = ("state", "step", "processor time", "time", *_LAST)
        blocks["files"] = table(head, steps)
    if restarts:
        head = ("state", "from", "results after", "state made at", *_LAST)
        blocks["restart"] = (
            f"{table(head, restarts)}\n\n![time until results come again](elastic-restart.svg)"
        )
    if moves:
        head = (
            *("state", "p99 before", "p99 during", "difference", "longest"),
            *("first copy after", "moved after", "first copy", "read after it", *_LAST),
        )
        blocks["move"] = table(head, moves)
    split_ones = _rows_of(found, Split, _split)
    if split_ones:
        head = (
            *("nodes", "rows/s", "p99 before", "p99 during", "difference", "longest"),
            *("proven after", *_LAST),
        )
        blocks["split"] = table(head, split_ones)
    if recoveries:
        head = (
            *("rows/s", "from", "age", "detected after", "restored in", "caught up in"),
            *("results after", *_LAST),
        )
        blocks["recovery"] = (
            f"{table(head, recoveries)}\n\n![time until results come again](elastic-recovery.svg)"
            "\n\n![time against the age of the checkpoint](elastic-ages.svg)"
        )
    lost = _rows_of(found, LostShard, _lost_shard)
    if lost:
        head = (
            *("rows/s", "nodes", "age", "detected after", "proven after", "results after"),
            *("in time after", *_LAST),
        )
        blocks["parallel"] = table(head, lost)
    ramps = _rows_of(found, Throughput, partial(_throughput, _one_node(found)))
    if ramps:
        head = ("nodes", "used", "rows/s", "ratio", "splits", "moves", *_LAST)
        blocks["ramp"] = f"{table(head, ramps)}\n\n![rows per second](elastic-ramp.svg)"
    thresholds = _rows_of(found, Threshold, _threshold)
    if thresholds:
        head = ("threshold", "nodes used", "splits", "median delay", "p99", *_LAST)
        blocks["threshold"] = (
            f"{table(head, thresholds)}\n\n![nodes and delay](elastic-threshold.svg)"
        )
    return blocks


def plots(found: Sequence[Measured]) -> dict[str, str]:
    """Return the plots of the page, by name; none without a run of its kind."""
    rows = [row for each in found for row in each.rows]
    drawn: dict[str, str] = {}
    restarts = [row for row in rows if isinstance(row, Restart)]
    if restarts:
        points = [(row.mode, row.state_mb, row.again_s) for row in restarts]
        drawn["elastic-restart"] = plot(
            "Results come again after a kill", "MB of state", "seconds", _lines(points)
        )
    recoveries = [row for row in rows if isinstance(row, Recovery)]
    if recoveries:
        points = [
            (
                f"{row.mode}, {row.age_s:.0f} s old" if row.age_s else row.mode,
                float(row.rows_per_s),
                row.restore_s + row.catch_up_s,
            )
            for row in recoveries
            if not row.age_s or row.age_s in AGES_S
        ]
        drawn["elastic-recovery"] = plot(
            "Restored and caught up after the loss of a node",
            "rows per second",
            "seconds",
            _lines(points),
        )
        points = [
            (f"{row.mode}, {row.rows_per_s} rows/s", row.age_s, row.restore_s + row.catch_up_s)
            for row in recoveries
            if row.age_s and row.rows_per_s == AGES_RATE
        ]
        drawn["elastic-ages"] = plot(
            "Restored and caught up after the loss of a node",
            "seconds since the newest checkpoint",
            "seconds",
            _lines(points),
        )
    ramps = [row for row in rows if isinstance(row, Throughput)]
    if ramps:
        drawn["elastic-ramp"] = plot(
            "Rows that are written (dashed) and processed", "seconds", "rows/s", _courses(ramps)
        )
    thresholds = [row for row in rows if isinstance(row, Threshold)]
    if thresholds:
        points = [("nodes used", float(row.above), float(row.used)) for row in thresholds]
        points += [("p99, seconds", float(row.above), row.p99_s) for row in thresholds]
        drawn["elastic-threshold"] = plot(
            "Nodes used, and p99 of the delay",
            "threshold in percent",
            "nodes, seconds",
            _lines(points),
        )
    return drawn


def _courses(ramps: Sequence[Throughput]) -> list[Line]:
    """Return two lines for each ramp: rows per second that were processed and written."""
    found = []
    for row in ramps:
        name = f"{row.nodes} {'node' if row.nodes == 1 else 'nodes'}"
        found.append(Line(name, [(at_s, closed) for at_s, _, closed, _ in row.course]))
        written = [(at_s, given) for at_s, given, _, _ in row.course]
        found.append(Line(f"{name}, written", written, is_dashed=True))
    return found


def _lines(points: Sequence[tuple[str, float, float]]) -> list[Line]:
    """Return a line of the points of each name."""
    names = dict.fromkeys(name for name, _, _ in points)
    return [Line(name, sorted((x, y) for each, x, y in points if each == name)) for name in names]
