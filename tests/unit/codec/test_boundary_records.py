from __future__ import annotations

import dataclasses
import io

import fastavro
import pytest

from anabranch.codec import boundary_records, control_records
from anabranch.codec.boundary_records import BOUNDARY_BYTES_MAX
from anabranch.codec.catalog import catalog
from anabranch.protocol import limits
from anabranch.protocol.control.records import Alarm
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    LogSnapshot,
    Part,
    ReplicaSnapshot,
)
from harness.boundary_entries import ENDED, EPOCH, FULL, PART, RECOMPUTED, SMALL, SNAPSHOT


@pytest.mark.parametrize(
    "entry", [SMALL, FULL, EPOCH, RECOMPUTED, ENDED, SNAPSHOT, LogSnapshot(0, 0)]
)
def test_a_record_comes_back_as_it_was(entry: LogEntry) -> None:
    value, headers = boundary_records.encode(entry)
    assert boundary_records.decode(value, headers) == entry
    assert boundary_records.decode(value) == entry


def test_a_header_says_what_it_is() -> None:
    assert boundary_records.encode(EPOCH)[1] == [("anabranch-record", b"epoch_started.v1")]


def test_any_reader_of_avro_can_read_it() -> None:
    value, _ = boundary_records.encode(FULL)
    found = fastavro.schemaless_reader(
        io.BytesIO(value[10:]), catalog().newest("boundary_record").parsed, None
    )
    assert found["parts"][0] == {**dataclasses.asdict(PART), "digest": b"\xff" * 8}
    assert (found["kind"], found["branch"], found["prev"]) == (
        "tentative",
        {"epoch": 5, "counter": 1},
        {"timeline": "k", "batch": 2},
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("boundary_record", BoundaryRecord),
        ("epoch_started", EpochStarted),
        ("branch_ended", BranchEnded),
        ("log_snapshot", LogSnapshot),
    ],
)
def test_the_schema_has_the_fields_of_the_value_in_their_order(name: str, kind: type) -> None:
    fields = catalog().newest(name).avro["fields"]
    assert [field["name"] for field in fields] == [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(
    ("name", "of", "kind"),
    [("boundary_record", "parts", Part), ("log_snapshot", "replicas", ReplicaSnapshot)],
)
def test_the_schema_of_what_a_record_lists_has_its_fields_in_their_order(
    name: str, of: str, kind: type
) -> None:
    (listed,) = [each for each in catalog().newest(name).avro["fields"] if each["name"] == of]
    fields = listed["type"]["items"]["fields"]
    assert [field["name"] for field in fields] == [field.name for field in dataclasses.fields(kind)]


def test_the_largest_record_that_is_allowed_fits() -> None:
    parts = tuple(
        dataclasses.replace(PART, bucket=10**10 + n, attempt="0123456789abcdef")
        for n in range(limits.PARTS_PER_RECORD_MAX)
    )
    value, _ = boundary_records.encode(dataclasses.replace(SMALL, parts=parts))
    assert len(value) < BOUNDARY_BYTES_MAX
    assert boundary_records.decode(value) == dataclasses.replace(SMALL, parts=parts)


def test_a_boundary_record_larger_than_a_snapshot_may_be_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value, _ = boundary_records.encode(FULL)
    monkeypatch.setattr(boundary_records, "BOUNDARY_BYTES_MAX", len(value) - 1)
    with pytest.raises(RemoteProtocolError, match="boundary record of"):
        boundary_records.decode(value)


def test_lying_counts_cost_nothing() -> None:
    """A few bytes that claim a million parts are rejected before a million is allocated."""
    head = boundary_records.encode(dataclasses.replace(SMALL, written_ms=0))[0]
    with pytest.raises(RemoteProtocolError):
        boundary_records.decode(head[:18] + b"\x80\x89\x7a" + head[19:])


def test_a_record_of_another_topic_is_rejected() -> None:
    with pytest.raises(RemoteProtocolError, match="alarm in a boundary log"):
        boundary_records.decode(control_records.encode(Alarm("k", "s", 0, "t", 0)))


def test_a_value_beyond_64_bits_is_our_bug() -> None:
    with pytest.raises(LocalProtocolError):
        boundary_records.encode(dataclasses.replace(SMALL, closed=2**63))
