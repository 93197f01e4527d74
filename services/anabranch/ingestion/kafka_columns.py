"""Columns that hold parts of the Kafka record besides its value: key, headers, timestamp, place.

Sources without such columns do not use this module, and the keys of their records are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from anabranch.codec.change_events import PayloadDecoder
from anabranch.codec.edge import Decoded
from anabranch.codec.framing import KEY_SCHEMA_ID
from anabranch.protocol.errors import RecordRejected, RejectionReason
from anabranch.protocol.limits import EVENT_TIME_MS_MAX

if TYPE_CHECKING:
    from anabranch.codec.framing import SchemaOf
    from anabranch.ingestion.batches import Batch
    from anabranch.pipeline.model import KafkaColumn, Source
    from anabranch.ports import Headers

_SchemaOf = Callable[[str], "SchemaOf | None"]
_Bad = list[tuple[int, RecordRejected]]
"""Pairs (row, reason) of the rows for which no column value can be made."""
_Values = Callable[["Batch", list[int]], tuple[pa.Array, _Bad]]
"""Function from record numbers to a column of these records."""


class KafkaColumns:
    """Builder of a source's Kafka columns, which are added to its decoded values."""

    def __init__(self, source: Source, schema_of: _SchemaOf = lambda _format: None) -> None:
        """Prepare the columns of ``source``. ``schema_of`` returns the registry lookup for keys of
        a format; None if there is no registry.

        Raises:
            ConfigurationError: an older version of a key's record cannot be read as the newest.
        """
        self._columns = [(each.field, _values(each, schema_of)) for each in source.columns]
        self._schema = source.rows.arrow_schema()

    def add(self, batch: Batch, decoded: Decoded) -> Decoded:
        """Return ``decoded``, the values of ``batch``, with the columns. A record whose column
        cannot be made is rejected.
        """
        if not self._columns:
            return decoded
        numbers = batch.numbers(decoded)
        wanted = list(range(decoded.table.num_rows)) if numbers is None else numbers.tolist()
        table, bad = decoded.table, dict[int, RecordRejected]()
        for field, values in self._columns:
            column, rejected = values(batch, wanted)
            table = table.append_column(field.arrow, column)
            bad.update((row, why) for row, why in rejected if row not in bad)
        if not bad:
            return Decoded(table, decoded.rows, decoded.rejected, decoded.size_bytes)
        rows = list(range(table.num_rows)) if decoded.rows is None else decoded.rows
        good = np.ones(table.num_rows, dtype=np.bool_)
        good[list(bad)] = False
        return Decoded(
            table.filter(pa.array(good)),
            [row for row, is_good in zip(rows, good.tolist(), strict=True) if is_good],
            sorted(
                [*decoded.rejected, *((rows[row], why) for row, why in bad.items())],
                key=lambda each: each[0],
            ),
            decoded.size_bytes,
        )


def _values(column: KafkaColumn, schema_of: _SchemaOf) -> _Values:
    part, field = column.part, column.field
    if part == "key" and column.record is not None:
        return _decoded_keys(
            PayloadDecoder(column.record, column.format, schema_of(column.format)),
            field.arrow_type(),
        )
    if part in ("key", "header"):
        what = "the key" if part == "key" else f"the header {column.header}"
        get = _keys if part == "key" else _headers(column.header)
        return lambda batch, numbers: _octets(get(batch, numbers), field.kind, what)
    if part == "timestamp":
        return _timestamps
    place: dict[str, Callable[[Any], Any]] = {
        "topic": lambda chunk: [chunk.at.topic] * len(chunk.offsets),
        "partition": lambda chunk: [chunk.at.partition] * len(chunk.offsets),
        "offset": lambda chunk: chunk.offsets,
    }
    kind, of = field.arrow_type(), place[part]
    return lambda batch, numbers: (pa.array(_of(batch, of, numbers), kind), [])


def _of(batch: Batch, get: Callable[[Any], Any], numbers: list[int]) -> list[Any]:
    """Return one part, such as the keys, of the records with these numbers. ``get`` returns that
    part of all records of a chunk.
    """
    every = list(chain.from_iterable(map(get, batch.chunks)))
    return every if len(numbers) == len(every) else [every[number] for number in numbers]


def _keys(batch: Batch, numbers: list[int]) -> list[bytes | None]:
    return _of(batch, lambda chunk: chunk.keys, numbers)


def _headers(name: str) -> Callable[[Batch, list[int]], list[bytes | None]]:
    def last(headers: Headers) -> bytes | None:
        """Return the value of the last header of that name, as Kafka's ``lastHeader`` does."""
        return next((value for key, value in reversed(headers) if key == name), None)

    return lambda batch, numbers: list(map(last, _of(batch, lambda chunk: chunk.headers, numbers)))


def _octets(values: list[bytes | None], kind: str, what: str) -> tuple[pa.Array, _Bad]:
    """Return a column of bytes, or of texts in UTF-8."""
    if kind == "bytes":
        return pa.array(values, pa.binary()), []
    try:
        return pa.array(values, pa.binary()).cast(pa.string()), []
    except pa.ArrowInvalid:
        texts, bad = list[str | None](), _Bad()
        for row, value in enumerate(values):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                text = f"{what} is not UTF-8: {error.reason}"
                bad.append((row, RecordRejected(RejectionReason.WRONG_TYPE, text)))
        return pa.array(texts, pa.string()), bad


def _timestamps(batch: Batch, numbers: list[int]) -> tuple[pa.Array, _Bad]:
    """Return the timestamps of the records; null where a record has none."""
    found = np.asarray(_of(batch, lambda chunk: chunk.timestamps_ms, numbers), dtype=np.int64)
    bad = [
        (
            row,
            RecordRejected(
                RejectionReason.OUT_OF_RANGE,
                f"the record's timestamp is {int(found[row])} ms, after the year 9999",
            ),
        )
        for row in np.flatnonzero(found > EVENT_TIME_MS_MAX).tolist()
    ]
    missing = (found < 0) | (found > EVENT_TIME_MS_MAX)
    micros = pa.array(np.where(missing, 0, found) * 1_000, mask=missing)
    return micros.cast(pa.timestamp("us", "UTC")), bad


def _decoded_keys(decoder: PayloadDecoder, kind: pa.DataType) -> _Values:
    """Return the function that decodes the records' keys to a column; null where a record has no
    key.
    """
    schema_ids = _headers(KEY_SCHEMA_ID)

    def values(batch: Batch, numbers: list[int]) -> tuple[pa.Array, _Bad]:
        keys = _keys(batch, numbers)
        places = [row for row, key in enumerate(keys) if key is not None]
        named = schema_ids(batch, numbers)
        decoded = decoder.decode(
            [keys[row] for row in places], [named[row] for row in places] if any(named) else None
        )
        rows = range(len(places)) if decoded.rows is None else decoded.rows
        column = pa.StructArray.from_arrays(
            [each.combine_chunks() for each in decoded.table.columns], fields=list(kind)
        )
        indexes = np.full(len(keys), -1, dtype=np.int64)
        indexes[[places[row] for row in rows]] = np.arange(len(column))
        taken = column.take(pa.array(indexes, mask=indexes < 0))
        bad = [
            (places[row], RecordRejected(why.reason, f"the key: {why}"))
            for row, why in decoded.rejected
        ]
        return taken, bad

    return values
