"""Values of Python to Arrow columns and back, nested ones too.

A value here is what a codec works with: a timestamp is microseconds, a date days, a decimal its
unscaled integer (``logical_types``); an array is a list, a map a list of (key, value) whose keys
ascend, a record a tuple of its fields. The keys of a map have one order, so that equal maps are
equal bytes, equal hashes and equal places in a bucket, whichever process wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.codec.field_types import Field

Leaf = Callable[[pa.Array], list[Any]]
Make = Callable[[list[str]], Callable[..., Any]]
Pairs = Callable[[list[tuple[Any, Any]]], Any]
Part = Callable[[int], Callable[[Any], Any]]
"""Function that returns field ``i`` of a record."""

# Bytes of a decimal in Arrow.
_WORD: Final = 16


def column_of(values: Sequence[Any], field: Field, part: Part = itemgetter) -> pa.Array:
    """Return the Arrow column of ``values``, any of which may be None. A map's pairs may also be
    given as a dict.
    """
    kind = field.arrow_type()
    if field.kind == "decimal":
        return _decimals(values, kind)
    if not field.is_nested:
        return pa.array(values, kind)
    missing = pa.array([value is None for value in values], pa.bool_())
    if field.kind == "record":
        parts = []
        for index, inner in enumerate(field.inner):
            get = part(index)
            parts.append(column_of([None if v is None else get(v) for v in values], inner, part))
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    if field.kind == "array":
        items = column_of(list(chain.from_iterable(filter(None, values))), field.inner[0], part)
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=missing)
    pairs = list(chain.from_iterable(map(in_order, filter(None, values))))
    return pa.MapArray.from_arrays(
        offsets,
        pa.array([key for key, _ in pairs], pa.string()),
        column_of([value for _, value in pairs], field.inner[0], part),
        type=kind,
        mask=missing,
    )


def in_order(
    pairs: dict[Any, Any] | list[tuple[Any, Any]], *, by_text: bool = False
) -> list[tuple[Any, Any]]:
    """Return the pairs of a map in the order of their keys; with ``by_text`` in the order of the
    keys' texts, for keys that Python does not order (``has_order``).
    """
    key = (lambda pair: repr(pair[0])) if by_text else itemgetter(0)
    return sorted(pairs.items() if isinstance(pairs, dict) else pairs, key=key)


def has_order(kind: pa.DataType) -> bool:
    """Return whether Python orders all values of the type ``kind``. It does not order NaN, nor
    nested values with missing parts.
    """
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind))


def values_of(column: pa.Array, leaf: Leaf, record: Make, pairs: Pairs = list) -> list[Any]:
    """Return the values of a column as a list.

    ``leaf`` makes those that are not nested; ``record`` says for the names of its fields what makes
    a record of their values, ``pairs`` makes a map of its pairs.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        parts = [values_of(column.field(i), leaf, record, pairs) for i in range(kind.num_fields)]
        make = record([kind.field(i).name for i in range(kind.num_fields)])
        found = list(map(make, *parts)) if parts else [make() for _ in range(len(column))]
    elif pa.types.is_map(kind):
        keys, items = (
            values_of(_inside(column, inner), leaf, record, pairs)
            for inner in (column.keys, column.items)
        )
        both = list(zip(keys, items, strict=True))
        by_text = not has_order(kind.key_type)
        found = [
            pairs(in_order(both[first:stop], by_text=by_text)) for first, stop in _ranges(column)
        ]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = values_of(_inside(column, column.values), leaf, record, pairs)
        found = [items[first:stop] for first, stop in _ranges(column)]
    else:
        return leaf(column)
    if column.null_count:
        valid = column.is_valid().to_pylist()
        found = [value if there else None for value, there in zip(found, valid, strict=True)]
    return found


def stored(column: pa.Array) -> list[Any]:
    """Return the values of a column in the form that ``column_of`` takes."""
    return values_of(column, _stored_leaf, lambda _: lambda *parts: parts)


def unscaled(column: pa.Array) -> list[int | None]:
    """Return the unscaled integers of a decimal column."""
    if not pa.types.is_decimal128(column.type):
        column = column.cast(pa.decimal128(38, column.type.scale))
    _, data = column.buffers()
    raw = memoryview(data)[column.offset * _WORD : (column.offset + len(column)) * _WORD]
    return [
        int.from_bytes(raw[at : at + _WORD], "little", signed=True) if there else None
        for at, there in zip(range(0, len(raw), _WORD), column.is_valid().to_pylist(), strict=True)
    ]


def micros(column: Any) -> Any:
    """Return the values of a timestamp column in microseconds."""
    return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())


def _stored_leaf(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = micros(column)
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_decimal(kind):
        return unscaled(column)
    return column.to_pylist()  # type: ignore[no-any-return]


def _decimals(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    data = b"".join([(value or 0).to_bytes(_WORD, "little", signed=True) for value in values])
    valid = None
    if any(value is None for value in values):
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(data)])


def _inside(column: pa.Array, inner: pa.Array) -> pa.Array:
    """Return the items of all lists of ``column``, which may be a slice of a longer column."""
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return inner.slice(first, last - first)


def _ranges(column: pa.Array) -> list[tuple[int, int]]:
    """Return, for each list, the range of its items in ``_inside``, as (first, after the last)."""
    offsets = column.offsets.to_numpy()
    return list(pairwise((offsets - offsets[0]).tolist()))
