"""Image of the index: what Redis should hold, and which writes are still due.

Theory of operation. ``IndexImage`` is computed from the logs alone and bounded in size; it also
remembers which parts were not written yet. The index is never read to decide anything, so it may
vanish at any time; writing the image again restores it (docs/adr/0004).

Keys of the index (all below ``anabranch:<pipeline>:``):
    stream:<stream>               hash: upto (every bucket up to it is stable)
    boundary:<stream>:<writer>    hash: the tip of the writer's accepted chain (offset, empty if
                                  only a log snapshot names it; bucket, epoch, timeline,
                                  batch, fingerprint, written_ms)
    boundaries:<stream>:<writer>  sorted set: offset of a boundary record, ranked by the last
                                  bucket that it was the first to close
    tentative:<stream>:<writer>   hash: the writer's newest tentative record (bucket, branch,
                                  missing)
    process:<service>:<name>:<replica>  hash: the last heartbeat, with state, branch and
                                  checkpoint; expires
    trim:<stream>                 hash: bucket (no reader needs buckets up to it)
    index                         hash: manager (which manager wrote it last); missing: the index
                                  was lost
    index:<manager>               hash: number (of this manager's newest look at the index; another
                                  one: the index is an old copy of itself); expires

Invariants:
    CX1 the image depends only on the logs, and on where a log begins: two managers that have read
        the same logs have the same image.
    CX2 after ``rewrite_all`` and one complete writing, the index holds the image.
    CX3 a process whose heartbeats arrive is in the image, whatever its clock shows: time is
        observed, as in the failure detector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from anabranch.pipeline.topic_names import index_prefix
from anabranch.protocol.control.failure_detector import ObservedTime
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.limits import HEARTBEAT_LIFETIME_MS
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, LogSnapshot

INDEXED_BOUNDARIES_MAX: Final = 4_096
"""Maximum number of boundary records of one writer that the index finds by bucket. Older ones are
found by reading the log.
"""

HEARTBEATS_MAX: Final = 4_096
"""Maximum number of processes whose last heartbeat the manager remembers: names come from topics
that many may write.
"""


@dataclass(slots=True)
class _Ranking:
    """Newest entries of a sorted set, (member, score) with ascending scores. The last ``unsent`` of
    them are not written yet.
    """

    entries: deque[tuple[str, int]] = field(
        default_factory=lambda: deque(maxlen=INDEXED_BOUNDARIES_MAX)
    )
    unsent: int = 0
    is_cut: bool = False
    """Whether the set in the index may hold members that are no longer in ``entries`` although
    their scores are above its first.
    """

    def add(self, member: str, score: int) -> bool:
        """Add the newest entry; return whether the set must be written.

        A record that closes no bucket is left out, since nothing looks it up by bucket. If it were
        added, the set would grow while a stream stands still: entries are removed by score only. A
        chain that restarts further back replaces the entries above its bucket.
        """
        if self.entries and self.entries[-1][1] == score:
            return False
        while self.entries and self.entries[-1][1] >= score:
            self.entries.pop()
            self.is_cut = True
        self.entries.append((member, score))
        self.unsent = min(self.unsent + 1, len(self.entries))
        return True

    def mark_all_unsent(self) -> None:
        """Mark all entries as not written: the set was lost, or is to be replaced."""
        self.unsent = len(self.entries)


@dataclass(frozen=True, slots=True)
class IndexWrite:
    """Write to one key of the index. ``fields`` None: the write is of a sorted set, which gets
    ``members`` and loses everything below the score ``keep_from``. ``is_whole``: the members are
    all of the set, which is deleted first.
    """

    key: str
    fields: Mapping[str, str] | None = None
    members: tuple[tuple[str, int], ...] = ()
    keep_from: int = 0
    is_whole: bool = False
    expire_ms: int | None = None


class IndexImage:
    """Image of the index of one pipeline, with the writes that are due."""

    def __init__(self, pipeline: str) -> None:
        self.prefix = index_prefix(pipeline)
        self.marker = f"{self.prefix}index"
        self._hashes: dict[str, dict[str, str]] = {}
        self._rankings: dict[str, _Ranking] = {}
        self._time = ObservedTime()
        self._heartbeats: dict[str, tuple[Heartbeat, int]] = {}
        """Last heartbeat of each process, and the observed time of its arrival."""
        self._dirty: dict[str, None] = {}
        """Keys to write, the one that has waited longest first."""

    def look_key(self, manager: str) -> str:
        """Return the key at which ``manager`` notes its newest look at the index."""
        return f"{self.marker}:{manager}"

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
        key = f"{self.prefix}boundaries:{stream}:{writer}"
        if self._rankings.setdefault(key, _Ranking()).add(str(offset), record.closed):
            self._dirty[key] = None

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
            self._dirty[key] = None
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

    def rewrite_all(self) -> None:
        """Mark the whole image as not written: the index is empty (CX2)."""
        for ranking in self._rankings.values():
            ranking.mark_all_unsent()
        self._dirty = dict.fromkeys([*self._hashes, *self._rankings, *self._heartbeats])

    def keys(self) -> set[str]:
        """Return every key that may be in the index."""
        return {self.marker, *self._hashes, *self._rankings, *self._heartbeats}

    def next_write(self, monotonic_ms: int) -> IndexWrite | None:
        """Return the next pending write, or None. Repeats it until ``written`` confirms it."""
        while self._dirty:
            key = next(iter(self._dirty))
            if key in self._rankings:
                ranking = self._rankings[key]
                if ranking.is_cut:
                    ranking.mark_all_unsent()
                new = list(ranking.entries)[len(ranking.entries) - ranking.unsent :]
                return IndexWrite(
                    key,
                    members=tuple(new),
                    keep_from=ranking.entries[0][1],
                    is_whole=ranking.is_cut,
                )
            if key in self._hashes:
                return IndexWrite(key, fields=self._hashes[key])
            latest = self._heartbeats.get(key)
            if (
                latest is not None
                and self._time.at(monotonic_ms) - latest[1] <= HEARTBEAT_LIFETIME_MS
            ):
                return IndexWrite(
                    key, fields=_fields_of(latest[0]), expire_ms=HEARTBEAT_LIFETIME_MS
                )
            del self._dirty[key]
        return None

    def written(self, write: IndexWrite) -> None:
        """Confirm that ``write`` is in the index."""
        del self._dirty[write.key]
        if write.fields is None:
            ranking = self._rankings[write.key]
            ranking.unsent, ranking.is_cut = 0, False

    def _put(self, key: str, fields: dict[str, str]) -> None:
        self._hashes[key] = fields
        self._dirty[key] = None


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
