"""A replica under load, and the scaler that reads the reports of its node."""

from __future__ import annotations

from anabranch.protocol.control.placement import PlacedStage, Places
from anabranch.protocol.control.records import NodeReport, ReplicaLoad
from anabranch.protocol.control.scaling import (
    REPORT_EVERY_MS,
    Halving,
    Scaler,
    ScalingDecision,
    ScalingRules,
)
from anabranch.protocol.stage.busy_time import BusyTime
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.planner import Plan
from anabranch.protocol.stage.scheduling import pace_ms
from harness.load_bench import WAITS, WIDTH_MS, Cost, Load, LoadBench
from harness.replica_bench import Settings

SHARD, HALVES = "slow", ("slow.0", "slow.1")
POOL = ("north.1", "north.2")
PACE_MS = pace_ms(replicas=1, cores=1)


class ScaledBench(LoadBench):
    """A shard alone on a node of one core, which reports its load; two idle nodes can have its
    halves. What the scaler decides is noted, and not done.
    """

    def __init__(self, load: Load, cost: Cost, *, above_permille: int, for_ms: int) -> None:
        super().__init__(
            load,
            cost,
            Settings(width_ms=WIDTH_MS, waits=WAITS, rows_max=100_000, sheds=True, pace_ms=PACE_MS),
        )
        self.busy = BusyTime(0)
        self.splits: list[tuple[int, Halving]] = []
        """Time of each decision to split the shard."""
        stages = [PlacedStage(each, "north", ("0",)) for each in (SHARD, *HALVES)]
        rules = ScalingRules(POOL, above_permille, for_ms, 2_000, WIDTH_MS, halves={SHARD: HALVES})
        named = {"north.0": [f"{SHARD}.0"], "north.1": [f"{HALVES[0]}.0"], "north.2": []}
        self._scaler = Scaler(rules, Places(stages, named), Places(stages, named))

    def tick(self) -> None:
        """Let one tick pass. The node reports once a second."""
        super().tick()
        if self.now_ms % REPORT_EVERY_MS == 0:
            self._report()

    def _report(self) -> None:
        now_ms, busy = self.now_ms, self.busy.read(self.now_ms)
        position = self.bench.replica.position(self.bench.replica.stable_query)
        reached = 0 if position is None else position.bucket
        load = ReplicaLoad(
            SHARD,
            "0",
            "running",
            # As a node reports it: not before its first batch.
            leads=bool(self.shown),
            stands_by=False,
            busy_permille=busy.busy_permille,
            rows_per_s=busy.rows_per_s,
            behind=max(0, self.bench.streams["a"].log_state.upto - reached) if reached else 0,
            is_cold=busy.is_cold,
            need_permille=busy.need_permille,
        )
        self._scaler.came_back(now_ms)
        for node in ("north.0", *POOL):
            loads = (load,) if node == "north.0" else ()
            self._scaler.reported(NodeReport(node, now_ms, 1, loads), now_ms)
        self._note(self._scaler.tick(now_ms))

    def _note(self, actions: tuple[ScalingDecision, ...]) -> None:
        self.splits += [(self.now_ms, each) for each in actions if isinstance(each, Halving)]

    def _begins(self, query: str, plan: Plan) -> None:
        closes = plan.after.bucket - plan.before.bucket if plan.before.bucket else 0
        closes_ms = closes * WIDTH_MS * plan.kept // KEPT_ALL
        is_stable = query == self.bench.replica.stable_query
        self.busy.began(query, plan.rows, self.now_ms, closes_ms, is_stable=is_stable)
        super()._begins(query, plan)

    def _ended(self, query: str, plan: Plan) -> None:
        self.busy.ended(query, plan.rows, self.now_ms)
        super()._ended(query, plan)

    def _drop_job(self, query: str) -> None:
        self.busy.dropped(query, self.now_ms)
        super()._drop_job(query)
