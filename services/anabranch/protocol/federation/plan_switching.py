"""Switching of the plans of a movement contract: which one is active, and when it changes.

Theory of operation. The two participants have agreed on the plans beforehand
(``stream_contracts``). Each has an oracle, which knows its own load, cost and income, and proposes
the plan that is best for it. The plan changes only if the other side's oracle agrees, and from the
moment on at which the receiver, which alone moves stages of its pipeline, states that it is done.
Order and times are those of the contract's log. Proposals carry numbers, so an old statement
changes nothing.

The plain plan needs no agreement, since under it each side runs its own stages. It applies at once,
and the oracles continue from there, when the receiver has taken the query home because the sender's
node failed, and when the contract is suspended or a notice is given. If either side cancels, it
applies for good.

The states; what is not in the table is rejected:
    steady     --proposed-->   proposed
    proposed   --agreed-->     switching    by the other side
    proposed   --declined-->   steady       by either side
    proposed   when its time is over        steady
    switching  --switched-->   steady       under the new plan; by the receiver
    switching  --failed-->     steady       under the old plan; after the deadline, by either side
    any but cancelled --fell back--> steady under the plain plan; by the receiver
    any but cancelled --cancelled--> cancelled   under the plain plan

Invariants:
    FX1  one plan is active at any time; it becomes another than the plain one only after both sides
         have agreed to it, while the contract was in force.
    FX2  each side agrees only to what is a gain for it, so under constant load and prices switching
        ends.
    FX3  a cancelled contract stays on its plain plan.
    FX4  a plan stays for the minimum hold before another is proposed.
    FX5  every wait ends: a proposal is over by itself, a switch can be given up after the deadline.
    FX6  a statement counts once: repeated, it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple

from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.pricing import PERMILLE
from anabranch.protocol.federation.stream_contracts import StreamContract

CHANGES_MAX: Final = 1_000
"""Maximum number of changes of the active plan that are kept; older ones are dropped."""


class SwitchState(StrEnum):
    """State of a movement contract's plan."""

    STEADY = "steady"
    PROPOSED = "proposed"
    SWITCHING = "switching"
    CANCELLED = "cancelled"


class Word(StrEnum):
    """Kind of a side's statement."""

    PROPOSED = "proposed"
    AGREED = "agreed"
    DECLINED = "declined"
    SWITCHED = "switched"
    FAILED = "failed"
    FELL_BACK = "fell_back"
    CANCELLED = "cancelled"


_LIVE: Final = (SwitchState.STEADY, SwitchState.PROPOSED, SwitchState.SWITCHING)
TRANSITIONS: Final[dict[tuple[SwitchState, Word], SwitchState]] = {
    (SwitchState.STEADY, Word.PROPOSED): SwitchState.PROPOSED,
    (SwitchState.PROPOSED, Word.AGREED): SwitchState.SWITCHING,
    (SwitchState.PROPOSED, Word.DECLINED): SwitchState.STEADY,
    (SwitchState.SWITCHING, Word.SWITCHED): SwitchState.STEADY,
    (SwitchState.SWITCHING, Word.FAILED): SwitchState.STEADY,
    **{(state, Word.FELL_BACK): SwitchState.STEADY for state in _LIVE},
    **{(state, Word.CANCELLED): SwitchState.CANCELLED for state in _LIVE},
}


@dataclass(frozen=True, slots=True)
class PlanWord:
    """A side's word. ``number`` is that of the proposal it belongs to: of one that fell back, that
    which made its plan the active one; of a cancellation, none.
    """

    SIGNED_AS: ClassVar[str] = "plan word"

    contract_id: str
    by: str
    word: Word
    number: int
    plan: int = 0


class PlanChange(NamedTuple):
    """A plan became the active one."""

    at_ms: int
    plan: int
    why: str
    """The word, or what else brought it about."""
    by: str = ""


class PlanSwitch:
    """The state of a movement contract's log. Not thread-safe. After a crash: replay."""

    def __init__(self, contract: StreamContract, agreed_ms: int) -> None:
        """``agreed_ms``: the log's time at which both had signed."""
        self.contract = contract
        """The newest version."""
        self.state = SwitchState.STEADY
        self.next_plan = 0
        """Plan that is proposed, or switched to."""
        self.number = 0
        """Number of the last proposal."""
        self.by = ""
        """Participant that made the last proposal."""
        self.since_ms = agreed_ms
        """Time at which the state began, by the log, in ms."""
        self.changes = [PlanChange(agreed_ms, 0, "agreed")]
        """The active plans, the present one last."""
        self.turned_down: dict[int, int] = {}
        """Plan -> when it last came to nothing that it was proposed, by the log."""
        self.active_number = 0
        """Number of the proposal by which the active plan became active."""
        self._leaving: list[tuple[int, int | None]] = []
        """Times at which a plan was being left, with the consent of both or by right, as (from,
        to), in ms.
        """

    @property
    def plan(self) -> int:
        """The active one (FX1)."""
        return self.changes[-1].plan

    def plan_at(self, at_ms: int) -> int | None:
        """Return the plan that was active at this time of the log; None if it is no longer kept."""
        return next((each.plan for each in reversed(self.changes) if each.at_ms <= at_ms), None)

    def was_left(self, from_ms: int, to_ms: int) -> bool:
        """Return whether the active plan was being left at any time between these: from then on
        no reader needs its results from the sender's node.
        """
        return any(
            begin_ms < to_ms and (end_ms is None or end_ms >= from_ms)
            for begin_ms, end_ms in self._leaving
        )

    def state_at(self, now_ms: int) -> SwitchState:
        """Return the state with the passage of time counted (FX5)."""
        is_over = now_ms - self.since_ms > self.contract.proposal_ms
        return SwitchState.STEADY if self.state is SwitchState.PROPOSED and is_over else self.state

    def add(self, word: PlanWord, appended_ms: int, *, may_switch: bool) -> str:
        """Count a word, whose signature was checked, in the order of the log. Return why it does
        not count, or an empty text.

        Args:
            word: Statement; it counts only if a party made it.
            appended_ms: Time of the statement in the log.
            may_switch: Whether the contract is in force by then.
        """
        side = self.contract.party(word.by)
        if side is None or word.contract_id != self.contract.contract_id:
            return "not by a party of the contract"
        if not self.contract.has_switches:
            return "the contract has one plan"
        if self.state_at(appended_ms) is not self.state:
            self._turned_down(self.since_ms + self.contract.proposal_ms)
        after = TRANSITIONS.get((self.state, word.word))
        if after is None:
            return f"the contract is {self.state}"
        objection = self._objection(word, side, appended_ms, may_switch=may_switch)
        if not objection:
            self._count(word, after, appended_ms)
        return objection

    def _objection(self, word: PlanWord, side: Side, appended_ms: int, *, may_switch: bool) -> str:
        if word.word is Word.CANCELLED:
            return ""
        if word.word in {Word.SWITCHED, Word.FELL_BACK} and side is not Side.BUYER:
            return "not by the receiver"
        if word.word in {Word.PROPOSED, Word.AGREED} and not may_switch:
            return "the contract is not in force"
        if word.word is Word.PROPOSED:
            return self._against_proposal(word, appended_ms)
        if word.word is Word.FELL_BACK:
            return "" if self.plan and word.number == self.active_number else "not the active plan"
        if word.number != self.number:
            return "not the present proposal"
        if word.word is Word.AGREED:
            is_it = word.plan == self.next_plan
            is_other = word.by != self.by
            reason = "the other side agrees" if is_it else "not the plan that is proposed"
            return "" if is_it and is_other else reason
        is_early = appended_ms - self.since_ms <= self.contract.deadline_ms
        return "before the deadline" if word.word is Word.FAILED and is_early else ""

    def _against_proposal(self, word: PlanWord, appended_ms: int) -> str:
        if word.number != self.number + 1:
            return "not the next proposal"
        if not 0 <= word.plan < len(self.contract.plans) or word.plan == self.plan:
            return "no other plan"
        is_early = appended_ms - self.changes[-1].at_ms < self.contract.min_hold_ms
        return "the plan stays for its minimum hold" if is_early else ""

    def _count(self, word: PlanWord, after: SwitchState, appended_ms: int) -> None:
        match word.word:
            case Word.PROPOSED:
                self.next_plan, self.number = word.plan, word.number
                self.by = word.by
            case Word.AGREED:
                if self.plan:
                    self._leaving.append((appended_ms, None))
            case Word.DECLINED | Word.FAILED:
                self._turned_down(appended_ms)
            case Word.SWITCHED:
                self._becomes(self.next_plan, appended_ms, word.word.value, word.by)
                self.active_number = self.number
            case Word.FELL_BACK:
                self.turned_down[self.plan] = appended_ms
                self._becomes(0, appended_ms, word.word.value, word.by)
            case _:
                self._left(appended_ms)
                self._becomes(0, appended_ms, word.word.value, word.by)
        self.state, self.since_ms = after, appended_ms

    def plain(self, at_ms: int, why: str, by: str) -> None:
        """Return to the plain plan: the contract is not in force from this time of the log on, and
        a proposal is void.
        """
        if self.state is SwitchState.CANCELLED:
            return
        self._left(at_ms)
        if self.plan:
            self._becomes(0, at_ms, why, by)
        self._stop_leaving(at_ms)
        self.state, self.since_ms = SwitchState.STEADY, at_ms

    def _turned_down(self, at_ms: int) -> None:
        """Continue with the active plan, because the other side declined the proposed one."""
        self.turned_down[self.next_plan] = at_ms
        self._stop_leaving(at_ms)
        self.state, self.since_ms = SwitchState.STEADY, at_ms

    def _becomes(self, plan: int, at_ms: int, why: str, by: str) -> None:
        self._stop_leaving(at_ms)
        self.changes.append(PlanChange(at_ms, plan, why, by))
        del self.changes[:-CHANGES_MAX]
        self.active_number = 0

    def _left(self, at_ms: int) -> None:
        """Note that the active plan is left at once, by right."""
        if self.plan and not (self._leaving and self._leaving[-1][1] is None):
            self._leaving.append((at_ms, None))

    def _stop_leaving(self, at_ms: int) -> None:
        if self._leaving and self._leaving[-1][1] is None:
            self._leaving[-1] = self._leaving[-1][0], at_ms
        del self._leaving[:-CHANGES_MAX]


def proposes(profits: Sequence[int], plan: int, gain_permille: int) -> int | None:
    """Return the plan that an oracle proposes: the one of most profit, if it is better by the
    margin. ``profits``: of each plan, micro-units per second.
    """
    best = max(range(len(profits)), key=lambda each: (profits[each], -each))
    return best if agrees(profits, plan, best, gain_permille) else None


def agrees(profits: Sequence[int], plan: int, proposed: int, gain_permille: int) -> bool:
    """Return whether an oracle agrees to a plan (FX2)."""
    return (profits[proposed] - profits[plan]) * PERMILLE > abs(profits[plan]) * gain_permille
