"""Spark's own log of a query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.adapters.disk.spark_offsets import LoggedBatch
from anabranch.codec.plan_offsets import INITIAL
from anabranch.protocol.errors import LocalProtocolError


def write_log(checkpoint: Path, batch: int, *lines: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_logged_batch_has_the_watermark_and_an_offset_per_input(tmp_path: Path) -> None:
    offsets = [
        INITIAL | {"bucket": 3},
        INITIAL | {"bucket": 4, "kind": "tentative", "missing": ["a"]},
    ]
    write_log(
        tmp_path, 7, "v1", '{"batchWatermarkMs":300,"conf":{}}', *(json.dumps(o) for o in offsets)
    )
    logged = LoggedBatch(tmp_path, 7)
    assert (logged.watermark_ms, logged.offsets) == (300, offsets)


@pytest.mark.parametrize(
    "lines",
    [[""], ["v1"], ["v1", '{"batchWatermarkMs":0}'], ["v2", '{"batchWatermarkMs":0}', "{}"]],
)
def test_a_log_of_another_version_of_spark_is_rejected(tmp_path: Path, lines: list[str]) -> None:
    write_log(tmp_path, 0, *lines)
    with pytest.raises(LocalProtocolError, match="another format"):
        LoggedBatch(tmp_path, 0)
