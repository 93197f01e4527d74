"""Writes blocks and says what it wrote, as parts: rule 7."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.codec.blocks import BlockHeaders, digests, encode_block, pieces
from anabranch.ports import Entropy, EventLog, LogWriter, TopicPartition
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from anabranch.protocol.limits import WRITE_TRIES_MAX
from anabranch.protocol.log.records import Part


class BlockWriter:
    """One writer of one block topic. Not thread-safe.

    Blocks that no boundary record names do not exist, so a crash, a retry or an unknown outcome
    leaves only garbage that nobody reads.
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

    def write(self, slices: Sequence[tuple[int, int, pa.Table]]) -> tuple[Part, ...]:
        """Write ``slices`` = (partition, bucket, rows) and wait until the log has them, as one
        fresh attempt.

        An attempt with an unknown outcome is abandoned and written again under a new attempt id.

        Raises:
            Unavailable: the log rejected it for good, or does not say what became of
                WRITE_TRIES_MAX attempts.
        """
        for _ in range(WRITE_TRIES_MAX):
            try:
                return self._attempt(slices)
            except OutcomeUnknown:
                self.close()
            except BaseException:
                # what was queued is nobody's, and must not be taken for the next attempt's
                self.close()
                raise
        message = (
            f"{self._topic}: nobody says what became of {WRITE_TRIES_MAX} attempts to write blocks"
        )
        raise Unavailable(message)

    def close(self) -> None:
        """Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _attempt(self, slices: Sequence[tuple[int, int, pa.Table]]) -> tuple[Part, ...]:
        if self._writer is None:
            self._writer = self._log.writer()
        attempt, number = self._entropy.token(), 0
        counts = []
        merged: dict[
            tuple[int, int], list[pa.Table]
        ] = {}  # a part is named by (attempt, partition, bucket)
        for partition, bucket, table in slices:
            if table.num_rows:
                merged.setdefault((partition, bucket), []).append(table)
        filled = [
            (*key, tables[0] if len(tables) == 1 else pa.concat_tables(tables))
            for key, tables in merged.items()
        ]
        for partition, bucket, table in filled:
            at, blocks = TopicPartition(self._topic, partition), pieces(table)
            for block in blocks:
                headers = BlockHeaders(
                    bucket=bucket,
                    epoch=self._epoch,
                    number=number,
                    replica=self._replica,
                    attempt=attempt,
                )
                self._writer.send(at, encode_block(block), headers=headers.encode())
                number += 1
            counts.append(len(blocks))
        sums = digests([table for _, _, table in filled])  # while the blocks are under way
        places, parts, start = self._writer.flush(), [], 0
        for (partition, bucket, table), count, total in zip(filled, counts, sums, strict=True):
            offsets = [place.offset for place in places[start : start + count]]
            start += count
            parts.append(
                Part(
                    bucket=bucket,
                    partition=partition,
                    attempt=attempt,
                    blocks=count,
                    offset_first=min(offsets),
                    offset_next=max(offsets) + 1,
                    rows=table.num_rows,
                    digest=total,
                )
            )
        return tuple(parts)
