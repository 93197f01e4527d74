"""Checker of a live topic, record by record: do the records keep what a reader is promised
(docs/concepts.md; rules 19, 20 of the protocol)?

It is the only checker of live topics: the demo, chaos and the simulation use it. It uses no code of
the project. It assembles transactions from the boundaries in all partitions, and follows the answer
bucket by bucket. The caller chooses what a row contains: everything that must be right about a
result (its value, time, key and partition) belongs into it, on both sides.

When the traffic of a finite run ends, all sources fall silent, which looks like a failure. So
transactions count up to the one by which everything until ``end_ms`` is stable; a failure under way
there is followed to its end, if it has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Row = tuple[object, ...]

INSERTION: Final = "insertion"
TENTATIVE: Final = "tentative"
UNDO: Final = "undo"
BOUNDARY: Final = "boundary"
REC_DONE: Final = "rec_done"


class LiveRecord(NamedTuple):
    """Record as a committed reader sees it; times are ms since 1970. ``kind`` decides which fields
    are set.
    """

    partition: int
    offset: int
    kind: str
    """Kind: insertion, tentative, undo, boundary or rec_done."""
    ident: tuple[int, int] | None = None
    """(bucket, position) of a result; of an undo that of the last stable one, None if there is
    none.
    """
    branch: tuple[int, int] | None = None
    """Branch that computed a tentative result."""
    row: Row | None = None
    stable: int = 0
    """In a boundary, the last bucket up to which all are stable."""
    shown: int = 0
    """In a boundary, the last bucket of which tentative results are shown; 0 if there is no
    failure.
    """
    sequence: int = 0
    """In a boundary, the number of its transaction."""
    missing: tuple[str, ...] = ()
    """Streams that a tentative result lacks."""
    stable_ms: int = 0
    """In a boundary, the end of bucket ``stable``."""
    event_time_ms: int = 0
    received_ms: int = 0
    shed: int = 0
    """Per mille of the rows that a tentative result lacks because a stage left them out."""


@dataclass
class Transaction:
    """Records of one transaction, over all partitions."""

    sequence: int
    stable: int
    stable_ms: int
    shown: int
    records: list[LiveRecord] = field(default_factory=list)
    boundaries: int = 0
    """Number of partitions that have the whole transaction."""
    received_ms: int = 0
    """Time at which it was complete in all partitions."""


@dataclass
class Verdict:
    """Findings of the checker."""

    wrong: list[str] = field(default_factory=list)
    undos: int = 0
    failures: int = 0
    rec_dones: int = 0
    shown_again: int = 0
    stable: dict[int, dict[int, Row]] = field(default_factory=dict)
    tentative: dict[int, dict[int, Row]] = field(default_factory=dict)


def transactions(
    records: Iterable[LiveRecord], partitions: int
) -> tuple[list[Transaction], list[str]]:
    """Assemble the transactions, in order, from records that are in order within each partition.
    Return them and their errors.

    A transaction that is not complete in every partition counts as an error, and the transactions
    begin with those that all partitions have: a caller that is still reading uses these, and looks
    at the errors once everything is read.
    """
    found: dict[int, Transaction] = {}
    open_records: dict[int, list[LiveRecord]] = {}
    last: dict[int, int] = {}
    wrong = []
    for record in records:
        mine = open_records.setdefault(record.partition, [])
        mine.append(record)
        if record.kind != BOUNDARY:
            continue
        made = Transaction(record.sequence, record.stable, record.stable_ms, record.shown)
        transaction = found.setdefault(record.sequence, made)
        if (transaction.stable, transaction.stable_ms, transaction.shown) != (
            record.stable,
            record.stable_ms,
            record.shown,
        ):
            wrong.append(
                f"live: boundaries of transaction {record.sequence} differ between partitions"
            )
        if record.sequence != last.get(record.partition, 0) + 1:
            wrong.append(
                f"live: partition {record.partition} has transaction {record.sequence} after"
                f" {last.get(record.partition, 0)}"
            )
        last[record.partition] = record.sequence
        transaction.boundaries += 1
        transaction.received_ms = max(transaction.received_ms, record.received_ms)
        transaction.records += mine
        open_records[record.partition] = []
    ordered = [found[sequence] for sequence in sorted(found)]
    wrong += [
        f"live: transaction {each.sequence} is in {each.boundaries} of {partitions} partitions"
        for each in ordered
        if each.boundaries != partitions
    ]
    wrong += [
        f"live: {len(rest)} records after the last boundary of a partition"
        for rest in open_records.values()
        if rest
    ]
    return [each for each in ordered if each.boundaries == partitions], wrong


def until(ordered: list[Transaction], end_ms: int | None) -> list[Transaction]:
    """Those that count: see the head of this module. None: all."""
    settled = [
        place
        for place, each in enumerate(ordered)
        if end_ms is not None and each.stable_ms >= end_ms
    ]
    if not settled:
        return ordered
    return ordered[
        : 1 + next((place for place in settled if ordered[place].shown == 0), settled[0])
    ]


def check_shown(
    records: Sequence[LiveRecord], offered: Mapping[tuple[int, tuple[int, int]], Sequence[Row]]
) -> list[str]:
    """Tentative buckets are those of the branches that they name.

    Args:
        records: Of the topic.
        offered: The rows of every bucket that a branch has closed, by (bucket, branch).
    """
    shown: dict[tuple[int, tuple[int, int]], dict[int, Row]] = {}
    for record in records:
        if record.kind == TENTATIVE and record.ident is not None and record.row is not None:
            shown.setdefault((record.ident[0], record.branch or (-1, -1)), {})[record.ident[1]] = (
                record.row
            )
    return [
        f"live: bucket {bucket} of branch {branch} is shown as {list(rows.values())}, the branch"
        f" made {offered.get((bucket, branch))}"
        for (bucket, branch), rows in shown.items()
        if sorted(rows.values(), key=repr) != sorted(offered.get((bucket, branch), ()), key=repr)
    ]


def check(
    records: Iterable[LiveRecord],
    partitions: int,
    answer: Mapping[int, Sequence[Row]],
    *,
    is_complete: bool,
    end_ms: int | None = None,
    sheds: bool = False,
) -> Verdict:
    """Follow the topic.

    Args:
        records: In log order within each partition.
        partitions: Of the topic.
        answer: The stable rows of every bucket, in canonical order.
        is_complete: The work is done: the answer of the topic must be the whole answer.
        end_ms: Of the traffic; None: all transactions count.
        sheds: Whether branches leave out rows while a stage is overloaded: a bucket that was shown
            may be without rows where another branch's is shown again.
    """
    verdict = Verdict()
    runs, verdict.wrong = transactions(records, partitions)
    follower = _Follower(verdict, answer, partitions, sheds=sheds)
    for run in until(runs, end_ms):
        follower.take(run)
    if is_complete:
        for bucket, rows in answer.items():
            found = [row for _, row in sorted(verdict.stable.get(bucket, {}).items())]
            if found != list(rows):
                verdict.wrong.append(
                    f"live: at the end bucket {bucket} is {found}, not {list(rows)}"
                )
        if verdict.tentative or follower.shown:
            verdict.wrong.append(
                f"live: at the end buckets {sorted(verdict.tentative)} are tentative, shown up to"
                f" {follower.shown}"
            )
    return verdict


class _Follower:
    """The state of the topic between two transactions."""

    def __init__(
        self,
        verdict: Verdict,
        answer: Mapping[int, Sequence[Row]],
        partitions: int,
        *,
        sheds: bool,
    ) -> None:
        self._sheds = sheds
        self._verdict = verdict
        self._answer = answer
        self._partitions = partitions
        self._stable_upto = 0
        self.shown = 0
        self._undone = False
        self._last: tuple[int, int] | None = None

    def _wrong(self, text: str, run: Transaction) -> None:
        self._verdict.wrong.append(f"live: transaction {run.sequence}: {text}")

    def take(self, run: Transaction) -> None:
        """Take the next transaction."""
        by_kind: dict[str, list[LiveRecord]] = {}
        for record in run.records:
            by_kind.setdefault(record.kind, []).append(record)
        insertions, tentative = by_kind.get(INSERTION, []), by_kind.get(TENTATIVE, [])
        before = dict(self._verdict.tentative)
        if run.stable < self._stable_upto:
            self._wrong(f"stable goes back from {self._stable_upto} to {run.stable}", run)
        if UNDO in by_kind:
            self._undo(by_kind[UNDO], run)
        elif (insertions or run.stable > self._stable_upto) and self.shown and not self._undone:
            self._wrong("corrections without an undo", run)
        self._insert(insertions, run)
        self._show(tentative, run)
        for bucket in [b for b in self._verdict.tentative if b <= run.stable]:
            del self._verdict.tentative[bucket]
        # What is shown, and has no rows, has no records.
        upto = max(run.stable, run.shown) if self._sheds else run.stable
        lost = [b for b in before if b > upto and b not in self._verdict.tentative]
        if lost and REC_DONE not in by_kind:
            self._wrong(f"tentative buckets {lost} fall out of the answer", run)
        if tentative or run.shown > self.shown:
            if not self.shown:
                self._verdict.failures += 1
            self.shown = max(self.shown, run.shown)
        if REC_DONE in by_kind:
            self._done(by_kind[REC_DONE], run)
        self._stable_upto = run.stable
        if run.shown != self.shown:
            self._wrong(f"its boundary says shown up to {run.shown}, it is {self.shown}", run)

    def _undo(self, undos: list[LiveRecord], run: Transaction) -> None:
        self._verdict.undos += 1
        if len(undos) != self._partitions or len({undo.ident for undo in undos}) != 1:
            self._wrong(f"undo in {len(undos)} of {self._partitions} partitions", run)
        if not self.shown:
            self._wrong("undo outside a failure", run)
        if self._undone:
            self._wrong("a second undo in one failure", run)
        if undos[0].ident != self._last:
            self._wrong(f"undo names {undos[0].ident}, the last stable record is {self._last}", run)
        self._undone = True
        self._verdict.tentative.clear()

    def _insert(self, insertions: list[LiveRecord], run: Transaction) -> None:
        for record in insertions:
            if record.ident is None or record.row is None:
                self._wrong(f"an insertion without id or value: {record}", run)
                continue
            bucket, position = record.ident
            rows = self._answer.get(bucket, ())
            if not self._stable_upto < bucket <= run.stable:
                self._wrong(
                    f"insertion {bucket}.{position}, stable from {self._stable_upto} to"
                    f" {run.stable}",
                    run,
                )
            if position >= len(rows) or rows[position] != record.row:
                self._wrong(
                    f"insertion {bucket}.{position} is {record.row}, not"
                    f" {rows[position : position + 1]}",
                    run,
                )
            if position in self._verdict.stable.setdefault(bucket, {}):
                self._wrong(f"insertion {bucket}.{position} again", run)
            self._verdict.stable[bucket][position] = record.row
            if self._last is None or record.ident > self._last:
                self._last = record.ident
        for bucket in {record.ident[0] for record in insertions if record.ident}:
            if len(self._verdict.stable[bucket]) != len(self._answer.get(bucket, ())):
                self._wrong(f"bucket {bucket} is not whole: {self._verdict.stable[bucket]}", run)

    def _show(self, tentative: list[LiveRecord], run: Transaction) -> None:
        fresh: dict[int, dict[int, Row]] = {}
        for record in tentative:
            if record.ident is None or record.row is None:
                self._wrong(f"a tentative record without id or value: {record}", run)
                continue
            bucket, position = record.ident
            if bucket <= run.stable:
                self._wrong(f"tentative bucket {bucket} below the stable ones", run)
            if position in fresh.setdefault(bucket, {}):
                self._wrong(f"tentative {bucket}.{position} twice", run)
            fresh[bucket][position] = record.row
        for bucket, rows in fresh.items():
            if bucket in self._verdict.tentative:
                self._wrong(f"tentative bucket {bucket} is shown twice without being voided", run)
            if sorted(rows) != list(range(len(rows))):
                self._wrong(f"tentative bucket {bucket} has positions {sorted(rows)}", run)
            self._verdict.shown_again += bucket <= self.shown
            self._verdict.tentative[bucket] = rows

    def _done(self, dones: list[LiveRecord], run: Transaction) -> None:
        self._verdict.rec_dones += 1
        if len(dones) != self._partitions:
            self._wrong(f"rec_done in {len(dones)} of {self._partitions} partitions", run)
        if not self.shown or not self._undone:
            self._wrong("rec_done outside a failure, or without an undo", run)
        if self._verdict.tentative:
            self._wrong(
                f"tentative buckets {sorted(self._verdict.tentative)} are left at rec_done", run
            )
        self.shown, self._undone = 0, False
