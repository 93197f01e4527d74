"""Decisions of ingestion: up to where a source has been read, which buckets are closed, which
records are late or ahead.

Theory of operation. A source is a set of input partitions, each read in order. The *low mark* of a
partition is its largest event time minus the out-of-orderness that its producers may have; the
boundary is the last bucket that the lowest of the low marks closes. Silence must never look like an
empty bucket, so a partition that says nothing holds the boundary back, unless the rules for
idleness say otherwise. Silence counts only while it is *observed*: by looks at the end of the
partition, none further from the next than LOOK_GAP_MS. So neither a pause of this process nor an
outage of the broker counts as silence, and producers that were cut off get the whole time again
once they are back.

Everything that is read becomes part of the stream at once, as parts of closed or open buckets, or a
dead letter. So the positions alone say where to continue (rule 17). Beside them is what a restart
must not forget: which partitions are left out, and where the boundary was when one was found.

A topic may get more partitions, and producers may know of one before ingestion does. Until then the
boundary did not wait for it, through no fault of its producers. So a record below the boundary at
which the partition was found is not late, as long as the partition's own low mark has not passed
that boundary: it gets the first time of the open bucket, whatever the source does with late
records. From then on the partition holds the boundary back like the others.

Every reader of the stream keeps what was read of open buckets. So if much is open, only the
partitions that hold the boundary back are read. The machine holds no records and no
clock: it gets what was read and what time it is, and answers with plain numbers that the service
applies to whole columns.

Where event time is the arrival, it is the timestamp that the leader of the partition gave a record.
Another leader has another clock, which may be behind: records would be late though nothing is wrong
with them. Or it is ahead of the clock here, and they would seem to come from a wrong clock. But
what is in the log has arrived. So an arrival is never before that of the record in front of it in
its partition, and never rejected; a timestamp beyond ``ahead_above_ms`` counts as that, so that one
wrong clock does not close the future. The last arrival is the largest event time of the partition,
which each boundary record holds, so a restart changes nothing.

Times named ``now_ms`` are of a monotonic clock, except in ``limits``, where the wall clock is
meant.

Invariants:
    IN1 ``closed`` never goes back.
    IN2 without rules for idleness ``closed`` never exceeds ``closed_by`` of any partition's low
        mark; a partition that never spoke holds it.
    IN3 a partition is left out only after observed silence of ``partition_idle_ms``, with a look no
        older than LOOK_FRESH_MS, if another partition has spoken at least that long after it; after
        a silence of the whole source the others get that time anew. One that ingestion reads no
        further speaks while it has records to be read. One that was left out before a restart is so
        again by the first look that finds nothing.
    IN4 a source that is silent as a whole closes nothing by itself, except by ``source_idle_ms``
        (by observed time) or ``ends``.
    IN5 a record beyond ``limits().ahead_above_ms`` moves neither mark nor boundary, nor does a
        heartbeat beyond ``limits().beat_above_ms``.
    IN6 ``positions`` names exactly what ``read`` got, and a machine made from ``positions`` and
        ``closed`` continues as this one would.
    IN7 a partition's position never goes back.
    IN8 some partition is always read, the lowest of those that are not left out, unless the source
        is pushed back (IN10) or stopped (IN16).
    IN9 a record at or below the boundary at which its partition was found is not late before the
        partition's low mark has passed that boundary.
    IN10 a source whose readers have left BLOCKS_KEPT_MAX of its blocks undone reads nothing until
        half of them are done with. Meanwhile its boundary stands still, as long as there is
        something to be read: that is no silence (IN3). Blocks from the first one of an open bucket
        on do not count: no reader can be done with them before the source reads on.
    IN11 ``past`` never goes back, and is never below ``closed``; beyond it, it is what
        ``protocol.edge.sources`` says.
    IN12 what was read is named by one boundary record, which is decided when it is read. Until it
        is on its way the boundary stands still, and no other record is due: it would close buckets
        whose parts nobody has named.
    IN13 of a source with shards the partitions of the other shards (``receive``) speak as one's own
        do: where IN3 and IN4 say another partition, or the source, theirs are meant, too. A shard
        whose partitions are all left out continues with the lowest of theirs, and what is bounded
        ends with the largest event time of all.
    IN14 a partition that the writer before has named holds the boundary back from the beginning.
    IN15 at the latest when a partition has nothing more to read, a boundary record has its position
        past all that its readers are never shown.
    IN16 a source with PENDING_PARTS_STOP open parts reads nothing until its boundary moves, as it
        does in a process whose rules hold fewer buckets open. Meanwhile the boundary stands still,
        as in IN10, and nothing is lost or late.
    IN17 the arrivals of a partition never run backwards, over restarts too, and none is beyond both
        ``ahead_above_ms`` and the arrival before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.protocol.edge.sources import OtherShards, SourcePace
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.limits import EVENT_TIME_MS_MAX
from anabranch.protocol.log.buckets import bound_ms, bucket_of, closed_by
from anabranch.protocol.log.records import InputPosition

PENDING_PARTS_HOLD: Final = 800_000
"""Number of open parts from which a source reads only what holds its boundary back, until half of
them are closed. The rest of PENDING_PARTS_MAX is for what is read on the way there: a record beyond
that limit would end the source.
"""

PENDING_PARTS_NARROW: Final = 850_000
"""Number of open parts from which a source reads only the lowest of the partitions that hold its
boundary back: only that one's records move the boundary.
"""

PENDING_PARTS_STOP: Final = 930_000
"""Number of open parts from which a source reads nothing. Its lowest partition alone has filled
what readers hold (PENDING_PARTS_MAX): its out-of-orderness keeps more buckets open than that. The
rest is for the two rounds that are read before their parts are seen in the log.
"""

BLOCKS_KEPT_MAX: Final = 4_000_000
"""Blocks of one source that are in its topics since a reader still needs them. From so many on the
source reads nothing more, until half of them are deleted: what producers send stays in their own
topics, whose retention is theirs (DPC: full buffers block, and push back to the source). Ten times
what a stage takes of its inputs (INPUT_PARTS_MAX), so new results have stood still for days; beyond
it the brokers' disks would fill.
"""

LOOK_EVERY_MS: Final = 400
"""Pause between two looks at the end of a quiet input partition: all that are due are one
request to each broker.
"""

LOOK_FRESH_MS: Final = 1_000
"""A look older than this says nothing about now: a boundary must not pass a partition on what
was seen before a pause of the process.
"""

LOOK_GAP_MS: Final = 2_500
"""Silence with a longer hole between two looks was not observed: it may have been an outage
of the broker, and is counted anew.
"""

HEARTBEAT_AHEAD_MS: Final = 86_400_000
"""Maximum lead of a producer's heartbeat over all times that its source has stated, in ms, if
``max_ahead`` is unlimited: a day. A heartbeat from the year 2100 would close its partition for
good. Simulated time that jumps further has a record there.
"""

END_SILENCE_MS: Final = 2_000
"""Observed silence after which finite data counts as read to its end, so that a producer that
pauses a moment does not lose its last records.
"""

IDLE_AFTER_MS: Final = 60_000
"""Time without a record after which a source counts as idle for people, in ms: what is shown of it
is where its event time ends, not how far that is behind the clock.
"""
WAITING_AFTER_MS: Final = 1_000
"""Silence of the partition that holds the boundary back before it is named to people: shorter
ones are how records come.
"""

APPEND_EVERY_MS: Final = 50
"""Shortest interval between two boundary records of a live source, in ms, when the next bucket is
about to close: bounds the growth of the boundary log, and the cost of each round for a source, the
broker and every reader.
"""

APPEND_OPEN_EVERY_MS: Final = 250
"""The same where nothing is about to close, or the boundary stands still: bounds the size of a
round, and the open parts that every reader holds (at 20 records a second they would reach
PENDING_PARTS_MAX within hours). Below the shortest wait of a stage, which sees by them that the
source continues.
"""

STILL_AFTER_MS: Final = 10_000
"""A source's boundary that has not moved for so long stands still: a partition is silent, or
cut off. Then nothing says when the next bucket closes.
"""

InputPartition = tuple[str, int]
"""(topic, partition) of a user's topic."""


def open_parts_expected(bucket_ms: int, out_of_orderness_ms: int) -> int:
    """Return the number of parts that a source without pauses keeps open: one at least for each
    bucket, and for each round of reading, that its out-of-orderness covers.
    """
    return out_of_orderness_ms // min(bucket_ms, APPEND_OPEN_EVERY_MS)


@dataclass(frozen=True, slots=True)
class SourceRules:
    """Rules of the pipeline file about a source's time. All are in ms; None means never, and
    unlimited for ``max_ahead_ms``.
    """

    bucket_ms: int
    out_of_orderness_ms: int = 0
    partition_idle_ms: int | None = 5_000
    source_idle_ms: int | None = None
    bounded: bool = False
    max_ahead_ms: int | None = 60_000
    shards: int = 1
    """Machines that share the source's partitions."""


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """Facts about the records that were read from one partition.

    ``event_time_max_ms`` is the largest event time of its records and heartbeats that are not
    ahead, late ones included; None if none had one.
    """

    at: InputPartition
    offset_next: int
    event_time_max_ms: int | None


@dataclass(frozen=True, slots=True)
class EventTimeLimits:
    """Thresholds for the records read next: late if ``event_time <= late_upto_ms``, ahead if
    ``event_time > ahead_above_ms``.
    """

    late_upto_ms: int
    ahead_above_ms: int
    never_late: Mapping[InputPartition, int] = field(default_factory=dict)
    """Records of these partitions up to this event time are not late but reassigned (IN9)."""
    stated_ms: int | None = None
    """Largest event time that any partition has stated, or the wall clock while none has; None:
    the clock bounds heartbeats as it does records.
    """
    newest_ms: Mapping[InputPartition, int] = field(default_factory=dict)
    """Largest event time that each partition has stated: the last arrival, where event time is the
    arrival (IN17).
    """

    @property
    def reassigned_ms(self) -> int:
        """The first event time of the open bucket: what a record of a closed bucket gets that
        is kept.
        """
        return self.late_upto_ms + 1

    def beat_above_ms(self, newest_ms: int = 0) -> int:
        """Return the event time above which a heartbeat is ahead, in ms. ``newest_ms`` is the
        largest event time of the records that are read together with it; 0 if there are none.

        One heartbeat closes its partition up to what it says. Where no clock bounds that
        (``max_ahead_ms`` None) the times of the source itself do.
        """
        if self.stated_ms is None:
            return self.ahead_above_ms
        return min(self.ahead_above_ms, max(self.stated_ms, newest_ms) + HEARTBEAT_AHEAD_MS)


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """Progress of a source's log when its writer begins, by its last accepted boundary record."""

    positions: Sequence[InputPosition] = ()
    """Position of each partition; empty before the first record (rule 17). Partitions that are no
    longer read are carried along, so that they are not read twice if they come back.
    """
    closed: int = 0
    """Last bucket that the source has closed."""
    past: int = 0
    """Bucket that the source was known to be past (IN11)."""
    away_ms: int = 0
    """Since the record was written."""
    found_after: int | None = None
    """Bucket that was closed when the source found its partitions without a position; None:
    ``closed``. It is lower where an operator gave up buckets before the first position was
    recorded: what comes of these is late (IN9).
    """


@dataclass(slots=True)
class _Partition:
    """State of one input partition. It was observed to be idle from ``quiet_since_ms`` to
    ``quiet_until_ms``; None if not at all since its last record.

    ``event_time_max_ms`` was reached at ``risen_ms``. ``was_idle``: it was left out before a
    restart, and nobody has looked since.
    """

    offset_next: int
    event_time_max_ms: int
    risen_ms: int
    spoke_ms: int
    look_next_ms: int
    quiet_since_ms: int | None = None
    quiet_until_ms: int | None = None
    left_out: bool = False
    was_idle: bool = False
    found_after: int = 0

    def observed(self, now_ms: int) -> tuple[int, int] | None:
        """Return the observed silence, if it reaches up to now."""
        if (
            self.quiet_since_ms is None
            or self.quiet_until_ms is None
            or now_ms - self.quiet_until_ms > LOOK_FRESH_MS
        ):
            return None
        return self.quiet_since_ms, self.quiet_until_ms


def blocks_left(
    offsets: Mapping[int, tuple[int, int]], open_parts: Iterable[tuple[int, int]]
) -> int:
    """Return the number of blocks that the readers of a source have not processed, though they
    could (IN10).

    Args:
        offsets: First offset and end of each partition of the source's blocks.
        open_parts: Partition and first offset of each part of an open bucket.
    """
    ends = {at: end for at, (_, end) in offsets.items()}
    for at, first in open_parts:
        if at in ends:
            ends[at] = min(ends[at], first)
    return sum(max(0, ends[at] - first) for at, (first, _) in offsets.items())


class SourceMachine:
    """State of one source's writer. Not thread-safe.

    Args:
        rules: Rules of the source.
        partitions: Its input partitions, with the offset to begin at where ``progress`` names
            none.
        progress: From where it continues.
        now_ms: Silence is counted from here.
        topic_ids: Identity of each topic, which is recorded with its positions.
    """

    def __init__(
        self,
        rules: SourceRules,
        partitions: Mapping[InputPartition, int],
        progress: SourceProgress,
        now_ms: int,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        self._rules, closed = rules, progress.closed
        self._topic_ids = dict(topic_ids or {})
        self._restored = {
            (position.topic, position.partition): position for position in progress.positions
        }
        self._partitions: dict[InputPartition, _Partition] = {}
        self._others = OtherShards()
        self._closed = closed
        self._low_ms: int | None = bound_ms(closed, rules.bucket_ms) + 1 if closed else None
        got_to = max(progress.past, closed)
        self._pace = SourcePace(
            bound_ms(got_to, rules.bucket_ms) + 1 if got_to else 0, now_ms - progress.away_ms
        )
        self._speaks = False
        self._spoke_ms = now_ms
        self._silent_since_ms: int | None = None
        self._silence_counted_ms = 0
        self._moved_ms = now_ms
        self._is_unnamed = False
        self._has_skipped = False
        self.is_full = False
        """Whether too much was open at the last ``to_read``."""
        self.is_stopped = False
        """Whether so much was open then that nothing was read (IN16)."""
        self.is_pushed_back = False
        """Whether too many blocks were kept then (IN10)."""
        self._unread: frozenset[InputPartition] = frozenset()
        found_after = closed if progress.found_after is None else progress.found_after
        for at, offset_first in partitions.items():
            self._add(at, offset_first, found_after, now_ms)
        self._raise_low()

    @property
    def closed(self) -> int:
        """Last closed bucket, by the most recent call of ``advance``."""
        return self._closed

    @property
    def past(self) -> int:
        """The source has got beyond this bucket, as ``advance`` last found it (IN11)."""
        return max(self._closed, bucket_of(self._pace.upto_ms, self._rules.bucket_ms) - 1)

    def add(self, at: InputPartition, offset_first: int, now_ms: int) -> None:
        """Add an input partition: from now on it holds the boundary back like the others."""
        self._add(at, offset_first, self._closed, now_ms)

    def _add(self, at: InputPartition, offset_first: int, found_after: int, now_ms: int) -> None:
        known = self._restored.pop(at, None)
        if known is None:
            known = InputPosition(
                *at, offset_next=offset_first, event_time_max_ms=0, found_after=found_after
            )
        idle_ms = self._rules.partition_idle_ms if known.idle else None
        self._partitions[at] = _Partition(
            offset_next=known.offset_next,
            event_time_max_ms=known.event_time_max_ms,
            risen_ms=now_ms,
            spoke_ms=now_ms - (idle_ms or 0),
            look_next_ms=now_ms,
            was_idle=idle_ms is not None,
            found_after=known.found_after,
        )

    def offsets(self) -> dict[InputPartition, int]:
        """Return the next offset to read, per partition."""
        return {at: partition.offset_next for at, partition in self._partitions.items()}

    def positions(self) -> tuple[InputPosition, ...]:
        """Return the positions for the boundary record that names everything read so far."""
        read = [
            InputPosition(
                at[0],
                at[1],
                p.offset_next,
                p.event_time_max_ms,
                p.found_after,
                idle=p.left_out or p.was_idle,
                topic_id=self._topic_ids.get(at[0], ""),
            )
            for at, p in self._partitions.items()
        ]
        return tuple(
            sorted(
                [*read, *self._restored.values()],
                key=lambda position: (position.topic, position.partition),
            )
        )

    def limits(self, wall_ms: int) -> EventTimeLimits:
        """Return the limits by which a record is late or ahead at wall-clock time ``wall_ms``. They
        hold until ``advance`` is called.
        """
        ahead = (
            EVENT_TIME_MS_MAX
            if self._rules.max_ahead_ms is None
            else min(EVENT_TIME_MS_MAX, wall_ms + self._rules.max_ahead_ms)
        )
        width_ms, out_of_orderness_ms = self._rules.bucket_ms, self._rules.out_of_orderness_ms
        never_late = {
            at: bound_ms(p.found_after, width_ms)
            for at, p in self._partitions.items()
            if p.found_after
            > max(0, closed_by(p.event_time_max_ms - out_of_orderness_ms, width_ms))
        }
        stated_ms = None if self._rules.max_ahead_ms is not None else self._stated() or wall_ms
        newest_ms = {at: p.event_time_max_ms for at, p in self._partitions.items()}
        upto_ms = bound_ms(self._closed, width_ms)
        return EventTimeLimits(upto_ms, ahead, never_late, stated_ms, newest_ms)

    def to_read(self, open_parts: int, blocks_kept: int = 0) -> frozenset[InputPartition]:
        """Return the partitions to read from now on, where ``open_parts`` of this source's parts
        are open. Right after ``advance``.

        ``blocks_kept``: so many of its blocks are not deleted since readers are behind
            (``blocks_left``). None is read where they are too many (IN10).

        These are all partitions, unless too much is open: then those that hold the boundary back,
        until half of PENDING_PARTS_HOLD is closed (IN8). Records of the others can only be closed
        after them. With more open only the lowest of them is read, and at last none (IN16).
        """
        self.is_stopped = open_parts >= (
            PENDING_PARTS_NARROW if self.is_stopped else PENDING_PARTS_STOP
        )
        self.is_full = (
            open_parts > PENDING_PARTS_HOLD // 2
            if self.is_full
            else open_parts >= PENDING_PARTS_HOLD
        )
        every = frozenset(self._partitions)
        self.is_pushed_back = blocks_kept > (
            BLOCKS_KEPT_MAX // 2 if self.is_pushed_back else BLOCKS_KEPT_MAX - 1
        )
        if self.is_pushed_back or self.is_stopped:
            read = frozenset[InputPartition]()
        elif open_parts >= PENDING_PARTS_NARROW:
            read = self._lowest()
        else:
            read = self.holding() if self.is_full else every
        self._unread = every - read
        return read

    def holding(self) -> frozenset[InputPartition]:
        """Return the partitions that hold the boundary back where it is."""
        out_of_orderness_ms, bucket_ms = self._rules.out_of_orderness_ms, self._rules.bucket_ms
        counted = (
            (at, partition.event_time_max_ms)
            for at, partition in self._partitions.items()
            if not partition.left_out
        )
        return frozenset(
            at
            for at, event_time_ms in counted
            if closed_by(event_time_ms - out_of_orderness_ms, bucket_ms) <= self._closed
        )

    def _lowest(self) -> frozenset[InputPartition]:
        """Return the partition that holds the boundary back and is least far."""
        holding = sorted(self.holding(), key=lambda at: self._partitions[at].event_time_max_ms)
        return frozenset(holding[:1])

    def read(self, facts: Iterable[ChunkFacts], now_ms: int) -> None:
        """Take records that were read, which the next boundary record will all name (IN12). A chunk
        without any event time moves only the position.

        Raises:
            LocalProtocolError: a position would go back (IN7).
            KeyError: not a partition of this source.
        """
        self._is_unnamed, spoke = True, False
        for chunk in facts:
            partition = self._partitions[chunk.at]
            if chunk.offset_next < partition.offset_next:
                message = (
                    f"{chunk.at}: position {partition.offset_next} would go back to"
                    f" {chunk.offset_next}"
                )
                raise LocalProtocolError(message)
            partition.offset_next = chunk.offset_next
            if chunk.event_time_max_ms is None:
                continue
            spoke = True
            if chunk.event_time_max_ms > partition.event_time_max_ms:
                partition.event_time_max_ms, partition.risen_ms = chunk.event_time_max_ms, now_ms
            partition.spoke_ms, partition.look_next_ms = now_ms, now_ms + LOOK_EVERY_MS
            partition.quiet_since_ms = partition.quiet_until_ms = None
            partition.was_idle = False
        if spoke:
            self._speaks = True
            self._speech(now_ms)

    def receive(self, positions: Iterable[InputPosition], now_ms: int) -> None:
        """Apply the read positions of another shard of the source (IN13)."""
        if self._others.observe(positions, now_ms):
            self._speech(now_ms)

    def skip_hidden(self, at: InputPartition, offset: int) -> None:
        """Move the position of a partition past offsets of which readers are shown nothing:
        transaction markers, and records of aborted transactions.

        Args:
            at: Partition of which all fetched records were passed to ``read``.
            offset: Position of the partition's reader.

        Without that, a position would stay before them until the next record comes. Once retention
        has deleted them, nobody can tell them from records that were not read.
        """
        partition = self._partitions[at]
        if offset > partition.offset_next:
            partition.offset_next, self._has_skipped = offset, True

    def named(self) -> None:
        """Note that the boundary record that names what was read is on its way."""
        self._is_unnamed = self._has_skipped = False

    def moves_unread(self, now_ms: int) -> bool:
        """Advance by the observations since the last boundary record, unless records that were read
        are not named yet (IN12). Return whether a record without parts is due: the boundary moved,
        the partitions that are left out changed (other shards wait for them), or a position moved
        past hidden offsets.
        """
        if self._is_unnamed:
            return False
        before = self.closed, self.past, self._left_out()
        self.advance(now_ms)
        return self._has_skipped or (self.closed, self.past, self._left_out()) != before

    def _left_out(self) -> list[InputPartition]:
        """Return the partitions that this shard reports to the others as left out; none if there
        are no others.
        """
        if self._rules.shards == 1:
            return []
        return [at for at, p in self._partitions.items() if p.left_out or p.was_idle]

    def _speech(self, now_ms: int) -> None:
        """Note that the source has records. If it was idle as a whole, the partitions that are
        still idle get their full time from here (IN3).
        """
        idle_ms = self._rules.partition_idle_ms
        if idle_ms is not None and now_ms - self._spoke_ms >= idle_ms:
            for partition in self._partitions.values():
                if not partition.left_out and partition.quiet_since_ms is not None:
                    partition.quiet_since_ms = now_ms
        self._spoke_ms = now_ms

    def looks_due(self, now_ms: int) -> list[InputPartition]:
        """Return the partitions whose end must be requested now, because their idleness may
        matter.
        """
        rules = self._rules
        matters = (
            rules.bounded
            or rules.source_idle_ms is not None
            or (
                rules.partition_idle_ms is not None
                and (len(self._partitions) > 1 or rules.shards > 1)
            )
        )
        return [
            at
            for at, partition in self._partitions.items()
            if matters and now_ms >= partition.look_next_ms
        ]

    def looked(
        self, at: InputPartition, *, empty: bool | None, begun_ms: int, done_ms: int
    ) -> None:
        """Take the result of a fresh request for the end of a partition.

        Args:
            at: The partition.
            empty: Everything up to the end had been given to ``read``. None: the broker did not
                answer.
            begun_ms: Time of the request to the broker. The answer covers no later records.
            done_ms: The time of the answer.
        """
        partition = self._partitions[at]
        partition.look_next_ms = done_ms + LOOK_EVERY_MS
        if not empty:
            if empty is not None and at in self._unread:
                partition.spoke_ms = begun_ms
                partition.quiet_since_ms = partition.quiet_until_ms = None
                self._speech(begun_ms)
            return
        if partition.quiet_until_ms is None or begun_ms - partition.quiet_until_ms > LOOK_GAP_MS:
            before_ms = self._rules.partition_idle_ms if partition.was_idle else None
            partition.quiet_since_ms = begun_ms - (before_ms or 0)
        partition.quiet_until_ms = begun_ms
        partition.was_idle = False

    def advance(self, now_ms: int) -> int:
        """Move the boundary as far as records and observations allow. Return the last closed
        bucket.
        """
        before, low_ms = self._closed, self._low_ms
        self._leave_out(now_ms)
        self._raise_low()
        silence = self._silence(now_ms)
        if silence is not None:
            self._advance_in_silence(*silence)
        if self._low_ms is not None:
            self._closed = max(self._closed, closed_by(self._low_ms, self._rules.bucket_ms))
        if (
            silence is not None
            and self._rules.bounded
            and silence[1] - silence[0] >= END_SILENCE_MS
        ):
            self._closed = max(self._closed, bucket_of(self._stated(), self._rules.bucket_ms))
        if self._closed > before:
            self._moved_ms = now_ms
        if self._low_ms is not None and self._low_ms != low_ms:
            self._pace.moved(self._low_ms + self._rules.out_of_orderness_ms, now_ms)
        self._pace.go_on(self._event_time_max(), now_ms, speaks=self._speaks)
        self._speaks = False
        return self._closed

    def append_pause_ms(self, now_ms: int) -> int:
        """Return the shortest time until the next boundary record, in ms.

        A record that closes nothing only adds open parts, which cost the broker and every reader,
        and which all readers hold in memory. So the next one is made when the next bucket is due to
        close, by the assumption that event time advances as fast as the clock. Where it does
        not, as in a source that catches up, a bucket is closed by APPEND_OPEN_EVERY_MS later than
        it could have been.
        """
        if now_ms - self._moved_ms >= STILL_AFTER_MS:
            return APPEND_OPEN_EVERY_MS
        closing_ms = (
            bound_ms(self._closed + 1, self._rules.bucket_ms) + 1 + self._rules.out_of_orderness_ms
        )
        due_ms = max(
            (
                p.risen_ms + closing_ms - p.event_time_max_ms
                for p in self._partitions.values()
                if not p.left_out
            ),
            default=now_ms,
        )
        return min(max(due_ms - now_ms, APPEND_EVERY_MS), APPEND_OPEN_EVERY_MS)

    def _leave_out(self, now_ms: int) -> None:
        idle_ms = self._rules.partition_idle_ms
        if idle_ms is None:
            return
        newest_ms = max((partition.spoke_ms for partition in self._partitions.values()), default=0)
        if self._others.spoke_ms is not None:
            newest_ms = max(newest_ms, self._others.spoke_ms)
        for partition in self._partitions.values():
            observed = partition.observed(now_ms)
            silent = observed is not None and observed[1] - observed[0] >= idle_ms
            partition.left_out = silent and newest_ms - partition.spoke_ms >= idle_ms

    def _silence(self, now_ms: int) -> tuple[int, int] | None:
        """Return the start and end of the whole source's observed idleness, if it lasts until
        now.
        """
        observed = [partition.observed(now_ms) for partition in self._partitions.values()]
        spans = [span for span in observed if span is not None]
        if not spans or len(spans) < len(observed):
            return None
        since_ms, until_ms = max(span[0] for span in spans), min(span[1] for span in spans)
        if self._others.spoke_ms is not None:
            since_ms = max(since_ms, self._others.spoke_ms)
        return (since_ms, until_ms) if since_ms <= until_ms else None

    def _advance_in_silence(self, since_ms: int, until_ms: int) -> None:
        """Advance the low mark by the observed time, ``source_idle_ms`` behind it: records that
        were under way when the silence began may come that late.
        """
        if self._rules.source_idle_ms is None:
            return
        if since_ms != self._silent_since_ms:
            self._silent_since_ms, self._silence_counted_ms = since_ms, 0
        elapsed_ms = until_ms - since_ms - self._rules.source_idle_ms
        spoken = [
            *(p.event_time_max_ms for p in self._partitions.values() if p.event_time_max_ms),
            *self._others.event_times_ms,
        ]
        if elapsed_ms <= self._silence_counted_ms or not spoken:
            return
        low_ms = (
            min(spoken) - self._rules.out_of_orderness_ms if self._low_ms is None else self._low_ms
        )
        self._low_ms = low_ms + elapsed_ms - self._silence_counted_ms
        self._silence_counted_ms = elapsed_ms

    def _raise_low(self) -> None:
        counted = [
            partition.event_time_max_ms
            for partition in self._partitions.values()
            if not partition.left_out
        ]
        lowest_ms = min(counted) if counted else self._others.lowest_ms
        if lowest_ms > 0:
            low_ms = lowest_ms - self._rules.out_of_orderness_ms
            self._low_ms = low_ms if self._low_ms is None else max(self._low_ms, low_ms)

    def _event_time_max(self) -> int:
        return max(
            (partition.event_time_max_ms for partition in self._partitions.values()), default=0
        )

    def _stated(self) -> int:
        """Return the largest event time of the source; 0 if it has stated none."""
        return max(self._event_time_max(), *self._others.event_times_ms, 0)

    def event_time_ends_ms(self, now_ms: int) -> int | None:
        """Return the newest event time of the source, in ms, if none of its partitions has spoken
        for IDLE_AFTER_MS; None: one has, or nothing is known.
        """
        spoke_ms = [each.spoke_ms for each in self._partitions.values()]
        is_idle = bool(spoke_ms) and now_ms - max(spoke_ms) >= IDLE_AFTER_MS
        return (self._event_time_max() or None) if is_idle else None

    def waiting_for(self, now_ms: int) -> InputPartition | None:
        """Return the partition that everything waits for: it holds the boundary back and has been
        silent for a while. None: nothing waits.
        """
        event_time_max_ms = self._event_time_max()
        if event_time_max_ms and self._closed >= bucket_of(
            event_time_max_ms, self._rules.bucket_ms
        ):
            return None
        holding = [
            (partition.event_time_max_ms, at)
            for at, partition in self._partitions.items()
            if not partition.left_out
        ]
        if not holding:
            return None
        at = min(holding)[1]
        return at if now_ms - self._partitions[at].spoke_ms >= WAITING_AFTER_MS else None
