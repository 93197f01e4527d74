"""Which stages may begin anew with another function, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.records import Restated
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.protocol.stage.restating import (
    RestatedStage,
    Restatement,
    Restatements,
    restatement,
)
from anabranch.protocol.stage.splitting import end
from harness.stage_logs import StageLog, part


def closed_upto(bucket: int) -> LogState:
    log = StageLog()
    log.begin()
    log.add(log.record(bucket, part(bucket, 1)))
    return log.log_state


STAGE = RestatedStage("t", 2, 5, closed_upto(20), 0, 100)


def test_rs1_the_newest_decision_about_a_version_counts() -> None:
    found = Restatements()
    assert found.after("t", 2) is None
    assert found.add(Restated("t", 2, 7, 1))
    assert found.add(Restated("t", 2, 9, 2))
    assert found.add(Restated("t", 3, 11, 3))
    assert (found.after("t", 2), found.after("t", 3), found.after("u", 2)) == (9, 11, None)
    for after in (-1, BUCKET_MAX + 1):
        assert not found.add(Restated("t", 2, after, 4))
    assert found.after("t", 2) == 9


@pytest.mark.parametrize(
    ("gone", "from_ms", "expected"),
    [
        (0, None, Restatement(15, 20, 0)),
        (15, None, Restatement(15, 20, 0)),
        (16, None, Restatement(16, 20, 21)),
        (20, None, Restatement(20, 20, 25)),
        (0, 901, Restatement(9, 20, 0)),
        (9, 1_000, Restatement(9, 20, 0)),
        (0, 1_801, Restatement(18, 20, 23)),
        (0, 2_001, Restatement(20, 20, 25)),
        (0, 1, Restatement(0, 20, 0)),
    ],
)
def test_rs2_no_result_lacks_input_unless_it_is_given_up(
    gone: int, from_ms: int | None, expected: Restatement
) -> None:
    assert restatement(replace(STAGE, gone=gone), from_ms, "then") == expected


def test_a_stage_that_is_younger_than_its_horizon_begins_at_its_beginning() -> None:
    assert restatement(replace(STAGE, horizon=50), None, "then") == Restatement(0, 20, 0)
    assert restatement(replace(STAGE, horizon=0), None, "then") == Restatement(20, 20, 0)


@pytest.mark.parametrize(
    ("stage", "from_ms", "told"),
    [
        (replace(STAGE, log_state=LogState(["0"])), None, "no results yet"),
        (replace(STAGE, version=1), None, "give the changed function version 2 first"),
        (replace(STAGE, horizon=None), None, "give it `state_horizon`"),
        (replace(STAGE, gone=9), 900, "retained from then on, which is after --from"),
        (STAGE, 2_101, "--from is after its last result"),
    ],
)
def test_rs2_what_cannot_be_kept_is_rejected(
    stage: RestatedStage, from_ms: int | None, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        restatement(stage, from_ms, "then")


def test_a_shard_that_was_split_does_not_begin_anew() -> None:
    log = StageLog()
    log.begin()
    log.add(end("0", 0, BatchId("e", 0), log.log_state, 1))
    with pytest.raises(ConfigurationError, match=r"let t\.0 and t\.1 begin anew"):
        restatement(replace(STAGE, log_state=log.log_state), None, "noon")


def test_rs2_buckets_until_it_has_caught_up_are_of_the_version_before() -> None:
    """The writer's records of closed buckets change nothing; the first new bucket is of the new
    version, and no record of the one before counts after it.
    """
    log_state = LogState(["0", "1"])
    for offset, replica in enumerate("01"):
        log_state.apply(offset, EpochStarted(replica, "f", ""))
    old = BoundaryRecord("0", 0, BatchId("a", 0), None, 20, (part(20, 1),))
    log_state.apply(2, old)
    log_state.apply(3, replace(old, replica="1", epoch=1))
    log_state.apply(4, EpochStarted("0", "g", "", version=2))
    caught_up = BoundaryRecord("0", 4, BatchId("b", 0), None, 15, missing=("s",))
    assert log_state.apply(5, caught_up).accepted
    again = replace(caught_up, id=BatchId("b", 1), prev=BatchId("b", 0), missing=(), closed=20)
    assert log_state.apply(6, replace(again, parts=(part(20, 9),))).accepted
    assert log_state.version == (1, 0)
    other = BoundaryRecord("1", 1, BatchId("a", 1), BatchId("a", 0), 21, (part(21, 1),))
    assert log_state.apply(7, other).accepted, "the version before goes on meanwhile"
    new = replace(again, id=BatchId("b", 2), prev=BatchId("b", 1), closed=22)
    assert log_state.apply(8, replace(new, parts=(part(21, 9), part(22, 9)))).accepted
    assert log_state.version == (2, 21)
    made = [(bucket, parts[0].digest) for bucket, _, parts in log_state.stable(1, 22)]
    assert made == [(20, 1), (21, 1), (22, 9)]
    late = replace(other, id=BatchId("a", 2), prev=other.id, closed=23)
    assert log_state.apply(9, late).reason == "superseded"


def test_rs2_replicas_of_a_version_that_has_replaced_another_begin_before_that() -> None:
    """Its results since then are whole for all of them, whatever is retained by now."""
    log = StageLog()
    log.begin()
    log.add(log.record(20, part(20, 1)))
    log.add(EpochStarted("0", "g", "", version=2))
    log.add(log.record(30, part(30, 1)))
    assert log.log_state.version == (2, 20)
    stage = replace(STAGE, log_state=log.log_state, gone=29)
    assert restatement(stage, None, "then") == Restatement(15, 20, 0)
    with pytest.raises(ConfigurationError, match="version 2 makes its results"):
        restatement(replace(stage, version=1), None, "then")
