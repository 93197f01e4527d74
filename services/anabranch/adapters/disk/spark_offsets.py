"""Spark's offset log of a query: the plans that its batches ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from anabranch.codec.plan_offsets import Offset
from anabranch.protocol.errors import LocalProtocolError

_HEADER_LINES: Final = 2
"""Lines before those of the sources in a file of Spark's offset log: version and metadata."""


class LoggedBatch:
    """Batch of a query as Spark's offset log has it: its watermark and the offset of each
    source.
    """

    def __init__(self, checkpoint: Path, batch: int) -> None:
        """Read the file of ``batch``.

        Raises:
            LocalProtocolError: the file does not have the format of this Spark version.
        """
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        if len(lines) <= _HEADER_LINES or lines[0] != "v1":
            message = (
                f"Spark's offset log of batch {batch} has another format than expected: {lines[:1]}"
            )
            raise LocalProtocolError(message)
        self.watermark_ms = int(json.loads(lines[1])["batchWatermarkMs"])
        self.offsets: list[Offset] = [json.loads(line) for line in lines[_HEADER_LINES:]]
