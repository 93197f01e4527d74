"""Properties of ``processing.replica``: any failures, crashes, overtaken processes and
unknown outcomes; the output is what it must be.
"""

from __future__ import annotations

import random

from hypothesis import event, given
from hypothesis import strategies as st

from anabranch.adapters.memory.log import Operation
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord
from anabranch.protocol.log.timeline import epoch_of
from anabranch.protocol.stage.availability import Policy
from anabranch.protocol.stage.planner import PlanTraits
from harness.examples import examples
from harness.replica_bench import STATEFUL, STATELESS
from harness.replica_world import OUT, Relay, World

TRAITS = (
    STATELESS,
    STATEFUL,
    PlanTraits(is_stateful=True, is_batch_safe=False),
    PlanTraits(is_stateful=False, is_batch_safe=False),
)


class Random(Relay):
    """Inputs that go on, stop and come back; processes to which everything happens."""

    def __init__(
        self, g: random.Random, names: str, traits: PlanTraits, policy: Policy, faults: float
    ) -> None:
        super().__init__(World(names, traits, policy, rows_max=g.choice([1, 2, 1_000])))
        self.g, self._faults = g, faults
        self.upto = dict.fromkeys(names, 0)

    def point(self, name: str) -> None:
        super().point(name)
        if self.g.random() < self._faults:
            if self.g.random() < 0.6 or self._newer is not None:
                self.crash()
            self.overtake()

    def close(self, name: str, by: int) -> None:
        buckets = range(self.upto[name] + 1, self.upto[name] + by + 1)
        self.upto[name] += by
        self.world.close(
            name, self.upto[name], *[bucket for bucket in buckets if self.g.random() < 0.4]
        )

    def act(self) -> None:
        what = self.g.choice(["one", "one", "one", "all", "wait", "long", "long", "unknown"])
        if what == "one":
            self.close(self.g.choice(self.world.names), self.g.randrange(1, 5))
        elif what == "all":
            for name in self.world.names:
                self.close(name, max(self.upto.values()) - self.upto[name] + self.g.randrange(3))
        elif what == "unknown":
            self.world.log.fail_next(Operation.FLUSH, applied=self.g.choice([0, None]), topic=OUT)
        self.wait({"long": 1_200, "wait": 400}.get(what, 100))

    def finish(self) -> None:
        """Everything comes back, and nothing happens any more."""
        self._faults = 0
        last = max(self.upto.values()) + 3
        for name in self.world.names:
            self.close(name, last - self.upto[name])
        self.wait(500)
        self.rest()
        assert self.world.log_state().upto == last
        assert self.world.stable_rows() == self.world.expected(last)
        assert self.process is not None
        assert self.process.runner.state is ReplicaState.STABLE, "it ends corrected"
        stable_query = self.process.runner.stable_query
        own = [
            name
            for name in self.world.machine.directories
            if epoch_of(name) == epoch_of(stable_query)
        ]
        assert own == [stable_query], (
            "and cleans up after itself; what a process left that was overtaken, the next start"
            " removes"
        )

    def check_records(self) -> None:
        """Check what any reader may rely on."""
        log_state = LogState(["0"])
        branches = [(-1, -1)]
        for offset, entry in enumerate(self.world.entries()):
            outcome = log_state.apply(offset, entry)
            if not isinstance(entry, BoundaryRecord) or not outcome.accepted:
                continue
            if entry.kind is BoundaryKind.TENTATIVE:
                assert entry.branch is not None
                assert (entry.branch > branches[-1]) == (entry.base is not None), "RE3"
                branches.append(entry.branch)
        event("branches" if len(branches) > 1 else "no branch")


@examples(120)
@given(
    st.integers(0, 2**32),
    st.integers(5, 40),
    st.sampled_from(["a", "ab"]),
    st.sampled_from(TRAITS),
    st.sampled_from([Policy.PROCESS, Policy.PROCESS, Policy.DELAY, Policy.SUSPEND]),
    st.sampled_from([0.0, 0.005, 0.03]),
)
def test_any_history(
    seed: int, length: int, names: str, traits: PlanTraits, policy: Policy, faults: float
) -> None:
    story = Random(random.Random(seed), names, traits, policy, faults)
    for _ in range(length):
        story.act()
    story.finish()
    story.check_records()
