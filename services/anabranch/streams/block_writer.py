"""Writer of blocks. It returns what it wrote as parts (rule 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.codec.blocks import BlockHeaders, digests, encode_block, pieces, segments
from anabranch.codec.rejected_rows import are_notices, separated
from anabranch.ports import Entropy, EventLog, LogWriter, TopicPartition
from anabranch.protocol.errors import LocalProtocolError, OutcomeUnknown, Unavailable
from anabranch.protocol.limits import WRITE_TRIES_MAX
from anabranch.protocol.log.records import REJECTED_ATTEMPT, Part

Slice = tuple[int, int, pa.Table]
"""Rows of one bucket for one partition: (partition, bucket, rows)."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Blocks that were sent under one attempt id and are not known to be in the log."""

    ids: list[str]
    """Attempt id of each slice. Notices of rejected rows have one of their own, since an attempt
    has one part for a bucket and partition.
    """
    records: list[int]
    """Number of records of each slice: its blocks, or their segments."""
    digests: list[int]
    """Digest of each slice."""


class BlockWriter:
    """Writer of one replica's block topic. Not thread-safe.

    Readers ignore blocks that no boundary record names. So a crash, a retry or an unknown outcome
    leaves only garbage.
    """

    def __init__(
        self, log: EventLog, topic: str, replica: str, epoch: int, entropy: Entropy
    ) -> None:
        self._log = log
        self._topic = topic
        self._replica = replica
        self._epoch = epoch
        self._entropy = entropy
        self._writer: LogWriter | None = None
        self._begun: list[Slice] = []
        """Merged slices that ``finish`` waits for, one for each part."""
        self._attempt: _Attempt | None = None

    def write(self, slices: Sequence[Slice]) -> tuple[Part, ...]:
        """Write ``slices``, wait until they are in the log, and return their parts. Raises as
        ``begin`` and ``finish``.
        """
        self.begin(slices)
        return self.finish()

    def begin(self, slices: Sequence[Slice]) -> None:
        """Send ``slices`` under a fresh attempt id, without waiting. They stay in memory until
        ``finish``, which may have to send them again.

        Raises:
            Unavailable: the broker rejected a block permanently.
            LocalProtocolError: ``finish`` was not called for the previous slices.
        """
        if self._begun:
            message = f"{self._topic}: blocks are begun while others are not finished"
            raise LocalProtocolError(message)
        self._begun = _merged(slices)
        try:
            if self._begun:
                self._attempt = self._send(self._begun)
        except OutcomeUnknown:
            self.close()
        except BaseException:
            self._forget()
            raise

    def finish(self) -> tuple[Part, ...]:
        """Wait until the slices of ``begin`` are in the log, and return their parts.

        An attempt with an unknown outcome is abandoned and written again under a new attempt id.

        Raises:
            Unavailable: the broker rejected a block permanently, or the outcomes of WRITE_TRIES_MAX
                attempts are unknown.
        """
        if not self._begun:
            return ()
        for _ in range(WRITE_TRIES_MAX):
            try:
                if self._attempt is None:
                    self._attempt = self._send(self._begun)
                parts = self._await_parts(self._attempt)
            except OutcomeUnknown:
                self.close()
            except BaseException:
                self._forget()
                raise
            else:
                self._begun, self._attempt = [], None
                return parts
        self._forget()
        message = (
            f"{self._topic}: the outcome of {WRITE_TRIES_MAX} attempts to write blocks is unknown"
        )
        raise Unavailable(message)

    def close(self) -> None:
        """Close the producer; the next block opens another. Idempotent."""
        self._attempt = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _forget(self) -> None:
        """Drop slices and attempt after a failure, so that the next ``begin`` starts afresh."""
        self._begun = []
        self.close()

    def _send(self, slices: Sequence[Slice]) -> _Attempt:
        """Send ``slices`` as the blocks of one new attempt."""
        if self._writer is None:
            self._writer = self._log.writer()
        token, number = self._entropy.token(), 0
        ids, counts = [], []
        for partition, bucket, table in slices:
            attempt = token + REJECTED_ATTEMPT if are_notices(table.schema) else token
            at, first = TopicPartition(self._topic, partition), number
            for values in map(segments, map(encode_block, pieces(table))):
                for left, value in zip(reversed(range(len(values))), values, strict=True):
                    headers = BlockHeaders(
                        bucket=bucket,
                        epoch=self._epoch,
                        number=number,
                        replica=self._replica,
                        attempt=attempt,
                        is_continued=left > 0,
                    )
                    self._writer.send(at, value, headers=headers.encode())
                    number += 1
            ids.append(attempt)
            counts.append(number - first)
        sums = digests([table for _, _, table in slices])  # computed while the blocks are in flight
        return _Attempt(ids, counts, sums)

    def _await_parts(self, attempt: _Attempt) -> tuple[Part, ...]:
        """Wait for the delivery of the attempt's blocks, and return the parts that name them."""
        assert self._writer is not None  # noqa: S101 - ``_send`` opened it
        places = self._writer.flush()
        parts = []
        start = 0
        for (partition, bucket, table), name, count, total in zip(
            self._begun, attempt.ids, attempt.records, attempt.digests, strict=True
        ):
            offsets = [place.offset for place in places[start : start + count]]
            start += count
            parts.append(
                Part(
                    bucket=bucket,
                    partition=partition,
                    attempt=name,
                    blocks=count,
                    offset_first=min(offsets),
                    offset_next=max(offsets) + 1,
                    rows=table.num_rows,
                    digest=total,
                    size_bytes=table.nbytes,
                )
            )
        return tuple(parts)


class UnwrittenBlocks:
    """Replacement of a ``BlockWriter`` that computes parts and writes no blocks."""

    def write(self, slices: Sequence[Slice]) -> tuple[Part, ...]:
        """Return parts with rows and digests, but no blocks to read."""
        merged = _merged(slices)
        sums = digests([table for _, _, table in merged])
        return tuple(
            Part(bucket, partition, _unwritten(table), 1, 0, 1, table.num_rows, total, table.nbytes)
            for (partition, bucket, table), total in zip(merged, sums, strict=True)
        )

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _unwritten(table: pa.Table) -> str:
    """Return the attempt id of a part whose rows ``table`` are not written."""
    return "unwritten" + (REJECTED_ATTEMPT if are_notices(table.schema) else "")


def _merged(slices: Sequence[Slice]) -> list[Slice]:
    """Return ``slices`` merged into one for each (partition, bucket): that pair identifies a part
    within an attempt. Rows that no reader can hold are replaced by notices, in slices of their own.
    """
    merged: dict[tuple[int, int], list[pa.Table]] = {}
    for partition, bucket, table in slices:
        if table.num_rows:
            merged.setdefault((partition, bucket), []).append(table)
    found: list[Slice] = []
    for key, tables in merged.items():
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        found += ((*key, some) for some in separated(table) if some is not None and some.num_rows)
    return found
