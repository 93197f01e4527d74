"""One partition in memory, with what Kafka does about transactions: markers that take an
offset, and a last stable offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anabranch.ports import Headers


class Fate(Enum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Transaction:
    """One transaction of one writer. Its records point here, so that deciding its fate
    decides about them all.
    """

    fate: Fate = Fate.OPEN
    partitions: list[Partition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Record:
    """What stands at one offset. ``control``: a transaction's end marker, shown to nobody."""

    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = 0
    transaction: Transaction | None = None
    control: bool = False


class Partition:
    """Records from offset ``start`` to ``end``. The owner holds the lock."""

    __slots__ = ("_open", "_records", "start")

    def __init__(self) -> None:
        self.start = 0
        self._records: list[Record] = []
        self._open: list[
            tuple[int, Transaction]
        ] = []  # transactions that have or had records here, with the offset of their first

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self.start + len(self._records)

    def append(self, record: Record) -> int:
        """The record's offset."""
        self._records.append(record)
        if record.transaction is not None and self not in record.transaction.partitions:
            record.transaction.partitions.append(self)
            self._open.append((self.end - 1, record.transaction))
        return self.end - 1

    def readable_end(self, *, committed: bool) -> int:
        """Where a reader stops: for a committed one at the first record of an open transaction."""
        if not committed:
            return self.end
        self._open = [
            (first, transaction)
            for first, transaction in self._open
            if transaction.fate is Fate.OPEN
        ]
        return min([self.end, *(first for first, _ in self._open)])

    def at(self, offset: int) -> Record:
        """The record at ``offset``, which exists."""
        return self._records[offset - self.start]

    def trim(self, offset: int) -> None:
        """Drop every record below ``offset``."""
        count = min(max(offset - self.start, 0), len(self._records))
        del self._records[:count]
        self.start += count

    def cut(self, offset: int) -> None:
        """Lose every record from ``offset`` on, as a broker does that lost its disk's last
        writes.
        """
        del self._records[max(offset - self.start, 0) :]


def settle(transaction: Transaction, fate: Fate) -> None:
    """End ``transaction``: a marker in each of its partitions."""
    transaction.fate = fate
    for partition in transaction.partitions:
        partition.append(Record(control=True))
