"""Movement contracts of CIDR 2003: equivalent plans of one query across a pair of participants, and
when they switch.

Theory of operation. Two participants agree beforehand on several distributed plans of one query
that give the same results. Each plan comes with a content contract, of which only that of the
active plan is in force. Each side has an oracle, which knows its own load, cost and income, and
proposes the plan that is best for it. The plan changes only if the other side's oracle agrees.
Either side may cancel the contract: then the first plan applies with its plain content contract,
and nothing is proposed any more. What counts is the order of the contract's log; proposals carry
numbers, so an old word changes nothing.

The states; what is not in the table is rejected:
    steady     --proposed-->   proposed
    proposed   --agreed-->     switching    by the other side
    proposed   --declined-->   steady       by either side
    switching  --switched-->   steady       under the new plan
    switching  --failed-->     steady       under the old plan
    any of these --cancelled--> cancelled   under the first plan

Invariants:
    FX1  one plan is active at any time, and it changes only after both sides have agreed to it.
    FX2  each side agrees only to what is a gain for it, so under constant load and prices switching
        ends.
    FX3  a cancelled contract stays on its first plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from anabranch.protocol.federation.pricing import PERMILLE


class SwitchState(StrEnum):
    """Of a movement contract."""

    STEADY = "steady"
    PROPOSED = "proposed"
    SWITCHING = "switching"
    CANCELLED = "cancelled"


class Word(StrEnum):
    """What a side says."""

    PROPOSED = "proposed"
    AGREED = "agreed"
    DECLINED = "declined"
    SWITCHED = "switched"
    FAILED = "failed"
    CANCELLED = "cancelled"


TRANSITIONS: Final[dict[tuple[SwitchState, Word], SwitchState]] = {
    (SwitchState.STEADY, Word.PROPOSED): SwitchState.PROPOSED,
    (SwitchState.PROPOSED, Word.AGREED): SwitchState.SWITCHING,
    (SwitchState.PROPOSED, Word.DECLINED): SwitchState.STEADY,
    (SwitchState.SWITCHING, Word.SWITCHED): SwitchState.STEADY,
    (SwitchState.SWITCHING, Word.FAILED): SwitchState.STEADY,
    (SwitchState.STEADY, Word.CANCELLED): SwitchState.CANCELLED,
    (SwitchState.PROPOSED, Word.CANCELLED): SwitchState.CANCELLED,
    (SwitchState.SWITCHING, Word.CANCELLED): SwitchState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class MovementContract:
    """The plans of one query; ``plans[i]`` is the id of the content contract that goes with
    plan i, and the first is the plain one.
    """

    SIGNED_AS: ClassVar[str] = "movement contract"

    contract_id: str
    parties: tuple[str, str]
    query: str
    plans: tuple[str, ...]
    proposal_ms: int
    """A proposal can be agreed to for so long."""
    gain_permille: int
    """Oracles propose and agree only to what is better by so much, so that noise does not
    switch plans.
    """


@dataclass(frozen=True, slots=True)
class PlanWord:
    """A side's word. ``number`` is that of the proposal it belongs to."""

    SIGNED_AS: ClassVar[str] = "plan word"

    contract_id: str
    by: str
    word: Word
    number: int
    plan: int = 0


class PlanSwitch:
    """The state of a movement contract's log. Not thread-safe. After a crash: replay."""

    def __init__(self, contract: MovementContract) -> None:
        self.state = SwitchState.STEADY
        self.plan = 0
        """The active one."""
        self.next_plan = 0
        """What is proposed, or switched to."""
        self.number = 0
        """Of the last proposal."""
        self._contract = contract
        self._by = ""
        self._since_ms = 0

    @property
    def in_force(self) -> str:
        """The id of the content contract that applies (FX1, FX3)."""
        return self._contract.plans[self.plan]

    def add(self, word: PlanWord, appended_ms: int) -> str:
        """Counts a word, whose signature was checked, in the order of the log; answers why it does
        not count, or nothing.

        ``appended_ms`` is the log's time of it.
        """
        if word.contract_id != self._contract.contract_id or word.by not in self._contract.parties:
            return "not by a party of the contract"
        after = TRANSITIONS.get((self.state, word.word))
        objection = (
            f"the contract is {self.state}" if after is None else self._objection(word, appended_ms)
        )
        if after is None or objection:
            return objection
        if word.word is Word.PROPOSED:
            self.next_plan = word.plan
            self.number = word.number
            self._by = word.by
            self._since_ms = appended_ms
        elif word.word is Word.SWITCHED:
            self.plan = self.next_plan
        elif word.word is Word.CANCELLED:
            self.plan = 0
        self.state = after
        return ""

    def _objection(self, word: PlanWord, appended_ms: int) -> str:
        if word.word is Word.CANCELLED:
            return ""
        if word.word is Word.PROPOSED:
            if word.number != self.number + 1:
                return f"the next proposal is {self.number + 1}"
            return (
                ""
                if 0 <= word.plan < len(self._contract.plans) and word.plan != self.plan
                else "no other plan"
            )
        if word.number != self.number:
            return f"the proposal is {self.number}"
        if word.word is Word.AGREED and word.by == self._by:
            return "the other side agrees"
        is_late = (
            word.word is Word.AGREED and appended_ms - self._since_ms > self._contract.proposal_ms
        )
        return "the proposal is over" if is_late else ""


def proposes(profits: Sequence[int], plan: int, gain_permille: int) -> int | None:
    """The plan that an oracle proposes: the one of most profit, if it is better by the
    margin. ``profits``: of each plan, micro-units per second.
    """
    best = max(range(len(profits)), key=lambda each: (profits[each], -each))
    return best if agrees(profits, plan, best, gain_permille) else None


def agrees(profits: Sequence[int], plan: int, proposed: int, gain_permille: int) -> bool:
    """Whether an oracle agrees to a plan (FX2)."""
    return (profits[proposed] - profits[plan]) * PERMILLE > abs(profits[plan]) * gain_permille
