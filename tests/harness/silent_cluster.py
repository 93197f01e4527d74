"""A cluster in memory that answers or does not, as a test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.adapters.memory.log import LocalEventLog, LocalLogAdmin, LocalLogReader
from anabranch.adapters.system.clock import SystemClock
from anabranch.ports import Chunk, TopicPartition
from anabranch.protocol.errors import Unavailable


class SilentReader(LocalLogReader):
    """Reader of a cluster that may not answer."""

    def __init__(self, log: SilentCluster, **how: bool) -> None:
        super().__init__(log, **how)
        self._cluster = log

    def fetch(self, records_max: int, wait_ms: int) -> list[Chunk]:
        """Nothing where nobody answers; an error where the cluster rejects its reader."""
        if self._cluster.is_closed_to_us:
            raise Unavailable("rejected")
        found = [] if self._cluster.is_silent else super().fetch(records_max, wait_ms)
        if self._cluster.is_closed_to_us:  # meanwhile: its answer does not come any more
            raise Unavailable("rejected")
        return found

    def offsets(self, at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:
        """No answer where nobody answers."""
        self._cluster.requests += 1
        if self._cluster.is_silent:
            raise Unavailable("nobody answers")
        return super().offsets(at, wait_ms)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Count the call."""
        self._cluster.assigned += 1
        super().assign(positions)


class SilentAdmin(LocalLogAdmin):
    """The same."""

    def __init__(self, log: SilentCluster) -> None:
        super().__init__(log)
        self._cluster = log

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """No answer where nobody answers."""
        if self._cluster.is_silent:
            raise Unavailable("nobody answers")
        return super().partitions(topics)


class SilentCluster(LocalEventLog):
    """``ports.EventLog``."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.is_silent = False
        self.is_closed_to_us = False
        self.requests = 0
        self.assigned = 0

    def reader(
        self,
        *,
        committed: bool = True,
        headers: bool = True,
        timestamps: bool = True,
        follows: bool = False,
        ranges_of: str = "",
    ) -> SilentReader:
        """See the port."""
        del follows, ranges_of
        return SilentReader(self, committed=committed, headers=headers, timestamps=timestamps)

    def admin(self) -> SilentAdmin:
        """See the port."""
        return SilentAdmin(self)
