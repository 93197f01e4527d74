"""Operators behind the state in a stage's checkpoint: decides whether a changed function may
continue from it.

Theory of operation. An engine keeps partial results between batches: the running maximum of a
window, the rows of a join that wait for a partner. It checks their types when a query continues
from a checkpoint, and knows nothing of their meaning: a window of a minute continues from half a
window of ten seconds, ``min`` from what ``max`` has seen so far, and the results look right. So
each timeline names the operators that hold its state (``protocol.log.timeline``, TI9): which rows
they take, by which keys, what they compute of them. That is all that a state depends on; what is
done with the results of the last operator with state may change at any time.

The description is made by the engine's adapter. It has no ids, no names that the user chose for
something between the input and the state, and no order where order means nothing. Two processes
that build the same function with the same engine come to equal descriptions. Another release of the
engine may plan the same function in other words; there the function's source decides.

Invariants:
    SQ1 descriptions of one engine are equal only if the state of one means the same to the other.
    SQ2 order counts where the engine finds partial results by their position: keys, aggregates and
        columns. The adapter sorts what has no order.
    SQ3 descriptions of different engines mean the same also if they are of one known source: an
        upgrade of the engine alone never stops a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class StatefulOperator:
    """Description of one operator that holds state, readable for people."""

    kind: str
    """Name of the operator: ``aggregate``, ``join``, ``deduplicate``, ..."""
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    """(aspect, items) pairs of everything that the state depends on, such as ``("per",
    ("s.sensor",))``.
    """


@dataclass(frozen=True, slots=True)
class StatefulPlan:
    """Description of what the state of a function means."""

    operators: tuple[StatefulOperator, ...] = ()
    """Operators of the function that hold state; empty if it has none."""
    source: str = ""
    """Digest of the function's source and parameters; empty: not known."""
    engine: str = ""
    """Versions of the programs that planned and described the operators."""
    version: int = 1
    """Version that the pipeline file gave the function."""


NO_PLAN: Final = StatefulPlan()
"""Plan of a function that keeps nothing between batches."""


def difference(old: StatefulPlan, new: StatefulPlan) -> str:
    """Return in words how the states of two functions differ; empty: they mean the same (SQ1)."""
    if old.engine != new.engine and old.source and old.source == new.source:  # SQ3
        return ""
    if [each.kind for each in old.operators] != [each.kind for each in new.operators]:
        return f"operators with state: {_kinds(old)} -> {_kinds(new)}"
    return "; ".join(
        text
        for before, after in zip(old.operators, new.operators, strict=True)
        for text in _operator_difference(before, after)
    )


def _kinds(plan: StatefulPlan) -> str:
    return ", ".join(each.kind for each in plan.operators) or "none"


def _operator_difference(old: StatefulOperator, new: StatefulOperator) -> list[str]:
    before, after = dict(old.facts), dict(new.facts)
    return [
        f"{new.kind}, {aspect}: {_change(before.get(aspect, ()), after.get(aspect, ()))}"
        for aspect in dict.fromkeys((*before, *after))
        if before.get(aspect, ()) != after.get(aspect, ())
    ]


def _change(old: Sequence[str], new: Sequence[str]) -> str:
    """Return ``old -> new`` without the items that both have; whole if only the order differs."""
    gone = [item for item in old if item not in new]
    added = [item for item in new if item not in old]
    if not gone and not added:
        gone, added = list(old), list(new)
    return f"{', '.join(gone) or 'nothing'} -> {', '.join(added) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class StageState:
    """The state of a stage, as the function computes it that this process runs."""

    stage: str = ""
    """Name of the stage, for messages."""
    plan: StatefulPlan = NO_PLAN

    def check(self, made_by: StatefulPlan) -> None:
        """Raise unless the function may continue from a checkpoint that ``made_by`` made (SQ1).

        Raises:
            ConfigurationError: the state means something else to this function.
        """
        if changed := difference(made_by, self.plan):
            raise ConfigurationError(
                f"stage {self.stage}: the state in its checkpoint was computed by another function:"
                f" {changed}. Old partial results and new ones would mix. Put the function back, or"
                " give the stage another name; or give the function a higher version and the stage"
                f" its `state_horizon`, and let it begin anew: anabranch restate {self.stage}"
            )


NO_STATE: Final = StageState()
"""State of a function that keeps nothing between batches."""
