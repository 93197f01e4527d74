"""What the index in Redis should hold.

Theory of operation. ``IndexImage`` is a function of the logs alone, bounded, together with what has
not been written yet. The index is never read to decide anything, so it may vanish at any time;
writing the image again restores it (docs/adr/0004).

Keys of the index (all below ``anabranch:<pipeline>:``):
    stream:<stream>               hash: upto (every bucket up to it is stable)
    boundary:<stream>:<writer>    hash: the tip of the writer's accepted chain (offset, or nothing
                                  where only a log snapshot names it; bucket, epoch, timeline,
                                  batch, fingerprint, written_ms)
    boundaries:<stream>:<writer>  sorted set: offset of a boundary record, ranked by the last
                                  bucket that it was the first to close
    tentative:<stream>:<writer>   hash: what the writer closed tentatively last (bucket, branch,
                                  missing)
    process:<service>:<name>:<replica>  hash: the last heartbeat, with state, branch and
                                  checkpoint; expires
    trim:<stream>                 hash: bucket (no reader needs buckets up to it)
    index                         hash: manager (who wrote it last); missing: the index was lost

Invariants:
    CX1 the image depends on the logs only, and on where a log begins: two managers that read the
        same have the same one.
    CX2 after ``everything_lost`` and one complete writing, the index holds the image.
    CX3 whose heartbeats are heard is in it, whatever its clock says: time is observed, as by the
        failure detector.
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
"""Boundary records of one writer that the index finds by bucket: older ones are found by
reading the log.
"""

HEARTBEATS_MAX: Final = 4_096
"""Processes whose last heartbeat the manager remembers: names come from a topic that many may
write.
"""


@dataclass(slots=True)
class _Ranking:
    """Newest entries of a sorted set, (member, score), their scores ascending; the last ``unsent``
    of them were not written yet.
    """

    entries: deque[tuple[str, int]] = field(
        default_factory=lambda: deque(maxlen=INDEXED_BOUNDARIES_MAX)
    )
    unsent: int = 0
    is_cut: bool = False
    """Whether the set may hold members that are not in ``entries`` any more, above its first."""

    def add(self, member: str, score: int) -> bool:
        """Add the newest entry; whether it says anything new.

        A record that closes nothing says nothing that is looked up by bucket. Were it added, the
        set would grow as long as a stream stands still, since what is removed from it is removed
        by score. A chain that begins anew further back replaces the entries above.
        """
        if self.entries and self.entries[-1][1] == score:
            return False
        while self.entries and self.entries[-1][1] >= score:
            self.entries.pop()
            self.is_cut = True
        self.entries.append((member, score))
        self.unsent = min(self.unsent + 1, len(self.entries))
        return True

    def is_all_unsent(self) -> None:
        """The set is lost, or is written anew."""
        self.unsent = len(self.entries)


@dataclass(frozen=True, slots=True)
class IndexWrite:
    """One write. ``fields`` None: members of a sorted set, below whose first score nothing is
    kept. ``is_whole``: they are all that it holds, and what is there goes first.
    """

    key: str
    fields: Mapping[str, str] | None = None
    members: tuple[tuple[str, int], ...] = ()
    keep_from: int = 0
    is_whole: bool = False
    expire_ms: int | None = None


class IndexImage:
    """What the index should hold."""

    def __init__(self, pipeline: str) -> None:
        self.prefix = index_prefix(pipeline)
        self.marker = f"{self.prefix}index"
        self._hashes: dict[str, dict[str, str]] = {}
        self._rankings: dict[str, _Ranking] = {}
        self._time = ObservedTime()
        self._heartbeats: dict[str, tuple[Heartbeat, int]] = {}
        """The last one of each process, and the observed time at which it was heard."""
        self._dirty: dict[str, None] = {}
        """Keys to write, oldest first."""

    def boundary(
        self, stream: str, offset: int, record: BoundaryRecord, log_state: LogState
    ) -> None:
        """An accepted record of ``stream``, after the log state took it."""
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
        """The log of ``stream`` is read from ``log_snapshot`` on: of what came before, only
        the tip of each chain is known, not where it stands.
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

    def heartbeat(self, beat: Heartbeat, monotonic_ms: int) -> bool:
        """A process is alive; whether there was room to remember it. ``monotonic_ms``: of
        the reader; what the sender's clock says decides nothing (CX3).
        """
        at = self._time.at(monotonic_ms)
        key = f"{self.prefix}process:{beat.service}:{beat.name}:{beat.replica}"
        known = self._heartbeats.get(key)
        if known is None and len(self._heartbeats) >= HEARTBEATS_MAX:
            return False
        if known is None or beat.life != known[0].life or beat.epoch >= known[0].epoch:
            self._heartbeats[key] = beat, at
            self._dirty[key] = None
        return True

    def trim(self, point: TrimPoint) -> None:
        """The newest trim point of a stream."""
        self._put(f"{self.prefix}trim:{point.stream}", {"bucket": str(point.bucket)})

    def states(self, monotonic_ms: int) -> dict[str, str]:
        """State of each process by name, those not heard of any more left out (and forgotten)."""
        at = self._time.at(monotonic_ms)
        self._heartbeats = {
            key: (beat, heard_at)
            for key, (beat, heard_at) in self._heartbeats.items()
            if at - heard_at <= HEARTBEAT_LIFETIME_MS
        }
        return {
            key.removeprefix(f"{self.prefix}process:"): beat.state
            for key, (beat, _) in self._heartbeats.items()
        }

    def everything_lost(self) -> None:
        """The index is empty: write it all again (CX2)."""
        for ranking in self._rankings.values():
            ranking.is_all_unsent()
        self._dirty = dict.fromkeys([*self._hashes, *self._rankings, *self._heartbeats])

    def keys(self) -> set[str]:
        """Every key that may stand in the index."""
        return {self.marker, *self._hashes, *self._rankings, *self._heartbeats}

    def next_write(self, monotonic_ms: int) -> IndexWrite | None:
        """What to write next; the same until ``written`` is called. None: nothing."""
        while self._dirty:
            key = next(iter(self._dirty))
            if key in self._rankings:
                ranking = self._rankings[key]
                if ranking.is_cut:
                    ranking.is_all_unsent()
                new = list(ranking.entries)[len(ranking.entries) - ranking.unsent :]
                return IndexWrite(
                    key,
                    members=tuple(new),
                    keep_from=ranking.entries[0][1],
                    is_whole=ranking.is_cut,
                )
            if key in self._hashes:
                return IndexWrite(key, fields=self._hashes[key])
            heard = self._heartbeats.get(key)
            if (
                heard is not None
                and self._time.at(monotonic_ms) - heard[1] <= HEARTBEAT_LIFETIME_MS
            ):
                return IndexWrite(key, fields=_fields_of(heard[0]), expire_ms=HEARTBEAT_LIFETIME_MS)
            del self._dirty[key]
        return None

    def written(self, write: IndexWrite) -> None:
        """``write`` is in the index."""
        del self._dirty[write.key]
        if write.fields is None:
            ranking = self._rankings[write.key]
            ranking.unsent, ranking.is_cut = 0, False

    def _put(self, key: str, fields: dict[str, str]) -> None:
        self._hashes[key] = fields
        self._dirty[key] = None


def _fields_of(beat: Heartbeat) -> dict[str, str]:
    """A heartbeat as a hash: texts, an absent branch and truth values as empty or "1"."""
    return {
        "service": beat.service,
        "name": beat.name,
        "replica": beat.replica,
        "epoch": str(beat.epoch),
        "state": beat.state,
        "bucket": str(beat.bucket),
        "written_ms": str(beat.written_ms),
        "replica_state": beat.replica_state,
        "branch": "" if beat.branch is None else str(beat.branch),
        "checkpoint": beat.checkpoint,
        "checkpoint_bucket": str(beat.checkpoint_bucket),
        "corrects": "1" * beat.corrects,
    }
