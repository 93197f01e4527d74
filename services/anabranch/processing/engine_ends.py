"""Remembers the ends of a node's engine over restarts, so that a stage that takes all memory can be
named (``protocol.control.placement``).

What holds after a crash at any point: the file is whole or absent. Nothing but a message depends on
it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.protocol.control.placement import EngineEnd, remembered, suspects
from anabranch.protocol.errors import EngineEnded

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.ports import Clock


class EngineEnds:
    """Of one node."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """``path``: of the file, in the node's state directory."""
        self._path, self._clock = path, clock

    def describe(self, error: EngineEnded) -> EngineEnded:
        """Remember an end. Returns it with who ran at this one and at those shortly before,
        where that was the same each time.
        """
        ends = remembered(self._before(), EngineEnd(self._clock.now_ms(), error.during))
        text = json.dumps([[end.at_ms, list(end.during)] for end in ends])
        partial = self._path.with_suffix(".partial")
        with contextlib.suppress(OSError):  # a full disk must not hide what the node ends of
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8")
            partial.replace(self._path)
        names = ", ".join(suspects(ends))
        if not names:
            return error
        stated = (
            f"{error}; {len(ends)} times now while a batch of {names} ran: give Spark more memory"
            " (ANABRANCH_SPARK_MEMORY), or mend the function"
        )
        return EngineEnded(stated, error.during)

    def _before(self) -> Iterator[EngineEnd]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            yield from [EngineEnd(int(at_ms), tuple(map(str, during))) for at_ms, during in found]
        except (OSError, ValueError, TypeError):  # none yet, or spoilt: then this is the first
            return
