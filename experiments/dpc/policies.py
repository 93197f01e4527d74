"""``python -m experiments.dpc.policies``: the six delay policies of DPC, in virtual time.

A policy names what a node does with new tuples while input is missing (UP_FAILURE), and what it
does with them while it corrects (STABILIZATION). ``on_missing_input`` of a pipeline sets the first;
the second is fixed: a branch never holds back a bucket that is complete. Here both are parameters,
over the project's own rules of a replica. The published system corrects on one replica of a pair
while the other one serves; a branch and its successor, with a core each, stand for that pair.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from anabranch.pipeline.waits import policy, waits
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import AnabranchError
from anabranch.protocol.stage.availability import Availability, Policy
from benchmarks.processes import exit_on_signals
from experiments.dpc.plan import Policy as Setting
from experiments.dpc.plan import Session
from experiments.dpc.plots import Line, plot
from experiments.dpc.virtual import Costs, VirtualSession
from experiments.pages import table, write_page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.protocol.stage.availability import Waits
    from experiments.dpc.figures import FailureFigures

PAGE: Final = Path(__file__).parents[2] / "docs/experiments/delay_policies.md"
BOUND_MS: Final = 3_000
"""X of the published runs."""
FAILURES_S: Final = (2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 15.0, 30.0, 45.0, 60.0)
CHAIN_FAILURES_S: Final = (5.0, 15.0, 60.0)
CHAIN_NODES: Final = 4
CHAIN_BOUND_MS: Final = 4_000
RATE: Final = 4_500
"""Tuples/s of all sources, as in the published runs."""
BUSY: Final = 0.25
"""Share of its core that the stable query needs for ``RATE``, without the fixed cost of batches.
Sets how long corrections take.
"""

POLICIES: Final[dict[str, tuple[Setting, Policy]]] = {
    "Process & Process": ("process", Policy.PROCESS),
    "Delay & Process": ("delay", Policy.PROCESS),
    "Process & Delay": ("process", Policy.DELAY),
    "Delay & Delay": ("delay", Policy.DELAY),
    "Process & Suspend": ("process", Policy.SUSPEND),
    "Delay & Suspend": ("delay", Policy.SUSPEND),
    "`suspend`": ("suspend", Policy.SUSPEND),
}
"""Name -> (while input is missing, while the stable query corrects). The last is no published one:
``on_missing_input: suspend``, with which nothing is tentative.
"""

PUBLISHED: Final = tuple(POLICIES)[:6]


class TwoPhaseAvailability(Availability):
    """Availability of a stage that treats new buckets in one way while input is missing, and in
    another while it corrects.

    PROCESS runs a bucket when it is complete, or after the short wait. DELAY holds each one back
    for the long wait: until then it may come out stable. SUSPEND runs none.
    """

    def __init__(
        self, inputs: Sequence[str], waits: Waits, failing: Policy, correcting: Policy
    ) -> None:
        """Start without observations, while nothing corrects."""
        super().__init__(inputs, waits, failing)
        self._correcting = correcting
        self.is_correcting = False

    @override
    def due_upto(self, stable_upto: int, tentative_upto: int, *, extended: bool = False) -> int:
        if not self.is_correcting:
            return super().due_upto(stable_upto, tentative_upto, extended=extended)
        if self._correcting is Policy.SUSPEND:
            return 0
        failing, self.policy = self.policy, self._correcting
        try:
            there = 0 if self._correcting is Policy.DELAY else stable_upto
            return super().due_upto(there, tentative_upto, extended=extended)
        finally:
            self.policy = failing


class PolicySession(VirtualSession):
    """Session in virtual time whose replicas treat new buckets otherwise while they correct."""

    def __init__(self, session: Session, correcting: Policy, folder: Path, costs: Costs) -> None:
        """Prepare it. ``session.policy`` holds while input is missing, ``correcting`` after it."""
        self._correcting = correcting
        super().__init__(session, folder, costs)

    @override
    def availability(self, stage: str, reads: Sequence[str]) -> TwoPhaseAvailability:
        return TwoPhaseAvailability(
            reads,
            waits(self.pipeline, stage),
            policy(self.pipeline, stage),
            self._correcting,
        )

    @override
    def tick(self) -> None:
        for replica in self.replicas:
            if isinstance(replica.availability, TwoPhaseAvailability):
                replica.availability.is_correcting = (
                    replica.runner.state is ReplicaState.STABILIZATION
                )
        super().tick()


@dataclass(frozen=True, slots=True)
class Measured:
    """Outcome of all failures under one policy."""

    policy: str
    failures: list[FailureFigures]


def costs_of(busy: float = BUSY) -> Costs:
    """Return the costs of an engine that needs ``busy`` of a core for RATE."""
    return Costs(rows_ms=1_000 * busy / RATE)


def run(
    name: str,
    folder: Path,
    *,
    nodes: int = 1,
    bound_ms: int = BOUND_MS,
    failures_s: tuple[float, ...] = FAILURES_S,
    costs: Costs | None = None,
) -> Measured:
    """Run all failures, one after the other, under the policy ``name``.

    Raises:
        AnabranchError: a session did not end well, or a corrected result is wrong.
    """
    failing, correcting = POLICIES[name]
    costs = costs_of() if costs is None else costs
    session = Session(
        f"policy-{failing}-{correcting}",
        (),
        nodes,
        bound_ms,
        failing,
        failures_s,
        load=RATE / costs.capacity,
    )
    result = PolicySession(session, correcting, folder, costs).run()
    if result.error or result.wrong or not all(f.is_corrected for f in result.failures):
        message = f"{name}: {result.error or f'{result.wrong} wrong buckets'}"
        raise AnabranchError(message)
    return Measured(name, result.failures)


def figure_table(measured: Sequence[Measured], value: Callable[[FailureFigures], str]) -> str:
    """Return a table of one figure: policies down, durations of the failure across."""
    head = ["policy", *(f"{f.seconds:g} s" for f in measured[0].failures)]
    return table(head, [[each.policy, *map(value, each.failures)] for each in measured])


def delay_s(figures: FailureFigures) -> str:
    """Return the longest delay that the failure added, in seconds."""
    return f"{figures.delay_ms / 1000:.1f}"


def tentative(figures: FailureFigures) -> str:
    """Return the number of tentative results."""
    return f"{figures.tentative_rows:,}".replace(",", " ")


def done_s(figures: FailureFigures) -> str:
    """Return the time from the end of the failure to the end of the corrections, in seconds."""
    return "-" if figures.done_ms is None else f"{figures.done_ms / 1000:.1f}"


def plots(measured: Sequence[Measured], bound_ms: int) -> dict[str, str]:
    """Return the plots of the page, by name."""
    longest_s = max(f.seconds for each in measured for f in each.failures)
    bound = Line("X", [(0, bound_ms / 1000), (longest_s, bound_ms / 1000)], is_dashed=True)
    published = [each for each in measured if each.policy in PUBLISHED]
    return {
        "delay-policies-delay": plot(
            "Longest added delay of new results, one node",
            "failure s",
            "Delaynew s",
            [
                *(
                    Line(each.policy, [(f.seconds, f.delay_ms / 1000) for f in each.failures])
                    for each in published
                ),
                bound,
            ],
        ),
        "delay-policies-tentative": plot(
            "Tentative results, one node",
            "failure s",
            "tentative results",
            [
                Line(each.policy, [(f.seconds, float(f.tentative_rows)) for f in each.failures])
                for each in published
            ],
        ),
    }


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.dpc.policies")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write the figures to")
    arguments = parser.parse_args()
    exit_on_signals()
    with tempfile.TemporaryDirectory(prefix="anabranch-policies-") as place:
        one, chain = list[Measured](), list[Measured]()
        for number, name in enumerate(POLICIES):
            one.append(run(name, Path(place) / f"one-{number}"))
            chain.append(
                run(
                    name,
                    Path(place) / f"chain-{number}",
                    nodes=CHAIN_NODES,
                    bound_ms=CHAIN_BOUND_MS,
                    failures_s=CHAIN_FAILURES_S,
                )
            )
            print(f"{name}: done", flush=True)
    blocks = {
        "delay": figure_table(one, delay_s),
        "tentative": figure_table(one, tentative),
        "done": figure_table(one, done_s),
        "chain-delay": figure_table(chain, delay_s),
        "chain-tentative": figure_table(chain, tentative),
        "chain-done": figure_table(chain, done_s),
    }
    write_page(arguments.page, blocks, plots(one, BOUND_MS))
    for name, block in blocks.items():
        print(f"{name}\n{block}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
