"""Watch for fences against one process of a replica.

``protocol.control.fencing`` decides, from the stage's boundary log, whether a fence is proven. The
log is read afresh as a whole: a process forgets buckets that it has closed, and fences are rare.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from anabranch.pipeline.control_topics import fence_topic
from anabranch.protocol.control.fencing import VOTERS_MIN, fenced_epochs
from anabranch.protocol.control.records import ControlRecord, Fence
from anabranch.protocol.errors import DataMissing, Outvoted
from anabranch.streams.heartbeats import records_so_far
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog
    from anabranch.protocol.log.boundary_log import LogState

_TRIES_MAX: Final = 3
"""Maximum number of attempts to read the log. It may be trimmed while it is read, but only every
half minute, and reading takes less.
"""


class FenceWatch:
    """Watch of one process of replica ``replica`` for fences against it. Not thread-safe."""

    def __init__(self, log: EventLog, pipeline: Pipeline, stage: str, replica: str) -> None:
        self._log, self._pipeline = log, pipeline
        self._stage, self._replica = stage, replica
        self.epoch = -1
        """Epoch of this process, set once it has one (rule 1). A fence names the epoch that it
        ends.
        """

    def receive(self, entry: ControlRecord) -> None:
        """Process a record of a control topic. A fence that is not proven changes nothing.

        Raises:
            Outvoted: the record is a proven fence against this process.
            Unavailable: the record is a fence, and the log that proves it cannot be read.
            DataMissing: the record is a fence, and the log's first records are deleted without
                a snapshot.
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
        """Return the newest fenced epoch of each replica that the stage ever had. Empty, without
        reading, if the stage has too few replicas for a vote.

        Raises:
            Unavailable: a topic does not exist, or there is no answer.
        """
        if len(self._pipeline.stream_writers(self._stage)) < VOTERS_MIN:
            return {}
        entries = records_so_far(self._log, fence_topic(self._pipeline))
        return self._proven(
            [each for each in entries if isinstance(each, Fence) and each.stage == self._stage]
        )

    def _proven(self, fences: Sequence[Fence]) -> dict[str, int]:
        if not fences:
            return {}
        return fenced_epochs(fences, self._read())

    def _read(self) -> LogState:
        """Return the present state of the stage's log. If the log is trimmed while it is read,
        reads again from its new beginning: a mere claim of a fence must not end this process.
        """
        for _ in range(_TRIES_MAX - 1):
            with suppress(DataMissing):
                return self._read_once()
        return self._read_once()

    def _read_once(self) -> LogState:
        with closing(open_stream(self._log, self._pipeline, self._stage)) as reader:
            reader.read_to_end()
            return reader.log_state
