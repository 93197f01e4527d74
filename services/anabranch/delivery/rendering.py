"""Stable buckets as the records that users get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from anabranch.codec.blocks import EVENT_TIME, by_columns, canonical_sort
from anabranch.codec.edge import Encoder
from anabranch.codec.live_records import (
    EVENT_TIME_HEADER,
    ID_HEADER,
    MISSING_HEADER,
    ORIGIN_HEADER,
)
from anabranch.delivery.partitioning import Partitioner
from anabranch.pipeline.model import Sink
from anabranch.protocol.edge.delivery import ALONE, Slice
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.identifiers import RecordId

if TYPE_CHECKING:
    from anabranch.ports import SchemaRegistry
    from anabranch.protocol.edge.origins import Origin
    from anabranch.protocol.edge.shards import Shard

Written = list[tuple[str, bytes]]
"""The headers of a record as delivery writes them."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records as parallel lists, in the order of their ids."""

    keys: list[bytes | None]
    values: list[bytes]
    headers: list[Written]
    partitions: list[int]

    @property
    def size_bytes(self) -> int:
        """Of keys and values."""
        return sum(map(len, self.values)) + sum(map(len, filter(None, self.keys)))

    @property
    def ids(self) -> list[RecordId]:
        """Of each record."""
        return [RecordId.parse(headers[0][1].decode()) for headers in self.headers]

    def sizes(self) -> list[int]:
        """Of each record: key, value and headers."""
        return [
            len(value) + len(key or b"") + sum(len(name) + len(text) for name, text in headers)
            for key, value, headers in zip(self.keys, self.values, self.headers, strict=True)
        ]

    @classmethod
    def joined(cls, some: Sequence[Records]) -> Records:
        """All of ``some``, one after the other."""
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
        """Some of them."""
        return Records(
            *(  # type: ignore[arg-type]
                [column[i] for i in indexes]
                for column in (self.keys, self.values, self.headers, self.partitions)
            )
        )


Lacks = Callable[[int], tuple[str, ...]]
"""The sources that were given up and that a bucket lacks."""


def nothing(_bucket: int) -> tuple[str, ...]:
    """No bucket lacks anything."""
    return ()


class Renderer:
    """Makes the records of one output."""

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
        """``origin``: of the records. ``registry``: of the values' schemas. ``shard``: the process
        that delivers them.
        """
        self._name = name
        self.origin = origin
        self._is_own = None if shard.count == 1 else [shard.has(p) for p in range(partitions)]
        self._sink = sink
        # The subject is named as the serializers of other tools name it.
        subject = f"{sink.topic}-value"
        self._register = None if registry is None else partial(registry.register, subject)
        self.topic, self.partitions = sink.topic, partitions
        self._partitioner = Partitioner(partitions)
        self._columns: pa.Schema | None = None
        self._encoder: Encoder | None = None

    def render(self, slices: tuple[Slice, ...], table: pa.Table, lacks: Lacks = nothing) -> Records:
        """The shard's records of ``slices``, whose rows are ``table``, one slice after the other,
        each in canonical order.

        ``lacks``: the sources that were given up and that a bucket lacks; its records name them in
            a header.

        Raises:
            ConfigurationError: a key column is missing, a column cannot be written in the output's
                format, or the registry rejects the schema.
            Unavailable: the registry does not answer. Each schema takes one request.
        """
        columns = table.drop_columns([EVENT_TIME])
        if self._encoder is None or columns.schema != self._columns:
            self._encoder = Encoder(
                columns.schema,
                self._sink.format,
                self._sink.key,
                name=self._name,
                register=self._register,
            )
            self._columns = columns.schema
        keys = self._encoder.keys(columns)
        partitions = self._partitioner.partitions_of(keys, slices)
        positions: list[Sequence[int]] = [range(s.start, s.stop) for s in slices]
        if self._is_own is not None:  # before what costs the most
            own = list(map(self._is_own.__getitem__, partitions))
            keys, partitions = list(compress(keys, own)), list(compress(partitions, own))
            mask = pa.array(own, pa.bool_())
            columns, table = columns.filter(mask), table.filter(mask)
            left = iter(own)
            positions = [list(compress(some, left)) for some in positions]
        values = self._encoder.values(columns)
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
            if names := lacks(s.bucket):
                for header in headers[at : at + len(some)]:
                    header.append((MISSING_HEADER, ",".join(names).encode()))
            at += len(some)
        return Records(keys, values, headers, partitions)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows of buckets in canonical order, all with the same columns: ``table`` has the rows
    of ``slices``, one after the other.
    """

    slices: tuple[Slice, ...]
    table: pa.Table


def in_order(buckets: list[tuple[int, pa.Table]], width_ms: int) -> list[Ordered]:
    """The rows of whole buckets (ascending; a bucket may have several tables), each bucket in
    canonical order.

    As long as the columns stay the same it is one; where a stage's columns have changed, one more
    at each change.

    Raises:
        RemoteProtocolError: a row is not in the bucket that its event time says.
    """
    if not buckets:
        return []
    # One sort for many buckets, since the order begins with event time, which orders buckets.
    tables = [canonical_sort(table) for table in by_columns([table for _, table in buckets])]
    event_times = np.concatenate([table.column(EVENT_TIME).to_numpy() for table in tables])
    kinds = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    if len(tables) > 1:
        order = np.lexsort((kinds, event_times))  # stable: rows of one table stay in their order
        event_times, kinds = event_times[order], kinds[order]
    found = -(-event_times // width_ms)
    expected = np.repeat([bucket for bucket, _ in buckets], [rows.num_rows for _, rows in buckets])
    if not np.array_equal(found, expected):
        wrong = int(expected[np.flatnonzero(found != expected)[0]])
        raise RemoteProtocolError(f"bucket {wrong} holds a row of another bucket")
    rows = Counter[int]()
    for bucket, table in buckets:
        rows[bucket] += table.num_rows
    return _interleaved(tables, kinds, [Slice(bucket, 0, count) for bucket, count in rows.items()])


def _interleaved(
    tables: list[pa.Table],
    kinds: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    buckets: list[Slice],
) -> list[Ordered]:
    """Row ``i`` of all is the next one of ``tables[kinds[i]]``; ``buckets`` has all rows."""
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
    """What ``slices``, laid one after the other, have from ``first`` to ``stop``, counted in
    rows.
    """
    at = 0
    for each in slices:
        low, high = max(first - at, 0), min(stop - at, each.stop - each.start)
        if low < high:
            yield Slice(each.bucket, each.start + low, each.start + high)
        at += each.stop - each.start


def only_rows(ordered: Sequence[Ordered], first: int, stop: int) -> list[Ordered]:
    """What ``ordered``, laid one after the other, have from row ``first`` to row ``stop``."""
    found, at = [], 0
    for each in ordered:
        low, high = max(first - at, 0), min(stop - at, each.table.num_rows)
        if low < high:
            found.append(
                Ordered(tuple(cut(each.slices, low, high)), each.table.slice(low, high - low))
            )
        at += each.table.num_rows
    return found
