"""JSON records that one program wrote one after the other: alike in everything but their values.

Programs write the fields of a record in one order and with the same spaces, so the text between
the values is the same in all of them. It is learnt from the first record; the others are cut at
their commas by Arrow's CSV reader, and a column is made of what is left of each piece without the
text that it must begin with. That costs a third of decoding each record by itself.

What is accepted is accepted for what it is, never guessed: every byte of a record is either of the
text that was learnt, which is JSON, or of a value of a form that leaves no choice: a whole number
without a leading zero, a number of JSON's grammar, ``true``, ``false``, ``null``, or a text without
escapes, quotes and commas. For anything else, in any one of the records, there is no answer, and
``json_records`` decodes them one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from anabranch.codec.field_types import FLOAT_MAX, Field
from anabranch.protocol.limits import RECORD_BYTES_MAX

_PIECE: Final = re.compile(
    r'(?P<text>(?:\{ *| *)"(?P<name>[^"]*)" *: *)'
    r'(?:(?P<string>"[^"]*")|(?P<whole>-?[0-9]+)|[-+.0-9eE]+|true|false|null)'
)
_NUMBER: Final = r"\A-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?\z"
_NULL: Final = pa.scalar(b"null")
_WHOLE: Final = {"int": pa.int32(), "long": pa.int64()}
_KINDS: Final = frozenset({*_WHOLE, "float", "double", "boolean", "string"})
# Below it are the characters that no text in JSON has.
_SPACE: Final = 0x20
_PAUSES_MAX: Final = 64
"""Calls that are not tried after one that did not do, at most: trying costs a sixth of what the
record-by-record decoder does.
"""
_WORTH: Final = 1_000
"""With fewer records each call of Arrow costs more than it saves."""


class _Column(NamedTuple):
    """What is written between two commas."""

    text: bytes
    """Before the value: the name of a field and what stands around it."""
    field: Field | None
    """None: it is ignored."""
    is_text: bool
    """Of one that is ignored: whether it is a text, else it is a whole number."""


@dataclass(slots=True)
class AlikeDecoder:
    """Decodes records of flat fields that are written alike."""

    fields: Sequence[Field]
    ignores_others: bool
    """Whether fields that the record has not are ignored."""
    _columns: list[_Column] = field(default_factory=list)
    """Of the text that was learnt last."""
    _pause: int = 0
    """So many calls are not tried after the next one that does not do."""
    _left: int = 0
    """So many are not tried from now on."""
    _can: bool = field(init=False)

    def __post_init__(self) -> None:
        """Those that do not come into question are never tried."""
        self._can = bool(self.fields) and all(each.kind in _KINDS for each in self.fields)

    def decode(self, values: Sequence[bytes]) -> list[pa.Array] | None:
        """The columns of ``values``, none of them empty; None: they must be decoded one by one."""
        if not self._can or len(values) < _WORTH:
            return None
        if self._left:
            self._left -= 1
            return None
        found = self._decode(values)
        self._pause = 0 if found else min(_PAUSES_MAX, max(1, 2 * self._pause))
        self._left = self._pause
        return found

    def _decode(self, values: Sequence[bytes]) -> list[pa.Array] | None:
        data = b"\n".join(values)
        octets = np.frombuffer(data, np.uint8)
        # So no value has a line break, and lines are values. A byte order mark, which the reader
        # of lines would pass over, is no brace.
        plain = np.count_nonzero(octets < _SPACE) == len(values) - 1
        if not plain or b"\\" in data or octets[0] != ord("{"):
            return None
        for is_new in (False, True):
            if is_new:
                self._columns = self._learnt(values[0])
            if self._columns:
                try:
                    return self._cut(data, len(values))
                except (pa.ArrowInvalid, _UnlikeError):
                    continue
        return None

    def _learnt(self, value: bytes) -> list[_Column]:
        """How ``value`` is written; nothing, if it has not just the fields that are wanted."""
        known = {each.name: each for each in self.fields}
        columns: list[_Column] = []
        names: set[str] = set()
        for number, piece in enumerate(value.decode(errors="replace")[:-1].split(",")):
            found = _PIECE.fullmatch(piece)
            if found is None or found["text"].startswith("{") != (number == 0):
                return []
            name = found["name"]
            is_text = found["string"] is not None
            if name in names or (
                name not in known and not (self.ignores_others and (is_text or found["whole"]))
            ):
                return []
            names.add(name)
            columns.append(_Column(found["text"].encode(), known.get(name), is_text))
        return columns if names >= known.keys() and value.endswith(b"}") else []

    def _cut(self, data: bytes, count: int) -> list[pa.Array]:
        """Raises ``ArrowInvalid`` or ``_UnlikeError`` for what is not as was learnt."""
        names = [str(number) for number in range(len(self._columns))]
        table = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            csv.ParseOptions(quote_char=False, double_quote=False, escape_char=False),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False
            ),
        )
        _must(table.num_rows == count)
        made: dict[str, pa.Array] = {}
        last = len(self._columns) - 1
        for number, column in enumerate(self._columns):
            raw = table.column(number).combine_chunks()
            _must(_all(pc.starts_with(raw, pattern=column.text)))
            end = RECORD_BYTES_MAX
            if number == last:
                _must(_all(pc.ends_with(raw, pattern=b"}")))
                end = -1
            value = pc.binary_slice(raw, start=len(column.text), stop=end)
            if column.field is not None:
                made[column.field.name] = _column(value, column.field)
            elif column.is_text:
                _inside(value)
            else:
                _whole(value, pa.int64())
        return [made[each.name] for each in self.fields]


class _UnlikeError(Exception):
    """A record is not as was learnt, or has a value of another form."""


def _must(holds: bool) -> None:
    if not holds:
        raise _UnlikeError


def _all(which: pa.Array) -> bool:
    return bool(pc.all(which, min_count=0).as_py())


def _any(which: pa.Array) -> bool:
    return bool(pc.any(which, min_count=0).as_py())


def _column(value: pa.Array, what: Field) -> pa.Array:
    if what.nullable:
        value = pc.if_else(pc.equal(value, _NULL), pa.scalar(None, pa.binary()), value)
    return _values(value, what)


def _values(value: pa.Array, what: Field) -> pa.Array:
    if what.kind == "string":
        return _inside(value).cast(pa.string())
    if what.kind == "boolean":
        true = pc.equal(value, pa.scalar(b"true"))
        _must(_all(pc.or_(true, pc.equal(value, pa.scalar(b"false")))))
        return true
    if what.kind in _WHOLE:
        return _whole(value, _WHOLE[what.kind])
    text = value.cast(pa.string())
    _must(_all(pc.match_substring_regex(text, _NUMBER)))
    _must(not _any(pc.equal(text, "-0")))  # a whole number, of which there is no negative zero
    number = text.cast(pa.float64())
    _must(_all(pc.is_finite(number)))
    if what.kind == "float":
        _must(_all(pc.less_equal(pc.abs(number), FLOAT_MAX)))
        return number.cast(pa.float32())
    return number


def _whole(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """Whole numbers. Arrow reads leading zeros and hexadecimal digits, too, which begin with 0."""
    zero = pc.starts_with(value, pattern=b"0")
    _must(not _any(zero) or _all(pc.or_(pc.invert(zero), pc.equal(pc.binary_length(value), 1))))
    _must(not _any(pc.starts_with(value, pattern=b"-0")))
    return value.cast(pa.string()).cast(kind)


def _inside(value: pa.Array) -> pa.Array:
    """What stands between the quotes."""
    quote = b'"'
    _must(_all(pc.greater(pc.binary_length(value), 1)))
    _must(_all(pc.starts_with(value, pattern=quote)) and _all(pc.ends_with(value, pattern=quote)))
    inside = pc.binary_slice(value, start=1, stop=-1)
    _must(not _any(pc.match_substring(inside, pattern=quote)))
    return inside
