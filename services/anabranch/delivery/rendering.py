"""Stable buckets as the records that users get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.codec.blocks import STIME, canonical_sort
from anabranch.codec.edge import Encoder
from anabranch.delivery.partitioning import Partitioner
from anabranch.pipeline.model import Sink
from anabranch.protocol.delivery import Slice
from anabranch.protocol.errors import RemoteProtocolError

ID_HEADER: Final = "anabranch-id"
STIME_HEADER: Final = "anabranch-stime"

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

    def only(self, indexes: Sequence[int]) -> Records:
        """Some of them."""
        return Records(*([column[i] for i in indexes] for column in (self.keys, self.values, self.headers, self.partitions)))  # type: ignore[arg-type]


class Renderer:
    """Makes the records of one output."""

    def __init__(self, name: str, sink: Sink, partitions: int) -> None:
        self._name, self._sink = name, sink
        self._partitioner = Partitioner(partitions)
        self._columns: pa.Schema | None = None
        self._encoder: Encoder | None = None

    def render(self, slices: tuple[Slice, ...], table: pa.Table) -> Records:
        """The records of ``slices``, whose rows are ``table``, one slice after the other, each in canonical order.

        Raises:
            ConfigurationError: a key column is missing, or a column cannot be written in the output's format.
        """
        columns = table.drop_columns([STIME])
        if self._encoder is None or columns.schema != self._columns:
            self._columns = columns.schema
            self._encoder = Encoder(columns.schema, self._sink.format, self._sink.key, name=self._name)
        keys, values = self._encoder.encode(columns)
        ids: list[bytes] = []
        for s in slices:
            ids += map((b"%d.%%d" % s.bucket).__mod__, range(s.start, s.stop))
        stimes = table.column(STIME).cast(pa.string()).cast(pa.binary()).to_pylist()
        headers: list[Written] = [[(ID_HEADER, i), (STIME_HEADER, t)] for i, t in zip(ids, stimes, strict=True)]
        return Records(keys, values, headers, self._partitioner.partitions_of(keys, slices))


def in_order(buckets: list[tuple[int, pa.Table]], width_ms: int) -> pa.Table:
    """The rows of whole buckets (ascending), each in canonical order: one sort, since the order begins with stime, which orders buckets.

    Raises:
        RemoteProtocolError: a row is not in the bucket that its stime says.
    """
    table = canonical_sort(pa.concat_tables([table for _, table in buckets]))
    found = -(-table.column(STIME).to_numpy() // width_ms)
    expected = np.repeat([bucket for bucket, _ in buckets], [rows.num_rows for _, rows in buckets])
    if not np.array_equal(found, expected):
        wrong = int(expected[np.flatnonzero(found != expected)[0]])
        raise RemoteProtocolError(f"bucket {wrong} holds a row of another bucket")
    return table
