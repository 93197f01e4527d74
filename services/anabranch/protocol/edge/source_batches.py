"""Size of the batches in which a source is read.

Theory of operation. A *batch* is what one boundary record names. It is read in *fetches*, each of
which is decoded before the next one. A fetch that returns less than it asked for has reached the
end of what the input holds now, so it ends the batch. Otherwise the batch ends when it is full:
that bounds the memory, and the time between boundary records in a backlog. The size of records is
known only after they were fetched, so a fetch asks for as many as fit if they are as large as the
last ones.

A batch that ended because it was full says that there is a *backlog*; so does a large one. The
next batch is then fetched at once, while the blocks of this one are still being sent.

A boundary record names a limited number of parts. Sparse data, where nearly every record lies in a
bucket of its own, may exceed it. Such a batch is halved until each piece fits, and the next batches
are smaller, until one has few buckets again.

Invariants:
    SZ1 a batch has at most SOURCE_BATCH_RECORDS records, and no fetch begins in a batch that has
        SOURCE_BATCH_BYTES.
    SZ2 each fetch asks for at least one record: large records are read one by one, never left.
    SZ3 a piece of a batch that is not halved has one record, or at most PARTS_PER_RECORD_MAX parts.
    SZ4 after a fetch that returned less than it asked for, or failed, the batch gets no further
        one. After one that failed there is no backlog: everything that was read is named first.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.limits import MIB, PARTS_PER_RECORD_MAX

SOURCE_BATCH_RECORDS: Final = 65_536
"""Maximum number of records in one batch: bounds memory and the time between boundary records
while ingestion works off a backlog.
"""

SOURCE_BATCH_BYTES: Final = 64 * MIB
"""Approximate maximum size of one batch, in bytes, estimated from the size of earlier records:
bounds memory where records are large.
"""

FETCH_RECORDS_MAX: Final = 16_384
"""Maximum number of records of one fetch, decoded before the next: they are still in the
processor's cache then.
"""

BACKLOG_RECORDS: Final = 5_000
"""Batch size, in records, from which the source counts as backlogged: the next fetch starts at
once.
"""

ROWS_PER_PART: Final = 1_000
"""Number of rows of a bucket for which one more part is expected. Less than writers put into a part
(``codec.batch_slices``), so that the expected number of parts is never too small.
"""

_RECORD_BYTES_AT_FIRST: Final = 64 * 1024
"""Size assumed for a record before any was fetched, in bytes. Large, so that the first fetch takes
few records and fits in memory even where records are large.
"""
_HALVED_RECORDS_MIN: Final = 1_000
"""Minimum number of records to which the size of batches is reduced. A smaller batch would cost
more than its parts; if it has too many, it is halved.
"""


class SourceBatches:
    """Size of the present batch of a source, and of the next ones."""

    def __init__(self) -> None:
        """Begin without a batch."""
        self._records_max = SOURCE_BATCH_RECORDS
        self._record_bytes = _RECORD_BYTES_AT_FIRST
        self._taken = self._wanted = self._size_bytes = 0
        self._has_failed = False

    def begin(self) -> None:
        """Begin a batch."""
        self._taken = self._wanted = self._size_bytes = 0
        self._has_failed = False

    def fetch_max(self) -> int:
        """Return the maximum number of records of the batch's next fetch; 0: it gets no further
        one (SZ1, SZ2, SZ4).
        """
        if (
            self._has_failed
            or not self._taken == self._wanted < self._records_max
            or self._size_bytes >= SOURCE_BATCH_BYTES
        ):
            return 0
        return min(
            FETCH_RECORDS_MAX,
            self._records_max - self._taken,
            max(1, (SOURCE_BATCH_BYTES - self._size_bytes) // self._record_bytes),
        )

    def fetched(self, records: int, size_bytes: int) -> None:
        """Record what the fetch that ``fetch_max`` allowed has returned."""
        self._wanted += self.fetch_max()
        self._taken += records
        self._size_bytes += size_bytes
        if records:
            self._record_bytes = max(1, size_bytes // records)

    def failed(self) -> None:
        """Record that the fetch failed (SZ4)."""
        self._has_failed = True

    def has_backlog(self) -> bool:
        """Return whether the last batch showed that the input holds more than it."""
        is_full = 0 < self._taken == self._wanted
        return not self._has_failed and (is_full or self._taken >= BACKLOG_RECORDS)

    def must_halve(self, records: int, rows: int, buckets: int) -> bool:
        """Return whether a batch, or a piece of one, must be processed in halves (SZ3), and adapt
        the size of the next batches.

        Args:
            records: Number of its records.
            rows: Number of the rows that they became.
            buckets: Number of the buckets that these rows are of.
        """
        if records > 1 and buckets + rows // ROWS_PER_PART > PARTS_PER_RECORD_MAX:
            self._records_max = max(_HALVED_RECORDS_MIN, records // 2)
            return True
        if buckets < PARTS_PER_RECORD_MAX // 4:
            self._records_max = SOURCE_BATCH_RECORDS
        return False
