"""This project's own records as Avro single objects: C3 01, eight bytes of the schema's
fingerprint, then the body.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any, Final

import fastavro

from anabranch.codec.avro_guard import MalformedError
from anabranch.codec.catalog import AvroRecord, catalog
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError

MARKER: Final = b"\xc3\x01"
HEADER_BYTES: Final = 10


def write(record: AvroRecord, value: object, bytes_max: int) -> bytes:
    """Encode ``value``, in the form that fastavro takes, with its header.

    Raises:
        LocalProtocolError: ``value`` does not fit the schema or ``bytes_max``: a bug here.
    """
    out = io.BytesIO(MARKER + record.fingerprint)
    out.seek(HEADER_BYTES)
    try:
        fastavro.schemaless_writer(out, record.parsed, value, strict=True)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise LocalProtocolError(f"a {record.name} does not fit its schema: {error}") from error
    encoded = out.getvalue()
    if len(encoded) > bytes_max:
        raise LocalProtocolError(f"a {record.name} has {len(encoded)} bytes, more than {bytes_max}")
    return encoded


def read(
    value: bytes | None, where: str, names: Collection[str], bytes_max: int, items_max: int
) -> tuple[AvroRecord, tuple[Any, ...]]:
    """Return the record's schema and the values of its fields, in the schema's order.

    Args:
        value: Bytes of the record's value.
        where: Place of the record, for the message.
        names: Names of the records that are expected. The body of any other is not decoded, since
            the limits do not fit it.
        bytes_max: Maximum size of the value, in bytes.
        items_max: Maximum number of items of all its lists together.

    Raises:
        RemoteProtocolError: not such a record, of an unknown schema, too large, torn, or with
            something left over.
    """
    if value is None:
        raise RemoteProtocolError("a record without a value")
    if len(value) > bytes_max:
        raise RemoteProtocolError(f"a record of {len(value)} bytes, more than {bytes_max}")
    if value[:2] != MARKER:
        raise RemoteProtocolError("a record that does not begin as an Avro single object")
    record = catalog().by_fingerprint.get(value[2:HEADER_BYTES])
    if record is None:
        raise RemoteProtocolError(f"a record of an unknown schema {value[2:HEADER_BYTES].hex()}")
    if record.name not in names:
        raise RemoteProtocolError(f"a {record.name} in {where}")
    try:
        values: tuple[Any, ...] = record.read(value, HEADER_BYTES, items_max)
    except MalformedError as error:
        raise RemoteProtocolError(
            f"a {record.name} that does not fit its schema: {error}"
        ) from error
    return record, values
