"""Partition in memory, with Kafka's treatment of transactions: markers that take an offset, and a
last stable offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anabranch.ports import Headers


class Fate(Enum):
    """Outcome of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Transaction:
    """Transaction of one writer. Its records refer to it, so that its outcome applies to all of
    them at once.
    """

    fate: Fate = Fate.OPEN
    partitions: list[Partition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Record:
    """Content of one offset. ``control``: the marker that ends a transaction, which no
    reader sees.
    """

    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = 0
    transaction: Transaction | None = None
    control: bool = False


class Partition:
    """Records from offset ``start`` to ``end``. The cluster's lock guards it."""

    __slots__ = ("_open", "_records", "damaged", "start")

    def __init__(self) -> None:
        self.start = 0
        self.damaged: set[int] = set()
        """Offsets of records whose bytes do not match their checksum."""
        self._records: list[Record] = []
        self._open: list[tuple[int, Transaction]] = []
        """Transactions that have or had records here, with the offset of their first record."""

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.start + len(self._records)

    def append(self, record: Record) -> int:
        """Append a record and return its offset."""
        self._records.append(record)
        if record.transaction is not None and self not in record.transaction.partitions:
            record.transaction.partitions.append(self)
            self._open.append((self.end - 1, record.transaction))
        return self.end - 1

    def readable_end(self, *, committed: bool) -> int:
        """Return the offset at which a reader stops: for a committed one the first record of an
        open transaction.
        """
        if not committed:
            return self.end
        self._open = [
            (first, transaction)
            for first, transaction in self._open
            if transaction.fate is Fate.OPEN
        ]
        return min([self.end, *(first for first, _ in self._open)])

    def at(self, offset: int) -> Record:
        """Return the record at ``offset``, which exists."""
        return self._records[offset - self.start]

    def trim(self, offset: int) -> None:
        """Delete every record below ``offset``."""
        count = min(max(offset - self.start, 0), len(self._records))
        del self._records[:count]
        self.start += count

    def cut(self, offset: int) -> None:
        """Delete every record from ``offset`` on, as a broker does that lost the last writes of its
        disk.
        """
        del self._records[max(offset - self.start, 0) :]


def settle(transaction: Transaction, fate: Fate) -> None:
    """End ``transaction`` with a marker in each of its partitions."""
    transaction.fate = fate
    for partition in transaction.partitions:
        partition.append(Record(control=True))
