"""Offers: which stages another participant may instantiate at their owner, and with which inputs
and parameters.

Theory of operation. An *offer* is a named stage that its owner runs for others, with code that only
the owner has (Medusa's remote definition). Its *terms* state what others have to know: the columns
that it reads and gives, its parameters, and how many rows a second it takes. The owner hands the
terms out; the *definer* keeps them, and names in a pipeline file of its own the offer, the streams
that it is to read, and values for its parameters. Both sides check the same file by the same rules:
the definer by the terms that it keeps, the owner by those and by its own, which count. So an offer
that was changed is rejected until the definer has its new terms, instead of giving rows that the
definer does not expect.

Invariants:
    OS1 A value is taken that is of its parameter's type and within its bounds, and no other. A
        parameter without a default has to be given; one that is not in the terms is rejected.
    OS2 The owner runs an offer only for participants to which it is offered, and only by the terms
        that its definer keeps. A change of any term is named.
    OS3 A stream can be read whose columns have the names and types of the terms. Null is where the
        terms say so, at most.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

OFFERED_CHARACTERS_MAX: Final = 1_000
"""Characters of a text that another participant gives a stage as a parameter: it is in every plan
of the owner's Spark.
"""

Value = bool | int | float | str
Columns = Mapping[str, str]
"""Names, and the types as text."""

NUMBER_MAX: Final = 2**63 - 1
"""Largest absolute value of a parameter: the range of a long."""
OR_NULL: Final = " or null"
"""Suffix of the type of a column that may be null."""


class ParameterKind(StrEnum):
    """The type of a parameter."""

    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class Parameter:
    """Type and bounds of a parameter: ``low`` and ``high`` bound a number or a text's length."""

    kind: ParameterKind
    default: Value | None = None
    """Value of the parameter where none is given; None if one must be given."""
    low: float | None = None
    high: float | None = None

    def taken(self, value: object) -> Value | None:
        """Convert ``value`` to the parameter's type. Return None if it is out of bounds, or of
        another type (OS1).
        """
        low, high = self._bounds()
        if isinstance(value, bool) or self.kind is ParameterKind.BOOLEAN:
            is_taken = isinstance(value, bool) and self.kind is ParameterKind.BOOLEAN
            return value is True if is_taken else None
        if self.kind is ParameterKind.TEXT:
            return str(value) if isinstance(value, str) and low <= len(value) <= high else None
        is_number = isinstance(value, int if self.kind is ParameterKind.INTEGER else int | float)
        if not is_number or not low <= cast("float", value) <= high:  # so is what is no number
            return None
        return (
            int(cast("int", value))
            if self.kind is ParameterKind.INTEGER
            else float(cast("float", value))
        )

    def _bounds(self) -> tuple[float, float]:
        least, most = (
            (0, OFFERED_CHARACTERS_MAX)
            if self.kind is ParameterKind.TEXT
            else (-NUMBER_MAX, NUMBER_MAX)
        )
        return (
            least if self.low is None else max(least, self.low),
            most if self.high is None else min(most, self.high),
        )

    def wanted(self) -> str:
        """Return the accepted values in words."""
        if self.kind is ParameterKind.BOOLEAN:
            return "true or false"
        low, high = self._bounds()
        if self.kind is ParameterKind.TEXT:
            return f"a text of {low} to {high} characters"
        article = "an integer" if self.kind is ParameterKind.INTEGER else "a number"
        return (
            article
            if (low, high) == (-NUMBER_MAX, NUMBER_MAX)
            else (f"{article} from {_plain(low)} to {_plain(high)}")
        )

    def in_words(self) -> str:
        """Return the accepted values and the default in words."""
        return self.wanted() + ("" if self.default is None else f", {self.default} if left out")


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of an offer, without its code."""

    version: int
    """Version of the function."""
    reads: Mapping[str, Columns]
    """Its inputs, in order."""
    gives: Columns
    parameters: Mapping[str, Parameter]
    rows_per_s: int
    """Maximum number of input rows per second; rows beyond it wait."""


def arguments(
    parameters: Mapping[str, Parameter], given: Mapping[str, object]
) -> tuple[dict[str, Value], dict[str, str]]:
    """Return (the arguments of the stage, the defects by parameter) (OS1)."""
    found: dict[str, Value] = {}
    wrong: dict[str, str] = {}
    for name in given:
        if name not in parameters:
            there = ", ".join(parameters) or "none"
            wrong[name] = f"the offer has no parameter {name}; its parameters are {there}"
    for name, parameter in parameters.items():
        value = parameter.taken(given[name]) if name in given else parameter.default
        if value is not None:
            found[name] = value
        elif name in given:
            wrong[name] = f"{parameter.wanted()} is wanted"
        else:
            wrong[name] = f"is missing; the offer wants {parameter.wanted()}"
    return found, wrong


def rejection(
    known: Terms, own: Terms | None, definer: str, offered_to: Collection[str] | None
) -> str:
    """Return why the owner does not run an offer for ``definer``; empty if it does (OS2).

    Args:
        known: Terms of the offer as the definer keeps them.
        own: Terms of the offer as the owner keeps them; None: it has no such offer.
        definer: Participant that wants the stage.
        offered_to: Participants to which the stage is offered; None: all.
    """
    if own is None:
        return "it is not offered, or not any more"
    if offered_to is not None and definer not in offered_to:
        return f"it is not offered to {definer}"
    changed = list(_changes(known, own))
    return f"it has changed since {definer} got its terms: {'; '.join(changed)}" if changed else ""


def _changes(before: Terms, now: Terms) -> Iterator[str]:
    yield from _differences("", {"version": before.version}, {"version": now.version})
    if list(before.reads) != list(now.reads):
        yield f"it reads {', '.join(now.reads)}, and read {', '.join(before.reads)}"
    for name in before.reads.keys() & now.reads.keys():
        yield from _differences(f"column {name}.", before.reads[name], now.reads[name])
    yield from _differences("column ", before.gives, now.gives)
    yield from _differences("parameter ", before.parameters, now.parameters)
    yield from _differences("", {"rows_per_s": before.rows_per_s}, {"rows_per_s": now.rows_per_s})


def _differences(
    what: str, before: Mapping[str, object], now: Mapping[str, object]
) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        if name not in now:
            yield f"{what}{name} is gone"
        elif name not in before:
            yield f"{what}{name} is new"
        elif before[name] != now[name]:
            yield f"{what}{name} is {_shown(now[name])}, and was {_shown(before[name])}"


def _shown(term: object) -> str:
    return term.in_words() if isinstance(term, Parameter) else str(term)


def _plain(number: float) -> str:
    return str(int(number)) if math.isfinite(number) and number == int(number) else str(number)


def wrong_columns(wanted: Columns, there: Columns) -> list[str]:
    """Return why a stream with the columns ``there`` cannot be read as ``wanted`` (OS3); empty if
    it can.
    """
    found = []
    for name, type_ in wanted.items():
        if name not in there:
            found.append(f"it has no column {name}; {type_} is wanted")
        elif type_ not in (there[name], there[name] + OR_NULL):
            found.append(f"its column {name} is {there[name]}; {type_} is wanted")
    return found
