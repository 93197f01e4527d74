from __future__ import annotations

import io

import fastavro
import pytest

from anabranch.codec import single_object
from anabranch.codec.catalog import catalog
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError

ALARM = {"kind": "digest", "stream": "s", "bucket": 3, "text": "t", "written_ms": 4}


def alarm() -> bytes:
    return single_object.write(catalog().newest("alarm"), ALARM, 1_000)


def test_a_record_is_marker_fingerprint_and_body() -> None:
    value = alarm()
    record = catalog().newest("alarm")
    assert value[:10] == b"\xc3\x01" + record.fingerprint
    assert fastavro.schemaless_reader(io.BytesIO(value[10:]), record.parsed, None) == ALARM
    assert single_object.read(value, "a place", ("alarm",), 1_000, 10) == (
        record,
        ("digest", "s", 3, "t", 4),
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "without a value"),
        (b"", "does not begin"),
        (b"\xc3", "does not begin"),
        (b"\0\0\0\0\1", "does not begin"),
        (b"\xc3\x01", "unknown schema"),
        (b"\xc3\x01" + b"x" * 8, "unknown schema 7878787878787878"),
        (alarm()[:-1], "does not fit its schema"),
        (alarm() + b"\0", "1 bytes too many"),
        (alarm() + b"\0" * 1_000, "bytes, more than 1000"),
    ],
)
def test_anything_else_is_rejected(value: bytes | None, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        single_object.read(value, "a place", ("alarm",), 1_000, 10)


def test_the_body_of_a_record_that_does_not_belong_there_is_not_looked_at() -> None:
    with pytest.raises(RemoteProtocolError, match="a alarm in a place"):
        single_object.read(alarm() + b"\0", "a place", ("fence",), 1_000, 10)


@pytest.mark.parametrize(
    "value",
    [
        {**ALARM, "bucket": "x"},
        {**ALARM, "bucket": 2**63},
        {"kind": "x"},
        {**ALARM, "more": 1},
        None,
    ],
)
def test_what_does_not_fit_is_not_written(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        single_object.write(catalog().newest("alarm"), value, 1_000)


def test_what_is_too_large_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="more than 1000"):
        single_object.write(catalog().newest("alarm"), {**ALARM, "text": "x" * 1_000}, 1_000)
