"""What a stream of another pipeline lacks is named as that stream is called here."""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.foreign import as_known_here
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchSnapshot,
    EpochStarted,
    GivenUp,
    LogSnapshot,
    ReplicaSnapshot,
    TentativeRange,
)

RECORD = BoundaryRecord("0", 7, BatchId("t", 1), None, 9)
LACKING = replace(
    RECORD,
    missing=("a", "b"),
    given_up=(GivenUp("a", 3, 4), GivenUp("b", 3, 4), GivenUp("b", 9, 9)),
)


def test_fn1_what_is_missing_there_is_the_stream_here() -> None:
    found = as_known_here(LACKING, "speeds")
    assert isinstance(found, BoundaryRecord)
    assert found.missing == ("speeds",)
    assert found.given_up == (GivenUp("speeds", 3, 4), GivenUp("speeds", 9, 9))


def test_fn2_nothing_else_changes() -> None:
    found = as_known_here(LACKING, "speeds")
    assert isinstance(found, BoundaryRecord)
    assert replace(found, missing=(), given_up=()) == RECORD
    assert as_known_here(RECORD, "speeds") is RECORD
    epoch = EpochStarted("0", "token", "f")
    assert as_known_here(epoch, "speeds") is epoch


def test_a_log_snapshot_says_it_alike() -> None:
    branches = BranchSnapshot(
        (7, 1), BatchId("t", 2), 9, 9, ranges=(TentativeRange(8, 9, (7, 1), ("a",)),)
    )
    replica = ReplicaSnapshot("0", 7, "f", "", 9, 0, (), (), (), LACKING, branches=branches)
    plain = replace(replica, last=None, branches=None)
    log_snapshot = LogSnapshot(12, 0, (replica, plain), given_up=LACKING.given_up)
    found = as_known_here(log_snapshot, "speeds")
    assert isinstance(found, LogSnapshot)
    assert found.given_up == (GivenUp("speeds", 3, 4), GivenUp("speeds", 9, 9))
    first, second = found.replicas
    assert first.last == as_known_here(LACKING, "speeds")
    assert first.branches is not None
    assert first.branches.ranges == (TentativeRange(8, 9, (7, 1), ("speeds",)),)
    assert second == plain
