"""Plans as Spark's offsets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.adapters.spark.offsets import INITIAL, LoggedBatch, last_commit, offset_of, position_fields, position_of, rows_of, taken_of
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.records import Part
from anabranch.protocol.serialization import Plan, QueryPosition, TakenBucket

TAKEN: tuple[TakenBucket, ...] = (
    (4, "0", (Part(4, 0, "aa", 2, 10, 12, 5, 2**64 - 1), Part(4, 1, "aa", 1, 3, 4, 2, 7))),
    (6, "1", (Part(6, 0, "bb", 1, 12, 13, 1, 0),)),
)
PLAN = Plan(QueryPosition(2, 3, 2, has_rows=True), QueryPosition(3, 6, 3, has_rows=True), (("a", TAKEN), ("b", ())), 8)


def test_a_plan_comes_back_from_its_offset() -> None:
    offset = json.loads(json.dumps(offset_of(PLAN, "a")))
    assert position_of(offset) == PLAN.after
    assert tuple(taken_of(offset)) == TAKEN
    assert rows_of(offset) == PLAN.rows
    assert (taken_of(offset_of(PLAN, "b")), rows_of(offset_of(PLAN, "b"))) == ([], 0)


def test_the_fields_of_a_position_are_enough_to_ask_for_the_next_plan() -> None:
    fields = position_fields(offset_of(PLAN, "a"))
    assert "taken" not in fields
    assert position_of(fields) == PLAN.after
    assert position_of(INITIAL) == QueryPosition()


def write_log(checkpoint: Path, batch: int, *lines: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_logged_batch_has_the_watermark_and_an_offset_per_input(tmp_path: Path) -> None:
    offsets = [offset_of(PLAN, "a"), offset_of(PLAN, "b")]
    write_log(tmp_path, 7, "v1", '{"batchWatermarkMs":300,"conf":{}}', *(json.dumps(o) for o in offsets))
    logged = LoggedBatch(tmp_path, 7)
    assert (logged.watermark_ms, logged.offsets) == (300, offsets)


@pytest.mark.parametrize("lines", [[""], ["v1"], ["v1", '{"batchWatermarkMs":0}'], ["v2", '{"batchWatermarkMs":0}', "{}"]])
def test_a_log_of_another_version_of_spark_is_refused(tmp_path: Path, lines: list[str]) -> None:
    write_log(tmp_path, 0, *lines)
    with pytest.raises(LocalProtocolError, match="another format"):
        LoggedBatch(tmp_path, 0)


def test_the_last_commit_is_the_highest_number(tmp_path: Path) -> None:
    assert last_commit(tmp_path) == -1
    commits = tmp_path / "commits"
    commits.mkdir()
    assert last_commit(tmp_path) == -1
    for name in ("9", "10", ".10.crc", ".11.tmp"):
        (commits / name).touch()
    assert last_commit(tmp_path) == 10
