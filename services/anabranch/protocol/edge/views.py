"""Views of a live topic, as its readers reconstruct them: the current answer, and the compacted
view of it.

Theory of operation. Each transaction of a live topic ends with a ``boundary`` in every partition,
all with the same sequence number. A reader gets the partitions at different times. So ``LiveView``
collects the records of a partition up to their boundary, and applies a transaction when all
partitions have brought theirs: the answer moves from the end of one transaction to the end of the
next, and never shows a bucket half corrected. Partitions that are read from the middle join with
the first boundary that they bring.

A topic may hold the transactions of several origins (``protocol.edge.origins``): of an earlier life
of the output, which delivers everything anew in this one. Each origin has an answer of its own. A
partition tells which of two origins is older, since it holds that one's records first; and once all
partitions have brought a transaction of the newer one, its answer takes the place of the older.

A reader of a compacted topic (``upsert: true``) knows nothing of kinds: the last record of a key is
its value, a record without a value deletes it. So an undo is written as what it does: each key that
tentative records have touched gets its last stable value back, or is deleted if it never had one.
For that, and for a replacement, each tentative record carries the last stable value of its key in
its headers. Thus the newest record of every key, which is all that compaction leaves, is the whole
state of ``UpsertView``. Only the newest tentative version of a key is kept: versions become void
from the oldest on, or all at once by an undo, which is followed by those that still count.

Invariants:
    LV1 the answer is that of the topic at the end of a transaction, in all partitions.
    LV2 an undo voids every tentative record before it in its partition; a boundary those up to its
        bucket; rec_done the rest.
    LV3 a stable record is never taken back.
    LV4 tentative records beside a stable one of the same key are newer, so by key the newest record
        counts.
    LV5 records of a partition that are read again, as after a rebalance, change nothing: a
        transaction counts once, and in it each record.
    LV6 the answer is made of records of one origin, of which no partition has a newer one that has
        ended a transaction in all partitions.

Of the compacted view:
    UV1 the topic has for a key its newest tentative version, else its last stable one, else
        nothing.
    UV2 a transaction has at most one record per key, and none for a key whose visible version and
        last stable one stay as they were.
    UV3 reading the newest record of each key back gives the state that wrote them.
    UV4 a change that is not committed leaves no trace: ``apply`` is called after the commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.edge.origins import ORIGINS_MAX
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import MIB

_NO_BUCKET = 0


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """Record of a live topic. Control kinds have neither key nor value."""

    kind: Kind
    id: RecordId | None = None
    """Id of an insertion or tentative record; of an undo, the id of the last record that stands;
    None if there is none.
    """
    branch: tuple[int, int] | None = None
    """Branch that made a tentative record, as (epoch, counter)."""
    missing: tuple[str, ...] = ()
    """Streams without which a tentative record was made."""
    event_time_ms: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    stable: int = _NO_BUCKET
    """Last bucket up to which all buckets are stable, as a control record states."""
    shown: int = _NO_BUCKET
    """Bucket up to which tentative buckets are shown, by a boundary; 0 if there is no failure."""
    stable_ms: int = 0
    """End of bucket ``stable`` in event time, in ms."""
    shown_ms: int = 0
    sequence: int = 0
    """Number of a boundary's transaction."""
    origin: str = ""
    """Producer that wrote it (``protocol.edge.origins``)."""
    shed: int = 0
    """Per mille of the input's rows that overloaded stages left out of a tentative record."""


@dataclass(slots=True)
class _Partition:
    """State of one partition: its open transaction, whole ones, and tentative records."""

    open: dict[tuple[str, RecordId | None, tuple[int, int] | None], LiveRecord] = field(
        default_factory=dict
    )
    """Records of the transaction whose boundary has not come yet, by kind and id (LV5)."""
    ended: deque[list[LiveRecord]] = field(default_factory=deque)
    """Transactions that are here whole, each with its boundary last."""
    begun: int | None = None
    """Sequence of the first boundary that came."""
    newest: int = 0
    tentative: dict[int, list[LiveRecord]] = field(default_factory=dict)


class _Answer:
    """Answer of one origin."""

    def __init__(self, partitions: int, buckets_kept: int | None) -> None:
        self._partitions = [_Partition() for _ in range(partitions)]
        self._kept = buckets_kept
        self._stable: dict[int, list[LiveRecord]] = {}
        self._by_key: dict[bytes | None, LiveRecord] = {}
        self._boundary = LiveRecord(Kind.BOUNDARY)
        self.failures = 0
        """Failures that began."""
        self.undone = 0
        """Tentative records that were taken back or replaced."""
        self.gaps = 0
        """Transactions that a partition did not bring: retention has removed them."""

    @property
    def boundary(self) -> LiveRecord:
        """The boundary of the last transaction that was applied."""
        return self._boundary

    def take(self, partition: int, record: LiveRecord) -> bool:
        """Take the next record of a partition, in its order, or one from where it is read
        again; whether the answer changed.
        """
        place = self._partitions[partition]
        place.open.setdefault((record.kind.value, record.id, record.branch), record)
        if record.kind is not Kind.BOUNDARY:
            return False
        transaction, place.open = list(place.open.values()), {}
        if place.begun is not None and record.sequence <= place.newest:
            return False
        place.ended.append(transaction)
        if place.begun is None:
            place.begun = record.sequence
        elif record.sequence > place.newest + 1:
            self.gaps += record.sequence - place.newest - 1
        place.newest = record.sequence
        changed = False
        while (sequence := self._next()) is not None:
            self._end(sequence)
            changed = True
        return changed

    def stable(self) -> Iterator[LiveRecord]:
        """Return the stable records, in the order of their ids."""
        for bucket in sorted(self._stable):
            yield from sorted(self._stable[bucket], key=_position)

    def tentative(self) -> Iterator[LiveRecord]:
        """Return the records that may still change, in the order of their ids."""
        buckets = sorted({bucket for place in self._partitions for bucket in place.tentative})
        for bucket in buckets:
            found = [
                record for place in self._partitions for record in place.tentative.get(bucket, ())
            ]
            yield from sorted(found, key=_position)

    def by_key(self) -> dict[bytes | None, LiveRecord]:
        """Return the answer by key: the newest record of each (LV4)."""
        return {**self._by_key, **{record.key: record for record in self.tentative()}}

    def _next(self) -> int | None:
        """Return the sequence of the transaction to apply next: the lowest of any partition, once
        every partition has it or begins after it (LV1); None if there is none.
        """
        waiting = [place.ended[0][-1].sequence for place in self._partitions if place.ended]
        if not waiting:
            return None
        lowest = min(waiting)
        ready = all(
            place.begun is not None and place.newest >= lowest for place in self._partitions
        )
        return lowest if ready else None

    def _end(self, sequence: int) -> None:
        for place in self._partitions:
            if place.ended and place.ended[0][-1].sequence == sequence:
                for record in place.ended.popleft():
                    self._put(place, record)
        if self._kept is not None:
            for bucket in sorted(self._stable)[: max(0, len(self._stable) - self._kept)]:
                del self._stable[bucket]

    def _put(self, place: _Partition, record: LiveRecord) -> None:
        if record.kind is Kind.INSERTION and record.id is not None:
            self._stable.setdefault(record.id.bucket, []).append(record)
            self._by_key[record.key] = record
        elif record.kind is Kind.TENTATIVE and record.id is not None:
            place.tentative.setdefault(record.id.bucket, []).append(record)
        elif record.kind is Kind.BOUNDARY:
            self._void(place, record.stable)
            if record.shown and not self._boundary.shown:
                self.failures += 1
            self._boundary = record
        else:
            self._void(place, None)

    def _void(self, place: _Partition, upto: int | None) -> None:
        for bucket in [b for b in place.tentative if upto is None or b <= upto]:
            self.undone += len(place.tentative.pop(bucket))


class LiveView:
    """The current answer of one live topic (not of an upsert view: there the topic itself is
    the answer). Not thread-safe.
    """

    def __init__(self, partitions: int, *, buckets_kept: int | None = None) -> None:
        """Start with an empty answer. ``buckets_kept``: number of newest stable buckets that
        ``records`` returns; None for all that were read.
        """
        self._count, self._kept = partitions, buckets_kept
        self._answers: dict[str, _Answer] = {}
        """Answers by origin: the one that is shown, and those of newer origins."""
        self._read: list[str | None] = [None] * partitions
        """Origin of the newest record, by partition."""
        self._past: dict[str, None] = {}
        """Origins that a newer one follows in some partition, ORIGINS_MAX at most."""
        self._shown = _Answer(partitions, buckets_kept)

    @property
    def sequence(self) -> int:
        """Return the number of the last applied transaction; 0 if there is none yet."""
        return self._shown.boundary.sequence

    @property
    def stable_upto(self) -> int:
        """Every bucket up to this one is stable."""
        return self._shown.boundary.stable

    @property
    def stable_ms(self) -> int:
        """The answer is stable up to this event time, ms."""
        return self._shown.boundary.stable_ms

    @property
    def shown_ms(self) -> int:
        """The answer reaches up to this event time, ms: what is after ``stable_ms`` may still
        change.
        """
        return max(self._shown.boundary.shown_ms, self.stable_ms)

    @property
    def in_failure(self) -> bool:
        """Whether part of the answer is tentative, or was and its rec_done is still to come."""
        return self._shown.boundary.shown > 0

    @property
    def failures(self) -> int:
        """Number of failures that began."""
        return self._shown.failures

    @property
    def undone(self) -> int:
        """Number of tentative records that were taken back or replaced."""
        return self._shown.undone

    @property
    def gaps(self) -> int:
        """Number of transactions that a partition did not bring: retention has removed them."""
        return self._shown.gaps

    @property
    def missing(self) -> tuple[str, ...]:
        """Streams without which tentative parts of the answer were made."""
        return tuple(sorted({name for record in self.tentative() for name in record.missing}))

    @property
    def shed(self) -> int:
        """Largest per mille of the rows of their input that tentative parts of the answer lack."""
        return max((record.shed for record in self.tentative()), default=0)

    def take(self, partition: int, record: LiveRecord) -> bool:
        """Take the next record of a partition, in its order, or one from where it is read
        again; return whether the answer changed.
        """
        origin, before = record.origin, self._read[partition]
        if origin in self._past:
            return False  # of a producer that another one has replaced, or read again
        if origin != before:
            self._begin(partition, origin)
        if origin not in self._answers:
            self._answers[origin] = _Answer(self._count, self._kept)
        answer = self._answers[origin]
        changed = answer.take(partition, record)
        if changed and answer is not self._shown:
            self._shown = answer
            self._drop_past()
        return changed

    def stable(self) -> Iterator[LiveRecord]:
        """Return the stable records, in the order of their ids."""
        return self._shown.stable()

    def tentative(self) -> Iterator[LiveRecord]:
        """Return the records that may still change, in the order of their ids."""
        return self._shown.tentative()

    def records(self) -> Iterator[LiveRecord]:
        """Return the answer: stable records, then tentative ones."""
        yield from self.stable()
        yield from self.tentative()

    def by_key(self) -> dict[bytes | None, LiveRecord]:
        """Return the answer by key: the newest record of each (LV4)."""
        return self._shown.by_key()

    def _begin(self, partition: int, origin: str) -> None:
        """Switch ``partition`` to ``origin``, which follows the origin of its earlier records
        (LV6).
        """
        before, self._read[partition] = self._read[partition], origin
        if before is None:
            return
        self._past[before] = None
        if len(self._past) > ORIGINS_MAX:
            del self._past[next(iter(self._past))]
        self._drop_past()

    def _drop_past(self) -> None:
        """Forget the answers of origins that are past, except the one that is shown still."""
        self._answers = {
            origin: answer
            for origin, answer in self._answers.items()
            if origin not in self._past or answer is self._shown
        }


def _position(record: LiveRecord) -> int:
    return record.id.position if record.id is not None else -1


UPSERT_BYTES_MAX: Final = 1_024 * MIB
"""Keys and values that the upsert view of a live topic holds in memory, to know what to
restore: beyond it the process would be killed.
"""

_KEY_BYTES: Final = 200
"""Approximate memory per key, in bytes, beside the key and its values."""


@dataclass(frozen=True, slots=True)
class Version:
    """Value of a key, and the record that brought it."""

    id: RecordId
    event_time_ms: int
    value: bytes
    branch: tuple[int, int] | None = None
    """Branch of a tentative version; None if it is stable."""
    missing: tuple[str, ...] = ()
    shed: int = 0


@dataclass(frozen=True, slots=True)
class KeyState:
    """State of a key."""

    stable: Version | None = None
    tentative: Version | None = None

    @property
    def visible(self) -> Version | None:
        """Return the version that is in the topic (UV1)."""
        return self.tentative if self.tentative is not None else self.stable

    @property
    def size_bytes(self) -> int:
        """Return the total size of its values, in bytes."""
        return sum(len(v.value) for v in (self.stable, self.tentative) if v is not None)


@dataclass(frozen=True, slots=True)
class ViewRecord:
    """A record to write: ``state.visible``, with ``state.stable`` in its headers if that is
    not it; no visible version: a deletion.
    """

    key: bytes
    kind: Kind
    """INSERTION, TENTATIVE, or UNDO: an older stable version, or nothing, is back."""
    state: KeyState


Rows = Iterable[tuple[bytes, Version]]
"""Pairs (key, version), in the order of their ids."""


class UpsertView:
    """The state of one output's compacted view."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._keys: dict[bytes, KeyState] = {}
        self._touched: dict[int, set[bytes]] = {}
        """Keys with a tentative version, by its bucket."""
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def state(self, key: bytes) -> KeyState:
        """Return the state of ``key``."""
        return self._keys.get(key, KeyState())

    def restore(self, key: bytes, state: KeyState) -> None:
        """Apply the next record read back from the topic (UV3): a later record of a key replaces an
        earlier one.

        Raises:
            ConfigurationError: the view is larger than memory should hold.
        """
        before = self._keys.pop(key, None)
        if before is not None:
            self._size_bytes -= len(key) + before.size_bytes + _KEY_BYTES
            if before.tentative is not None:
                self._touched[before.tentative.id.bucket].discard(key)
        if state.visible is None:
            return
        self._keys[key] = state
        self._size_bytes += len(key) + state.size_bytes + _KEY_BYTES
        if state.tentative is not None:
            self._touched.setdefault(state.tentative.id.bucket, set()).add(key)
        if self._size_bytes > UPSERT_BYTES_MAX:
            raise ConfigurationError(
                f"output {self._output}: the upsert view of its live topic holds more than"
                f" {UPSERT_BYTES_MAX} bytes ({len(self._keys)} keys); leave out `upsert` and keep"
                " the newest value per key where the topic is read"
            )

    def transaction(
        self, *, undo: bool, insertions: Rows, stable_upto: int, tentative: Rows
    ) -> list[ViewRecord]:
        """Return the writes of one live transaction, after which stable results are delivered up to
        ``stable_upto``. Nothing changes here yet (UV4).
        """
        after: dict[bytes, KeyState] = {}
        for bucket, keys in self._touched.items():
            if undo or bucket <= stable_upto:
                after.update({key: KeyState(self._keys[key].stable) for key in sorted(keys)})
        inserted = set()
        for key, version in insertions:
            now = after.get(key) or self.state(key)
            after[key] = KeyState(version, now.tentative)
            inserted.add(key)
        for key, version in tentative:
            now = after.get(key) or self.state(key)
            after[key] = KeyState(now.stable, version)
        return [
            ViewRecord(key, _kind(state, inserted=key in inserted), state)
            for key, state in after.items()
            if state != self.state(key)
        ]

    def apply(self, writes: Iterable[ViewRecord]) -> None:
        """Apply ``writes``, which are committed."""
        for write in writes:
            self.restore(write.key, write.state)
        for bucket in [bucket for bucket, keys in self._touched.items() if not keys]:
            del self._touched[bucket]


def _kind(state: KeyState, *, inserted: bool) -> Kind:
    if state.tentative is not None:
        return Kind.TENTATIVE
    return Kind.INSERTION if inserted else Kind.UNDO
