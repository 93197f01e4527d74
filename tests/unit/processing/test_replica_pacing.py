"""A replica whose two queries share its cores, in virtual time: corrections end, and new
results come in time as far as there is time.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from typing_extensions import override

from anabranch.codec.plan_offsets import rows_of
from anabranch.processing.replica import StartQuery, StopQuery
from anabranch.processing.replica_environment import OnlySources
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.stage.availability import Waits, waits_of
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.protocol.stage.scheduling import (
    CORRECTION_STEP_MS,
    CORRECTION_STEPS_ALONE,
    CORRECTION_STEPS_SERVED,
)
from anabranch.streams.boundary_reader import BoundaryReader
from harness.replica_world import OUT, Process, World

pytestmark = (
    pytest.mark.no_cover
)  # the same lines ten thousand times, each of which a test of its own covers

TICK_MS = 30
MAX_DELAY_MS = 3_000


@dataclass
class Work:
    """Remaining work of a query on a batch, or on its start; the query asks for a batch when there
    is none.
    """

    left_ms: float = 0
    runs: bool = False


class Served(OnlySources):
    """Peers of which one serves new results."""

    @override
    def peer_serves(self) -> bool:
        return True


class Cores:
    """Two inputs that are closed as time passes, and the stage's only replica. ``a`` can be
    cut off.
    """

    def __init__(
        self,
        traits: PlanTraits,
        width_ms: int,
        batch_ms: float,
        row_ms: float = 0,
        *,
        count: int = 1,
        branch_share: float = 0.5,
        served: bool = False,
    ) -> None:
        waits = waits_of(MAX_DELAY_MS, width_ms, 0, 1)
        self.waits: Waits = waits
        self.world = World("ab", traits, rows_max=60, width_ms=width_ms, waits=waits)
        self.process: Process = self.world.start(upstream=Served() if served else None)
        self.process.begin()
        self.batch_ms = batch_ms
        self.row_ms = row_ms
        self.count = count
        self.branch_share = branch_share
        self.cut = False
        self.due = 0
        self.shown_ms: dict[int, int] = {}
        """Bucket of the output -> how long after its end it was closed, stable or not."""
        self.output = BoundaryReader(self.world.log, OUT, ["0"])
        self._closed = {"a": 0, "b": 0}
        self._work: dict[str, Work] = {name: Work() for name in self.process.queries}

    def run(self, ms: int) -> None:
        for _ in range(0, ms, TICK_MS):
            self._tick()

    def corrected(self, within_ms: int) -> int:
        """Until the branch is gone; how long it took."""
        for took in range(0, within_ms, TICK_MS):
            if self.process.runner.branch is None and self._closed["a"] == self._closed["b"]:
                return took
            self._tick()
        message = (
            f"not within {within_ms} ms: stable {self.output.log_state.upto} of {self.due},"
            f" {self.process.runner.state}"
        )
        raise AssertionError(message)

    def state(self) -> ReplicaState:
        return self.process.runner.state

    def lag(self) -> int:
        return self.due - self.output.log_state.upto

    def longest_ms(self, first_ms: int, last_ms: int = 10**9) -> int:
        """Return the longest delay of a bucket that ended in this time."""
        return max(
            ms
            for bucket, ms in self.shown_ms.items()
            if first_ms <= bucket * self.world.width_ms < last_ms
        )

    def _tick(self) -> None:
        world, runner = self.world, self.process.runner
        busy = [work for work in self._work.values() if work.left_ms > 0]
        branch = self._work.get(runner.branch or "")
        for work in busy:
            share = (
                1.0
                if len(busy) == 1
                else self.branch_share
                if work is branch
                else 1 - self.branch_share
            )
            work.left_ms -= TICK_MS * min(1.0, self.count * share)
        world.clock.advance(TICK_MS)
        due = world.clock.monotonic_ms() // world.width_ms
        if due > self.due:
            self.due = due
            for name in "b" if self.cut else "ab":
                world.close(name, due, *range(self._closed[name] + 1, due + 1))
                self._closed[name] = due
        runner.tick()
        self._carry_out()
        for query, work in list(self._work.items()):
            if query in self._work and work.left_ms <= 0:
                self._step(query, work)
        self.output.poll(0)
        shown = max(self.output.log_state.upto, self.output.log_state.tentative_upto("0"))
        for bucket in range(len(self.shown_ms) + 1, shown + 1):
            self.shown_ms[bucket] = world.clock.monotonic_ms() - bucket * world.width_ms

    def _step(self, query: str, work: Work) -> None:
        """End the batch that ran, and begin the next one."""
        if work.runs:
            work.runs = False
            assert self.process.step(query)
            self._carry_out()
        if query not in self._work:
            return
        offsets = self.process.ask(query)
        if offsets is not None:
            self.world.plan(query, offsets)
            work.left_ms, work.runs = self.batch_ms + self.row_ms * rows_of(offsets), True
        self._carry_out()

    def _carry_out(self) -> None:
        for order in self.process.runner.orders():
            if isinstance(order, StartQuery):
                self._work[order.timeline] = Work(1_000)
            elif isinstance(order, StopQuery):
                self._work.pop(order.timeline, None)
                self.process.runner.stopped(order.timeline)


def failed(core: Cores, cut_s: int = 12) -> None:
    """Cut input ``a`` off for that long, and heal it."""
    core.run(10_000)
    assert core.state() is ReplicaState.STABLE
    core.cut = True
    core.run(1_000 * cut_s)
    assert core.state() is ReplicaState.UP_FAILURE
    core.cut = False


def checked(core: Cores) -> None:
    core.run(10_000)
    assert core.state() is ReplicaState.STABLE, "no new failure"
    world = core.world
    upto = core.output.log_state.upto
    assert {b: n for b, n in world.stable_rows().items() if b <= upto} == world.expected(upto)


SINGLY = PlanTraits(is_stateful=False, is_batch_safe=False)
TOGETHER = PlanTraits(is_stateful=False, is_batch_safe=True)
TOGETHER_LATER = PlanTraits(is_stateful=True, is_batch_safe=True)


def test_where_one_query_keeps_up_and_two_do_not_the_correction_ends() -> None:
    """A batch per second of input: 0.7 s alone, 1.4 s with two queries. The branch cannot
    hold its bound, so it is suspended early.
    """
    core = Cores(SINGLY, 1_000, 700)
    failed(core)
    assert core.corrected(120_000) < 60_000
    core.run(60_000)
    assert core.lag() <= 2
    checked(core)


@pytest.mark.parametrize("traits", [TOGETHER, TOGETHER_LATER])
def test_where_a_batch_is_longer_than_buckets_it_has_caught_up_when_it_took_all_there_was(
    traits: PlanTraits,
) -> None:
    """The stable query is always a batch behind: 1.3 s, which are five buckets."""
    core = Cores(traits, 250, 1_300, count=2)
    failed(core)
    assert core.corrected(40_000) < 15_000
    checked(core)
    assert core.longest_ms(22_000) - core.longest_ms(5_000, 10_000) <= MAX_DELAY_MS


@pytest.mark.parametrize("traits", [TOGETHER, TOGETHER_LATER])
def test_a_branch_that_takes_most_of_the_core_holds_its_bound_while_it_is_paced(
    traits: PlanTraits,
) -> None:
    """Free, its batches of one bucket each take 214 ms of every 250, and 247 beside the
    stable query; in larger ones half of that.
    """
    core = Cores(traits, 250, 150, 32, branch_share=0.85)
    failed(core)
    assert core.corrected(120_000) > CORRECTION_STEP_MS
    checked(core)
    assert core.longest_ms(22_000) <= 250 + MAX_DELAY_MS


@pytest.mark.parametrize(
    ("traits", "served", "steps"),
    [(TOGETHER, True, CORRECTION_STEPS_SERVED), (TOGETHER_LATER, False, CORRECTION_STEPS_ALONE)],
)
def test_where_that_is_not_enough_it_is_suspended_and_later_where_nobody_else_serves(
    traits: PlanTraits, served: bool, steps: int
) -> None:
    core = Cores(traits, 250, 150, 70, branch_share=0.85, served=served)
    failed(core)
    assert core.corrected(250_000) > CORRECTION_STEP_MS * steps
    assert (
        core.longest_ms(22_000, 22_000 + CORRECTION_STEP_MS * steps - MAX_DELAY_MS)
        <= 250 + MAX_DELAY_MS
    )
    core.run(60_000)
    checked(core)
    assert core.lag() < 20


def test_where_neither_can_hold_anything_corrections_end_all_the_same() -> None:
    core = Cores(TOGETHER_LATER, 250, 150, 70)
    failed(core)
    core.corrected(150_000)
    core.run(60_000)
    checked(core)
    assert core.lag() < 20
