"""A boundary log and its blocks against the answer, by a second, smaller reading of the rules (1,
4, 5, 6).

Every bucket that a writer has closed must hold the answer's rows, whichever writer it is; so
replicas agree, nothing that a dead process wrote late counts, and a restart neither loses nor
doubles parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    Part,
)

Row = tuple[object, ...]
ReadPart = Callable[[str, Part], Sequence[Row] | None]
"""(writer, part) -> its rows; None: the blocks are not there, or do not match."""


@dataclass
class Writer:
    """One writer of a stream."""

    epoch: int = -1
    token: str = ""
    closed: int = 0
    base: int = 0
    path: list[BatchId] = field(default_factory=list)
    seen: set[BatchId] = field(default_factory=set)
    pending: list[tuple[BatchId, Part]] = field(default_factory=list)
    closed_parts: dict[int, list[Part]] = field(default_factory=dict)
    accepted: list[tuple[int, BoundaryRecord]] = field(default_factory=list)
    """(offset, record), of those that are stable."""
    branch: tuple[int, int] = (-1, -1)
    branch_tip: BatchId | None = None
    branch_closed: int = 0
    branch_pending: list[Part] = field(default_factory=list)
    tentative: list[Tentative] = field(default_factory=list)
    begun: list[tuple[tuple[int, int], int]] = field(default_factory=list)
    """Its branches: (number, bucket at which it begins)."""
    ended: tuple[int, int] = (-1, -1)
    """Its branches up to this one have ended, by a record that says so."""
    runs: list[tuple[int, int | None]] = field(default_factory=list)
    """When it had a branch that ran: (offset of its first record, of what ended it; None: it still
    runs). A branch that follows another one at once is the same run.
    """
    inherited: list[Part] = field(default_factory=list)
    """Parts that were open where the newest branch began, of buckets that it has not closed yet."""
    left_out: list[Part] = field(default_factory=list)
    """Parts whose buckets were closed by a branch that had not named them (rule 11)."""


@dataclass(frozen=True)
class Tentative:
    """Buckets ``first`` to ``last`` that a record of a branch closes, with the parts of those that
    have any.
    """

    first: int
    last: int
    branch: tuple[int, int]
    base: int
    """Up to here the output was closed where the branch begins."""
    parts: Mapping[int, tuple[Part, ...]]
    missing: tuple[str, ...]
    shed: int
    """Per mille of its input's rows that it says to lack."""


@dataclass
class Reading:
    """Outcome of reading a boundary log."""

    writers: dict[str, Writer]
    rejected: dict[str, int] = field(default_factory=dict)


def read(entries: Iterable[tuple[int, LogEntry]], writers: Iterable[str]) -> Reading:
    """Read a boundary log, given as (offset, entry) in log order."""
    reading = Reading({name: Writer() for name in writers})
    for offset, entry in entries:
        take(reading, offset, entry)
    return reading


def take(reading: Reading, offset: int, entry: LogEntry) -> str:
    """Read the next record; what became of it, empty: it is none of a writer."""
    if (
        not isinstance(entry, EpochStarted | BoundaryRecord | BranchEnded)
        or entry.replica not in reading.writers
    ):
        return ""
    writer = reading.writers[entry.replica]
    if isinstance(entry, EpochStarted):
        writer.epoch, writer.token = offset, entry.token
        _end_run(writer, offset)
        return "epoch"
    if isinstance(entry, BranchEnded):
        return _take_end(writer, entry, offset)
    is_stable = entry.kind is BoundaryKind.STABLE
    reason = _take(writer, entry) if is_stable else _take_tentative(writer, entry)
    if reason == "accepted":
        writer.accepted.append((offset, entry))
    if reason == "tentative" and (not writer.runs or writer.runs[-1][1] is not None):
        writer.runs.append((offset, None))
    reading.rejected[reason] = reading.rejected.get(reason, 0) + 1
    return reason


def _is_fenced(writer: Writer, entry: BoundaryRecord | BranchEnded) -> bool:
    """Return whether a record is not of the newest epoch: a former life of the log may have one of
    the same number, which has another token.
    """
    return entry.epoch != writer.epoch or entry.token not in ("", writer.token)


def _end_run(writer: Writer, offset: int) -> None:
    if writer.runs and writer.runs[-1][1] is None:
        writer.runs[-1] = writer.runs[-1][0], offset


def _take_end(writer: Writer, entry: BranchEnded, offset: int) -> str:
    if _is_fenced(writer, entry):
        return "fenced"
    writer.ended = max(writer.ended, entry.branch)
    if writer.ended >= writer.branch:
        _end_run(writer, offset)
    return "branch_ended"


def _take(writer: Writer, record: BoundaryRecord) -> str:
    if _is_fenced(writer, record):
        return "fenced"
    if record.id in writer.seen:
        return "known"
    if record.base is not None:
        writer.path, writer.pending = [] if record.prev is None else [record.prev], []
        writer.base = max(writer.base, record.base)
        writer.closed = max(writer.closed, record.base)
    elif record.prev is None:
        writer.path, writer.pending = [], []
    elif writer.path and record.prev == writer.path[-1]:
        pass  # most records
    elif record.prev in writer.path:
        writer.path = writer.path[: writer.path.index(record.prev) + 1]
        writer.pending = [(ident, part) for ident, part in writer.pending if ident in writer.path]
    else:
        return "off_chain"
    writer.seen.add(record.id)
    writer.path.append(record.id)
    writer.pending += [(record.id, part) for part in record.parts if part.bucket > writer.closed]
    for ident, part in list(writer.pending):
        if part.bucket <= record.closed:
            writer.closed_parts.setdefault(part.bucket, []).append(part)
            writer.pending.remove((ident, part))
    writer.closed = max(writer.closed, record.closed)
    return "accepted"


def _take_tentative(writer: Writer, record: BoundaryRecord) -> str:
    number = record.branch or (-1, -1)
    if _is_fenced(writer, record):
        return "fenced"
    if record.id in writer.seen:
        return "known"
    if number <= writer.ended:
        return "ended"
    if number > writer.branch and record.base is not None:
        writer.branch = number
        writer.branch_closed = record.base
        writer.branch_pending = []
        writer.begun.append((number, record.base))
        writer.inherited = [part for _, part in writer.pending if part.bucket > record.base]
    elif number != writer.branch or record.prev != writer.branch_tip:
        return "off_branch"
    writer.seen.add(record.id)
    writer.branch_tip = record.id
    writer.branch_pending += record.parts
    writer.left_out += [
        part
        for part in writer.inherited
        if part.bucket <= record.closed and part not in writer.branch_pending
    ]
    writer.inherited = [part for part in writer.inherited if part.bucket > record.closed]
    if record.closed > writer.branch_closed:
        parts: dict[int, tuple[Part, ...]] = {}
        for part in writer.branch_pending:
            if writer.branch_closed < part.bucket <= record.closed:
                parts[part.bucket] = (*parts.get(part.bucket, ()), part)
        base = writer.begun[-1][1]
        writer.tentative.append(
            Tentative(
                writer.branch_closed + 1,
                record.closed,
                number,
                base,
                parts,
                record.missing,
                record.shed,
            )
        )
    writer.branch_pending = [part for part in writer.branch_pending if part.bucket > record.closed]
    writer.branch_closed = max(writer.branch_closed, record.closed)
    return "tentative"


def check_branches(name: str, reading: Reading) -> list[str]:
    """Check that a process forks again only further on: a branch was not dropped while it was
    needed, and no second one begun at the same hole (rules 14, 15).
    """
    wrong: list[str] = []
    for replica, writer in reading.writers.items():
        for (before, base_before), (number, base) in pairwise(writer.begun):
            if before[0] == number[0] and base <= base_before:
                wrong.append(
                    f"{name}.{replica}: branch {number} begins at bucket {base}, branch {before}"
                    f" had begun at {base_before}"
                )
    return wrong


def offered(
    reading: Reading, rows_of: ReadPart
) -> dict[tuple[int, tuple[int, int]], tuple[tuple[str, ...], list[Row]]]:
    """(streams named as missing, rows) of every bucket with parts that a branch closed, by
    (bucket, branch).
    """
    return {
        (bucket, made.branch): (
            made.missing,
            [row for part in parts for row in rows_of(replica, part) or ()],
        )
        for replica, writer in reading.writers.items()
        for made in writer.tentative
        for bucket, parts in made.parts.items()
    }


def check(
    name: str,
    reading: Reading,
    answer: Mapping[int, Sequence[Row]],
    rows_of: ReadPart,
    spoilt: Collection[tuple[str, int]] = (),
) -> list[str]:
    """Return what is wrong with the closed buckets of a stream, in words. ``spoilt``: (writer,
    bucket) that may be wrong, since the writer was made to compute wrong rows.
    """
    wrong = [
        f"{name}.{replica}: a branch lost {part}"
        for replica, writer in reading.writers.items()
        for part in writer.left_out
    ]
    for replica, writer in reading.writers.items():
        buckets = {
            bucket
            for bucket in {*writer.closed_parts, *answer}
            if writer.base < bucket <= writer.closed
        }
        for bucket in sorted(buckets):
            rows: list[Row] = []
            for part in writer.closed_parts.get(bucket, ()):
                found = rows_of(replica, part)
                if found is None:
                    wrong.append(f"{name}.{replica}: blocks of bucket {bucket} are missing: {part}")
                rows += found or ()
            expected = list(answer.get(bucket, ()))
            is_right = sorted(rows, key=repr) == sorted(expected, key=repr)
            if not is_right and (replica, bucket) not in spoilt:
                wrong.append(
                    f"{name}.{replica}: bucket {bucket} is {sorted(rows, key=repr)}, not {expected}"
                )
    return wrong
