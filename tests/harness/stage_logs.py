"""The boundary log of a stage with one writer, record by record."""

from __future__ import annotations

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, LogEntry, Part


def part(bucket: int, digest: int, rows: int = 1) -> Part:
    return Part(bucket, 0, "x", 1, bucket, bucket + 1, rows, digest)


class StageLog:
    """Log of replica ``0``."""

    def __init__(self) -> None:
        self.log_state = LogState(["0"])
        self.offset = self.batch = 0

    def add(self, entry: LogEntry) -> Outcome:
        outcome = self.log_state.apply(self.offset, entry)
        self.offset += 1
        return outcome

    def begin(self, fingerprint: str = "f", node: str = "") -> None:
        self.add(EpochStarted("0", fingerprint, "", node=node))

    def record(
        self,
        closed: int,
        *parts: Part,
        fresh: bool = False,
        missing: str = "",
        epoch: int | None = None,
    ) -> BoundaryRecord:
        """Return the next record of the chain, without adding it."""
        self.batch += 1
        now = self.log_state.epoch("0") if epoch is None else epoch
        prev = None if fresh else self.log_state.tip("0")
        return BoundaryRecord(
            "0", now or 0, BatchId("l", self.batch), prev, closed, parts, missing=tuple(missing)
        )

    def from_snapshot(self) -> StageLog:
        """Return the log as a reader has it that begins at a log snapshot written now."""
        again = StageLog()
        again.offset, again.batch = self.offset, self.batch
        again.log_state.adopt(self.log_state.snapshot(self.offset))
        return again


def backed_up(*, again: str = "f") -> StageLog:
    """Ten buckets were closed, each with a row; then the process lost its disk, and one with the
    plan ``again`` has begun.
    """
    log = StageLog()
    log.begin()
    for bucket in range(1, 11):
        log.add(log.record(bucket, part(bucket, 1_000 + bucket)))
    log.begin(again)
    return log


def forgetful() -> StageLog:
    """Ten buckets were closed; then the process lost its disk, and one with ``amnesia`` has
    begun.
    """
    log = StageLog()
    log.begin()
    log.add(log.record(10, part(10, 1)))
    log.begin()
    return log
