"""Checker of a source's writer, by a second, smaller reading of the rules (17, IN1-IN7).

Every boundary record of a source says how far it has read and what it closes. So the records that
it took are known, and the boundary that they met is that of the record before: each of them is in
the parts, or is late, or was never a row. What it closes is held against the input, too: no
partition may be passed by that has not been silent for as long as the rules say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from anabranch.protocol.edge.ingestion import LOOK_FRESH_MS

Row = tuple[int, ...]
"""Its first value is its time in ms."""
Place = tuple[int, int]
"""(input partition, offset)."""
_BEGUN_MS = LOOK_FRESH_MS * 3 // 4
"""Less than looks are fresh for, since a clock may run too fast."""
_MARGIN_MS = 50
"""Between a decision and the time that its record tells."""


Headers = tuple[tuple[str, bytes | None], ...]


class Content(NamedTuple):
    """Content of a record that became a dead letter, or of its letter."""

    topic: str
    """Topic of the letter."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Headers of its sender, in order."""
    reason: str


def senders(headers: Headers) -> Headers:
    """Return a sender's ``headers`` as a dead letter has them: none looks like those that state the
    reason.
    """
    return tuple(
        (f"sender-{name}" if name.lower().startswith("anabranch-") else name, value)
        for name, value in headers
    )


@dataclass(frozen=True)
class Rules:
    """Time rules of a source in the pipeline file, in ms."""

    width_ms: int
    out_of_orderness_ms: int
    idle_ms: int | None
    """A partition silent for so long may be left out while others speak."""
    source_idle_ms: int | None
    """When all of them are silent for so long the boundary may go on by the time."""
    is_reassigned: bool
    """Late rows get the first time of the open bucket; else they are dead letters. (Those of
    a partition that was found late get it always.)
    """
    leaves_unread: bool = False
    """Whether it reads nothing while its readers lag behind, and learns by polls which producers
    are active (IN10).
    """
    is_arrival: bool = False
    """Whether event time is the arrival: what a leader says, or that of the record before, if that
    is later (IN17).
    """
    ahead_ms: int = 0
    """Largest arrival when virtual time is 0, in ms."""


@dataclass(frozen=True)
class Arrival:
    """One record of an input partition. ``time_ms``: what it says of the partition's time, as
    a row or a heartbeat. ``row``: None if it is none.
    """

    at_ms: int
    time_ms: int | None
    row: Row | None
    is_heartbeat: bool = False
    is_beyond: bool = False
    """Whether its arrival is beyond the limit, whenever it is read."""


@dataclass(frozen=True)
class Taken:
    """One accepted boundary record of the source. ``decided_ms``: None if its process had a
    wrong clock.
    """

    decided_ms: int | None
    appended_ms: int
    positions: Mapping[int, tuple[int, int, int]]
    """Partition -> (next offset, largest time read, last closed bucket where it was found)."""
    closed: int
    rows: Sequence[Row]
    """Rows of its parts."""
    given_up: Sequence[int] = ()
    """An operator closed up to here."""
    begun_ms: int = 0
    """When the epoch of its process began."""
    left_out: frozenset[int] = frozenset()
    """Partitions that are left out for their silence."""
    is_end: bool = False
    """The stream ends with it: it closes what there is, whether more would come or not."""


@dataclass(frozen=True)
class Beginning:
    """Beginning of a stream that has predecessors."""

    closed: int = 0
    positions: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    """Positions, as in ``Taken``."""


_FIRST = Beginning()
_NONE: Mapping[int, int] = {}


@dataclass
class Replay:
    """Expected stream and dead letters."""

    buckets: dict[int, list[Row]] = field(default_factory=dict)
    late: set[Place] = field(default_factory=set)
    """Rows that are dead letters."""
    dead: list[tuple[int, Place]] = field(default_factory=list)
    """(number of the boundary record that names it as read, place) of every dead letter."""
    wrong: list[str] = field(default_factory=list)
    missing: set[Place] = field(default_factory=set)
    """Records that were deleted before they were read, and that an operator gave up."""


@dataclass
class _Partition:
    found_after: int
    next: int = 0
    mark_ms: int = 0
    spoke_from_ms: int = 0
    """When its writer read its last word, at the earliest, and at the latest."""
    spoke_upto_ms: int = 0


def replay(
    name: str,
    arrivals: Mapping[int, Sequence[Arrival]],
    records: Sequence[Taken],
    rules: Rules,
    begins: Beginning = _FIRST,
    deleted: Collection[Place] = (),
    predecessors: Mapping[int, int] = _NONE,
) -> Replay:
    """Follow the boundary records of source ``name`` over its input. Of ``deleted`` records an
    operator may skip those that were not read.

    ``predecessors``: of each partition of a topic that was deleted and created again the partition
    before, which only an operator may give up for it.
    """
    result = Replay()
    partitions = {
        at: _Partition(found_after, offset, mark_ms)
        for at, (offset, mark_ms, found_after) in begins.positions.items()
    }
    low = _LowMark()
    closed = begins.closed
    has_positions = False
    for number, record in enumerate(records):
        expected: list[Row] = []
        result.wrong += _succeed(name, number, partitions, predecessors, record, arrivals, result)
        for at, (offset_next, mark_ms, found_after) in record.positions.items():
            # What was given up before any partition was named says nothing of when it was found.
            found_at = closed if has_positions else begins.closed
            partition = partitions.setdefault(at, _Partition(found_at))
            if found_after != partition.found_after:
                result.wrong.append(
                    f"{name}: record {number} has found {at} after {found_after}, it was after"
                    f" {partition.found_after}"
                )
            if not partition.next <= offset_next <= len(arrivals[at]):
                result.wrong.append(
                    f"{name}: record {number} has read {at} to {offset_next}, the one before to"
                    f" {partition.next}"
                )
                continue
            read = arrivals[at][partition.next : offset_next]
            if record.given_up:
                _skip(result, name, (at, partition.next, offset_next), deleted)
                partition.next = offset_next
                continue
            kept_ms = _kept_ms(partition, rules)
            read, wrong = _dated(
                f"{name}: record {number}", partition, read, mark_ms, rules, record
            )
            result.wrong += wrong
            _speak(partition, read, record)
            if mark_ms != partition.mark_ms:
                result.wrong.append(
                    f"{name}: record {number} names {mark_ms} as the largest time of {at}, it is"
                    f" {partition.mark_ms}"
                )
            for offset, arrival in enumerate(read, partition.next):
                row = _row_of(arrival, closed * rules.width_ms, kept_ms, rules)
                expected += () if row is None else (row,)
                if row is None and not arrival.is_heartbeat:
                    result.dead.append((number, (at, offset)))
                    result.late |= set() if arrival.row is None else {(at, offset)}
            partition.next = offset_next
        if sorted(expected) != sorted(record.rows):
            result.wrong.append(
                f"{name}: record {number} holds {sorted(record.rows)}, it has read"
                f" {sorted(expected)} (closed before: {closed})"
            )
        for row in sorted(expected):
            result.buckets.setdefault(-(-row[0] // rules.width_ms), []).append(row)
        has_positions = has_positions or bool(record.positions)
        low.rise(partitions, arrivals, record, rules)
        highest = max(closed, *record.given_up, (low.ms - 1) // rules.width_ms)
        if not closed <= record.closed or not (record.closed <= highest or record.is_end):
            result.wrong.append(
                f"{name}: record {number} closes up to {record.closed}, from {closed} on it may up"
                f" to {highest}"
            )
        closed = max(closed, record.closed)
    return result


def _dated(
    name: str,
    partition: _Partition,
    read: Sequence[Arrival],
    mark_ms: int,
    rules: Rules,
    record: Taken,
) -> tuple[Sequence[Arrival], list[str]]:
    """Return records with the event times that their arrivals give them, where these count, and
    what is wrong with the limit that the record applied, which states it as the largest time.
    """
    if not rules.is_arrival:
        return read, []
    last_ms, found = partition.mark_ms, []
    for each in read:
        last_ms = max(last_ms, mark_ms if each.is_beyond else each.time_ms or 0)
        row = None if each.row is None else (last_ms, *each.row[1:])
        found.append(replace(each, time_ms=last_ms, row=row))
    beyond = [each.at_ms for each in read if each.is_beyond]
    if not beyond:
        return found, []
    lowest_ms, highest_ms = (ms + rules.ahead_ms for ms in (beyond[-1], record.appended_ms))
    if lowest_ms <= mark_ms <= max(highest_ms + _MARGIN_MS, partition.mark_ms):
        return found, []
    limits = f"from {lowest_ms} to {highest_ms}"
    return found, [f"{name} dates arrivals {mark_ms}, where the limit was {limits}"]


def _succeed(
    name: str,
    number: int,
    partitions: dict[int, _Partition],
    predecessors: Mapping[int, int],
    record: Taken,
    arrivals: Mapping[int, Sequence[Arrival]],
    result: Replay,
) -> list[str]:
    """Put the partitions of a topic that was created again in place of those before. Whatever was
    not read of these is missing.
    """
    wrong: list[str] = []
    for at, former in predecessors.items():
        if at not in record.positions or former not in partitions:
            continue
        if not record.given_up:
            wrong.append(f"{name}: record {number} goes on in {at}, though nobody gave up {former}")
        before = partitions.pop(former)
        result.missing |= {(former, o) for o in range(before.next, len(arrivals[former]))}
        partitions[at] = replace(before, next=0)
    return wrong


def _kept_ms(partition: _Partition, rules: Rules) -> int:
    """Up to this time no record of the partition is late: nobody had waited for it before it
    was found (IN9).
    """
    is_past = (
        partition.mark_ms - rules.out_of_orderness_ms - 1
    ) // rules.width_ms >= partition.found_after
    return 0 if is_past else partition.found_after * rules.width_ms


def _row_of(arrival: Arrival, limit_ms: int, kept_ms: int, rules: Rules) -> Row | None:
    """Return the row of a record where everything up to ``limit_ms`` is closed; None if it is not a
    row of the stream.
    """
    if arrival.row is None or arrival.row[0] > limit_ms:
        return arrival.row
    return (
        (limit_ms + 1, *arrival.row[1:])
        if rules.is_reassigned or arrival.row[0] <= kept_ms
        else None
    )


def _skip(
    result: Replay, name: str, skipped: tuple[int, int, int], deleted: Collection[Place]
) -> None:
    """Skip offsets of a partition as an operator: (number, first, next)."""
    at, first, after = skipped
    places = {(at, offset) for offset in range(first, after)}
    result.missing |= places
    if there := places.difference(deleted):
        result.wrong.append(f"{name}: an operator skips {sorted(there)}, which were there")


def _speak(partition: _Partition, read: Sequence[Arrival], record: Taken) -> None:
    for arrival in read:
        if arrival.time_ms is not None:
            partition.mark_ms = max(partition.mark_ms, arrival.time_ms)
            partition.spoke_from_ms = (
                arrival.at_ms if record.decided_ms is None else record.decided_ms
            )
            partition.spoke_upto_ms = record.appended_ms


@dataclass
class _LowMark:
    """How far the low mark of the whole source may be, at the most. It never goes back."""

    ms: int = 0
    silent_since_ms: int = -1
    before_silence_ms: int = 0

    def rise(
        self,
        partitions: Mapping[int, _Partition],
        arrivals: Mapping[int, Sequence[Arrival]],
        record: Taken,
        rules: Rules,
    ) -> None:
        """Up to the lowest mark of the partitions that cannot have been taken for idle, or
        with the time while all are silent.
        """
        if not partitions:
            return  # nothing was ever read: only what an operator gave up may be closed
        now_ms = record.appended_ms if record.decided_ms is None else record.decided_ms + _MARGIN_MS
        newest_ms = max(partition.spoke_upto_ms for partition in partitions.values())
        if rules.leaves_unread:
            unread = [each for at, of in partitions.items() for each in arrivals[at][of.next :]]
            newest_ms = now_ms if any(each.at_ms <= now_ms for each in unread) else newest_ms
        counted: list[int] = []
        left_out: list[int] = []
        for at, partition in partitions.items():
            is_idle = (
                rules.idle_ms is not None
                and min(now_ms, newest_ms) - partition.spoke_from_ms >= rules.idle_ms
                and not _is_passed_by(arrivals[at][partition.next :], record)
            )
            (left_out if is_idle else counted).append(partition.mark_ms)
        self.ms = max(
            self.ms, (min(counted) if counted else max(left_out)) - rules.out_of_orderness_ms
        )
        if rules.source_idle_ms is not None:
            self._pass(now_ms - rules.source_idle_ms, partitions, rules)

    def _pass(self, upto_ms: int, partitions: Mapping[int, _Partition], rules: Rules) -> None:
        since_ms = max(partition.spoke_from_ms for partition in partitions.values())
        spoken = [partition.mark_ms for partition in partitions.values() if partition.mark_ms]
        if since_ms != self.silent_since_ms:
            self.silent_since_ms, self.before_silence_ms = since_ms, self.ms
        if spoken and upto_ms > since_ms:
            self.ms = (
                max(self.before_silence_ms, min(spoken) - rules.out_of_orderness_ms)
                + upto_ms
                - since_ms
            )


def _is_passed_by(unread: Sequence[Arrival], record: Taken) -> bool:
    """Whether something came in that a fresh look would have seen."""
    return record.decided_ms is not None and any(
        each.at_ms < record.decided_ms - LOOK_FRESH_MS for each in unread[:1]
    )


def check_order(
    name: str, replayed: Replay, dead_at: Mapping[Place, int], records_at: Sequence[int]
) -> list[str]:
    """Every dead letter is in its topic before the boundary record that counts it as read.

    Args:
        name: Of the source.
        replayed: Which records are dead letters.
        dead_at: Where in the order of all appends each dead letter first came into its topic.
        records_at: Where each boundary record did.
    """
    return [
        f"{name}: record {number} counts {place} as read before its dead letter is there"
        for number, place in replayed.dead
        if dead_at.get(place, records_at[number]) >= records_at[number]
    ]


def check_left_out(
    name: str, arrivals: Mapping[int, Sequence[Arrival]], records: Sequence[Taken]
) -> list[str]:
    """Check that what was left out when a process began is so at once, as long as nothing comes:
    the boundary does not wait for it again (IN3). Judged for as long after the beginning as every
    poll is a fresh one, and if another partition was waited for then.
    """
    wrong: list[str] = []
    begun_with: Taken | None = None
    for number, (before, record) in enumerate(pairwise(records), 1):
        if record.begun_ms != before.begun_ms:
            begun_with = before
        if begun_with is None or record.appended_ms - record.begun_ms >= _BEGUN_MS:
            continue
        if begun_with.left_out >= begun_with.positions.keys():
            continue
        wrong += [
            f"{name}: record {number} waits for {at}, which was left out when its process began"
            for at in sorted(begun_with.left_out - record.left_out)
            if at in record.positions  # else its topic was created again
            and all(
                each.at_ms > record.appended_ms
                for each in arrivals[at][begun_with.positions[at][0] :]
            )
        ]
    return wrong


def check_letters(
    name: str, letters: Iterable[tuple[Place, Content]], sent: Mapping[Place, Content]
) -> list[str]:
    """Every dead letter holds what was sent, byte by byte, and says why it is one.

    Args:
        name: Of the source.
        letters: Where each says that it stood, and what it holds; none is too large for its topic.
        sent: What stands at each place of the input, and why that cannot be used.
    """
    return [
        f"{name}: the dead letter of {place} holds {content}, due is {sent.get(place)}"
        for place, content in letters
        if content != sent.get(place)
    ]
