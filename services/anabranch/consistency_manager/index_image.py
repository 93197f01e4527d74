"""Image of the index: what Redis should hold, and which writes are still due.

Theory of operation. ``IndexImage`` is computed from the logs alone and bounded in size; it also
remembers when each entry was written last. The index is never read, neither to decide anything nor
to compare it: it may vanish at any time, come back as an older copy of itself, or hold what anybody
else wrote. Each entry is written again in intervals, which restores it, and expires, which removes
what nobody writes any more (docs/adr/0004).

Keys of the index (all below ``anabranch:<pipeline>:``, all expire):
    stream:<stream>               hash: upto (every bucket up to it is stable)
    boundary:<stream>:<writer>    hash: the tip of the writer's accepted chain (offset, empty if
                                  only a log snapshot names it; bucket, epoch, timeline,
                                  batch, fingerprint, written_ms)
    tentative:<stream>:<writer>   hash: the writer's newest tentative record (bucket, branch,
                                  missing)
    process:<service>:<name>:<replica>  hash: the last heartbeat, with state, branch and
                                  checkpoint
    trim:<stream>                 hash: bucket (no reader needs buckets up to it)

Invariants:
    CX1 the image depends only on the logs, and on where a log begins: two managers that have read
        the same logs have the same image. A log that cannot be read any more is not in it.
    CX2 REWRITE_MS after the index was last lost or changed by anybody else, and one complete
        writing, each entry of the image is in the index; ENTRY_LIFETIME_MS after that, nothing else
        is.
    CX3 a process whose heartbeats arrive is in the image, whatever its clock shows: time is
        observed, as in the failure detector.
    CX4 a manager that hears no process, not even itself, writes nothing again: it is cut off from
        the logs, and another one may know more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.pipeline.topic_names import index_prefix
from anabranch.protocol.control.failure_detector import ObservedTime
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.limits import HEARTBEAT_LIFETIME_MS
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, LogSnapshot

HEARTBEATS_MAX: Final = 4_096
"""Maximum number of processes whose last heartbeat the manager remembers: names come from topics
that many may write.
"""
REWRITE_MS: Final = 2_000
"""Interval after which an unchanged entry is written again, in ms. Most entries change more often
than that while data flows, so writing the others again costs little.
"""
ENTRY_LIFETIME_MS: Final = HEARTBEAT_LIFETIME_MS
"""Lifetime of an entry that is not written again, in ms: several intervals, so that a manager that
is delayed loses nothing.
"""


@dataclass(frozen=True, slots=True)
class IndexWrite:
    """Write to one key of the index: the hash there is replaced by ``fields``."""

    key: str
    fields: Mapping[str, str]
    expire_ms: int


class IndexImage:
    """Image of the index of one pipeline, with the writes that are due."""

    def __init__(self, pipeline: str) -> None:
        self.prefix = index_prefix(pipeline)
        self._hashes: dict[str, dict[str, str]] = {}
        self._time = ObservedTime()
        self._heartbeats: dict[str, tuple[Heartbeat, int]] = {}
        """Last heartbeat of each process, and the observed time of its arrival."""
        self._dirty: dict[str, None] = {}
        """Keys of changed entries, the one that has waited longest first."""
        self._written: dict[str, int] = {}
        """Monotonic time at which each unchanged entry was written, the oldest first."""

    @property
    def is_written(self) -> bool:
        """Whether all entries were written since they changed."""
        return not self._dirty

    def boundary(
        self, stream: str, offset: int, record: BoundaryRecord, log_state: LogState
    ) -> None:
        """Apply an accepted record of ``stream``. Called after the log state has accepted it."""
        writer = record.replica
        if record.branch is not None:
            epoch, counter = record.branch
            tentative = {
                "bucket": str(record.closed),
                "branch": f"{epoch}.{counter}",
                "missing": ",".join(record.missing),
            }
            self._put(f"{self.prefix}tentative:{stream}:{writer}", tentative)
            return
        self._tip(stream, str(offset), record, log_state)
        self._upto(stream, log_state)

    def adopted(self, stream: str, log_snapshot: LogSnapshot, log_state: LogState) -> None:
        """Apply a log snapshot from which the log of ``stream`` is read. Only the tip of each chain
        is known of earlier records, without its offset.
        """
        self._upto(stream, log_state)
        for r in log_snapshot.replicas:
            if r.last is not None and r.replica in log_state.writers:
                self._tip(stream, "", r.last, log_state)

    def _tip(self, stream: str, offset: str, record: BoundaryRecord, log_state: LogState) -> None:
        writer = record.replica
        fields = {
            "offset": offset,
            "bucket": str(record.closed),
            "epoch": str(record.epoch),
            "timeline": record.id.timeline,
            "batch": str(record.id.batch),
            "fingerprint": log_state.fingerprint(writer),
            "written_ms": str(record.written_ms),
        }
        self._put(f"{self.prefix}boundary:{stream}:{writer}", fields)

    def _upto(self, stream: str, log_state: LogState) -> None:
        self._put(f"{self.prefix}stream:{stream}", {"upto": str(log_state.closed_upto)})

    def forget(self, stream: str) -> None:
        """Drop what the log of ``stream`` said, which is read anew."""
        one = f"{self.prefix}stream:{stream}"
        several = (f"{self.prefix}boundary:{stream}:", f"{self.prefix}tentative:{stream}:")
        for key in [key for key in self._hashes if key == one or key.startswith(several)]:
            del self._hashes[key]

    def heartbeat(self, heartbeat: Heartbeat, monotonic_ms: int) -> bool:
        """Apply a heartbeat; return whether there was room to remember it. ``monotonic_ms``: of
        this process; the sender's clock decides nothing (CX3).
        """
        at = self._time.at(monotonic_ms)
        key = f"{self.prefix}process:{heartbeat.service}:{heartbeat.name}:{heartbeat.replica}"
        known = self._heartbeats.get(key)
        if known is None and len(self._heartbeats) >= HEARTBEATS_MAX:
            return False
        if known is None or heartbeat.life != known[0].life or heartbeat.epoch >= known[0].epoch:
            self._heartbeats[key] = heartbeat, at
            self._change(key)
        return True

    def trim(self, point: TrimPoint) -> None:
        """Apply the newest trim point of a stream."""
        self._put(f"{self.prefix}trim:{point.stream}", {"bucket": str(point.bucket)})

    def states(self, monotonic_ms: int) -> dict[str, str]:
        """Return the state of each living process, by name. Processes without a recent heartbeat
        are forgotten.
        """
        at = self._time.at(monotonic_ms)
        self._heartbeats = {
            key: (heartbeat, arrived_ms)
            for key, (heartbeat, arrived_ms) in self._heartbeats.items()
            if at - arrived_ms <= HEARTBEAT_LIFETIME_MS
        }
        return {
            key.removeprefix(f"{self.prefix}process:"): heartbeat.state
            for key, (heartbeat, _) in self._heartbeats.items()
        }

    def next_write(self, monotonic_ms: int) -> IndexWrite | None:
        """Return the next write that is due, or None. Repeats it until ``written`` confirms it."""
        while (key := self._next_key(monotonic_ms)) is not None:
            if key in self._hashes:
                return IndexWrite(key, self._hashes[key], ENTRY_LIFETIME_MS)
            heartbeat, arrived_ms = self._heartbeats.get(key, (None, 0))
            left_ms = HEARTBEAT_LIFETIME_MS - (self._time.at(monotonic_ms) - arrived_ms)
            if heartbeat is not None and left_ms > 0:
                # What is left, so that no rewriting makes a dead process live longer.
                return IndexWrite(key, _fields_of(heartbeat), left_ms)
            self._dirty.pop(key, None)
            self._written.pop(key, None)
        return None

    def _next_key(self, monotonic_ms: int) -> str | None:
        """Return the key to write next: of a changed entry first."""
        for key in self._dirty:
            return key
        for key, written_ms in self._written.items() if self._heartbeats else ():
            return key if monotonic_ms - written_ms >= REWRITE_MS else None
        return None

    def written(self, write: IndexWrite, monotonic_ms: int) -> None:
        """Confirm that ``write`` is in the index since ``monotonic_ms``, or longer."""
        self._dirty.pop(write.key, None)
        self._written.pop(write.key, None)  # so that it is the last in order
        self._written[write.key] = monotonic_ms

    def _put(self, key: str, fields: dict[str, str]) -> None:
        self._hashes[key] = fields
        self._change(key)

    def _change(self, key: str) -> None:
        self._dirty[key] = None
        self._written.pop(key, None)


def _fields_of(heartbeat: Heartbeat) -> dict[str, str]:
    """Return a heartbeat as the fields of a hash: all of them texts, an absent branch as empty, a
    truth value as "1" or empty.
    """
    return {
        "service": heartbeat.service,
        "name": heartbeat.name,
        "replica": heartbeat.replica,
        "epoch": str(heartbeat.epoch),
        "state": heartbeat.state,
        "bucket": str(heartbeat.bucket),
        "written_ms": str(heartbeat.written_ms),
        "replica_state": heartbeat.replica_state,
        "branch": "" if heartbeat.branch is None else str(heartbeat.branch),
        "checkpoint": heartbeat.checkpoint,
        "checkpoint_bucket": str(heartbeat.checkpoint_bucket),
        "corrects": "1" * heartbeat.corrects,
    }
