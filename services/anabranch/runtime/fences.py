"""The fences of one stage, as one process of a replica hears and judges them.

Whether a fence is proven is ``protocol.control.fencing``'s to say, by the stage's boundary log.
That is read anew, whole: a process forgets what it has closed, and a fence is rare.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from anabranch.pipeline.speakers import fence_speakers
from anabranch.protocol.control.fencing import VOTERS_MIN, fenced_epochs
from anabranch.protocol.control.records import ControlRecord, Fence
from anabranch.protocol.errors import DataMissing, Outvoted
from anabranch.runtime.heartbeats import records_so_far
from anabranch.runtime.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog
    from anabranch.protocol.log.boundary_log import LogState

_TRIES_MAX: Final = 3
"""To read the log. It is trimmed every half minute, and read in less."""


class FenceWatch:
    """Of one process. Not thread-safe."""

    def __init__(self, log: EventLog, pipeline: Pipeline, stage: str, replica: str) -> None:
        self._log, self._pipeline = log, pipeline
        self._stage, self._replica = stage, replica
        self.epoch = -1
        """Of this process, set once it has one (rule 1): a fence names it."""

    def hear(self, entry: ControlRecord) -> None:
        """Take a record of a control topic. A fence that is not proven changes nothing.

        Raises:
            Outvoted: it is a fence that means this process.
            Unavailable: it is one, and the log by which to judge it cannot be read.
            DataMissing: the same; there is no log snapshot where it begins.
        """
        own = self._stage, self._replica, self.epoch
        if not isinstance(entry, Fence) or (entry.stage, entry.replica, entry.epoch) != own:
            return
        if self._proven([entry]):
            message = (
                f"replica {entry.replica} of {entry.stage}, epoch {entry.epoch}, must end:"
                f" {entry.reason}"
            )
            raise Outvoted(message)

    def fenced(self) -> dict[str, int]:
        """The newest fenced epoch of each replica of the stage that ever was, read where somebody
        may be fenced at all.

        Raises:
            Unavailable: a topic does not exist, or there is no answer.
        """
        if len(self._pipeline.stream_writers(self._stage)) < VOTERS_MIN:
            return {}
        entries = records_so_far(self._log, fence_speakers(self._pipeline))
        return self._proven(
            [each for each in entries if isinstance(each, Fence) and each.stage == self._stage]
        )

    def _proven(self, fences: Sequence[Fence]) -> dict[str, int]:
        if not fences:
            return {}
        return fenced_epochs(fences, self._read())

    def _read(self) -> LogState:
        """The stage's log as it is now. Where it is trimmed while it is read, it is read from where
        it begins then: whoever says a fence must not be able to end this process by that.
        """
        for _ in range(_TRIES_MAX - 1):
            with suppress(DataMissing):
                return self._read_once()
        return self._read_once()

    def _read_once(self) -> LogState:
        with closing(open_stream(self._log, self._pipeline, self._stage)) as reader:
            reader.read_to_end()
            return reader.log_state
