"""One record of a boundary log of each kind, with something in every field."""

from __future__ import annotations

import dataclasses

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    BranchSnapshot,
    EpochStarted,
    GivenUp,
    InputPosition,
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
    size_bytes=7_000,
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
    shed=700,
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
    ranges=(RANGE, TentativeRange(first=10, last=10, branch=(4, 7), shed=50)),
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
