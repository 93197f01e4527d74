"""Tests of what no writer of a boundary log may write."""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.codec import boundary_guard, boundary_records
from anabranch.codec.boundary_guard import POSITIONS_MAX
from anabranch.protocol import limits
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BranchEnded,
    GivenUp,
    InputPosition,
    LogEntry,
    Recomputed,
    StableRange,
)
from harness.boundary_entries import (
    BRANCHES,
    EPOCH,
    FULL,
    PART,
    RANGE,
    REPLICA,
    SMALL,
    SNAPSHOT,
)

LONG = "x" * (limits.NAME_CHARACTERS_MAX + 1)
WRONG: list[LogEntry] = [
    *(
        dataclasses.replace(SMALL, parts=(dataclasses.replace(PART, **change),))
        for change in (
            {"offset_first": -1},
            {"offset_next": 9},
            {"size_bytes": -1},
            {"blocks": -1},
            {"blocks": 6},
            {"rows": -1},
            {"bucket": -1},
            {"bucket": limits.BUCKET_MAX + 1},
            {"partition": -1},
            {"partition": limits.PARTITIONS_MAX},
            {"attempt": LONG},
        )
    ),
    dataclasses.replace(SMALL, parts=(PART,) * (limits.PARTS_PER_RECORD_MAX + 1)),
    dataclasses.replace(SMALL, replica=LONG),
    Recomputed(LONG, 5, ()),
    Recomputed("0", -1, ()),
    BranchEnded(LONG, 5, 1),
    BranchEnded("0", -1, 1),
    BranchEnded("0", 5, -1),
    Recomputed("0", 5, (dataclasses.replace(PART, rows=-1),)),
    Recomputed("0", 5, (PART,) * (limits.PARTS_PER_RECORD_MAX + 1)),
    dataclasses.replace(SMALL, id=BatchId(LONG, 1)),
    dataclasses.replace(SMALL, missing=(LONG,)),
    dataclasses.replace(SMALL, made_from=((LONG, 1),)),
    dataclasses.replace(SMALL, made_from=(("s", 1),) * (limits.INPUTS_MAX + 1)),
    dataclasses.replace(SMALL, positions=(InputPosition("t", 0, 0, 0),) * (POSITIONS_MAX + 1)),
    dataclasses.replace(SMALL, epoch=-1),
    dataclasses.replace(SMALL, closed=-1),
    dataclasses.replace(SMALL, base=-1),
    dataclasses.replace(SMALL, closed=limits.BUCKET_MAX + 1),
    dataclasses.replace(SMALL, base=limits.BUCKET_MAX + 1),
    dataclasses.replace(SMALL, prev=BatchId(LONG, 1)),
    dataclasses.replace(SMALL, heirs=1),
    dataclasses.replace(SMALL, heirs=-1, closed=limits.BUCKET_MAX),
    dataclasses.replace(SMALL, heirs=limits.SHARDS_MAX + 1, closed=limits.BUCKET_MAX),
    dataclasses.replace(FULL, heirs=1, closed=limits.BUCKET_MAX),
    dataclasses.replace(EPOCH, rest_upto=-1),
    dataclasses.replace(EPOCH, attempt=-2),
    dataclasses.replace(SNAPSHOT, attempt=limits.BUCKET_MAX + 1),
    dataclasses.replace(SNAPSHOT, rest_upto=limits.BUCKET_MAX + 1),
    dataclasses.replace(SMALL, branch=(5, 1)),
    dataclasses.replace(FULL, branch=None),
    dataclasses.replace(FULL, branch=(6, 1)),
    dataclasses.replace(FULL, branch=(5, -1)),
    dataclasses.replace(FULL, missing=("s",) * (limits.MISSING_STREAMS_MAX + 1)),
    dataclasses.replace(FULL, shed=-1),
    dataclasses.replace(FULL, shed=1_001),
    dataclasses.replace(SMALL, shed=1),
    dataclasses.replace(SMALL, positions=(InputPosition("t", -1, 0, 0),)),
    dataclasses.replace(SMALL, given_up=(GivenUp("reports", 7, 6),)),
    dataclasses.replace(SMALL, given_up=(GivenUp("reports", 6, 6),) * (limits.GIVEN_UP_MAX + 1)),
    dataclasses.replace(EPOCH, bucket_ms=-1),
    dataclasses.replace(SNAPSHOT, bucket_ms=-1),
    dataclasses.replace(SMALL, positions=(InputPosition("t", 0, 0, 0, -1),)),
    dataclasses.replace(SMALL, positions=(InputPosition(LONG, 0, 0, 0),)),
    dataclasses.replace(EPOCH, token=LONG),
    dataclasses.replace(EPOCH, schema="x" * (limits.SCHEMA_BYTES_MAX + 1)),
    dataclasses.replace(SNAPSHOT, as_of=-1),
    dataclasses.replace(SNAPSHOT, forgotten=-1),
    dataclasses.replace(SNAPSHOT, past=limits.BUCKET_MAX + 1),
    dataclasses.replace(SNAPSHOT, replicas=(REPLICA,) * (limits.REPLICAS_MAX + 1)),
    *(
        dataclasses.replace(SNAPSHOT, replicas=(dataclasses.replace(REPLICA, **change),))
        for change in (
            {"epoch": -2},
            {"closed": -1},
            {"replica": LONG},
            {"path": (BatchId("l", 1),) * (limits.CHAIN_RECORDS_MAX + 1)},
            {"pending": ((BatchId("l", 1), dataclasses.replace(PART, rows=-1)),)},
            {"last": dataclasses.replace(SMALL, closed=-1)},
            {"path": (BatchId(LONG, 1),)},
            {"timelines": (BatchId(LONG, 1),)},
            {"timelines": (BatchId("l", 1),) * (limits.TIMELINES_MAX + 1)},
            {"closed_parts": (dataclasses.replace(PART, rows=-1),)},
            {"ended": (-1, 0)},
            {"corrected": (5, -1)},
        )
    ),
    *(
        dataclasses.replace(SNAPSHOT, replicas=(dataclasses.replace(REPLICA, branches=wrong),))
        for wrong in (
            *(
                dataclasses.replace(BRANCHES, **change)
                for change in (
                    {"number": (-1, 0)},
                    {"tip": BatchId(LONG, 1)},
                    {"closed": -1},
                    {"upto": limits.BUCKET_MAX + 1},
                    {"first_upto": -1},
                    {"pending": ((BatchId("l", 1), dataclasses.replace(PART, rows=-1)),)},
                    {"ranges": (RANGE, RANGE)},
                )
            ),
            *(
                dataclasses.replace(BRANCHES, ranges=(dataclasses.replace(RANGE, **change),))
                for change in (
                    {"first": 10},
                    {"first": 8},
                    {"branch": (0, -1)},
                    {"missing": (LONG,)},
                    {"missing": ("s",) * (limits.MISSING_STREAMS_MAX + 1)},
                    {"shed": 1_001},
                    {"parts": (dataclasses.replace(PART, rows=-1),)},
                )
            ),
        )
    ),
    *(
        dataclasses.replace(SNAPSHOT, ranges=(wrong,))
        for wrong in (
            StableRange(5, 4, "0", ()),
            StableRange(4, 5, LONG, ()),
            StableRange(4, 7, "0", (dataclasses.replace(PART, rows=-1),)),
            StableRange(4, 5, "0", (PART,)),
        )
    ),
]


@pytest.mark.parametrize("entry", WRONG)
def test_what_no_writer_may_say_is_neither_written_nor_read(
    entry: LogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are made by an encoder that does not check, as a foreign writer may be."""
    with pytest.raises(RemoteProtocolError):
        boundary_guard.check(entry)
    with pytest.raises(LocalProtocolError):
        boundary_records.encode(entry)
    with monkeypatch.context() as patched:
        patched.setattr(boundary_records, "check", lambda _: None)
        value, _ = boundary_records.encode(entry)
    with pytest.raises(RemoteProtocolError):
        boundary_records.decode(value)
