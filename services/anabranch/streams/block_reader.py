"""Reader of exactly the blocks that parts name (rule 7). A mismatch is missing data, never fewer
rows.

Blocks of other participants are validated and hashed. Blocks that a stage reads from its own
participant are trusted: the client checks Kafka's checksums, and no other participant may write
their topics. There only blocks and rows are counted. Delivery, the last to see a row, hashes all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.codec.block_guard import check_rows
from anabranch.codec.blocks import BlockHeaders, by_columns, decode_block, digests
from anabranch.pipeline.topic_names import stream_of_blocks
from anabranch.ports import Clock, EventLog, Headers, TopicPartition
from anabranch.protocol.errors import DataMissing, RemoteProtocolError
from anabranch.protocol.log.lost_blocks import is_block_of
from anabranch.protocol.log.records import Part
from anabranch.streams.range_reader import RangeReader

if TYPE_CHECKING:
    from anabranch.protocol.log.boundary_log import LogState

Wanted = tuple[int, str, Sequence[Part]]
"""Bucket to read: (bucket, writer to read from, its parts), as ``LogState.stable`` returns it."""

_Found = dict[int, pa.Table | bytes | None]
"""Records of a part, by number: a block, or a segment of an incomplete one. None: a segment of a
block that is under the number of its last one.
"""


class BlockReader:
    """Reader of the blocks of one stream, of any of its writers. Keeps one reader per writer, which
    continues where its last read ended.
    """

    def __init__(
        self,
        log: EventLog,
        topic_of: Callable[[str], str],
        clock: Clock,
        *,
        width_ms: int | None = 0,
        is_elsewhere: bool = False,
        with_notices: bool = False,
    ) -> None:
        """Keep the arguments. ``topic_of`` maps a replica to its block topic.

        ``width_ms`` is that of the buckets, to which the rows are checked to belong; with 0 they
        are not, and None means that the same participant writes the stream, so that blocks need no
        validation at all.
        ``is_elsewhere`` means that they are on another owner's cluster. Only a reader
        ``with_notices`` reads the notices of rejected rows (``codec.rejected_rows``), as tables of
        their own.
        """
        self._width_ms = width_ms
        self._with_notices = with_notices
        self._is_elsewhere = is_elsewhere
        self._log = log
        self._topic_of = topic_of
        self._clock = clock
        self._readers: dict[str, RangeReader] = {}

    def read(self, replica: str, parts: Sequence[Part]) -> pa.Table | None:
        """Return all rows of ``parts``, in the order of the parts, or None if there are none.

        Raises:
            DataMissing: as ``read_parts``; or the parts have different columns.
        """
        tables = self.read_parts(replica, parts)
        try:
            return pa.concat_tables(tables) if tables else None
        except pa.ArrowInvalid as error:
            raise DataMissing(f"parts of writer {replica} differ in columns: {error}") from error

    def read_buckets(self, wanted: Sequence[Wanted]) -> list[tuple[int, pa.Table]]:
        """Return the rows of the non-empty buckets of ``wanted``, in that order: one table for each
        bucket, or several if its columns differ (``by_columns``).

        Raises as ``read_parts``.
        """
        by_writer: dict[str, list[Part]] = {}
        for _, replica, parts in wanted:
            by_writer.setdefault(replica, []).extend(self._readable(parts))
        tables: dict[int, list[pa.Table]] = {}
        for replica, parts in by_writer.items():
            for part, table in zip(parts, self.read_parts(replica, parts), strict=True):
                tables.setdefault(part.bucket, []).append(table)
        return [
            (bucket, table)
            for bucket, _, _ in wanted
            if bucket in tables
            for table in by_columns(tables[bucket])
        ]

    def read_parts(self, replica: str, parts: Sequence[Part]) -> list[pa.Table]:
        """Return one table for each part that this reader reads.

        Raises:
            DataMissing: blocks are gone, or their number or rows differ from the part's; or, where
                another participant writes them, their digest, or rows are of another bucket.
        """
        parts = self._readable(parts)
        blocks: list[_Found] = [{} for _ in parts]
        index: dict[tuple[int, int], list[int]] = {}
        for i, part in enumerate(parts):
            index.setdefault((part.partition, part.bucket), []).append(i)
        ranges: dict[int, list[Part]] = {}
        for part in parts:
            ranges.setdefault(part.partition, []).append(part)
        for partitions in ranges.values():
            partitions.sort(key=lambda p: p.offset_first)
        if ranges:
            self._collect(replica, ranges, parts, index, blocks)
        return self._checked(replica, parts, blocks)

    def _readable(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Return ``parts`` without those that hold notices, unless the reader reads them."""
        if self._with_notices or not any(part.is_rejected for part in parts):
            return parts
        return [part for part in parts if not part.is_rejected]

    def close(self) -> None:
        """Close all readers. Idempotent."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _collect(
        self,
        replica: str,
        ranges: dict[int, list[Part]],
        parts: Sequence[Part],
        index: dict[tuple[int, int], list[int]],
        blocks: list[_Found],
    ) -> None:
        topic, reader = self._topic_of(replica), self._readers.get(replica)
        if reader is None:
            reader = self._readers[replica] = RangeReader(
                self._log, self._clock, stream_of_blocks(topic), is_elsewhere=self._is_elsewhere
            )
        start = {TopicPartition(topic, p): rs[0].offset_first for p, rs in ranges.items()}
        end = {TopicPartition(topic, p): max(r.offset_next for r in rs) for p, rs in ranges.items()}

        def take(at: TopicPartition, offset: int, value: bytes | None, headers: Headers) -> None:
            self._take(at.partition, offset, value, headers, parts, index, blocks)

        reader.read(start, end, take)

    def _take(
        self,
        partition: int,
        offset: int,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        parts: Sequence[Part],
        index: dict[tuple[int, int], list[int]],
        blocks: list[_Found],
    ) -> None:
        try:
            head = BlockHeaders.decode(headers)
            for at in index.get((partition, head.bucket), ()):
                if is_block_of(parts[at], head.bucket, head.attempt, offset):
                    self._keep(blocks[at], head, value)
        except RemoteProtocolError:
            return  # not a block; if a part needs one here, the count of blocks will be wrong

    def _keep(self, found: _Found, head: BlockHeaders, value: bytes | None) -> None:
        """Add a record of a part to what was ``found`` of it. The segments of a block come in
        order, as they were sent, and the last one completes it.
        """
        if head.is_continued:
            found[head.number] = value or b""
            return
        first = head.number
        while isinstance(found.get(first - 1), bytes):
            first -= 1
        before = [found[number] for number in range(first, head.number)]
        if before:
            value = b"".join([*before, value or b""])  # type: ignore[list-item]
        found |= dict.fromkeys(range(first, head.number))
        found[head.number] = decode_block(value, is_own=self._width_ms is None)

    def _checked(self, replica: str, parts: Sequence[Part], blocks: list[_Found]) -> list[pa.Table]:
        try:
            tables = [_in_order(found) for found in blocks]
        except pa.ArrowInvalid as error:
            message = f"blocks of one part of writer {replica} have different columns: {error}"
            raise DataMissing(message) from error
        for part, found, table in zip(parts, blocks, tables, strict=True):
            if table is None or len(found) != part.blocks or table.num_rows != part.rows:
                rows = 0 if table is None else table.num_rows
                message = (
                    f"part {part} of writer {replica}: found {len(found)} blocks with {rows} rows"
                )
                raise DataMissing(message)
        whole = [table for table in tables if table is not None]
        if self._width_ms is None:
            return whole
        for part, total in zip(parts, digests(whole), strict=True):
            if part.digest != total:
                message = f"part {part} of writer {replica}: the rows have digest {total}"
                raise DataMissing(message)
        if self._width_ms:
            for part, table in zip(parts, whole, strict=True):
                _check_rows(replica, part, table, self._width_ms)
        return whole


def read_from_any(
    reader: BlockReader, log_state: LogState, wanted: Sequence[Wanted]
) -> list[tuple[int, pa.Table]]:
    """Read stable buckets like ``BlockReader.read_buckets``, but one at a time, each from the first
    replica with an equal result (BL17 of ``protocol.log.boundary_log``) that still has all its
    blocks. Used for buckets whose named writer has lost blocks.

    Raises:
        DataMissing: no replica has them, or only one with other rows than the boundary log counts.
    """
    found = []
    for bucket, writer, parts in wanted:
        *others, last = [(writer, parts), *log_state.alike(bucket, writer, tuple(parts))]
        for place, own in others:
            with contextlib.suppress(DataMissing):  # the last one's is raised
                found += reader.read_buckets([(bucket, place, own)])
                break
        else:
            found += reader.read_buckets([(bucket, *last)])
    return found


def _check_rows(replica: str, part: Part, table: pa.Table, width_ms: int) -> None:
    try:
        check_rows(table, part.bucket, width_ms)
    except RemoteProtocolError as error:
        raise DataMissing(f"part {part} of writer {replica}: {error}") from error


def _in_order(found: _Found) -> pa.Table | None:
    """Return the rows of one part from its blocks, in order of their numbers; None without blocks.
    A single block, the usual case, is not concatenated: that costs more than reading it.
    """
    tables = [found[number] for number in sorted(found) if isinstance(found[number], pa.Table)]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables) if tables else None
