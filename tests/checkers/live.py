"""A live topic, record by record: what a reader of it is promised (rules 19, 20; docs/live.md).

Reads the topic on its own: the transactions are put together from the boundaries in all partitions, and the answer is followed bucket by
bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Row = tuple[object, ...]


class LiveRecord(NamedTuple):
    """One record, as a committed reader sees it."""

    partition: int
    offset: int
    kind: str
    """insertion, tentative, undo, boundary, rec_done."""
    ident: tuple[int, int] | None
    """(bucket, position); of an undo the last stable one, None if there is none."""
    branch: tuple[int, int] | None = None
    row: Row | None = None
    stable: int = 0
    shown: int = 0
    sequence: int = 0
    """Of a boundary."""


@dataclass
class Transaction:
    """Records of one transaction, over all partitions."""

    sequence: int
    stable: int
    shown: int
    records: list[LiveRecord] = field(default_factory=list)


@dataclass
class Verdict:
    """What was found."""

    wrong: list[str] = field(default_factory=list)
    undos: int = 0
    failures: int = 0
    rec_dones: int = 0
    shown_again: int = 0
    stable: dict[int, dict[int, Row]] = field(default_factory=dict)
    tentative: dict[int, dict[int, Row]] = field(default_factory=dict)


def transactions(records: Sequence[LiveRecord], partitions: int) -> tuple[list[Transaction], list[str]]:
    """The topic as a list of transactions, and what is wrong with its boundaries."""
    found: dict[int, Transaction] = {}
    brought: dict[int, int] = {}
    open_records: dict[int, list[LiveRecord]] = {}
    last: dict[int, int] = {}
    wrong = []
    for record in records:
        mine = open_records.setdefault(record.partition, [])
        mine.append(record)
        if record.kind != "boundary":
            continue
        transaction = found.setdefault(record.sequence, Transaction(record.sequence, record.stable, record.shown))
        if (transaction.stable, transaction.shown) != (record.stable, record.shown):
            wrong.append(f"live: boundaries of transaction {record.sequence} differ between partitions")
        if record.sequence != last.get(record.partition, 0) + 1:
            wrong.append(f"live: partition {record.partition} has transaction {record.sequence} after {last.get(record.partition, 0)}")
        last[record.partition] = record.sequence
        brought[record.sequence] = brought.get(record.sequence, 0) + 1
        transaction.records += mine
        open_records[record.partition] = []
    wrong += [
        f"live: transaction {sequence} is in {count} of {partitions} partitions"
        for sequence, count in brought.items()
        if count != partitions
    ]
    wrong += [f"live: {len(rest)} records after the last boundary of a partition" for rest in open_records.values() if rest]
    return [found[sequence] for sequence in sorted(found)], wrong


def check_shown(records: Sequence[LiveRecord], offered: Mapping[tuple[int, tuple[int, int]], Sequence[Row]]) -> list[str]:
    """Tentative buckets are those of the branches that they name.

    Args:
        records: Of the topic.
        offered: The rows of every bucket that a branch has closed, by (bucket, branch).
    """
    shown: dict[tuple[int, tuple[int, int]], dict[int, Row]] = {}
    for record in records:
        if record.kind == "tentative" and record.ident is not None and record.row is not None:
            shown.setdefault((record.ident[0], record.branch or (-1, -1)), {})[record.ident[1]] = record.row
    return [
        f"live: bucket {bucket} of branch {branch} is shown as {list(rows.values())}, the branch made {offered.get((bucket, branch))}"
        for (bucket, branch), rows in shown.items()
        if sorted(rows.values(), key=repr) != sorted(offered.get((bucket, branch), ()), key=repr)
    ]


def check(records: Sequence[LiveRecord], partitions: int, answer: Mapping[int, Sequence[Row]], *, is_complete: bool) -> Verdict:
    """Follow the topic.

    Args:
        records: In log order within each partition.
        partitions: Of the topic.
        answer: The stable rows of every bucket, in canonical order.
        is_complete: The work is done: the answer of the topic must be the whole answer.
    """
    verdict = Verdict()
    runs, verdict.wrong = transactions(records, partitions)
    follower = _Follower(verdict, answer, partitions)
    for run in runs:
        follower.take(run)
    if is_complete:
        for bucket, rows in answer.items():
            found = [row for _, row in sorted(verdict.stable.get(bucket, {}).items())]
            if found != list(rows):
                verdict.wrong.append(f"live: at the end bucket {bucket} is {found}, not {list(rows)}")
        if verdict.tentative or follower.shown:
            verdict.wrong.append(f"live: at the end buckets {sorted(verdict.tentative)} are tentative, shown up to {follower.shown}")
    return verdict


class _Follower:
    """The state of the topic between two transactions."""

    def __init__(self, verdict: Verdict, answer: Mapping[int, Sequence[Row]], partitions: int) -> None:
        self._verdict, self._answer, self._partitions = verdict, answer, partitions
        self._stable_upto = 0
        self.shown = 0
        self._undone = False
        self._last: tuple[int, int] | None = None

    def _wrong(self, text: str, run: Transaction) -> None:
        self._verdict.wrong.append(f"live: transaction {run.sequence}: {text}")

    def take(self, run: Transaction) -> None:
        """The next transaction."""
        by_kind: dict[str, list[LiveRecord]] = {}
        for record in run.records:
            by_kind.setdefault(record.kind, []).append(record)
        insertions, tentative = by_kind.get("insertion", []), by_kind.get("tentative", [])
        before = dict(self._verdict.tentative)
        if run.stable < self._stable_upto:
            self._wrong(f"stable goes back from {self._stable_upto} to {run.stable}", run)
        if "undo" in by_kind:
            self._undo(by_kind["undo"], run)
        elif (insertions or run.stable > self._stable_upto) and self.shown and not self._undone:
            self._wrong("corrections without an undo", run)
        self._insert(insertions, run)
        self._show(tentative, run)
        for bucket in [b for b in self._verdict.tentative if b <= run.stable]:
            del self._verdict.tentative[bucket]
        lost = [b for b in before if b > run.stable and b not in self._verdict.tentative]
        if lost and "rec_done" not in by_kind:
            self._wrong(f"tentative buckets {lost} fall out of the answer", run)
        if tentative or run.shown > self.shown:
            if not self.shown:
                self._verdict.failures += 1
            self.shown = max(self.shown, run.shown)
        if "rec_done" in by_kind:
            self._done(by_kind["rec_done"], run)
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
            self._wrong(f"undo names {undos[0].ident}, the last stable tuple is {self._last}", run)
        self._undone = True
        self._verdict.tentative.clear()

    def _insert(self, insertions: list[LiveRecord], run: Transaction) -> None:
        for record in insertions:
            assert record.ident is not None
            assert record.row is not None
            bucket, position = record.ident
            rows = self._answer.get(bucket, ())
            if not self._stable_upto < bucket <= run.stable:
                self._wrong(f"insertion {bucket}.{position}, stable from {self._stable_upto} to {run.stable}", run)
            if position >= len(rows) or rows[position] != record.row:
                self._wrong(f"insertion {bucket}.{position} is {record.row}, not {rows[position : position + 1]}", run)
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
            assert record.ident is not None
            assert record.row is not None
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
            self._wrong(f"tentative buckets {sorted(self._verdict.tentative)} are left at rec_done", run)
        self.shown, self._undone = 0, False
