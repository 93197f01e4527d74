"""Rendering of buckets: from rows in canonical order to the records that users get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from anabranch.codec.blocks import EVENT_TIME, by_columns, canonical_sort, stream_schema
from anabranch.codec.edge import Encoder, Key
from anabranch.codec.live_records import (
    EVENT_TIME_HEADER,
    ID_HEADER,
    MISSING_HEADER,
    ORIGIN_HEADER,
)
from anabranch.codec.rejected_rows import BEGINNING, DIGEST, SIZE, are_notices, notices_of
from anabranch.codec.subject_names import subject_of
from anabranch.delivery.notices import (
    NOT_WRITABLE,
    ROW_TOO_LARGE,
    notice_headers,
    rejected_bytes,
)
from anabranch.delivery.partitioning import Partitioner
from anabranch.pipeline.model import Sink
from anabranch.protocol.edge.delivery import ALONE, Slice, may_reject
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError
from anabranch.protocol.identifiers import RecordId

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import SchemaRegistry
    from anabranch.protocol.edge.origins import Origin
    from anabranch.protocol.edge.shards import Shard
    from anabranch.protocol.log.boundary_log import LogState

Written = list[tuple[str, bytes]]
"""Headers of one record, as delivery writes them."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records as parallel lists, in the order of their ids."""

    keys: list[bytes | None]
    values: list[bytes]
    headers: list[Written]
    partitions: list[int]

    @property
    def size_bytes(self) -> int:
        """Total size of keys and values, in bytes."""
        return sum(map(len, self.values)) + sum(map(len, filter(None, self.keys)))

    @property
    def ids(self) -> list[RecordId]:
        """Id of each record."""
        return [RecordId.parse(headers[0][1].decode()) for headers in self.headers]

    def sizes(self) -> list[int]:
        """Return the size of each record in bytes: key, value and headers; of a notice, that of the
        row in whose place it is.
        """
        return [
            rejected_bytes(headers)
            or len(value) + len(key or b"") + sum(len(name) + len(text) for name, text in headers)
            for key, value, headers in zip(self.keys, self.values, self.headers, strict=True)
        ]

    @classmethod
    def joined(cls, some: Sequence[Records]) -> Records:
        """Return the concatenation of ``some``."""
        if len(some) == 1:
            return some[0]
        columns = (
            (r.keys for r in some),
            (r.values for r in some),
            (r.headers for r in some),
            (r.partitions for r in some),
        )
        return cls(*(list(chain.from_iterable(column)) for column in columns))  # type: ignore[arg-type]

    def only(self, indexes: Sequence[int]) -> Records:
        """Return the records at ``indexes``."""
        return Records(
            *(  # type: ignore[arg-type]
                [column[i] for i in indexes]
                for column in (self.keys, self.values, self.headers, self.partitions)
            )
        )


MissingSources = Callable[[int], tuple[str, ...]]
"""Function from a stable bucket to the sources that were given up for it."""


def none_missing(_bucket: int) -> tuple[str, ...]:
    """Return no sources: every bucket is complete."""
    return ()


class Renderer:
    """Renderer of the records of one output, or of one of its shards."""

    def __init__(
        self,
        name: str,
        sink: Sink,
        partitions: int,
        origin: Origin,
        *,
        registry: SchemaRegistry | None = None,
        shard: Shard = ALONE,
    ) -> None:
        """Keep the arguments. ``origin`` is named by every record; ``registry`` gets the schemas of
        values and keys; only records of ``shard``'s partitions are rendered.
        """
        self._name = name
        self.origin = origin
        self._is_own = None if shard.count == 1 else [shard.has(p) for p in range(partitions)]
        self._sink = sink
        self._register = register_key = None
        if registry is not None:
            subject = partial(subject_of, sink.subject, sink.topic, name)
            self._register = partial(registry.register, subject("value"))
            register_key = partial(registry.register, subject("key"))
        self._key = Key(sink.key, sink.key_format, register_key)
        self.topic, self.partitions = sink.topic, partitions
        self._partitioner = Partitioner(partitions)
        self._columns: pa.Schema | None = None
        self._encoder: Encoder | None = None
        """Encoder of rows with ``_columns``; None: none was made, or it has no form for them."""
        self.may_reject: Callable[[pa.Schema], bool] = lambda _columns: False
        """Function that returns whether rows with columns that the output cannot write become
        notices. Otherwise they are an error, which a person must correct.
        """

    def render(
        self, slices: tuple[Slice, ...], table: pa.Table, missing_of: MissingSources = none_missing
    ) -> Records:
        """Return the shard's records of ``slices``. ``table`` holds their rows, slice after slice,
        each in canonical order. Records of a bucket name the sources of ``missing_of`` in a header.

        Raises:
            ConfigurationError: a key column is missing, or a column cannot be written in the
                output's format, and such rows may not be rejected (``may_reject``); or the registry
                rejects the schema.
            Unavailable: the registry does not answer. Each schema takes one request.
        """
        if are_notices(table.schema):
            return self._notices(slices, table, missing_of, ROW_TOO_LARGE)
        columns = table.drop_columns([EVENT_TIME])
        encoder = self._encoder_of(columns.schema)
        if encoder is None:
            return self._notices(slices, notices_of(table), missing_of, NOT_WRITABLE)
        keys = encoder.keys(columns)
        partitions = self._partitioner.partitions_of(keys, slices)
        positions: list[Sequence[int]] = [range(s.start, s.stop) for s in slices]
        # Drop other shards' rows before encoding, which costs the most.
        if self._is_own is not None:
            own = list(map(self._is_own.__getitem__, partitions))
            keys, partitions = list(compress(keys, own)), list(compress(partitions, own))
            mask = pa.array(own, pa.bool_())
            columns, table = columns.filter(mask), table.filter(mask)
            left = iter(own)
            positions = [list(compress(some, left)) for some in positions]
        values = encoder.values(columns)
        return Records(
            keys, values, self._headers(slices, positions, table, missing_of), partitions
        )

    def rejects(self, schema: pa.Schema) -> bool:
        """Return whether the rows of a table with ``schema`` become notices; raises as ``render``
        does.
        """
        return are_notices(schema) or self._encoder_of(_without_event_time(schema)) is None

    def _encoder_of(self, columns: pa.Schema) -> Encoder | None:
        """Return the encoder of rows with ``columns``; None: such rows become notices."""
        if columns == self._columns:
            return self._encoder
        try:
            encoder: Encoder | None = Encoder(
                columns, self._sink.format, self._key, name=self._name, register=self._register
            )
        except ConfigurationError:
            if self._is_writable(columns) or not self.may_reject(columns):
                raise
            encoder = None
        self._encoder, self._columns = encoder, columns
        return encoder

    def _is_writable(self, columns: pa.Schema) -> bool:
        """Return whether the output's format and key have a form for ``columns``, whatever a
        registry says.
        """
        try:
            Encoder(columns, self._sink.format, Key(self._sink.key, self._sink.key_format))
        except ConfigurationError:
            return False
        return True

    def _notices(
        self, slices: tuple[Slice, ...], table: pa.Table, missing_of: MissingSources, reason: bytes
    ) -> Records:
        """Return the shard's records of the notices in ``table``. They have no keys, since the rows
        in whose place they are cannot be read.
        """
        partitions = self._partitioner.partitions_of([None] * table.num_rows, slices)
        positions: list[Sequence[int]] = [range(s.start, s.stop) for s in slices]
        headers = self._headers(slices, positions, table, missing_of)
        for header, size_bytes, digest in zip(
            headers, *(table.column(name).to_pylist() for name in (SIZE, DIGEST)), strict=True
        ):
            header.extend(notice_headers(size_bytes, digest, reason))
        values = [text.encode() for text in table.column(BEGINNING).to_pylist()]
        records = Records([None] * len(values), values, headers, partitions)
        if self._is_own is None:
            return records
        return records.only([i for i, p in enumerate(partitions) if self._is_own[p]])

    def _headers(
        self,
        slices: tuple[Slice, ...],
        positions: Sequence[Sequence[int]],
        table: pa.Table,
        missing_of: MissingSources,
    ) -> list[Written]:
        """Return the headers of the records of ``table``, which has the rows of ``slices`` at
        ``positions``.
        """
        ids: list[bytes] = []
        for s, some in zip(slices, positions, strict=True):
            ids += map((b"%d.%%d" % s.bucket).__mod__, some)
        event_times = table.column(EVENT_TIME).cast(pa.string()).cast(pa.binary()).to_pylist()
        origin = (ORIGIN_HEADER, self.origin.header)
        headers: list[Written] = [
            [(ID_HEADER, i), (EVENT_TIME_HEADER, t), origin]
            for i, t in zip(ids, event_times, strict=True)
        ]
        at = 0
        for s, some in zip(slices, positions, strict=True):
            if names := missing_of(s.bucket):
                for header in headers[at : at + len(some)]:
                    header.append((MISSING_HEADER, ",".join(names).encode()))
            at += len(some)
        return headers


def rejection_of(
    pipeline: Pipeline, stage: str, log_state: LogState
) -> Callable[[pa.Schema], bool]:
    """Return the function that decides for columns of the results of ``stage`` that its output
    cannot write whether such results are rejected (DE15).
    """

    def judge(columns: pa.Schema) -> bool:
        """Return whether results with ``columns`` are rejected."""
        return may_reject(
            others_write=pipeline.others_write(stage), is_former=_are_former(columns, log_state)
        )

    return judge


def _are_former(columns: pa.Schema, log_state: LogState) -> bool | None:
    """Return whether ``columns`` differ from those that the stage of ``log_state`` writes now; None
    if its log does not say which it writes.
    """
    text = log_state.schema()
    if not text:
        return None
    try:
        return bool(columns != _without_event_time(stream_schema(text)))
    except RemoteProtocolError:  # no schema that a stage of this version writes
        return True


def _without_event_time(schema: pa.Schema) -> pa.Schema:
    """Return the columns of results in rows with ``schema``."""
    return pa.schema([field for field in schema if field.name != EVENT_TIME])


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows of buckets in canonical order, all with the same columns. ``table`` holds the rows of
    ``slices``, slice after slice.
    """

    slices: tuple[Slice, ...]
    table: pa.Table


def in_order(buckets: list[tuple[int, pa.Table]]) -> list[Ordered]:
    """Return the rows of whole ``buckets``, each in canonical order. ``buckets`` ascend, hold only
    rows of their own event times (BG4 of ``codec.block_guard``), and one may have several tables.
    The list has one element for each run of rows with the same columns, as a stage's columns may
    change.
    """
    if not buckets:
        return []
    # One sort for many buckets, since the order begins with event time, which orders buckets.
    tables = [canonical_sort(table) for table in by_columns([table for _, table in buckets])]
    kinds = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    if len(tables) > 1:
        event_times = np.concatenate([table.column(EVENT_TIME).to_numpy() for table in tables])
        kinds = kinds[np.lexsort((kinds, event_times))]  # stable: rows of one table stay in order
    rows = Counter[int]()
    for bucket, table in buckets:
        rows[bucket] += table.num_rows
    return _interleaved(tables, kinds, [Slice(bucket, 0, count) for bucket, count in rows.items()])


def _interleaved(
    tables: list[pa.Table],
    kinds: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    buckets: list[Slice],
) -> list[Ordered]:
    """Merge ``tables``: row ``i`` of the result is the next row of ``tables[kinds[i]]``.
    ``buckets`` cover all rows. Return one element for each run of rows of the same table.
    """
    cuts = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(kinds)]
    taken, made = [0] * len(tables), []
    for first, stop in pairwise(cuts):
        kind = int(kinds[first])
        made.append(
            Ordered(tuple(cut(buckets, first, stop)), tables[kind].slice(taken[kind], stop - first))
        )
        taken[kind] += stop - first
    return made


def cut(slices: Sequence[Slice], first: int, stop: int) -> Iterator[Slice]:
    """Yield the parts of ``slices`` that cover rows ``first`` up to ``stop``, with rows numbered
    through all slices.
    """
    at = 0
    for each in slices:
        low, high = max(first - at, 0), min(stop - at, each.stop - each.start)
        if low < high:
            yield Slice(each.bucket, each.start + low, each.start + high)
        at += each.stop - each.start


def only_rows(ordered: Sequence[Ordered], first: int, stop: int) -> list[Ordered]:
    """Return rows ``first`` up to ``stop`` of ``ordered``, numbered through all elements."""
    found, at = [], 0
    for each in ordered:
        low, high = max(first - at, 0), min(stop - at, each.table.num_rows)
        if low < high:
            found.append(
                Ordered(tuple(cut(each.slices, low, high)), each.table.slice(low, high - low))
            )
        at += each.table.num_rows
    return found
