"""Properties of ``protocol.stage.replica`` and ``protocol.stage.availability``: any
boundaries, branches upstream, pauses, cuts and turns (AV1-AV4, RE1-RE6, RE10).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import event, given
from hypothesis import strategies as st

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.availability import STALL_MS, Policy
from anabranch.protocol.stage.planner import Plan, PlanTraits
from anabranch.protocol.stage.replica import Decision
from harness.examples import examples
from harness.replica_bench import STATEFUL, STATELESS, WAITS, Bench, Settings, part

FIRST = WAITS.first_ms
TRAITS = (
    STATELESS,
    STATEFUL,
    PlanTraits(is_stateful=True, is_batch_safe=False),
    PlanTraits(is_stateful=False, is_batch_safe=False),
)


class WatchedBench(Bench):
    """Keeps books of its own about time, and holds every decision against the invariants."""

    def __init__(self, names: str, traits: PlanTraits, policy: Policy, width_ms: int) -> None:
        self.width_ms = width_ms
        super().__init__(
            names,
            Settings(traits=traits, policy=policy, width_ms=width_ms, warm_up=True, rows_max=3),
        )
        self.awake_ms = 0
        """Time without the pauses, at the last look."""
        self._looked_ms = 0
        self._signs: list[tuple[int, int]] = []
        """(bucket, awake time): signs that an input was past the bucket."""
        self._read_at = dict.fromkeys(names, -1)
        self._complete: list[tuple[int, int]] = []
        """(awake time, bucket): what was complete at each look."""
        self._woke_at = 0
        """Complete bucket at the first look, or at the first after a pause."""
        self._moved_at = 0
        self._fork_at = 0
        self._batch: tuple[int, int] | None = None
        """When the stable query's last batch began that took buckets, and what was complete
        then; None: it has asked since.
        """
        self.plans: dict[str, list[Plan]] = {}

    # -- time --

    def look(self) -> None:
        gap, self._looked_ms = self.now_ms - self._looked_ms, self.now_ms
        self.awake_ms += gap if gap <= STALL_MS else 0
        past = max(s.log_state.past_upto for s in self.streams.values())
        if past and (not self._signs or past > self._signs[-1][0]):
            self._signs.append((past, self.awake_ms))
        super().look()
        self._read_at |= {
            n: self.awake_ms for n in self.names if self.availability._read_to[n] == self.now_ms
        }
        complete = min(s.log_state.upto for s in self.streams.values())
        self._complete.append((self.awake_ms, complete))
        if gap > STALL_MS or len(self._complete) == 1:
            self._woke_at = complete
        self.check_timers()
        self.check_state()

    def check_state(self) -> None:
        """RE10: what was complete for a long wait and a hop, or when the process began or
        woke, was run.
        """
        if self.state is ReplicaState.STABLE:
            assert self.now_ms - self._looked_ms <= STALL_MS, (
                "RE10: who does not look does not know"
            )
            due = max(
                (upto for at, upto in self._complete if at + FIRST + HOP_MS <= self.awake_ms),
                default=0,
            )
            assert self.at(self.stable_query) >= max(due, self._woke_at), "RE10"
            event("stable")

    def sign(self, bucket: int) -> int | None:
        """Awake time of the first sign that an input was past the bucket before ``bucket``."""
        return next((at for past, at in self._signs if past >= bucket - 1), None)

    def check_timers(self) -> None:
        before = None
        low = self.replica.passed() + 1
        for bucket in range(low, low + 12):
            started, sign = self.availability._timers.started(bucket), self.sign(bucket)
            if started is None or sign is None:
                assert started is sign is None, "AV1: a timer starts at a sign, and only then"
                continue
            assert self.now_ms - started == self.awake_ms - sign, (
                "AV1, AV4: since the sign, pauses not counted"
            )
            assert before is None or before <= started, "AV2"
            before = started

    # -- decisions --

    def decide(self, query: str) -> Decision:
        complete = min(s.log_state.upto for s in self.streams.values())
        was_stable_query = self.stable_query
        branch = self.replica.branch
        position = self.positions[query]
        ahead = 0 if branch is None else self.at(branch)
        was_complete = complete
        if query == was_stable_query and self._batch is not None:
            if self.now_ms - self._batch[0] <= FIRST:
                was_complete = self._batch[1]
            self._batch = None
        decision = super().decide(query)
        self.check_state()
        if decision.drop is not None:
            assert (query, decision.drop) == (was_stable_query, branch), (
                "only the stable query is told to drop, and the branch"
            )
            assert position.bucket >= min(
                ahead - 1, was_complete - max(1, 1_000 // self.width_ms)
            ), "RE5: caught up"
            assert not self.availability.overdue(max(complete, position.bucket) + 1, self.now_ms), (
                "RE5: not at a hole"
            )
            assert not any(s.log_state.awaits_correction("0") for s in self.streams.values()), "US4"
            event("dropped")
        if decision.fork:
            self.check_fork(position.bucket, branch)
        if decision.plan is not None:
            self.check_plan(query, decision.plan)
        assert not (decision.fork and decision.plan)
        return decision

    def check_fork(self, bucket: int, branch: str | None) -> None:
        assert self.policy is not Policy.SUSPEND
        sign = self.sign(bucket + 1)
        assert sign is not None, "AV1"
        assert min(self._read_at.values()) - sign >= FIRST, (
            "AV3, AV4: all logs were read after a whole wait"
        )
        if branch is not None:
            assert bucket > self._fork_at, "RE4: progress"
            assert min(self._read_at.values()) - self._moved_at >= FIRST, (
                "RE4: and then none for a whole wait"
            )
            event("second fork")
        self._fork_at, self._moved_at = bucket, self.awake_ms
        event("fork")

    def check_plan(self, query: str, plan: Plan) -> None:
        assert (plan.kind is BoundaryKind.TENTATIVE) == (query != self.stable_query), "RE1"
        if query == self.stable_query:
            self._moved_at = self.awake_ms
            if plan.after.bucket > plan.before.bucket:
                self._batch = self.now_ms, min(s.log_state.upto for s in self.streams.values())
            assert plan.after.bucket <= max(
                plan.before.bucket, min(s.log_state.upto for s in self.streams.values())
            )
        assert plan.before == self.positions[query], "none skipped, none twice"
        assert plan.after.sequence == plan.before.sequence + 1
        for name, taken in plan.inputs:
            buckets = [bucket for bucket, _, _ in taken]
            assert buckets == sorted(set(buckets))
            assert all(plan.before.bucket < bucket <= plan.after.bucket for bucket in buckets)
            if plan.kind is BoundaryKind.STABLE and plan.after.bucket > plan.before.bucket:
                assert list(taken) == self.streams[name].log_state.stable(
                    plan.before.bucket + 1, plan.after.bucket
                )
        self.plans.setdefault(query, []).append(plan)

    def ask(self, query: str) -> Decision:
        numbers = len(self.numbers)
        decision = super().ask(query)
        assert self.numbers == sorted(set(self.numbers)), "RE3"
        if len(self.numbers) > numbers:
            assert self.plans[query][-1].kind is BoundaryKind.TENTATIVE or self.upstream_works, (
                "the branch goes on at once"
            )
        assert len(self.positions) <= 2, "RE6"
        return decision


Action = Callable[[WatchedBench], None]


def action(g: random.Random) -> Action:
    """One thing that happens."""
    kind = g.choice(
        [
            "close",
            "close",
            "open",
            "upstream",
            "wait",
            "wait",
            "wait",
            "pause",
            "ask",
            "ask",
            "settle",
            "settle",
            "switch",
        ]
    )
    name = g.choice("ab")
    by = g.randrange(5)
    rows = g.randrange(4)
    ms = g.choice([100, 300, 900, 1_000, 1_500])

    def act(bench: WatchedBench) -> None:
        stream = bench.streams[name if name in bench.names else "a"]
        if kind == "close":
            stream.record(
                stream.closed + by,
                [part(b, rows) for b in range(stream.closed + 1, stream.closed + by + 1) if rows],
            )
            if by == 4:
                stream.end_branch()
        elif kind == "open":
            stream.record(stream.closed, [part(stream.closed + 1 + by, rows)])
        elif kind == "upstream":
            upto = max(stream.closed, stream.branch_closed) + by
            stream.tentative(
                upto,
                [part(upto, rows)] if by else [],
                ("s",) if rows else (),
                fork=rows == 3 or stream.branch_closed < stream.closed,
            )
        elif kind == "wait":
            bench.wait(ms)
        elif kind == "pause":
            bench.pause(ms * 4)
        elif kind == "ask":
            bench.ask(sorted(bench.positions)[by % len(bench.positions)])
        elif kind == "settle":
            bench.look()
            bench.settle()
        else:
            bench.upstream_works, bench.may_correct = by == 0, by != 1
            bench.unreachable = {name} if by == 2 else set()

    return act


@examples(300)
@given(
    st.integers(0, 2**32),
    st.integers(0, 120),
    st.sampled_from(["a", "ab"]),
    st.sampled_from(TRAITS),
    st.sampled_from([Policy.PROCESS, Policy.PROCESS, Policy.PROCESS, Policy.DELAY, Policy.SUSPEND]),
    st.sampled_from([100, 1_000]),
)
def test_any_history(
    seed: int, length: int, names: str, traits: PlanTraits, policy: Policy, width_ms: int
) -> None:
    g, bench = (
        random.Random(seed),
        WatchedBench(names, traits, policy, width_ms),
    )
    for _ in range(length):
        action(g)(bench)
    bench.upstream_works = False
    bench.may_correct = True
    bench.unreachable = set()
    last = max(s.log_state.past_upto for s in bench.streams.values()) + 3
    bench.close(last)
    for stream in bench.streams.values():
        stream.end_branch()
    bench.now_ms += 100
    bench.look()
    bench.settle()
    assert (bench.state, bench.at(bench.stable_query), list(bench.positions)) == (
        ReplicaState.STABLE,
        last,
        [bench.stable_query],
    ), "it ends corrected"
    stable = [plan for plan in bench.stable_plans() if plan.after.bucket > plan.before.bucket]
    assert [p.before.bucket for p in stable] == [0, *(p.after.bucket for p in stable[:-1])], (
        "over all forks: no bucket twice, none skipped"
    )
