"""A live topic as an ordinary client sees it: what its records say, and what they amount to. Pure functions over values.

Every transaction of a live topic ends with a ``boundary`` in each partition, all with one sequence number, so records that were read from
several partitions can be put back into the order in which they were written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from examples.toll_road.comparing import Delivered

INSERTION: Final = "insertion"
TENTATIVE: Final = "tentative"
UNDO: Final = "undo"
BOUNDARY: Final = "boundary"
REC_DONE: Final = "rec_done"
_NONE: Final = (-1, -1)


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """One record of a live topic; times are ms since 1970. Which fields say something depends on ``kind``."""

    kind: str
    partition: int
    received_ms: int
    identifier: tuple[int, int] = _NONE
    """(bucket, position); of an undo that of the last result which stands."""
    branch: str = ""
    """Of a tentative result: which branch made it."""
    missing: str = ""
    """Of a tentative result: the streams without which it was made, with commas."""
    stime_ms: int = 0
    appended_ms: int = 0
    value: Mapping[str, object] = field(default_factory=dict)
    stable: int = 0
    """Of a boundary: every bucket up to this one is final."""
    stable_ms: int = 0
    """Of a boundary: the end of that bucket."""
    shown: int = 0
    """Of a boundary: tentative results are shown up to this bucket; 0: there is no failure."""
    sequence: int = 0
    """Of a boundary: the number of its transaction."""


def live_record(
    headers: Sequence[tuple[str, bytes]], value: bytes | None, *, partition: int, appended_ms: int, received_ms: int
) -> LiveRecord:
    """A record of a live topic.

    Raises:
        ValueError: value or headers are not as a live topic has them.
    """
    named = {name: content.decode(errors="replace") for name, content in headers}
    kind = named.get("anabranch-kind", "")
    ident, _, branch = named.get("anabranch-id", "").partition("/")
    identifier = _NONE
    if ident:
        bucket, _, position = ident.partition(".")
        identifier = (int(bucket), int(position))
    content: dict[str, Any] = json.loads(value or b"{}")
    if kind in {INSERTION, TENTATIVE}:
        return LiveRecord(
            kind,
            partition,
            received_ms,
            identifier,
            branch,
            named.get("anabranch-missing", ""),
            int(named["anabranch-stime"]),
            appended_ms,
            content,
        )
    if kind not in {UNDO, BOUNDARY, REC_DONE}:
        raise ValueError(f"a live topic has no records of kind {kind!r}")
    stable, shown, sequence = int(content["stable"]), int(content.get("shown", 0)), int(content.get("sequence", 0))
    stable_ms = int(content.get("stable_ms", 0))
    return LiveRecord(kind, partition, received_ms, identifier, stable=stable, stable_ms=stable_ms, shown=shown, sequence=sequence)


@dataclass(slots=True)
class Transaction:
    """What became visible at once, over all partitions."""

    sequence: int
    stable: int = 0
    stable_ms: int = 0
    shown: int = 0
    records: list[LiveRecord] = field(default_factory=list)
    """Without the boundaries."""


def transactions(records: Iterable[LiveRecord], end_ms: int | None = None) -> list[Transaction]:
    """The transactions in their order, from records that are in order within each partition.

    One that has not ended yet in every partition which was heard of is left out, and so are those after the one by which everything up to
    ``end_ms`` is final: when the traffic is over, all sources are silent, and that looks like a failure. A failure under way there is taken
    to its end, if it has one.
    """
    found: dict[int, Transaction] = {}
    waiting: dict[int, list[LiveRecord]] = {}
    newest: dict[int, int] = {}
    for record in records:
        if record.kind != BOUNDARY:
            waiting.setdefault(record.partition, []).append(record)
            continue
        newest[record.partition] = record.sequence
        transaction = found.setdefault(record.sequence, Transaction(record.sequence))
        transaction.stable, transaction.stable_ms, transaction.shown = record.stable, record.stable_ms, record.shown
        transaction.records += waiting.pop(record.partition, [])
    ended = [found[sequence] for sequence in sorted(found) if sequence <= min(newest.values())]
    if end_ms is None:
        return ended
    final = [place for place, transaction in enumerate(ended) if transaction.stable_ms >= end_ms]
    if not final:
        return ended
    return ended[: 1 + next((place for place in final if ended[place].shown == 0), final[0])]


def events(records: Iterable[LiveRecord], end_ms: int | None = None) -> list[LiveRecord]:
    """Of each failure: its first tentative result, its undo, its rec_done. ``end_ms``: see ``transactions``."""
    found = []
    is_told = False  # of this failure; it may begin with buckets in which there is no result
    for transaction in transactions(records, end_ms):
        first = {record.kind: record for record in reversed(transaction.records)}
        if UNDO in first:
            found.append(first[UNDO])
        if TENTATIVE in first and not is_told:
            found.append(first[TENTATIVE])
            is_told = True
        if REC_DONE in first:
            found.append(first[REC_DONE])
        is_told = is_told and transaction.shown > 0
    return found


@dataclass(frozen=True, slots=True)
class New:
    """A result that extends what was shown before: the only ones that a bound on delay can be about."""

    received_ms: int
    delay_ms: int
    """From its time (the end of its window) until a consumer had it."""
    is_tentative: bool


@dataclass(slots=True)
class Account:
    """What a live topic amounts to."""

    new: list[New] = field(default_factory=list)
    stable: list[Delivered] = field(default_factory=list)
    """The final results, as records of the corrected topic would be."""
    tentative: set[tuple[tuple[int, int], str]] = field(default_factory=set)
    """Ids of tentative results, with their branch."""
    standing: set[tuple[tuple[int, int], str]] = field(default_factory=set)
    """Those that nothing has voided so far."""
    corrected: int = 0
    """Final results in the place of what was shown as tentative."""
    failures: int = 0
    undos: int = 0
    rec_dones: int = 0
    missing: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    """Promises of a live topic that were not kept, in words."""

    @property
    def undone(self) -> int:
        """Tentative results that were taken back."""
        return len(self.tentative) - len(self.standing)


def account(records: Iterable[LiveRecord], end_ms: int | None = None) -> Account:
    """Go through a live topic from its first record, and check on the way what it promises. ``end_ms``: see ``transactions``."""
    result = Account()
    upto, shown, stable, has_undone = 0, 0, 0, False
    last = _NONE
    for transaction in transactions(records, end_ms):
        kinds = {record.kind for record in transaction.records}
        if transaction.shown and not shown:
            result.failures += 1
            has_undone = False
        if UNDO in kinds:
            _undo(result, transaction, last, has_undone=has_undone)
            has_undone = True
        _check_failure(result, transaction, kinds, was_failure=shown > 0)
        if transaction.stable < stable:
            result.broken.append(f"transaction {transaction.sequence}: final results go back from bucket {stable} to {transaction.stable}")
        stable = transaction.stable
        for record in transaction.records:
            _take(result, record, upto, shown)
        inserted = [record.identifier for record in transaction.records if record.kind == INSERTION]
        if inserted and min(inserted) <= last:
            result.broken.append(f"a final result {min(inserted)} came after {last}")
        last = max([last, *inserted])
        result.standing = {name for name in result.standing if name[0][0] > transaction.stable}
        if REC_DONE in kinds:
            result.rec_dones += 1
            if result.standing:
                result.broken.append(f"rec_done of transaction {transaction.sequence} left {len(result.standing)} tentative results")
        upto, shown = max(upto, transaction.stable, transaction.shown), transaction.shown
    return result


def _check_failure(result: Account, transaction: Transaction, kinds: set[str], *, was_failure: bool) -> None:
    """What belongs to a failure comes in one."""
    begins = transaction.shown > 0
    for kind, is_one in ((TENTATIVE, was_failure or begins), (UNDO, was_failure), (REC_DONE, was_failure)):
        if kind in kinds and not is_one:
            result.broken.append(f"{kind} without a failure, transaction {transaction.sequence}")
    if was_failure and not begins and REC_DONE not in kinds:
        result.broken.append(f"a failure ended without rec_done, transaction {transaction.sequence}")


def _undo(result: Account, transaction: Transaction, last: tuple[int, int], *, has_undone: bool) -> None:
    result.undos += 1
    undos = [record for record in transaction.records if record.kind == UNDO]
    named = {undo.identifier for undo in undos}
    if named != {last}:
        result.broken.append(f"an undo names {sorted(named)}, the last final result was {last}")
    if has_undone or len({undo.partition for undo in undos}) < len(undos):
        result.broken.append(f"a second undo in one failure, transaction {transaction.sequence}")
    result.standing = set()


def _take(result: Account, record: LiveRecord, upto: int, shown: int) -> None:
    if record.kind not in {INSERTION, TENTATIVE}:
        return
    bucket = record.identifier[0]
    if bucket > upto:
        result.new.append(New(record.received_ms, record.received_ms - record.stime_ms, record.kind == TENTATIVE))
    if record.kind == TENTATIVE:
        result.tentative.add((record.identifier, record.branch))
        result.standing.add((record.identifier, record.branch))
        result.missing.update(name for name in record.missing.split(",") if name)
        return
    result.corrected += bucket <= shown
    result.stable.append(
        Delivered(record.value, record.identifier, record.stime_ms, record.partition, record.appended_ms, record.received_ms)
    )
