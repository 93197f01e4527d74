"""A stream whose stage got another version of its function, by a second, smaller reading of the
rule (BL15): which version counts from which bucket on, and that each row is what the version makes
whose record named it. A row that the version before has made for a later bucket stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    EpochStarted,
    LogEntry,
    Part,
)
from checkers import streams
from checkers.streams import Reading, ReadPart, Row

OfVersion = Callable[[Row, int], Row]
"""(what the first version makes, another version) -> what that makes."""


@dataclass
class Versions:
    """Outcome of a boundary log with versions."""

    reading: Reading
    version_of: dict[str, int] = field(default_factory=dict)
    """Version of each writer's newest epoch."""
    counts: dict[int, int] = field(default_factory=dict)
    """Version -> the last bucket before those for which it counts."""
    made_by: dict[tuple[str, Part], int] = field(default_factory=dict)
    """(writer, part) -> the version that made its rows."""
    closed: list[tuple[str, int, int]] = field(default_factory=list)
    """(writer, first bucket, last bucket), of what writers closed themselves."""
    stable: list[tuple[str, int, int]] = field(default_factory=list)
    """The same of what readers get."""
    upto: int = 0
    """Everything up to here is stable."""
    too_late: set[tuple[str, int, BatchId]] = field(default_factory=set)
    """(writer, epoch, record), of a version that another one has replaced."""

    @property
    def newest(self) -> int:
        """The version that counts at the end; 0: none has closed anything."""
        return max(self.counts, default=0)

    def rows(self, replica: str, bucket: int, rows_of: ReadPart) -> Iterator[tuple[int, Row]]:
        """(version that made it, row) of a bucket that ``replica`` has closed."""
        for part in self.reading.writers[replica].closed_parts.get(bucket, ()):
            for row in rows_of(replica, part) or ():
                yield self.made_by[replica, part], row

    def take(self, offset: int, entry: LogEntry) -> None:
        """Take the next record of the log."""
        if isinstance(entry, EpochStarted):
            self._begin(entry)
        if not isinstance(entry, EpochStarted | BoundaryRecord):
            return
        if self.version_of.get(entry.replica, 0) < self.newest:
            if isinstance(entry, BoundaryRecord):
                self.too_late.add((entry.replica, entry.epoch, entry.id))
            return
        writer = self.reading.writers.get(entry.replica)
        before = 0 if writer is None else writer.closed
        reason = streams.take(self.reading, offset, entry)
        if writer is None or reason != "accepted" or not isinstance(entry, BoundaryRecord):
            return
        version = self.version_of[entry.replica]
        before = max(before, entry.base or 0)
        self.made_by |= {(entry.replica, part): version for part in entry.parts}
        if entry.kind is BoundaryKind.STABLE and writer.closed > before:
            self.closed.append((entry.replica, before + 1, writer.closed))
            if version > self.newest and writer.base <= self.upto <= writer.closed:
                self.counts[version] = self.upto
            self._advance(entry.replica)

    def _begin(self, entry: EpochStarted) -> None:
        writer = self.reading.writers.get(entry.replica)
        if writer is None or entry.version < self.newest:
            return
        before = self.version_of.get(entry.replica, entry.version)
        if before != entry.version and writer.closed > self.upto:
            writer.base = writer.closed
        self.version_of[entry.replica] = entry.version

    def _advance(self, first: str) -> None:
        """Take the next bucket from ``first``, if possible."""
        order = sorted(self.reading.writers, key=lambda name: name != first)
        moved = True
        while moved:
            moved = False
            for name in order:
                writer = self.reading.writers[name]
                is_newest = self.version_of.get(name, 0) == self.newest
                if is_newest and writer.base <= self.upto < writer.closed:
                    self.stable.append((name, self.upto + 1, writer.closed))
                    self.upto, moved = writer.closed, True


def read(entries: Iterable[tuple[int, LogEntry]], writers: Collection[str]) -> Versions:
    """Read a boundary log, given as (offset, entry) in log order, from its beginning on."""
    found = Versions(streams.read((), writers))
    for offset, entry in entries:
        found.take(offset, entry)
    return found


def check(
    name: str,
    found: Versions,
    answer: Mapping[int, Sequence[Row]],
    of_version: OfVersion,
    rows_of: ReadPart,
    may_lack: Collection[tuple[str, int]] = (),
) -> list[str]:
    """Return what is wrong with the buckets that the writers closed, in words. ``answer``: results
    of the first version. ``may_lack``: (writer, bucket) that may be empty, since the writer says
    so.
    """
    wrong = [
        f"{name}.{replica}: epoch {epoch} goes on after another version counts: {count} records"
        for (replica, epoch), count in Counter(each[:2] for each in found.too_late).items()
        if count > 1
    ]
    for replica, first, last in found.closed:
        parts = found.reading.writers[replica].closed_parts
        for bucket in sorted(b for b in {*parts, *answer} if first <= b <= last):
            rows = list(found.rows(replica, bucket, rows_of))
            if not rows and (replica, bucket) in may_lack:
                continue
            left = list(rows)
            for row in answer.get(bucket, ()):
                made = [each for each in left if each[1] == of_version(row, each[0])]
                if made:
                    left.remove(made[0])
            if left or len(rows) != len(answer.get(bucket, ())):
                wrong.append(
                    f"{name}.{replica}: bucket {bucket} is {rows} (version, row), of"
                    f" {list(answer.get(bucket, ()))} by the first version"
                )
    return wrong


def stands(found: Versions, rows_of: ReadPart) -> dict[int, list[Row]]:
    """Return what readers get."""
    made = {
        bucket: sorted(row for _, row in found.rows(replica, bucket, rows_of))
        for replica, first, last in found.stable
        for bucket in found.reading.writers[replica].closed_parts
        if first <= bucket <= last
    }
    return {bucket: made[bucket] for bucket in sorted(made) if made[bucket]}
