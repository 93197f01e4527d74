"""Whether the replicas of a stage agree, what of its results it has given up, and which of both
raises an alarm.

Theory of operation. Replicas of a stage make the same rows. So the digests of a bucket (sum modulo
2**64 of the hashes of its rows, over all its parts) must be equal if the plans are equal.
``StreamAudit`` gets every record of a boundary log after the log state took it, and compares a
bucket as soon as a second replica has closed it. Floating-point values are not in the digest, so a
difference is a true one. They depend on the order of additions, so they are compared row by row
with a tolerance (``codec.float_comparison``), in samples: ``agreed`` is the newest bucket for which
two replicas have the same digest.

A replica's results depend on its state, and its state depends on every plan it has run and on the
bucket at which each plan replaced the previous one. This is its *history*: a record has the history
of the record that it continues, unless another plan made it. Two replicas are compared if their
histories are equal: they always ran the same plan, or each change found them at the same place, as
when a pipeline at rest is stopped and changed as a whole. A replica that copies a peer's checkpoint
has the peer's history, if all peers that it can have copied from have the same one, and continued
from there by the plan of the copy.

Other plans are other functions, and may make other rows. If a stage has a new version, that is the
purpose. Two plans of the same version are a mistake of the person who changed the function, and
both count. A bucket in which these differ raises an alarm, too, but no replica is outvoted.

A stage with ``amnesia`` gives up results when it loses its disk. Its log says which (SH3 of
``protocol.stage.recovery``), and ``GapBook`` tells people once for each gap.

Invariants:
    CN1 two buckets are compared at most once, only when both writers closed them, they are their
        own, and their histories are equal, or their plans are different ones of one version. Only
        the former have votes.
    CN2 an empty bucket is compared too: nothing against something is a difference.
    CN3 memory is bounded whatever a replica does or does not do; what was given up is counted in
        ``uncompared``.
    CN4 of a log that is read from a log snapshot on, only buckets are compared that both replicas
        closed after it. (The writer of the log snapshot compared the earlier ones.) The history
        continues from what the log snapshot says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from anabranch.protocol.control.fencing import outvoted
from anabranch.protocol.control.records import Alarm, Vote
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHAIN_RECORDS_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome, contents
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    LogSnapshot,
    Part,
    Recomputed,
)

COMPARED_BUCKETS_MAX: Final = 20_000
"""Non-empty buckets of one replica whose digests wait for a peer: a replica that is down must
not make the manager's memory grow.
"""

ALARMS_PER_PAIR_MAX: Final = 100
"""Alarms about one pair of replicas: where every bucket differs a person needs to know once,
not for every bucket.
"""

FLOAT_ROWS_MAX: Final = 20_000
"""Rows of a bucket whose floating-point numbers are compared between two replicas: larger
ones would cost the manager more than they show.
"""

MISMATCH: Final = "digest_mismatch"
FLOAT_MISMATCH: Final = "float_mismatch"
REJECTED: Final = "result_rejected"
ROWS_REJECTED: Final = "rows_rejected"
RECOMPUTED_DIFFER: Final = "recomputed_rows_differ"
"""Kind of an alarm: a replica that recomputed buckets for a reader made other rows. The reader asks
again and again, and each reply remains in its topic.
"""
RECORD_REFUSED: Final = "record_refused"
"""Kind of an alarm: a partner that may run a stage wrote a record into the stage's log that
contradicts the pipeline file (``protocol.log.boundary_log``, BL22).
"""
LOG_UNREAD: Final = "log_unread"
"""Kind of an alarm: the boundary log of a stream has lost records, and a person must restore it
(``protocol.log.unread_logs``, UR4).
"""
_EMPTY: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Bucket in which two replicas have different rows."""

    stream: str
    bucket: int
    first: tuple[str, int, int]
    """(replica, rows, digest) of the replica that closed the bucket first."""
    second: tuple[str, int, int]
    stands: str = ""
    """Replica whose rows the stream has; empty if the bucket is not stable yet, or if a third
    replica closed it first, without rows.
    """
    votes: tuple[Vote, ...] = ()
    """Results of all replicas that closed the bucket, where one of them is outvoted."""
    outvoted: tuple[str, ...] = ()
    """Replicas that a majority of at least three contradicts (``protocol.control.fencing``)."""
    is_of_one_plan: bool = True
    """Else the two run different code under one version of the stage."""

    @property
    def pair(self) -> tuple[str, str, str]:
        """Stream and the two replicas, in an order that does not depend on which was first."""
        low, high = sorted((self.first[0], self.second[0]))
        return self.stream, low, high

    def text(self) -> str:
        """Return the mismatch in words: the same whenever it is found, so that an alarm is
        recognised.
        """
        (first, rows, digest), (second, other_rows, other_digest) = self.first, self.second
        whose = (
            f"those of replica {self.stands}" if self.stands else "those that were first in the log"
        )
        plan = "the same plan" if self.is_of_one_plan else "different code of the same version"
        return (
            f"replicas {first} and {second} of {self.stream} made different rows of bucket"
            f" {self.bucket} by {plan}: {rows} rows with digest {digest:016x} against"
            f" {other_rows} rows with digest {other_digest:016x}; {whose} stand"
        )


@dataclass(frozen=True, slots=True)
class Agreed:
    """Bucket in which two replicas have the same rows, as far as the digest shows."""

    bucket: int
    first: tuple[str, tuple[Part, ...]]
    """(replica, its parts); without parts if they are forgotten."""
    second: tuple[str, tuple[Part, ...]]


@dataclass(frozen=True, slots=True)
class _Point:
    """Position of a replica after a record."""

    fingerprint: str
    """Fingerprint of the plan that made the record."""
    history: str
    """Plans of the replica, with the bucket at which each replaced another; empty if unknown."""
    place: str


@dataclass(frozen=True, slots=True)
class _Span:
    """Origin of one replica's buckets from ``first`` on."""

    first: int
    fingerprint: str
    """Fingerprint of the plan."""
    history: str
    """Plans of the replica, with the bucket at which each replaced another; empty if unknown."""
    epoch: int
    """Epoch of the process; -1 if it is not known."""


_UNKNOWN: Final = _Span(0, "", "", -1)


@dataclass(slots=True)
class _Replica:
    """Buckets that one writer has closed and that are still to be compared."""

    closed: int = 0
    base: int = 0
    fingerprint: str = ""
    order: list[int] = field(default_factory=list)
    """Closed buckets that are not empty, ascending."""
    digests: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(rows, digest) of the buckets in ``order``, which are closed and not empty."""
    points: dict[BatchId, _Point] = field(default_factory=dict)
    """Positions after the newest CHAIN_RECORDS_MAX records."""
    spans: list[_Span] = field(default_factory=list)

    def span(self, bucket: int) -> _Span:
        """Return the origin of ``bucket``, which may still be open."""
        at = bisect_right(self.spans, bucket, key=lambda span: span.first)
        return self.spans[at - 1] if at else _UNKNOWN


class StreamAudit:
    """Compares the replicas of one stage. Tell it every record right after the log state took
    it.
    """

    def __init__(self, stream: str, writers: Iterable[str]) -> None:
        self._stream = stream
        self._replicas = {w: _Replica() for w in writers}
        self.compared = 0
        self.agreed: Agreed | None = None
        """The newest bucket that two replicas made alike; none of more than FLOAT_ROWS_MAX rows."""
        self.uncompared = 0
        """Buckets of two replicas that were given up by CN3 or CN4, or whose histories differ."""
        self.floor = 0
        """Buckets up to this one are compared, or never will be."""

    def seen(self, log_state: LogState, entry: LogEntry, outcome: Outcome) -> list[Mismatch]:
        """Take note of a record; the differences that it shows. The log state may forget
        buckets up to ``floor``.
        """
        if (
            not outcome.accepted
            or isinstance(entry, (BranchEnded, Recomputed))
            or outcome.reason == "tentative"
        ):
            # tentative buckets of two replicas may well differ; what is recomputed was compared
            return []
        found: list[Mismatch] = []
        if isinstance(entry, BoundaryRecord) and entry.heirs:
            # An end closes no bucket of its writer's own, which may be behind the others.
            return []
        if isinstance(entry, LogSnapshot):
            self._adopt(log_state, entry)
        elif isinstance(entry, EpochStarted):
            self._replicas[entry.replica].fingerprint = entry.fingerprint
        else:
            self._continued(self._replicas[entry.replica], entry)
            found = self._closed(log_state, entry.replica, self._replicas[entry.replica], entry)
        self._forget()
        return found

    def history(self, replica: str) -> str:
        """Return the plans by which the replica's chain was made, for a log snapshot; empty if they
        are not known.
        """
        spans = self._replicas[replica].spans
        return spans[-1].history if spans else ""

    def _adopt(self, log_state: LogState, log_snapshot: LogSnapshot) -> None:
        """Restore the buckets and plans of a log snapshot (CN4)."""
        stated = {r.replica: r for r in log_snapshot.replicas}
        for name, replica in self._replicas.items():
            replica.closed = replica.base = log_state.closed(name)
            replica.fingerprint = log_state.fingerprint(name)
            if name in stated and (last := stated[name].last) is not None:
                plan, history = log_state.origin(name).tip_by, stated[name].history
                replica.points = {last.id: _Point(plan, history, _place(last))}
                replica.spans = [_Span(replica.closed + 1, plan, history, last.epoch)]
        self.floor = max(r.closed for r in self._replicas.values())
        slowest = min(r.closed for r in self._replicas.values())
        self.uncompared += (
            len(log_state.stable(max(slowest, log_state.forgotten) + 1, log_state.upto))
            if log_state.upto > log_state.forgotten
            else 0
        )

    def _continued(self, replica: _Replica, record: BoundaryRecord) -> None:
        """Take note of the history of ``record``, which is that of what it closes from now on."""
        plan = replica.fingerprint
        before = None if record.prev is None else replica.points.get(record.prev)
        if record.base is not None:
            history = self._copied(replica, record.base)
        elif record.prev is None:
            history = (
                _joined(plan, record.closed) if record.missing else plan
            )  # missing: it began late (``protocol.stage.recovery``)
        elif before is None or not before.history:
            history = ""
        elif before.fingerprint == plan:
            history = before.history
        else:
            history = _joined(before.history, before.place, plan)
        replica.points.pop(record.id, None)
        replica.points[record.id] = _Point(plan, history, _place(record))
        if len(replica.points) > CHAIN_RECORDS_MAX:
            del replica.points[next(iter(replica.points))]
        latest = replica.spans[-1] if replica.spans else _UNKNOWN
        if (latest.history, latest.epoch) != (history, record.epoch):
            first = max(replica.closed, record.base or 0) + 1
            replica.spans.append(_Span(first, plan, history, record.epoch))

    def _copied(self, replica: _Replica, base: int) -> str:
        """Return the history of a peer's checkpoint that holds everything up to ``base``, from
        which the peer continued by the same plan; empty if it did not, or it depends on whose it
        is.
        """
        able = {
            span.history if span.fingerprint == other.fingerprint == replica.fingerprint else ""
            for other in self._replicas.values()
            if other is not replica and other.spans
            for span in (other.span(base + 1),)
        }
        return able.pop() if len(able) == 1 else ""

    def _closed(
        self, log_state: LogState, name: str, replica: _Replica, record: BoundaryRecord
    ) -> list[Mismatch]:
        if record.base is not None:
            replica.base = max(replica.base, record.base)
        before, replica.closed = replica.closed, log_state.closed(name)
        closing = log_state.replica_filled(name, before + 1, replica.closed)
        replica.order += closing
        for bucket in closing:
            replica.digests[bucket] = contents(log_state.replica_bucket(name, bucket) or ())
        after = max(before, replica.base, self.floor)
        return [
            m
            for other in self._replicas
            if other != name
            for m in self._compare(log_state, name, other, after)
        ]

    def _compare(self, log_state: LogState, name: str, other: str, after: int) -> list[Mismatch]:
        """Compare what ``name`` closed just now, the buckets above ``after``, with what
        ``other`` closed earlier.
        """
        mine, theirs = self._replicas[name], self._replicas[other]
        after, last = max(after, theirs.base), min(mine.closed, theirs.closed)
        buckets = {
            b
            for r in (mine, theirs)
            for b in r.order[bisect_right(r.order, after) : bisect_right(r.order, last)]
        }
        found = []
        for bucket in sorted(buckets):
            history = mine.span(bucket).history
            is_of_one_plan = bool(history) and history == theirs.span(bucket).history
            self.compared += is_of_one_plan
            self.uncompared += not is_of_one_plan
            one, two = theirs.digests.get(bucket, _EMPTY), mine.digests.get(bucket, _EMPTY)
            made = (other, *one), (name, *two)
            if one == two:
                if is_of_one_plan and one[0] <= FLOAT_ROWS_MAX:
                    parts = [(r, log_state.replica_bucket(r, bucket) or ()) for r in (other, name)]
                    self.agreed = Agreed(bucket, *parts)
            elif is_of_one_plan or self._differ_by_mistake(log_state, name, other, bucket):
                votes = self._votes(bucket, history) if is_of_one_plan else ()
                lost = outvoted({v.replica: (v.rows, v.digest) for v in votes})
                stands = _stands(log_state, bucket, *made)
                found.append(
                    Mismatch(
                        self._stream,
                        bucket,
                        *made,
                        stands,
                        votes if lost else (),
                        lost,
                        is_of_one_plan,
                    )
                )
        return found

    def _differ_by_mistake(self, log_state: LogState, name: str, other: str, bucket: int) -> bool:
        """Return whether the process of ``other`` that closed ``bucket`` still writes, and has
        another plan than that of ``name`` though the same version.
        """
        return (
            self._replicas[other].span(bucket).epoch == log_state.epoch(other)
            and self._replicas[name].fingerprint != self._replicas[other].fingerprint
            and log_state.version_of(name) == log_state.version_of(other)
        )

    def _votes(self, bucket: int, history: str) -> tuple[Vote, ...]:
        """Return the results of the replicas that closed ``bucket`` with ``history``."""
        return tuple(
            Vote(name, replica.span(bucket).epoch, *replica.digests.get(bucket, _EMPTY))
            for name, replica in self._replicas.items()
            if replica.base < bucket <= replica.closed and replica.span(bucket).history == history
        )

    def _forget(self) -> None:
        slowest = floor = min(r.closed for r in self._replicas.values())
        for replica in self._replicas.values():
            if len(replica.order) > COMPARED_BUCKETS_MAX:
                floor = max(floor, replica.order[len(replica.order) // 2])
        for replica in self._replicas.values():
            self.uncompared += max(
                0, bisect_right(replica.order, floor) - bisect_right(replica.order, slowest)
            )
        if floor <= self.floor:
            return
        self.floor = floor
        for replica in self._replicas.values():
            cut = bisect_right(replica.order, floor)
            for bucket in replica.order[:cut]:
                del replica.digests[bucket]
            del replica.order[:cut]
            while len(replica.spans) > 1 and replica.spans[1].first <= floor:
                del replica.spans[0]


def _place(record: BoundaryRecord) -> str:
    """Return the position of a replica after ``record``, as text."""
    return f"{record.closed} {record.made_from}"


def _joined(*facts: object) -> str:
    return blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def _stands(log_state: LogState, bucket: int, *made: tuple[str, int, int]) -> str:
    """Return the replica whose version of ``bucket`` is the stream's: of two that differ, or a
    third one.
    """
    if bucket > log_state.upto:
        return ""
    stable = log_state.stable(bucket, bucket)
    return stable[0][1] if stable else next((replica for replica, rows, _ in made if not rows), "")


class AlarmBook:
    """Alarms that were raised already, from the alarm topic: a restart finds the same differences
    again.
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, int, str]] = set()
        self._pairs: Counter[tuple[str, str, str]] = Counter()

    def known(self, alarm: Alarm) -> None:
        """Note an alarm that is in the topic."""
        if alarm.kind in _ONCE:
            self._known.add((alarm.stream, alarm.bucket, alarm.text))

    def is_new(self, alarm: Alarm) -> bool:
        """Return whether to raise ``alarm``; from then on it is known."""
        new = (alarm.stream, alarm.bucket, alarm.text) not in self._known
        self.known(alarm)
        return new

    def alarm(self, mismatch: Mismatch, now_ms: int) -> Alarm | None:
        """Return the alarm to raise; None if it is known, or these replicas have enough of them."""
        self._pairs[mismatch.pair] += 1
        text = mismatch.text()
        if (mismatch.stream, mismatch.bucket, text) in self._known or self._pairs[
            mismatch.pair
        ] > ALARMS_PER_PAIR_MAX:
            return None
        alarm = Alarm(MISMATCH, mismatch.stream, mismatch.bucket, text, now_ms)
        self.known(alarm)
        return alarm


SPLIT_DIFFERS: Final = "split_differs"
"""Kind of an alarm: the halves of a shard made something else than the shard
(``protocol.stage.splitting``).
"""

GAP: Final = "gap"
"""Kind of an alarm: results were given up."""


_ONCE: Final = frozenset(
    {
        MISMATCH,
        FLOAT_MISMATCH,
        GAP,
        REJECTED,
        ROWS_REJECTED,
        RECOMPUTED_DIFFER,
        RECORD_REFUSED,
        SPLIT_DIFFERS,
    }
)
"""Kinds of alarms that are raised once for one cause, over all restarts of the manager."""


class GapBook:
    """The gaps of one stream, as its log says them: for alarms. Reading the log again gives
    the same, as far as it is still there.
    """

    def __init__(self, stream: str, horizon_buckets: int, width_ms: int) -> None:
        self._stream = stream
        self._horizon_buckets = horizon_buckets
        self._width_ms = width_ms
        self._closed = 0
        self.lost = 0
        """Buckets that were given up, as far as the log was read."""

    def seen(self, entry: LogEntry, outcome: Outcome, now_ms: int) -> Alarm | None:
        """Take note of a record right after the log state took it; the alarm, where a gap
        begins.
        """
        if outcome.accepted and isinstance(entry, LogSnapshot):
            self._closed = max(r.closed for r in entry.replicas)
            return None
        if (
            not outcome.accepted
            or not isinstance(entry, BoundaryRecord)
            or entry.kind is not BoundaryKind.STABLE
        ):
            return None
        before, self._closed = self._closed, max(self._closed, entry.closed)
        if not entry.missing or entry.positions:
            return None
        self.lost += self._closed - before
        if entry.prev is not None:
            return None
        first, last = before + 1, max(before, entry.closed) + self._horizon_buckets
        text = (
            f"{self._stream} lost its state: the results of buckets {first}..{last} (times"
            f" {before * self._width_ms} to {last * self._width_ms} ms) are given up, as ha:"
            " amnesia wants it; those after are right"
        )
        return Alarm(GAP, self._stream, first, text, now_ms)
