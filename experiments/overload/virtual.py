"""The same rushes in virtual time: the rules that decide, on a core that belongs to them alone.

No machine influences these figures, so they are the same wherever they are made. A batch takes a
fixed time and a time for each row, and queries that run at the same moment share the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import mean
from typing import Final

from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.utility import IN_PROPORTION, Curve, Qos
from harness.load_bench import WAITS, WIDTH_MS, Cost, LoadBench, NodeBench
from harness.replica_bench import Settings

COST: Final = Cost(fixed_ms=200, row_ms=4)
CAPACITY: Final = 190
"""Rows per second that batches process which take the target of a branch, 1 150 ms."""
BEFORE_S: Final = 60
RUSH_S: Final = 60
UNTIL_S: Final = 2_000
_CHEAP: Final = Curve(((0, 1_000), (KEPT_ALL, 700)), is_concave=True)
_LATENCY: Final = Curve(((0, 1_000), (WAITS.first_ms + 500, 1_000), (2 * WAITS.first_ms, 0)))


@dataclass
class Watched:
    """Bench of a stage, and the share of its rows from which each bucket was first shown."""

    bench: LoadBench
    qos: Qos
    shares: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        """Note what has been shown since the last call."""
        for bucket in self.bench.shown.keys() - self.shares.keys():
            is_stable = bucket in self.bench.stable
            self.shares[bucket] = KEPT_ALL if is_stable else self.bench.kept[-1][1]


@dataclass(frozen=True, slots=True)
class Virtual:
    """Outcome of one rush in virtual time."""

    name: str
    usual_ms: int
    """Longest delay of new results before the rush."""
    rush_ms: int
    """Longest delay of new results from the begin of the rush until all was corrected."""
    shed: float
    """Per mille of the rows that new results in the rush lacked, on average."""
    utility: float
    """Utility of new results from the begin of the rush until all was corrected, per mille."""
    backlog: int
    """Number of rows at the end of the rush that stable results lacked."""
    caught_up_s: float
    """Time from the end of the rush until stable results were in time again, in seconds."""
    forks: int
    """Number of branches."""
    delays: tuple[tuple[float, float], ...]
    shares: tuple[tuple[float, int], ...]


def rate(now_ms: int, parts: int) -> float:
    """Return the rows per second at ``now_ms``: half of the capacity, twice as many as it in the
    rush. ``parts``: number of stages that get as many each.
    """
    is_rush = BEFORE_S * 1_000 <= now_ms < (BEFORE_S + RUSH_S) * 1_000
    return (2 * CAPACITY if is_rush else CAPACITY / 2) / parts


def one(name: str, *, sheds: bool, until_s: int = UNTIL_S) -> Virtual:
    """Return the outcome of one stage, observed until ``until_s``."""
    settings = Settings(width_ms=WIDTH_MS, waits=WAITS, rows_max=100_000, sheds=sheds)
    stage = Watched(
        LoadBench(lambda now_ms: rate(now_ms, 1), COST, settings), Qos(_LATENCY, IN_PROPORTION)
    )
    while stage.bench.now_ms < until_s * 1_000:
        stage.bench.tick()
        stage.look()
    return _judge(name, stage)


def two(*, chooses: bool, until_s: int = UNTIL_S) -> list[Virtual]:
    """Return the outcomes of two stages on one core, whose lost rows cost differently.
    ``chooses``: whether the node chooses which of them leaves out rows.
    """
    stages = {
        name: Watched(LoadBench(lambda now_ms: rate(now_ms, 2), COST), Qos(_LATENCY, loss))
        for name, loss in (("counts", _CHEAP), ("tolls", IN_PROPORTION))
    }
    node = NodeBench(
        {name: (each.bench, each.qos.loss) for name, each in stages.items()}, chooses=chooses
    )
    for end_ms in range(0, until_s * 1_000, WIDTH_MS):
        node.run(end_ms + WIDTH_MS)
        for each in stages.values():
            each.look()
    return [_judge(name, stages[name]) for name in sorted(stages, reverse=True)]


def _judge(name: str, stage: Watched) -> Virtual:
    bench, began_ms = stage.bench, BEFORE_S * 1_000
    ended_ms = began_ms + RUSH_S * 1_000
    delays = {bucket: at_ms - bucket * WIDTH_MS for bucket, at_ms in sorted(bench.shown.items())}
    before = [ms for bucket, ms in delays.items() if began_ms / 2 <= bucket * WIDTH_MS <= began_ms]
    rush = [bucket for bucket in delays if began_ms < bucket * WIDTH_MS <= ended_ms]
    caught_up_ms = next(
        (
            at_ms
            for bucket, at_ms in sorted(bench.stable.items())
            if bucket * WIDTH_MS > ended_ms and at_ms - bucket * WIDTH_MS <= max(before) + WIDTH_MS
        ),
        bench.now_ms,
    )
    whole = [bucket for bucket in delays if began_ms < bucket * WIDTH_MS <= caught_up_ms]
    return Virtual(
        name,
        usual_ms=max(before),
        rush_ms=max(delays[bucket] for bucket in whole),
        shed=KEPT_ALL - mean(stage.shares[bucket] for bucket in rush),
        utility=mean(
            stage.qos.utility(delays[bucket], KEPT_ALL - stage.shares[bucket]) for bucket in whole
        ),
        backlog=sum(
            rows
            for bucket, rows in bench.rows.items()
            if bench.position_at(ended_ms) < bucket <= ended_ms // WIDTH_MS
        ),
        caught_up_s=(caught_up_ms - ended_ms) / 1_000,
        forks=len(bench.forks),
        delays=tuple(
            ((bucket * WIDTH_MS - began_ms) / 1_000, ms / 1_000) for bucket, ms in delays.items()
        ),
        shares=tuple(
            ((bucket * WIDTH_MS - began_ms) / 1_000, KEPT_ALL - stage.shares[bucket])
            for bucket in delays
        ),
    )
