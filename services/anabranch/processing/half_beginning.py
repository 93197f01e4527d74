"""Bucket after which a half of a shard begins (``protocol.stage.splitting``, HV8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.pipeline.waits import known_horizon_buckets
from anabranch.protocol.stage.splitting import half_begins_after
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.streams.boundary_reader import BoundaryReader


class HalfBeginning:
    """Follower of a shard's boundary log, for the start of one of its halves. A start that waits
    for its input asks again and again: the first question opens the log, and each further one reads
    only what is new. One thread calls it.
    """

    def __init__(self, log: EventLog, pipeline: Pipeline, stage: str) -> None:
        """Prepare; nothing is contacted. ``stage`` may be one that is no half."""
        self._log, self._pipeline, self._stage = log, pipeline, stage
        self._shard: BoundaryReader | None = None

    def after(self, own: LogState) -> int:
        """Return the bucket after which the stage begins if its input from there on is not deleted;
        0 if it is no half. ``own``: the log of the stage.

        Raises:
            Unavailable: the log of the shard cannot be read.
        """
        parent = self._pipeline.stages[self._stage].parent
        if not parent:
            return 0
        if self._shard is None:
            self._shard = open_stream(self._log, self._pipeline, parent)
        self._shard.read_to_end()
        shard = self._shard.log_state
        # Nothing that the shard has closed is compared here.
        shard.forget(shard.closed_upto)
        horizon = known_horizon_buckets(self._pipeline, self._stage)
        return half_begins_after(shard, own, horizon)

    def close(self) -> None:
        """Close the log. Idempotent."""
        if self._shard is not None:
            self._shard.close()
            self._shard = None
