"""Judgement of a run: pure functions over what was seen. Times are ms since 1970."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any, Final, NamedTuple

from chaos.judgement import USUAL_LIVE_MS_MAX, Seen, goal_ms
from chaos.schedule import Kind
from demo.comparing import Comparison
from moves.schedule import Party

_EXAMPLES_MAX: Final = 10
_NEVER: Final = "9999"
"""After all times as these commands print them."""


class Bound(Enum):
    """How late a result may be on account of who was killed."""

    USUAL = "usual"
    """It does not run the stage: a movement may add ``max_delay``, whoever else dies."""
    NODE = "death of the node"
    """The one node that runs the stage: it has no peer, so results wait until it, or the other
    owner's node, runs the stage.
    """
    BROKER = "death of Kafka"
    """Nothing can be written or read meanwhile."""


def bound_of(party: Party, runs_on: Iterable[str]) -> Bound:
    """Return the bound that a kill of ``party`` gives. ``runs_on``: the nodes that ran the stage
    right before and right after it.
    """
    if party is Party.KAFKA:
        return Bound.BROKER
    node = NODES.get(party)
    return Bound.NODE if node is not None and node in set(runs_on) else Bound.USUAL


NODES: Final = {Party.BUYERS_NODE: "north.0", Party.SELLERS_NODE: "south.0"}
"""The node that each owner has for the pipeline."""


class Struck(NamedTuple):
    """A kill that has happened."""

    at_ms: int
    bound: Bound

    @property
    def back_ms(self) -> int:
        """Time until results may come again after a kill that holds them up, in ms, beyond what
        each may take. These are the goals of chaos.
        """
        kind, target = (
            (Kind.BROKER_KILL, "kafka/kafka")
            if self.bound is Bound.BROKER
            else (Kind.KILL, "processing/north.0")
        )
        return goal_ms(kind, target, [target], 0)[1]


class Bounds(NamedTuple):
    """``usual_ms``: the longest that a result took before the first movement, of which
    USUAL_LIVE_MS_MAX counts.
    """

    usual_ms: int
    max_delay_ms: int

    @property
    def plain_ms(self) -> int:
        """From a window's end to its result: what it usually takes, and ``max_delay``."""
        return min(self.usual_ms, USUAL_LIVE_MS_MAX) + self.max_delay_ms

    def due_ms(self, seen: Seen, kills: Iterable[Struck]) -> int:
        """When a result must have come. Of a kill it depends on if it came after it, and the time
        in which that kill may hold results up was not over at the end of its window.
        """
        due_ms = seen.event_time_ms + self.plain_ms
        for each in kills:
            if each.bound is Bound.USUAL:
                continue
            until_ms = each.at_ms + each.back_ms
            if seen.received_ms >= each.at_ms and seen.event_time_ms <= until_ms:
                due_ms = max(due_ms, until_ms + self.plain_ms)
        return due_ms


def usual_ms(results: Iterable[Seen], from_ms: int, to_ms: int) -> list[int]:
    """Return the delays of all results of a time without kills and movements."""
    return [
        each.received_ms - each.event_time_ms
        for each in results
        if from_ms <= each.event_time_ms < to_ms
    ]


def late(
    results: Iterable[Seen], bounds: Bounds, kills: Sequence[Struck], from_ms: int
) -> list[Seen]:
    """Return the results of windows that end at ``from_ms`` or later that came later than
    they may.
    """
    return [
        each
        for each in results
        if each.event_time_ms >= from_ms and each.received_ms > bounds.due_ms(each, kills)
    ]


def moves_of(late: Iterable[Seen], begun_ms: Sequence[int]) -> set[int]:
    """Return the movements that late results belong to: for each the one that began last before it
    came; -1 before all. ``begun_ms``: when each began, ascending.
    """
    return {bisect_right(begun_ms, each.received_ms) - 1 for each in late}


def latest_ms(results: Iterable[Seen], from_ms: int, to_ms: int) -> int:
    """Return the longest delay of the results that came between these times; 0 without any."""
    return max(
        (
            each.received_ms - each.event_time_ms
            for each in results
            if from_ms <= each.received_ms < to_ms
        ),
        default=0,
    )


def late_in_words(found: Sequence[Seen], bounds: Bounds, kills: Sequence[Struck]) -> list[str]:
    """Describe the first late results."""
    return [
        f"the results of {each.event_time_ms} came after"
        f" {(each.received_ms - each.event_time_ms) / 1_000:.1f} s, allowed are"
        f" {(bounds.due_ms(each, kills) - each.event_time_ms) / 1_000:.1f} s"
        for each in found[:_EXAMPLES_MAX]
    ]


def wrong_results(compared: Comparison) -> list[str]:
    """How the corrected topic differs from the answer, in words."""
    if compared.is_equal():
        return []
    counts = f"missing {compared.missing}, duplicated {compared.duplicated}, wrong {compared.wrong}"
    return [
        f"corrected topic: {counts}, out of order {compared.out_of_order}, of {compared.expected}",
        *compared.examples,
    ]


def wrong_book(
    movements: Sequence[Mapping[str, Any]],
    ledger: Mapping[str, Any],
    prices: tuple[int, int],
) -> list[str]:
    """Return the errors in the ledger, in words: time that is paid twice, a price out of the
    contract's bound, money from nowhere. ``movements`` and ``ledger`` as ``anabranch market --all
    --json`` and ``anabranch ledger --json`` show them.
    """
    wrong: list[str] = []
    times = sorted((row["from"], row["to"] or _NEVER, row["movement"]) for row in movements)
    wrong += [
        f"{other} began at {begins}, before {one} ended at {ends}: it is paid twice"
        for (_, ends, one), (begins, _, other) in pairwise(times)
        if begins < ends
    ]
    least, most = prices
    wrong += [
        f"{row['movement']} has price {row['price_micro']}, not {least} to {most}"
        for row in movements
        if not least <= row["price_micro"] <= most
    ]
    if ledger["sum_nano"]:
        wrong.append(f"all balances together are {ledger['sum_nano']}, not 0")
    return wrong
