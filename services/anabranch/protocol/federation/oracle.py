"""A participant's oracle: what each plan of a movement contract is worth to it, and the statements
that follow.

Theory of operation. Each side has an oracle of its own, which is private: it knows the cost
function of its owner. The profit of a plan has two parts: what its terms pay, or cost, at the
present rates of the streams, less the cost of those stages that the plan runs here, on top of all
else that runs here. The oracle proposes the plan with the highest profit, agrees to a proposed plan
that is better for it than the present one, and declines any other. It does not repeat a proposal
that failed until a back-off is over. After the query fell back to its owner it waits as long before
it proposes or agrees to anything.

An oracle's statements follow from the contract's log (``plan_switching``), from where the stages
run, and from measurements. So a lost statement is written again, and a new process continues where
the last one ended. Only the receiver remembers something that the log does not have yet: since when
a stage does not run at the sender's node that should run it (``SenderWatch``).

Invariants:
    OR1  an oracle that has not measured all that it needs proposes nothing, and agrees to nothing.
    OR2  a stage is to run where the active plan, or the one that is switched to, has it; at home
         where the contract is not in force.
    OR3  the sender has failed with a plan if its node sends no heartbeats, is later than the plan
         allows, or for longer than a switch may take does not run a stage that it should run. It
         stays failed until another plan is active, whatever its node sends meanwhile. A stage
         whose logs cannot be read says nothing against it.
    OR4  a stage is load of the side that runs it, and of the side that is to run it: of both during
         a switch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from anabranch.protocol.federation.contracts import Contract, Side
from anabranch.protocol.federation.costs import Cost, marginal
from anabranch.protocol.federation.plan_switching import (
    PlanSwitch,
    PlanWord,
    SwitchState,
    Word,
    agrees,
    proposes,
)
from anabranch.protocol.federation.stage_moves import task_of
from anabranch.protocol.federation.stream_contracts import StreamContract
from anabranch.protocol.limits import LONG_SILENT_MS


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations of the query's stages in the boundary logs. ``profits`` has the profit of each
    plan, in micro-units per second; None while not all is measured.
    """

    profits: Sequence[int] | None
    has_moved: bool = False
    """Whether each stage runs where the plan to which the query switches has it."""
    has_failed: bool = False
    """Whether the sender's node fails to run a stage that the active plan has there."""


def profits(
    contract: StreamContract,
    side: Side,
    rates: Sequence[int],
    loads: Mapping[str, int],
    cost: Cost,
    level: int,
) -> list[int]:
    """Return the profit of each plan for one side, in micro-units per second.

    Args:
        contract: Contract whose plans are judged.
        side: Side whose profit is computed.
        rates: Rows per second of the paid stream, by plan.
        loads: Rows per second that each stage of the query reads.
        cost: Cost function of this side.
        level: Load that runs here besides the query.
    """
    found = []
    for number, plan in enumerate(contract.plans):
        pays = plan.micro_per_s(rates[number])
        here = [
            stage for stage in contract.query if (stage in plan.at_sender) is (side is Side.SELLER)
        ]
        runs = marginal(cost, level, sum(loads[stage] for stage in here))
        found.append((pays if side is Side.SELLER else -pays) - runs)
    return found


def says(
    participant: str,
    switch: PlanSwitch,
    seen: Observed,
    now_ms: int,
    *,
    may_switch: bool,
    backoff_ms: int,
) -> PlanWord | None:
    """Return the statement that a participant makes now; None if it makes none.

    Args:
        participant: Party of the contract.
        switch: State of the switch, by the contract's log.
        seen: Observations from the participant's boundary logs.
        now_ms: Clock of the participant, close to the log's.
        may_switch: Whether the contract is in force.
        backoff_ms: Time for which a plan that failed is not proposed again, in ms.
    """
    contract, state = switch.contract, switch.state_at(now_ms)
    is_receiver = contract.party(participant) is Side.BUYER

    if state is SwitchState.CANCELLED:
        return None
    if is_receiver and seen.has_failed and switch.plan:
        return _word(switch, participant, Word.FELL_BACK, switch.active_number, 0)
    if state is SwitchState.SWITCHING:
        if is_receiver and seen.has_moved:
            return _word(switch, participant, Word.SWITCHED)
        is_late = now_ms - switch.since_ms > contract.deadline_ms
        return _word(switch, participant, Word.FAILED) if is_late else None
    if not may_switch or seen.profits is None:  # OR1
        return None
    since_ms = now_ms - switch.changes[-1].at_ms
    rests = switch.changes[-1].why == Word.FELL_BACK and since_ms < backoff_ms
    if state is SwitchState.PROPOSED:
        gains = agrees(seen.profits, switch.plan, switch.next_plan, contract.gain_permille)
        answer = Word.AGREED if gains and not rests else Word.DECLINED
        return None if switch.by == participant else _word(switch, participant, answer)
    best = _best(switch, seen.profits, now_ms, backoff_ms)
    if best is None or rests or since_ms < contract.min_hold_ms:
        return None
    return _word(switch, participant, Word.PROPOSED, switch.number + 1, best)


def _word(
    switch: PlanSwitch,
    participant: str,
    kind: Word,
    number: int | None = None,
    plan: int | None = None,
) -> PlanWord:
    """Return a statement about proposal ``number``; None: about the present one."""
    return PlanWord(
        switch.contract.contract_id,
        participant,
        kind,
        switch.number if number is None else number,
        switch.next_plan if plan is None else plan,
    )


def _best(switch: PlanSwitch, found: Sequence[int], now_ms: int, backoff_ms: int) -> int | None:
    """Return the plan to propose, among those that have not failed a moment ago."""
    present = found[switch.plan]
    considered = [
        present if now_ms - switch.turned_down.get(plan, -backoff_ms) < backoff_ms else profit
        for plan, profit in enumerate(found)
    ]
    return proposes(considered, switch.plan, switch.contract.gain_permille)


def at_sender(switch: PlanSwitch, *, may_switch: bool) -> tuple[str, ...]:
    """Return the stages of the query that are to run on the sender's node now (OR2)."""
    if not may_switch:
        return ()
    plan = switch.next_plan if switch.state is SwitchState.SWITCHING else switch.plan
    return switch.contract.plans[plan].at_sender


@dataclass(frozen=True, slots=True)
class SenderStage:
    """Observations in the boundary logs of a stage that is to run on the sender's node."""

    runs_there: bool
    is_silent: bool = False
    """Whether the node that runs the stage is silent."""
    waits_ms: int = 0
    """Waiting time of the oldest bucket that the stage has not made, in ms."""


class SenderWatch:
    """Watch over the sender's node: whether it runs the stages that the active plan has there
    (OR3). Not thread-safe. A new process watches anew.
    """

    def __init__(self) -> None:
        """Begin for one contract, at the receiver."""
        self.has_failed = False
        self._number = 0
        """Number of the proposal whose plan has failed."""
        self._astray_since_ms: int | None = None

    def look(self, switch: PlanSwitch, stages: Sequence[SenderStage | None], now_ms: int) -> None:
        """Run one round.

        Args:
            switch: State of the switch, by the contract's log.
            stages: Stages that remain at the sender (``stays_at_sender``); None for one whose logs
                cannot be read.
            now_ms: Monotonic time.
        """
        if self.has_failed and self._number == switch.active_number:
            return
        known = [stage for stage in stages if stage is not None]
        there = [stage for stage in known if stage.runs_there]
        if len(there) == len(known):
            self._astray_since_ms = None
        elif self._astray_since_ms is None:
            self._astray_since_ms = now_ms
        astray_ms = 0 if self._astray_since_ms is None else now_ms - self._astray_since_ms
        late_ms = switch.contract.plans[switch.plan].delay_ms_max + LONG_SILENT_MS
        self._number = switch.active_number
        self.has_failed = astray_ms > switch.contract.deadline_ms or any(
            stage.is_silent or stage.waits_ms > late_ms for stage in there
        )


def stays_at_sender(switch: PlanSwitch, *, may_switch: bool) -> tuple[str, ...]:
    """Return the stages that run on the sender's node by the active plan, and should now."""
    wanted = at_sender(switch, may_switch=may_switch)
    return tuple(stage for stage in switch.contract.plans[switch.plan].at_sender if stage in wanted)


def load_here(switch: PlanSwitch, side: Side, *, may_switch: bool) -> tuple[str, ...]:
    """Return the stages of the query that are load of this side (OR4)."""
    if side is Side.SELLER:
        plan = switch.contract.plans[switch.plan]
        here = {*plan.at_sender, *at_sender(switch, may_switch=may_switch)}
    else:
        here = {*switch.contract.query} - {*stays_at_sender(switch, may_switch=may_switch)}
    return tuple(stage for stage in switch.contract.query if stage in here)


def tasks_of(contract: Contract | StreamContract) -> tuple[str, ...]:
    """Return the stages that may move under it, by their names in the federation."""
    if isinstance(contract, Contract):
        return contract.tasks
    return tuple(task_of(contract.pipeline, stage) for stage in contract.query)


def reason_against_plans(
    contract: StreamContract,
    partners: Mapping[str, Collection[str]],
    streams: Collection[tuple[str, str]],
    pipeline: str,
    by_checkpoint: Collection[str] = (),
) -> str:
    """Return why a party does not follow a contract, by its copy of the receiver's file; empty:
    it does.

    Args:
        contract: Contract of the party.
        partners: Stages that each partner may run, by that file.
        streams: Streams of other pipelines that the query reads, by that file, as (pipeline,
            stream).
        pipeline: Name of the pipeline in that file; empty: there is no file.
        by_checkpoint: Stages whose state comes from their owner's checkpoint, by that file.
    """
    if pipeline != contract.pipeline:
        return f"no file here has pipeline {contract.pipeline}"
    strange = sorted(set(contract.query) - set(partners.get(contract.sender, ())))
    if strange:
        return f"{contract.sender} may not run {', '.join(strange)}"
    if carried := sorted(set(contract.query).intersection(by_checkpoint)):
        return (
            f"transfer: checkpoint, of {', '.join(carried)}, needs a contract that says so, and one"
            " with plans does not: leave it out"
        )
    plain = contract.plans[0]
    if (plain.pipeline, plain.stream) not in streams:
        query = ", ".join(contract.query)
        return f"{query}: does not read stream {plain.stream} of pipeline {plain.pipeline}"
    return ""
