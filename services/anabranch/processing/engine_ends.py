"""Record of the crashes of a node's engine, kept over restarts, so that the stage that exhausts the
memory can be named (``protocol.control.placement``).

After a crash at any point the file is complete or absent. Only an error message depends on it.
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
    """Crash record of one node's engine."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Use the file ``path`` in the node's state directory."""
        self._path, self._clock = path, clock

    def describe(self, error: EngineEnded) -> EngineEnded:
        """Record a crash. Return its error; if the same replicas were running at this and the
        previous crashes, their names are added to the text.
        """
        ends = remembered(self._recorded(), EngineEnd(self._clock.now_ms(), error.during))
        text = json.dumps([[end.at_ms, list(end.during)] for end in ends])
        partial = self._path.with_suffix(".partial")
        with contextlib.suppress(OSError):  # a full disk must not hide the engine's own error
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8")
            partial.replace(self._path)
        names = ", ".join(suspects(ends))
        if not names:
            return error
        stated = (
            f"{error}; {len(ends)} times now while a batch of {names} ran: give Spark more memory"
            " (ANABRANCH_SPARK_MEMORY), or correct the function"
        )
        return EngineEnded(stated, error.during)

    def _recorded(self) -> Iterator[EngineEnd]:
        """Yield the recorded crashes, oldest first."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            yield from [EngineEnd(int(at_ms), tuple(map(str, during))) for at_ms, during in found]
        except (OSError, ValueError, TypeError):  # absent or damaged: this crash is the first
            return
