from __future__ import annotations

import dataclasses
import io
import json

import fastavro
import pytest

from anabranch.codec import boundary_records, control_records, single_object
from anabranch.codec.boundary_records import BOUNDARY_BYTES_MAX, POSITIONS_MAX
from anabranch.codec.catalog import catalog
from anabranch.protocol import limits
from anabranch.protocol.control.records import Alarm
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    BranchSnapshot,
    EpochStarted,
    GivenUp,
    InputPosition,
    LogEntry,
    LogSnapshot,
    Part,
    Recomputed,
    ReplicaSnapshot,
    StableRange,
    TentativeRange,
)

PART = Part(
    bucket=7,
    partition=1,
    attempt="00ff",
    blocks=2,
    offset_first=10,
    offset_next=15,
    rows=99,
    digest=2**64 - 1,
)
SMALL = BoundaryRecord(replica="0", epoch=5, id=BatchId("l", 0), prev=None, closed=0)
FULL = BoundaryRecord(
    replica="1",
    epoch=5,
    id=BatchId("l", 3),
    prev=BatchId("k", 2),
    closed=6,
    parts=(PART, dataclasses.replace(PART, digest=0, bucket=8)),
    base=4,
    kind=BoundaryKind.TENTATIVE,
    branch=(5, 1),
    missing=("reports",),
    positions=(InputPosition("t", 0, 17, 0, 9, idle=True),),
    made_from=(("reports", 6),),
    written_ms=1_700_000_000_000,
    given_up=(GivenUp("reports", 3, 6),),
)
EPOCH = EpochStarted(replica="0", fingerprint="f", token="t", schema="s", version=2, bucket_ms=250)
RECOMPUTED = Recomputed(replica="0", epoch=5, parts=(PART,))
ENDED = BranchEnded(replica="0", epoch=5, counter=2)
RANGE = TentativeRange(first=7, last=9, branch=(5, 1), missing=("reports",), parts=(PART,))
BRANCHES = BranchSnapshot(
    number=(5, 1),
    tip=BatchId("l", 3),
    closed=9,
    upto=10,
    first_upto=8,
    pending=((BatchId("l", 3), dataclasses.replace(PART, bucket=12)),),
    ranges=(RANGE, TentativeRange(first=10, last=10, branch=(4, 7))),
)
REPLICA = ReplicaSnapshot(
    replica="0",
    epoch=-1,
    fingerprint="f",
    schema="s",
    closed=6,
    base=0,
    path=(BatchId("l", 1), BatchId("l", 2)),
    timelines=(BatchId("l", 2),),
    pending=((BatchId("l", 2), PART),),
    last=FULL,
    closed_parts=(PART,),
    branches=BRANCHES,
    ended=(5, 0),
    corrected=(4, 7),
)
SNAPSHOT = LogSnapshot(
    as_of=9,
    forgotten=3,
    replicas=(
        REPLICA,
        dataclasses.replace(REPLICA, last=None, branches=None, ended=None, corrected=None),
    ),
    ranges=(StableRange(4, 7, "0", (PART,)), StableRange(6, 6, "", ())),
    past=17,
    given_up=(GivenUp("reports", 3, 6), GivenUp("reports", 8, 9)),
)


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


def test_the_schema_of_a_part_has_its_fields_in_their_order() -> None:
    parts = next(
        field
        for field in catalog().newest("boundary_record").avro["fields"]
        if field["name"] == "parts"
    )
    assert [field["name"] for field in parts["type"]["items"]["fields"]] == [
        field.name for field in dataclasses.fields(Part)
    ]
    replicas = next(
        field
        for field in catalog().newest("log_snapshot").avro["fields"]
        if field["name"] == "replicas"
    )
    assert [field["name"] for field in replicas["type"]["items"]["fields"]] == [
        field.name for field in dataclasses.fields(ReplicaSnapshot)
    ]


LONG = "x" * (limits.NAME_CHARACTERS_MAX + 1)
WRONG: list[LogEntry] = [
    *(
        dataclasses.replace(SMALL, parts=(dataclasses.replace(PART, **change),))
        for change in (
            {"offset_first": -1},
            {"offset_next": 9},
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
    dataclasses.replace(SMALL, branch=(5, 1)),
    dataclasses.replace(FULL, branch=None),
    dataclasses.replace(FULL, branch=(6, 1)),
    dataclasses.replace(FULL, branch=(5, -1)),
    dataclasses.replace(FULL, missing=("s",) * (limits.MISSING_STREAMS_MAX + 1)),
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
    with pytest.raises(LocalProtocolError):
        boundary_records.encode(entry)
    with monkeypatch.context() as patched:
        patched.setattr(boundary_records, "_check", lambda _: None)
        value, _ = boundary_records.encode(entry)
    with pytest.raises(RemoteProtocolError):
        boundary_records.decode(value)


def test_more_parts_than_a_record_may_have_are_rejected() -> None:
    with pytest.raises(LocalProtocolError, match="parts"):
        boundary_records.encode(
            dataclasses.replace(SMALL, parts=(PART,) * (limits.PARTS_PER_RECORD_MAX + 1))
        )


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


def test_parts_survive_json() -> None:
    parts = (PART, dataclasses.replace(PART, attempt="b"), dataclasses.replace(PART, bucket=2**40))
    found = json.loads(json.dumps(boundary_records.parts_to_json(parts)))
    assert boundary_records.parts_from_json(found) == parts
    assert boundary_records.parts_from_json(boundary_records.parts_to_json(())) == ()
    assert found[0] == ["00ff", "b"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        {},
        "x",
        [["a"], [1]],
        [["a"], [1, 2, 5, 0, 0, 0, 0, "0"]],
        [["a"], [1, 2, 0, 0, 0, 0, 0, "z"]],
        [["a"], ["x", 2, 0, 0, 0, 0, 0, "0"]],
        [["a"], [1, 2, 0, 9, 0, 0, 0, "0"]],
        [["a"], [1, 2, 0, 0, 0, 0, 0, "1" * 17]],
        [[7], [1, 2, 0, 0, 0, 0, 0, "0"]],
    ],
)
def test_what_is_not_a_list_of_parts_is_rejected(value: object) -> None:
    with pytest.raises(RemoteProtocolError):
        boundary_records.parts_from_json(value)


def test_the_framing_is_that_of_all_our_records() -> None:
    value = boundary_records.encode(EPOCH)[0]
    assert single_object.read(value, "", ("epoch_started",), 1_000, 0)[0].name == "epoch_started"
