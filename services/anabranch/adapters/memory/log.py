"""Event log in memory, the implementation of ``ports.EventLog`` for tests: a Kafka cluster whose
faults the test plans.

Records reach the log when they are flushed (or their transaction is committed), so a writer that is
dropped before has written nothing. ``fail_next`` makes one later operation end as a lost connection
would end it.
"""

from __future__ import annotations

from anabranch.adapters.memory.admin import LocalLogAdmin
from anabranch.adapters.memory.cluster import LocalCluster
from anabranch.adapters.memory.faults import FailingOperation
from anabranch.adapters.memory.reader import LocalLogReader
from anabranch.adapters.memory.writer import LocalLogWriter, LocalTransactionalWriter, Sent

__all__ = [
    "FailingOperation",
    "LocalEventLog",
    "LocalLogAdmin",
    "LocalLogReader",
    "LocalLogWriter",
    "LocalTransactionalWriter",
    "Sent",
]


class LocalEventLog(LocalCluster):
    """Cluster in memory. It and its administrators are thread-safe; readers and writers are not, as
    the port states.
    """

    def reader(
        self,
        *,
        committed: bool = True,
        headers: bool = True,
        timestamps: bool = True,
        follows: bool = False,  # noqa: ARG002
        ranges_of: str = "",  # noqa: ARG002
    ) -> LocalLogReader:
        """Return a new reader."""
        return LocalLogReader(self, committed=committed, headers=headers, timestamps=timestamps)

    def writer(self) -> LocalLogWriter:
        """Return a new writer."""
        return LocalLogWriter(self)

    def open_ahead(self, writers: int) -> None:
        """Do nothing: writers in memory can write at once."""

    def transactional_writer(self, transactional_id: str) -> LocalTransactionalWriter:
        """Return a new transactional writer. Fences older ones of the id and aborts their open
        transactions.
        """
        return LocalTransactionalWriter(self, transactional_id)

    def admin(self) -> LocalLogAdmin:
        """Return an administrator of topics."""
        return LocalLogAdmin(self)
