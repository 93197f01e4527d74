"""Spark's own log of a query: which plans did it run?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from anabranch.codec.plan_offsets import Offset
from anabranch.protocol.errors import LocalProtocolError

# Of a file in Spark's offset log: the version, then the batch's metadata; then one line per
# source.
_HEADER_LINES: Final = 2


class LoggedBatch:
    """One file of Spark's offset log."""

    def __init__(self, checkpoint: Path, batch: int) -> None:
        """Read the file of ``batch``.

        Raises:
            LocalProtocolError: the file is not as this version of Spark writes it.
        """
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        if len(lines) <= _HEADER_LINES or lines[0] != "v1":
            message = (
                f"Spark's offset log of batch {batch} has another format than expected: {lines[:1]}"
            )
            raise LocalProtocolError(message)
        self.watermark_ms = int(json.loads(lines[1])["batchWatermarkMs"])
        self.offsets: list[Offset] = [json.loads(line) for line in lines[_HEADER_LINES:]]
