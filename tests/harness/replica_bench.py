"""One ``protocol.stage.replica.Replica`` with streams, queries and a clock in memory: what
its shell does, without the shell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    Part,
)
from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.availability import Availability, Policy, Waits
from anabranch.protocol.stage.planner import Plan, PlanTraits, QueryPosition
from anabranch.protocol.stage.recovery import Beginning
from anabranch.protocol.stage.replica import Decision, Replica, Situation, StageRules
from anabranch.protocol.stage.scheduling import BatchRules

WIDTH_MS = 1_000
"""Width of a bucket, in ms: a successor has caught up when it is one bucket behind."""
WAITS = Waits(first_ms=1_000, next_ms=300)
STATELESS = PlanTraits(is_stateful=False, is_batch_safe=True)
STATEFUL = PlanTraits(is_stateful=True, is_batch_safe=True)
_LOOK_MS = 100


def part(bucket: int, rows: int = 1) -> Part:
    return Part(bucket, 0, f"{bucket:016x}", 1, bucket, bucket + 1, rows, 0)


@dataclass
class Stream:
    """An input: replica "0" writes it."""

    log_state: LogState = field(default_factory=lambda: LogState(["0"]))
    batch: int = 0
    branches: int = 0
    branch_closed: int = 0
    branch_tip: BatchId | None = None
    closed: int = 0

    def __post_init__(self) -> None:
        self.log_state.apply(0, EpochStarted("0", "", ""))

    def record(self, closed: int, parts: Iterable[Part] = (), *, past: int = 0) -> None:
        """Append a stable record. ``past``: bucket that parts of the input have passed."""
        self.batch += 1
        self.closed = max(self.closed, closed)
        outcome = self.log_state.apply(
            self.batch,
            BoundaryRecord(
                "0",
                0,
                BatchId("stable", self.batch),
                self.log_state.tip("0"),
                self.closed,
                tuple(parts),
                past=past,
            ),
        )
        assert outcome.accepted, outcome

    def tentative(
        self,
        closed: int,
        parts: Iterable[Part] = (),
        missing: tuple[str, ...] = (),
        *,
        fork: bool = False,
        shed: int = 0,
    ) -> None:
        """Append a tentative record of the writer's newest branch, or the first of a new one."""
        begins = fork or not self.log_state.has_branch("0")
        self.branches += begins
        self.branch_closed = max(closed, self.closed if begins else self.branch_closed)
        self.batch += 1
        ident, prev = (
            BatchId(f"b{self.branches}", self.batch),
            self.log_state.tip("0") if begins else self.branch_tip,
        )
        record = BoundaryRecord(
            "0",
            0,
            ident,
            prev,
            self.branch_closed,
            tuple(parts),
            base=self.closed if begins else None,
            kind=BoundaryKind.TENTATIVE,
            branch=(0, self.branches),
            missing=missing,
            shed=shed,
        )
        outcome = self.log_state.apply(self.batch, record)
        assert outcome.accepted, outcome
        self.branch_tip = ident

    def end_branch(self) -> None:
        """End that branch."""
        self.batch += 1
        self.log_state.apply(self.batch, BranchEnded("0", 0, self.branches))


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the replica on a bench."""

    traits: PlanTraits = STATELESS
    policy: Policy = Policy.PROCESS
    warm_up: bool = False
    epoch: int = 7
    width_ms: int = WIDTH_MS
    rows_max: int = 1_000
    waits: Waits = WAITS
    before_ms: int | None = None
    """Long wait of the stages that make the inputs, in ms; None if these are sources."""
    pace_ms: int = 0
    quiet_every_ms: int = 0
    after: int = 0
    given_up: int = 0
    rows_per_s: int = 0
    reads_stages: bool = False
    sheds: bool = False
    has_one_task: bool = False


class Bench:
    """Asks as an engine does, and carries out what is decided."""

    def __init__(self, names: str = "a", settings: Settings = Settings()) -> None:
        self.names = names
        self.traits = settings.traits
        self.policy = settings.policy
        self.streams = {name: Stream() for name in names}
        self.now_ms = 0
        self.may_correct = True
        self.upstream_works = False
        self.peer_serves = False
        self.unreachable: set[str] = set()
        """Inputs of which nobody can read the log to its end."""
        before_ms = settings.before_ms
        self.availability = Availability(
            names,
            settings.waits,
            settings.policy,
            before_ms=None if before_ms is None else dict.fromkeys(names, before_ms),
        )
        stable_query = timeline_name(settings.epoch, 0)
        self.replica = Replica(
            settings.epoch,
            stable_query,
            StageRules(
                settings.traits,
                self.availability,
                BatchRules(
                    settings.width_ms,
                    settings.rows_max,
                    settings.pace_ms,
                    settings.quiet_every_ms,
                    warm_up=settings.warm_up,
                    rows_per_s=settings.rows_per_s,
                    reads_stages=settings.reads_stages,
                ),
                sheds=settings.sheds,
                has_one_task=settings.has_one_task,
            ),
            Beginning(settings.after, settings.given_up),
        )
        self.positions = {stable_query: QueryPosition()}
        self.ran: list[tuple[str, Plan]] = []
        self.numbers: list[tuple[int, int]] = []
        self.dropped: list[str] = []
        self.looks = 0

    # -- the world --

    def close(self, upto: int, *filled: int, names: str = "") -> None:
        """Complete inputs (all, or ``names``) up to ``upto``; the buckets ``filled`` have a row."""
        for name in names or self.names:
            self.streams[name].record(upto, [part(bucket) for bucket in filled])

    def look(self) -> None:
        """One round of following the logs."""
        past = max(s.log_state.past_upto for s in self.streams.values())
        wanted = [name for name in self.names if self.replica.look_wanted(name, self.now_ms)]
        self.looks += len(wanted)
        self.availability.observe(self.now_ms, past)
        for name in wanted:
            if name not in self.unreachable:
                self.availability.read_to_end(name, self.now_ms)
        for name in set(self.names) - self.unreachable:
            if self.availability.end_wanted(name):
                self.availability.read_to_end(name, self.now_ms)

    def wait(self, ms: int) -> None:
        """Time passes, and the logs are followed all the while."""
        for _ in range(0, ms, _LOOK_MS):
            self.now_ms += _LOOK_MS
            self.look()

    def pause(self, ms: int) -> None:
        """Time passes, and the process stands still."""
        self.now_ms += ms

    # -- the queries --

    @property
    def stable_query(self) -> str:
        return self.replica.stable_query

    @property
    def branch(self) -> str:
        assert self.replica.branch is not None
        return self.replica.branch

    @property
    def state(self) -> ReplicaState:
        """State that others hear now."""
        return self.replica.state_at(self.now_ms)

    def at(self, query: str) -> int:
        return self.positions[query].bucket

    def situation(self) -> Situation:
        chosen = {
            name: "0" if s.log_state.tentative_upto("0") > s.log_state.upto else None
            for name, s in self.streams.items()
        }
        return Situation(
            self.now_ms,
            {n: s.log_state for n, s in self.streams.items()},
            chosen,
            frozenset(self.names if self.upstream_works else ""),
            may_correct=self.may_correct,
            peer_serves=self.peer_serves,
        )

    def decide(self, query: str) -> Decision:
        """Ask; nothing is carried out but a drop."""
        decision = self.replica.decide(query, self.positions[query], self.situation())
        if decision.drop is not None:
            self.dropped.append(decision.drop)
            del self.positions[decision.drop]
        return decision

    def ask(self, query: str) -> Decision:
        """Ask, and carry out what is decided; after a fork ask again."""
        decision = self.decide(query)
        if decision.fork:
            successor = self.replica.forks()
            old = self.replica.forked(self.positions[query], self.now_ms)
            self.numbers.append(self.replica.number)
            self.positions[successor] = self.positions[query]
            if old is not None:
                self.dropped.append(old)
                del self.positions[old]
            self.run(query, self.decide(query).plan)
        self.run(query, decision.plan)
        return decision

    def run(self, query: str, plan: Plan | None) -> None:
        if plan is not None:
            self.ran.append((query, plan))
            self.positions[query] = plan.after

    def settle(self) -> None:
        """Ask every query until none has anything to do."""
        for _ in range(1_000):
            before = len(self.ran), len(self.dropped), len(self.numbers)
            for query in list(self.positions):
                if query in self.positions:
                    self.ask(query)
            if before == (len(self.ran), len(self.dropped), len(self.numbers)):
                return
        raise AssertionError("it never settles")

    def settle_branch(self) -> None:
        """Ask the branch until it has nothing to do."""
        while self.ask(self.branch).plan is not None:
            pass

    def tentative_plans(self) -> list[Plan]:
        return [plan for _, plan in self.ran if plan.kind is BoundaryKind.TENTATIVE]

    def stable_plans(self) -> list[Plan]:
        return [plan for _, plan in self.ran if plan.kind is BoundaryKind.STABLE]


# -- ways into each state --


def stable(names: str = "a", **options: object) -> Bench:
    """Return a bench whose stable query is at 5, with everything complete up to 5; ``b`` is past 9
    if there is one.
    """
    bench = Bench(names, Settings(**options))  # type: ignore[arg-type]
    bench.look()
    bench.close(5, 5)
    bench.look()
    bench.settle()
    assert (bench.at(timeline_name(7, 0)), bench.state) == (5, ReplicaState.STABLE)
    return bench


def behind() -> Bench:
    """Return a bench that has just begun, and whose input was complete up to 5 before."""
    bench = Bench()
    bench.close(5, 5)
    bench.look()
    assert (bench.ask(bench.stable_query).plan is not None, bench.state) == (
        True,
        ReplicaState.FAILURE,
    )
    return bench


def up_failure(**options: object) -> Bench:
    """Return a bench with ``a`` idle after 5 while ``b`` goes on; the branch has run up to 20."""
    bench = stable(names="ab", **options)
    bench.close(20, 8, 20, names="b")
    bench.look()
    bench.wait(WAITS.first_ms)
    bench.settle()
    assert (bench.at(timeline_name(7, 1)), bench.at(timeline_name(7, 0)), bench.state) == (
        5,
        21,
        ReplicaState.UP_FAILURE,
    )
    return bench


def stabilization() -> Bench:
    """Return a bench with ``a`` back, but only up to 9: the successor has run 6..9 and is at the
    next hole.
    """
    bench = up_failure()
    bench.close(9, 7, names="a")
    bench.look()
    assert bench.ask(timeline_name(7, 1)).plan is not None
    assert (bench.at(timeline_name(7, 1)), bench.state) == (9, ReplicaState.STABILIZATION)
    return bench
