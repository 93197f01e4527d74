"""Trimming of a stream: up to which bucket its blocks may be deleted, and up to which offset of
each topic (rule 18).

Theory of operation. A reader never again reads what its *synced* stable position covers: the
directory of its newest timeline file (a fork point, while a branch runs), or what stands in the
output for good. Each says so in its heartbeats (``checkpoint_bucket``). The trim point
of a stream is the lowest of its readers'. A reader without a heartbeat for a day no longer holds
anything back: it re-enters by copying a peer. A reader that has sent no heartbeat yet may exist all
the same, so it holds everything back until a day was observed. The manager counts the day from the
arrival of the heartbeat (``protocol.control.failure_detector``); after the manager's restart, all
heartbeats in the topic count as arriving then.

A stage that other participants may run is the exception. Whoever runs it writes its heartbeats, and
could claim a checkpoint that it does not have: the owner's node, when the stage comes home, would
lack its input; or claim none, and the owner's disks would fill. So what such a stage needs follows
from the log of its own stream: it rebuilds its state from its input, of which no process ever reads
again what lies two horizons before the last closed bucket (``protocol.stage.recovery``, SH6).

A process lowers its claim before it goes back to an older checkpoint (``protocol.log.timeline``,
TI11). A heartbeat that it sent before may arrive after that: a client that does not learn the
outcome of a write goes on without it, and the broker may still receive it. Nothing in heartbeats of
one epoch orders them but the bucket that they name, which follows the stage's log. So a lowered
claim rises only once that bucket does.

Trimming cannot be undone, so every doubt means trimming less.

A trim point is a bucket, deletion wants an offset for each partition of each writer's block topic.
Blocks of later buckets stand between those of earlier ones, and blocks may be there that no record
names yet. What is known:

- the parts that accepted records name. Blocks of later buckets keep everything from their first
  offset on;
- a writer's stable batches come one after the other: a batch's blocks are written after the record
  of the batch before was appended. So blocks of its *next* stable record stand behind all blocks
  that its stable records have named so far, in each partition. Its branch writes at the same time,
  so that tentative parts say nothing of the kind, nor do those of buckets that it makes again for a
  reader. Nor do the pieces of a record that is cut, before its last one: all name blocks of one
  batch, which stand in any order.

A log snapshot in place of the beginning of the log names all that is above the trim point. What
records named of buckets below it is not known then, and not needed: it was deleted, or will be
behind what later buckets have.

Hence: delete below the end of what stable records named of trimmed buckets, but nothing that a
later bucket needs.

Invariants:
    TM1 the trim point of a stream never falls, over restarts of the manager too.
    TM2 it is at most the position of every reader with a heartbeat within ``TRIM_READER_MS`` of
        observed time, whatever the clocks of the readers show, and at most the stream's last stable
        bucket.
    TM3 a reader without any heartbeat holds it back, until ``TRIM_READER_MS`` of observed time. A
        half of a shard whose split is not confirmed does not, since it begins late when it begins
        (``protocol.stage.splitting``); after a heartbeat it counts for ``TRIM_HALF_MS`` only, since
        it begins anew for another attempt.
    TM4 of a stream that has readers, nothing is trimmed without a single one that counts.
    TM5 the process of the highest epoch speaks for a reader; one that is starting, and names no
        checkpoint yet, has read nothing.
    TM6 of a stream that other pipelines, an auditor or people read, the newest buckets are kept, as
        many as its owner says, whatever those readers do: only the owner decides what its log
        holds. If no reader of the stream is in its pipeline, all older buckets are trimmed.
    TM7 every possible reader of a stream counts: each replica of the stages that do, each process
        that stands by for one, and each delivery.
    TM8 a delivery without a heartbeat for ``OUTPUT_AWAY_MS`` of observed time is reported until the
        next one arrives, with the time for which it still holds its stream back: it has no peer to
        copy, and cannot continue after that.
    TM9 of a stage that other participants may run, the log of its own stream alone says what it
        needs of its inputs; while that log cannot be read, all of it. Its heartbeats, of whatever
        epoch, show that it lives, as do buckets that it closes, and nothing else.
    TM10 of heartbeats of one epoch, none raises a claim that was lowered unless it names a later
        closed bucket than the one that lowered it.
    TM11 a claim of a process that stands by counts only if it was judged by a record of the newest
        epoch whose heartbeats were received, or of a later one. An older claim may be of a
        checkpoint that the log has cut off meanwhile (``protocol.stage.standby``, SB11), by a
        process that is away. Until then, what the primaries have claimed bounds the trim point: a
        later one counts as having read nothing at first (TM5).
    TO1 no offset of a part of a bucket above the trim point is deleted, whether stable, pending,
        tentative, or recomputed.
    TO2 no block of a stable record that is still to come is deleted.
    TO3 offsets never fall, unless a block topic begins anew at 0, since a broker has lost its disk:
        then TO1 holds; or a tentative record names blocks written before those of stable records
        whose buckets are trimmed. These may be deleted before that record comes.
    TO4 memory is that of the parts of buckets above the trim point, summed up by bucket and
        partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from anabranch.protocol.control.failure_detector import (
    DELIVERY_SERVICE,
    REPLICA_SERVICE,
    STANDBY_SERVICE,
    FailureDetector,
    Peer,
)
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.limits import TRIM_EVERY_MS
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.buckets import BucketMap
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    LogEntry,
    LogSnapshot,
    Part,
    Recomputed,
)
from anabranch.protocol.log.writer import is_piece

TRIM_READER_MS: Final = 86_400_000
"""Observed time without a heartbeat, in ms, after which a reader no longer holds trimming back;
otherwise one that never returns would fill the disks. It re-enters by copying a peer.
"""

OUTPUT_AWAY_MS: Final = 3_600_000
"""Observed time without a heartbeat, in ms, after which a delivery counts as away (TM8): much
longer than any restart, and most of a day before its place is lost.
"""


@dataclass(frozen=True, slots=True)
class OutputAway:
    """Delivery that is away, and what that means for the stream that it reads."""

    output: str
    stream: str
    silent_ms: int
    """Observed time since its last heartbeat, or since this process began to follow the topic."""

    @property
    def left_ms(self) -> int:
        """Time for which it still holds the stream back; 0: it no longer does."""
        return max(0, TRIM_READER_MS - self.silent_ms)


TRIM_HALF_MS: Final = 600_000
"""Observed time without a heartbeat, in ms, after which a half of a shard whose split is not
confirmed no longer holds trimming back: its split was withdrawn, or soon is, as the half makes no
progress. Otherwise its input would be kept for a day, and no process would read it.
"""


_NO_EPOCH: Final = -1
"""Epoch of heartbeats that show only that a process lives: none is older than another (TM9)."""


@dataclass(frozen=True, slots=True)
class ReadingStage:
    """Streams that a stage reads, and its replicas."""

    stage: str
    reads: Collection[str]
    replicas: Collection[str]
    standbys: Collection[str] = ()
    """Processes that stand by for a replica."""


def readers_of(
    streams: Iterable[str], stages: Iterable[ReadingStage], outputs: Mapping[str, str]
) -> dict[str, list[Peer]]:
    """Return the possible readers of each of ``streams`` (TM7). ``outputs``: the stream that each
    process of delivery delivers.
    """
    found = dict[str, list[Peer]]((stream, []) for stream in streams)
    for each in stages:
        peers = [Peer(REPLICA_SERVICE, each.stage, replica) for replica in each.replicas]
        peers += [Peer(STANDBY_SERVICE, each.stage, process) for process in each.standbys]
        for stream in found.keys() & set(each.reads):
            found[stream] += peers
    for output, stream in outputs.items():
        found[stream].append(Peer(DELIVERY_SERVICE, output, "0"))
    return found


class Trimming:
    """The trim points of a pipeline's streams, as the process that trims decides them."""

    def __init__(
        self,
        readers: Mapping[str, Collection[Peer]],
        kept_buckets: Mapping[str, int] | None = None,
        halves: Mapping[Peer, str] | None = None,
        is_confirmed: Callable[[str], bool] = lambda _shard: False,
        others: Collection[Peer] = (),
    ) -> None:
        """Start without trim points. ``readers``: all possible readers, by stream.
        ``kept_buckets``: number of newest buckets to keep, for streams that others read, too.
        ``halves``: of readers that are halves of a shard, the shard. ``is_confirmed``: whether
        the split of a shard is confirmed by now (TM3). ``others``: readers that other participants
        may run (TM9).
        """
        self._kept_buckets = kept_buckets or {}
        self._halves, self._is_confirmed = halves or {}, is_confirmed
        self._readers = {stream: frozenset(those) for stream, those in readers.items()}
        watched = frozenset[Peer]().union(*self._readers.values())
        self._detector = FailureDetector(watched)
        self._unneeded = dict.fromkeys((reader for reader in others if reader in watched), 0)
        """Last bucket of its inputs that the stage of each of ``others`` needs no more."""
        self._lowered_at: dict[Peer, int] = {}
        """Last bucket that each reader had closed when it last lowered its claim (TM10)."""
        self._points: dict[str, int] = {}
        """Newest trim point of each stream, as a bucket."""
        self._seen_ms: dict[str, int] = {}
        """Monotonic time at which the newest trim point of a stream was seen: whose clock dated it,
        and how that was set, does not decide when the next one follows.
        """

    def receive(self, beat: Heartbeat, monotonic_ms: int) -> None:
        """Take note of any heartbeat of the control topic, however old (TM5, TM9, TM10)."""
        reader = Peer(beat.service, beat.name, beat.replica)
        if reader in self._unneeded:
            beat = replace(beat, epoch=_NO_EPOCH, life="")
        beat = self._judged(reader, beat)
        self._detector.receive(beat, monotonic_ms)

    def _judged(self, reader: Peer, beat: Heartbeat) -> Heartbeat:
        """Return ``beat`` of ``reader``; with the claim before it, if that was lowered and ``beat``
        may be older (TM10).
        """
        before = self._detector.last(reader)
        if before is None or before.life != beat.life or before.epoch < beat.epoch:
            self._lowered_at.pop(reader, None)
            return beat
        if beat.epoch < before.epoch:
            return beat  # ignored (TM5)
        lowered_at = self._lowered_at.get(reader, -1)
        if beat.checkpoint_bucket < before.checkpoint_bucket:
            # The higher bucket stays: this heartbeat may be the one that was sent first.
            self._lowered_at[reader] = max(lowered_at, beat.bucket)
        elif beat.bucket <= lowered_at:
            return replace(beat, checkpoint_bucket=before.checkpoint_bucket)
        return beat

    def seen(self, point: TrimPoint, monotonic_ms: int) -> None:
        """Take note of a trim point in the control topic, one's own too (TM1)."""
        if point.stream in self._readers and point.bucket > self.point(point.stream):
            self._points[point.stream] = point.bucket
            self._seen_ms[point.stream] = monotonic_ms

    def point(self, stream: str) -> int:
        """Return the last bucket of ``stream`` that is no longer needed; 0 if all are needed."""
        return self._points.get(stream, 0)

    def due(
        self,
        monotonic_ms: int,
        uptos: Mapping[str, int],
        *,
        wall_ms: int,
        unneeded: Mapping[str, int] | None = None,
    ) -> list[TrimPoint]:
        """Return the trim points to write now.

        Args:
            monotonic_ms: Present time.
            uptos: Last stable bucket of each stream.
            wall_ms: Date of the trim points.
            unneeded: Last bucket of its inputs that each stage which other participants may run
                needs no more, by the log of its own stream (TM9). Lacks stages whose logs cannot be
                read now.
        """
        self._detector.look(monotonic_ms)
        self._learn(unneeded or {}, monotonic_ms)
        made = []
        for stream in self._readers:
            seen_ms = self._seen_ms.get(stream)
            if seen_ms is not None and monotonic_ms - seen_ms < TRIM_EVERY_MS:
                continue
            upto = uptos.get(stream, 0)
            kept_after = upto - self._kept_buckets.get(stream, 0)
            bucket = min(self._position(stream, monotonic_ms, upto), kept_after)
            if bucket > self.point(stream):
                made.append(TrimPoint(stream, bucket, wall_ms))
        for point in made:
            self.seen(point, monotonic_ms)
        return made

    def _learn(self, unneeded: Mapping[str, int], monotonic_ms: int) -> None:
        """Take note of what the logs of stages say that other participants may run (TM9)."""
        for reader, before in self._unneeded.items():
            self._unneeded[reader] = upto = unneeded.get(reader.name, 0)
            if upto > before:
                self._detector.lives(reader, monotonic_ms)

    def away(self, monotonic_ms: int) -> list[OutputAway]:
        """Return the deliveries that are away, sorted by output (TM8)."""
        silent = (
            OutputAway(reader.name, stream, self._detector.silent_ms(reader, monotonic_ms))
            for stream, readers in self._readers.items()
            for reader in readers
            if reader.service == DELIVERY_SERVICE
        )
        found = (each for each in silent if each.silent_ms >= OUTPUT_AWAY_MS)
        return sorted(found, key=lambda each: each.output)

    def _position(self, stream: str, monotonic_ms: int, upto: int) -> int:
        """Return the least position of the readers that count (TM2-TM4, TM6, TM9)."""
        positions = []
        for reader in self._readers[stream]:
            shard = self._halves.get(reader)
            is_tried = shard is not None and not self._is_confirmed(shard)
            limit_ms = TRIM_HALF_MS if is_tried else TRIM_READER_MS
            if self._detector.silent_ms(reader, monotonic_ms) > limit_ms:
                continue
            beat = self._detector.last(reader)
            if beat is None and is_tried:
                continue
            said = 0 if beat is None or self._is_outdated(beat) else beat.checkpoint_bucket
            positions.append(self._unneeded.get(reader, said))
        is_read_elsewhere_alone = stream in self._kept_buckets and not self._readers[stream]
        return min(positions, default=upto if is_read_elsewhere_alone else 0)

    def _is_outdated(self, beat: Heartbeat) -> bool:
        """Return whether ``beat`` is of a process that stands by and has not judged its claim by a
        record of the newest epoch of its stage (TM11).
        """
        if beat.service != STANDBY_SERVICE:
            return False
        primaries = (
            self._detector.last(Peer(REPLICA_SERVICE, beat.name, replica))
            for replica in self._detector.replicas(REPLICA_SERVICE, beat.name)
        )
        return any(
            each is not None and (each.life != beat.life or each.epoch > beat.epoch)
            for each in primaries
        )


TRIM_SPANS_MAX: Final = 8_192
"""Maximum number of buckets whose offsets are remembered for one partition of blocks. While a
reader is away nothing is trimmed, and a partition gets 345 600 a day: beyond the limit neighbours
are joined, and trimmed together. After a week each entry stands for about two minutes.
"""

Place = tuple[str, int]
"""(writer, partition of its block topic)."""


@dataclass(slots=True)
class _Span:
    """Range of offsets that records name for one bucket in one partition, or for several
    consecutive buckets, of which the last stands for all.
    """

    first: int
    stable_next: int = 0
    """End of what stable records named; 0: nothing."""


class TrimOffsets:
    """Offsets below which the blocks of one stream may be deleted. The caller passes it every
    record of the boundary log, right after the log state applied that record (``seen``).
    """

    def __init__(self) -> None:
        self._spans: dict[Place, BucketMap[_Span]] = {}
        self._passed: dict[Place, int] = {}
        """End of what stable records named of trimmed buckets."""
        self._bucket = 0
        self._in_pieces: dict[str, list[Part]] = {}
        """Parts of a batch whose last piece is still to come, by replica: blocks that it will name
        may precede them.
        """

    def seen(self, entry: LogEntry, outcome: Outcome) -> None:
        """Apply a record of the log."""
        if not outcome.accepted:
            return
        if isinstance(entry, LogSnapshot):
            self._adopt(entry)
        elif isinstance(entry, BoundaryRecord) and entry.kind is BoundaryKind.STABLE:
            parts = [*self._in_pieces.pop(entry.replica, ()), *entry.parts]
            is_cut = is_piece(entry.id)
            if is_cut:
                self._in_pieces[entry.replica] = parts
            self._named(entry.replica, parts, in_order=not is_cut)
        elif isinstance(entry, (BoundaryRecord, Recomputed)):
            self._named(entry.replica, entry.parts, in_order=False)

    def _adopt(self, log_snapshot: LogSnapshot) -> None:
        # Which parts a batch that is cut in pieces has named so far, a snapshot does not say.
        cut: dict[str, list[Part]] = {
            r.replica: [] for r in log_snapshot.replicas if r.path and is_piece(r.path[-1])
        }
        for stable in log_snapshot.ranges:
            in_order = not stable.recomputed
            self._named(
                stable.replica, stable.parts, in_order=in_order and stable.replica not in cut
            )
            if in_order and stable.replica in cut:
                cut[stable.replica] += stable.parts
        for r in log_snapshot.replicas:
            parts = [*r.closed_parts, *(part for _, part in r.pending)]
            self._named(r.replica, parts, in_order=r.replica not in cut)
            if r.replica in cut:
                cut[r.replica] += parts
            if r.branches is not None:
                self._named(r.replica, [part for _, part in r.branches.pending], in_order=False)
                for covered in r.branches.ranges:
                    self._named(r.replica, covered.parts, in_order=False)
        self._in_pieces = cut

    def _named(self, replica: str, parts: Iterable[Part], *, in_order: bool) -> None:
        """Add the parts of ``replica``; ``in_order`` if a stable record named them."""
        for part in parts:
            place = replica, part.partition
            stable_next = part.offset_next if in_order else 0
            if part.bucket <= self._bucket:
                self._passed[place] = max(self._passed.get(place, 0), stable_next)
                continue
            spans = self._spans.setdefault(place, BucketMap())
            span = spans.get(part.bucket)
            if span is None:
                spans[part.bucket] = _Span(part.offset_first, stable_next)
                if len(spans) > TRIM_SPANS_MAX:
                    self._spans[place] = _joined(spans)
            else:
                span.first, span.stable_next = (
                    min(span.first, part.offset_first),
                    max(span.stable_next, stable_next),
                )

    def below(self, bucket: int) -> dict[Place, int]:
        """Return the offset below which records may be deleted, by place, once buckets up to
        ``bucket`` are no longer needed; places with offset 0 are left out.
        """
        self._bucket = max(self._bucket, bucket)
        for place, spans in self._spans.items():
            for _, span in spans.pop_upto(self._bucket):
                self._passed[place] = max(self._passed.get(place, 0), span.stable_next)
        found = {
            place: min([passed, *(span.first for _, span in self._spans.get(place) or ())])
            for place, passed in self._passed.items()
        }
        return {place: offset for place, offset in found.items() if offset}


def _joined(spans: BucketMap[_Span]) -> BucketMap[_Span]:
    """Merge neighbouring spans into about TRIM_SPANS_MAX / 2 equally wide ones, each at its last
    bucket. They are trimmed together, once the last bucket is; until then all are kept, so nothing
    that is needed is deleted.
    """
    begin, _ = next(iter(spans))
    width = (spans.highest - begin) // (TRIM_SPANS_MAX // 2) + 1
    found = BucketMap[_Span]()
    open_from = bucket_before = begin
    open_span = _Span(spans[begin].first)
    for bucket, span in spans:
        if bucket - open_from >= width:
            found[bucket_before] = open_span
            open_from, open_span = bucket, _Span(span.first)
        open_span.first = min(open_span.first, span.first)
        open_span.stable_next = max(open_span.stable_next, span.stable_next)
        bucket_before = bucket
    found[bucket_before] = open_span
    return found
