"""Plans as Spark offsets: the whole plan of an input is the offset, so Spark's own log replays it exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from anabranch.codec.boundary_records import parts_from_json, parts_to_json
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.serialization import Plan, QueryPosition, TakenBucket

INITIAL: Final[dict[str, Any]] = {"sequence": 0, "bucket": 0, "closed": 0, "has_rows": False, "taken": []}
"""The offset of every input before its first plan. Spark asks for it twice, so it is constant."""

_HEADER_LINES: Final = 2
"""Of a file in Spark's offset log: the version, then the batch's metadata; then one line per source."""


def position_of(offset: dict[str, Any]) -> QueryPosition:
    """The position that an offset stands for."""
    return QueryPosition(offset["sequence"], offset["bucket"], offset["closed"], offset["has_rows"])


def position_fields(offset: dict[str, Any]) -> dict[str, Any]:
    """The offset without its plan: enough to ask for the next one."""
    return {key: offset[key] for key in ("sequence", "bucket", "closed", "has_rows")}


def offset_of(plan: Plan, name: str) -> dict[str, Any]:
    """The offset that makes Spark run ``plan`` on input ``name``."""
    after = plan.after
    taken = next(buckets for other, buckets in plan.inputs if other == name)
    return {
        "sequence": after.sequence, "bucket": after.bucket, "closed": after.closed, "has_rows": after.has_rows,
        "taken": [[bucket, replica, parts_to_json(parts)] for bucket, replica, parts in taken],
    }  # fmt: skip


def taken_of(offset: dict[str, Any]) -> list[TakenBucket]:
    """The buckets that the offset's plan takes."""
    return [(bucket, replica, parts_from_json(parts)) for bucket, replica, parts in offset["taken"]]


def rows_of(offset: dict[str, Any]) -> int:
    """Rows of the offset's plan."""
    return sum(part.rows for _, _, parts in taken_of(offset) for part in parts)


class LoggedBatch:
    """One file of Spark's offset log."""

    def __init__(self, checkpoint: Path, batch: int) -> None:
        """Read the file of ``batch``.

        Raises:
            LocalProtocolError: the file is not as this version of Spark writes it.
        """
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        if len(lines) <= _HEADER_LINES or lines[0] != "v1":
            message = f"Spark's offset log of batch {batch} has another format than expected: {lines[:1]}"
            raise LocalProtocolError(message)
        self.watermark_ms = int(json.loads(lines[1])["batchWatermarkMs"])
        self.offsets: list[dict[str, Any]] = [json.loads(line) for line in lines[_HEADER_LINES:]]


def last_commit(checkpoint: Path) -> int:
    """The last batch that Spark committed in ``checkpoint``; -1: none."""
    try:
        names = [path.name for path in (checkpoint / "commits").iterdir()]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)
