"""Users' records in Confluent framing whose schemas are a registry's, sorted by these schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from anabranch.codec.framing import LearnedSchemas, SchemaOf, Use, framing_of
from anabranch.codec.guards import Rejected
from anabranch.codec.record_schema import RecordSchema
from anabranch.protocol.errors import RecordRejected, RejectionReason

ReadBodies = Callable[[Sequence[bytes]], tuple[pa.Table, Rejected]]
"""Function that reads bodies written with one writer's schema, without their framing: returns the
records in order, and (index, reason) of each body that is none.
"""


class FramedDecoder:
    """Decoder of the values of one source. ``use`` returns the reader for a writer's schema."""

    def __init__(self, record: RecordSchema, schema_of: SchemaOf, use: Use[ReadBodies]) -> None:
        self._schema = record.arrow_schema()
        self._learned = LearnedSchemas(schema_of, use)

    def decode(self, values: Sequence[bytes], /) -> tuple[pa.Table, Rejected]:
        """Return the records of ``values``, in order, and (index, why) of each that is none,
        ascending. Values passed ``guards.admit``.

        Raises:
            AnabranchError: as ``schema_of``, for want of an answer; then nothing is decoded.
        """
        groups: dict[bytes, list[int]] = {}
        for index, value in enumerate(values):
            groups.setdefault(framing_of(value), []).append(index)
        self._learned.learn(groups.keys() - {b""})
        tables: list[pa.Table] = []
        places: list[int] = []
        rejected: Rejected = []
        for framing, indexes in groups.items():
            read = self._learned.usable.get(framing)
            if read is None:
                rejected += [(index, self._rejection(framing)) for index in indexes]
                continue
            table, wrong = read([values[index][len(framing) :] for index in indexes])
            bad = {index for index, _ in wrong}
            rejected += [(indexes[index], error) for index, error in wrong]
            places += [place for number, place in enumerate(indexes) if number not in bad]
            tables.append(table)
        rejected.sort(key=lambda item: item[0])
        whole = pa.concat_tables(tables) if tables else self._schema.empty_table()
        return whole.take(pa.array(np.argsort(places))) if len(tables) > 1 else whole, rejected

    def _rejection(self, framing: bytes) -> RecordRejected:
        if framing:
            return RecordRejected(RejectionReason.UNKNOWN_SCHEMA, self._learned.why_not(framing))
        return RecordRejected(
            RejectionReason.UNKNOWN_SCHEMA,
            "the value has no Confluent framing: it must begin with 00 and the schema id, unless a"
            " header has the id",
        )
