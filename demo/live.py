"""Live topic as an ordinary client sees it: its records and their statistics. Pure functions over
values.

``live_checker`` judges whether the topic kept its promises, ``tentative`` what its tentative
results must be.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from demo.comparing import result
from demo.live_checker import (
    BOUNDARY,
    INSERTION,
    REC_DONE,
    TENTATIVE,
    UNDO,
    LiveRecord,
    Transaction,
)

_CONTROL: Final = (UNDO, BOUNDARY, REC_DONE)


def live_record(
    headers: Sequence[tuple[str, bytes]],
    key: bytes | None,
    value: bytes | None,
    *,
    partition: int,
    offset: int,
    received_ms: int,
) -> LiveRecord:
    """Parse a record of a live topic.

    Raises:
        ValueError: value or headers do not have the form of a live topic.
    """
    named = {name: content.decode(errors="replace") for name, content in headers}
    kind = named.get("anabranch-kind", "")
    ident, _, branch = named.get("anabranch-id", "").partition("/")
    identifier = _pair(ident) if ident else None
    content: dict[str, Any] = json.loads(value or b"{}")
    if kind in {INSERTION, TENTATIVE}:
        if identifier is None or (kind == TENTATIVE) is not bool(branch):
            raise ValueError(f"a record of kind {kind} has the id {named.get('anabranch-id')!r}")
        event_time_ms = int(named["anabranch-event-time"])
        return LiveRecord(
            partition,
            offset,
            kind,
            identifier,
            _pair(branch) if branch else None,
            result(content, event_time_ms, key, partition),
            missing=tuple(name for name in named.get("anabranch-missing", "").split(",") if name),
            event_time_ms=event_time_ms,
            received_ms=received_ms,
            shed=int(named.get("anabranch-shed", 0)),
        )
    if kind not in _CONTROL:
        raise ValueError(f"a live topic has no records of kind {kind!r}")
    return LiveRecord(
        partition,
        offset,
        kind,
        identifier,
        stable=int(content["stable"]),
        shown=int(content.get("shown", 0)),
        sequence=int(content.get("sequence", 0)),
        stable_ms=int(content["stable_ms"]),
        received_ms=received_ms,
    )


def _pair(text: str) -> tuple[int, int]:
    """Parse two numbers separated by a dot."""
    first, _, second = text.partition(".")
    return int(first), int(second)


def events(ordered: Sequence[Transaction]) -> list[LiveRecord]:
    """Return the events of each failure: its first tentative result, its undo, its rec_done."""
    found = []
    is_begun = False  # of this failure; it may begin with buckets in which there is no result
    for transaction in ordered:
        first = {record.kind: record for record in reversed(transaction.records)}
        if UNDO in first:
            found.append(first[UNDO])
        if TENTATIVE in first and not is_begun:
            found.append(first[TENTATIVE])
            is_begun = True
        if REC_DONE in first:
            found.append(first[REC_DONE])
        is_begun = is_begun and transaction.shown > 0
    return found


class Delay(NamedTuple):
    """Delay of a bucket with results, tentative or stable."""

    event_time_ms: int
    """Time of the bucket's results (the end of their window)."""
    covered_ms: int
    """Time at which a reader received the transaction that first showed the bucket."""

    @property
    def delay_ms(self) -> int:
        """Wall-clock time from the results' time until a reader received them."""
        return self.covered_ms - self.event_time_ms


def delays(ordered: Sequence[Transaction], event_times_ms: Mapping[int, int]) -> list[Delay]:
    """Return the delay of each bucket in ``event_times_ms`` that was shown at all, ascending.

    A bucket counts as shown when a boundary says so; other judges check that its results are there
    (``live_checker``, ``tentative``).
    """
    found = []
    rest = deque(sorted(event_times_ms.items()))
    upto = 0
    for transaction in ordered:
        upto = max(upto, transaction.stable, transaction.shown)
        while rest and rest[0][0] <= upto:
            found.append(Delay(rest.popleft()[1], transaction.received_ms))
    return found


def seen_event_times_ms(ordered: Sequence[Transaction]) -> dict[int, int]:
    """Return the time of each bucket of which results were seen."""
    return {
        record.ident[0]: record.event_time_ms
        for each in ordered
        for record in each.records
        if record.row is not None and record.ident
    }


Name = tuple[int, int, tuple[int, int]]
"""Bucket, position and branch of a tentative result."""


@dataclass(slots=True)
class Account:
    """Statistics of a live topic."""

    tentative: set[Name] = field(default_factory=set)
    standing: set[Name] = field(default_factory=set)
    """Tentative results that nothing has voided so far."""
    corrected: int = 0
    """Number of stable results that replaced tentative ones."""
    missing: set[str] = field(default_factory=set)

    @property
    def undone(self) -> int:
        """Number of tentative results that were voided."""
        return len(self.tentative) - len(self.standing)


def account(ordered: Sequence[Transaction]) -> Account:
    """Compute the statistics from the transactions of a live topic, from its first one."""
    found, shown = Account(), 0
    for transaction in ordered:
        if any(record.kind == UNDO for record in transaction.records):
            found.standing.clear()
        for record in transaction.records:
            if record.kind == TENTATIVE and record.ident and record.branch:
                name = (*record.ident, record.branch)
                found.tentative.add(name)
                found.standing.add(name)
                found.missing.update(record.missing)
            elif record.kind == INSERTION and record.ident:
                found.corrected += record.ident[0] <= shown
        found.standing = {name for name in found.standing if name[0] > transaction.stable}
        shown = transaction.shown
    return found
