"""A transactional writer whose next commit ends badly."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.ports import Delivered, Headers, TopicPartition, TransactionalWriter
from anabranch.protocol.errors import OutcomeUnknown


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of the process runs afterwards."""


class SpoiltWriter:
    """A real writer whose next commit ends as told: "killed", "lost" or "applied" (the two
    outcomes that an unknown one may have had).
    """

    def __init__(self, real: TransactionalWriter, how: str) -> None:
        self._real, self._how = real, how

    def begin(self) -> None:
        self._real.begin()

    def send(
        self,
        at: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        self._real.send(at, value, key, headers, timestamp_ms)

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[Headers],
    ) -> None:
        self._real.send_many(topic, partitions, values, keys, headers)

    def flush(self) -> list[Delivered]:
        return self._real.flush()

    def settled(self) -> bool:
        return self._real.settled()

    def commit(self) -> list[Delivered]:
        self._real.flush()  # the records are in the log, open
        if self._how == "killed":
            raise KilledError
        if self._how == "applied":
            self._real.commit()
        raise OutcomeUnknown("planned")

    def abort(self) -> None:
        self._real.abort()

    def close(self) -> None:
        """End as a process that cannot reach the broker: nothing is aborted."""
