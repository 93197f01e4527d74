"""Judgement of a run: pure functions over what was seen. Times are ms since 1970 unless a name says
otherwise.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry
from chaos.schedule import OVERLOAD, Kind, has_peer, service_of
from checkers import streams
from demo import live_checker, tentative
from demo.comparing import shortened
from demo.live import Delay
from demo.live_checker import LiveRecord
from demo.reporting import TOLLS_MIN
from demo.stalls import Stall, judged
from demo.story import LiveTopic
from demo.tentative import Road

MASKED_MS: Final = 5_000
"""A fault is masked when the next result comes no later than without it, and this: a replica
that starts again takes the cores from its peer.
"""
_WAIT_STEP_MS: Final = 100
_EXAMPLE_CHARS: Final = 700
_EXAMPLES_MAX: Final = 10


class Injected(NamedTuple):
    """A fault as it happened. ``begun_ms``: before it was done; ``ended_ms``: after it was
    undone (or done, if nothing is to be undone).
    """

    number: int
    kind: Kind
    target: str
    begun_ms: int
    ended_ms: int


class Seen(NamedTuple):
    """A result on the corrected topic: its time, and when a reader had it."""

    event_time_ms: int
    received_ms: int


class Waits:
    """How long after a moment the first result came that is about a time after it.

    Such a result needs all sources, stages and the delivery to work after that moment: what was
    under way before does not count.
    """

    def __init__(self, results: Iterable[Seen]) -> None:
        ordered = sorted(results)
        self._event_times = [result.event_time_ms for result in ordered]
        self._first = [result.received_ms for result in ordered]
        for place in range(len(ordered) - 2, -1, -1):
            self._first[place] = min(self._first[place], self._first[place + 1])

    def after(self, moment_ms: int) -> int | None:
        """Return the wait for a result after ``moment_ms``; None if no such result came."""
        place = bisect.bisect_right(self._event_times, moment_ms)
        return None if place == len(self._event_times) else self._first[place] - moment_ms

    def usual(self, begin_ms: int, end_ms: int, stalls: Sequence[Stall] = ()) -> list[int]:
        """Return the waits after all moments of a time without faults that no stall overlaps."""
        waits = (
            (moment_ms, wait_ms)
            for moment_ms in range(begin_ms, end_ms, _WAIT_STEP_MS)
            if (wait_ms := self.after(moment_ms)) is not None
        )
        clear, _, _ = judged(waits, stalls, lambda each: (each[0], each[0] + each[1]))
        return [wait_ms for _, wait_ms in clear]


class Recovery(NamedTuple):
    """Effect of one fault on the results. None: no result came any more."""

    fault: Injected
    during_ms: int | None
    """From its begin to the first new result."""
    after_ms: int | None
    """From its end to the first new result."""
    is_disturbed: bool
    """Another fault was there before that result, or still was when this one began: the times
    say nothing about this one.
    """


def recoveries(
    faults: Sequence[Injected], results: Iterable[Seen], half_done: Sequence[Injected] = ()
) -> list[Recovery]:
    """Return the recovery from each fault. ``half_done``: faults that may have struck besides."""
    waits = Waits(results)
    found = []
    for fault in faults:
        during, after = waits.after(fault.begun_ms), waits.after(fault.ended_ms)
        back_ms = math.inf if after is None else fault.ended_ms + after
        others = [other for other in (*faults, *half_done) if other.number != fault.number]
        alone = all(
            other.begun_ms >= back_ms or _back_ms(waits, other) <= fault.begun_ms
            for other in others
        )
        found.append(Recovery(fault, during, after, not alone))
    return found


def _back_ms(waits: Waits, fault: Injected) -> float:
    after = waits.after(fault.ended_ms)
    return math.inf if after is None else fault.ended_ms + after


_NETWORK: Final = frozenset(
    {Kind.CUT, Kind.CUT_TO, Kind.CUT_FROM, Kind.RESET, Kind.SLOW, Kind.PAUSE, Kind.ZOMBIE}
)
_BROKER: Final = frozenset({Kind.BROKER_STOP, Kind.BROKER_KILL, Kind.BROKER_PAUSE})
_REDIS: Final = frozenset({Kind.REDIS_KILL, Kind.REDIS_EMPTY, Kind.REDIS_PAUSE})
_SERVICE_BACK_MS: Final = 30_000
_NETWORK_BACK_MS: Final = 30_000
_BROKER_BACK_MS: Final = 45_000
_CORRECTED_MS: Final = 90_000
"""Time in which all reports of a rush are processed, in ms. In a clean run those of ten seconds
were 67 s after its end, with the broker paused for 12 s meanwhile.
"""


INJECTED_MIN: Final = 0.8
"""Minimum share of the planned faults that must have happened, or the run shows less than
it says.
"""
USUAL_MS_MAX: Final = 12_000
"""Maximum usual delay, in ms, above which the machine is too slow to judge times: they would show
its queue.
"""
USUAL_LIVE_MS_MAX: Final = 5_000
"""Maximum usual delay of the live topic, in ms: late results are judged against it."""


def goal_ms(kind: Kind, target: str, targets: Sequence[str], usual_ms: int) -> tuple[str, int]:
    """Return what is judged, ``during`` or ``after``, and how long it may take, if a result without
    a fault takes up to ``usual_ms``.
    """
    if kind in _REDIS or has_peer(target, targets) or service_of(target) == "consistency_manager":
        return "during", usual_ms + MASKED_MS
    if kind in _BROKER:
        return "after", usual_ms + _BROKER_BACK_MS
    if kind in OVERLOAD:
        return "after", usual_ms + _CORRECTED_MS
    back_ms = _NETWORK_BACK_MS if kind in _NETWORK else _SERVICE_BACK_MS
    return "after", usual_ms + (2 * back_ms if kind is Kind.KILL_TWICE else back_ms)


def too_slow(usual_ms: Sequence[int]) -> str:
    """Return why no times can be judged; empty: they can.

    ``usual_ms``: delays without a fault and outside of stalls of the machine.
    """
    if not usual_ms:
        return "nothing came before the first fault outside of stalls of the machine"
    if max(usual_ms) > USUAL_MS_MAX:
        return (
            f"without any fault a result took {max(usual_ms) / 1_000:.1f} s, more than"
            f" {USUAL_MS_MAX / 1_000:g} s"
        )
    return ""


class Late(NamedTuple):
    """A result that came later than allowed."""

    text: str
    begin_ms: int
    """Time of its input, from which its delay counts."""
    came_ms: int | None
    """None: it never came, which no stall explains."""

    @property
    def span_ms(self) -> tuple[int, int]:
        """Time in which a stall explains it."""
        return self.begin_ms, self.begin_ms if self.came_ms is None else self.came_ms


def late_recoveries(found: Iterable[Recovery], targets: Sequence[str], usual_ms: int) -> list[Late]:
    """Return the clear faults that were not recovered from in time."""
    wrong = []
    for each in found:
        what, limit_ms = goal_ms(each.fault.kind, each.fault.target, targets, usual_ms)
        took_ms: int | None = getattr(each, f"{what}_ms")
        if not each.is_disturbed and (took_ms is None or took_ms > limit_ms):
            took = "never" if took_ms is None else f"{took_ms / 1_000:.1f} s"
            begin_ms = each.fault.begun_ms if what == "during" else each.fault.ended_ms
            text = (
                f"{each.fault.kind} {each.fault.target}: a new result came after {took}, allowed"
                f" are {limit_ms / 1_000:.1f} s"
            )
            wrong.append(Late(text, begin_ms, None if took_ms is None else begin_ms + took_ms))
    return wrong


def late_on_live(
    late: Iterable[Delay],
    found: Sequence[Recovery],
    targets: Sequence[str],
    calm: tuple[int, int],
    max_delay_ms: int,
    stalls: Sequence[Stall] = (),
) -> list[Late]:
    """Return the results that the live topic showed later than ``max_delay`` allows.

    The bound covers sources, and replicas that have peers (docs/concepts.md). Of other faults, and
    of those that met another one, nothing is judged from their begin until results are back. A rush
    is covered until another fault meets it;
    ``calm``: a time without faults, which says what is usual, of which USUAL_LIVE_MS_MAX counts.
    ``stalls``: of the machine; what they overlap is not usual.
    """
    every = list(late)
    usual, _, _ = judged(
        (each for each in every if calm[0] <= each.event_time_ms < calm[1]),
        stalls,
        lambda each: (each.event_time_ms, each.covered_ms),
    )
    usual_ms = max((each.delay_ms for each in usual), default=0)
    bound_ms = min(usual_ms, USUAL_LIVE_MS_MAX) + max_delay_ms
    shadows = [
        (
            each.fault.begun_ms,
            math.inf if each.after_ms is None else each.fault.ended_ms + each.after_ms,
        )
        for each in found
        if each.fault.kind not in OVERLOAD
        and (each.is_disturbed or not _is_covered(each.fault, targets))
    ]
    return [
        Late(
            f"live: the results of {each.event_time_ms} came {each.delay_ms / 1_000:.1f} s later,"
            f" allowed are {bound_ms / 1_000:.1f} s",
            each.event_time_ms,
            each.covered_ms,
        )
        for each in every
        if each.event_time_ms >= calm[0]
        and each.delay_ms > bound_ms
        and not any(
            begin <= each.covered_ms and each.event_time_ms <= end for begin, end in shadows
        )
    ]


def in_words(late: Sequence[Late]) -> list[str]:
    """Return the texts of the first ones."""
    return [each.text for each in late[:_EXAMPLES_MAX]]


def _is_covered(fault: Injected, targets: Sequence[str]) -> bool:
    service = service_of(fault.target)
    return (
        fault.kind in _REDIS
        or service in {"ingestion", "consistency_manager"}
        or has_peer(fault.target, targets)
    )


def too_few(injected: int, planned: int) -> list[str]:
    """Return an error if too few of the planned faults happened: the run shows less than its plan
    says.
    """
    return (
        []
        if injected >= INJECTED_MIN * planned
        else [f"only {injected} of {planned} planned faults happened"]
    )


def too_little(records_in: int, least: int, tolls: int) -> list[str]:
    """Return an error if too little was written to show anything: of ``records_in``, ``least`` were
    meant to be written; ``tolls`` results cost something.
    """
    few = [f"{records_in} records were written, not {least}"] if records_in < least else []
    none = [f"{tolls} results cost something, at least {TOLLS_MIN} must"]
    return few + (none if tolls < TOLLS_MIN else [])


class Digest(NamedTuple):
    """Digest of a bucket as a replica states it."""

    rows: int
    digest: int


class Made(NamedTuple):
    """Results of a replica's stream."""

    digests: dict[int, Digest]
    """Digests of the buckets with rows that it closed."""
    failed_over: list[tuple[int, int]]
    """(first, last) buckets that it left to a peer, whose checkpoint it took."""


def made_by(
    entries: Iterable[tuple[int, LogEntry]], replicas: Sequence[str]
) -> tuple[dict[str, Made], dict[str, int]]:
    """({replica: what it made}, {why a boundary record did not count: how often}) of a
    boundary log, read from its beginning.
    """
    reading = streams.read(entries, replicas)
    found = {}
    for name, writer in reading.writers.items():
        made = {
            bucket: Digest(
                sum(part.rows for part in parts), sum(part.digest for part in parts) % 2**64
            )
            for bucket, parts in writer.closed_parts.items()
            if any(part.rows for part in parts)
        }
        found[name] = Made(made, _failed_over(writer))
    return found, reading.rejected


def _failed_over(writer: streams.Writer) -> list[tuple[int, int]]:
    found = []
    closed = 0
    for _, record in writer.accepted:
        if record.base is not None and record.base > closed:
            found.append((closed + 1, record.base))
        closed = max(closed, record.closed, record.base or 0)
    return found


def ended_at(entries: Iterable[LogEntry]) -> int | None:
    """Return the last bucket of a shard's stream that has ended, because its halves have taken
    over; None: it has not ended.
    """
    for entry in entries:
        if isinstance(entry, BoundaryRecord) and entry.heirs > 0:
            return entry.closed
    return None


def continuing(parents: Mapping[str, str], ended: Collection[str]) -> set[str]:
    """Return the stages whose streams are read to the end. ``parents``: stage -> shard that it is a
    half of, empty for others; ``ended``: shards whose streams have ended.
    """
    return {
        name
        for name, parent in parents.items()
        if name not in ended and (not parent or parent in ended)
    }


def compare_digests(
    stream: str, found: Mapping[str, Made], *, continues: bool = True, whole_after: float = 0
) -> list[str]:
    """Return the differences between replicas, in words: in a bucket that both computed, in one
    that only one of them has, in the last one.

    Args:
        stream: Name of the stream.
        found: Results of each replica.
        continues: Whether readers follow the stream to the end; replicas of another one stop where
            they are, so the last one is not compared.
        whole_after: Bucket up to which a replica need not have rows: each replica of a half begins
            with the input that there was at its start, before the shard ends.
    """
    wrong = []
    for one, other in combinations(sorted(found), 2):
        mine, theirs = found[one].digests, found[other].digests
        differing = sorted(
            bucket for bucket in mine.keys() & theirs.keys() if mine[bucket] != theirs[bucket]
        )
        wrong += [
            f"{stream}: bucket {bucket} of replica {one} is {mine[bucket]}, of {other}"
            f" {theirs[bucket]}"
            for bucket in differing[:_EXAMPLES_MAX]
        ]
        if continues and max(mine, default=0) != max(theirs, default=0):
            wrong.append(
                f"{stream}: the last bucket with rows of replica {one} is {max(mine, default=0)},"
                f" of {other} {max(theirs, default=0)}"
            )
        for name, without, has in ((one, found[one], theirs), (other, found[other], mine)):
            last = max(without.digests, default=0)
            gone = [
                bucket
                for bucket in sorted(has.keys() - without.digests.keys())
                if whole_after < bucket < last
                and not any(low <= bucket <= high for low, high in without.failed_over)
            ]
            if gone:
                wrong.append(
                    f"{stream}: replica {name} has no rows in {len(gone)} buckets where its peer"
                    f" has some, such as {gone[0]}"
                )
    return wrong


def live_promises(
    name: str,
    topic: LiveTopic,
    end_ms: int,
    road: Road,
    missing_of: Callable[[int], Collection[str]],
    shed_of: Callable[[int], int] = lambda _: 0,
) -> list[str]:
    """Return the promises that a live topic broke, in words, up to the transaction by which
    everything until ``end_ms`` is stable. Every failure is over by then. ``missing_of``,
    ``shed_of``: streams missing for a bucket that was shown without results, and per mille of the
    rows that it lacks, by the logs of the stages.
    """
    verdict = live_checker.check(
        topic.records(),
        topic.partitions,
        road.answer,
        is_complete=True,
        end_ms=end_ms,
        sheds=road.kept is not None,
    )
    wrong = [*verdict.wrong]
    streams_all = {*road.sources, tentative.STAGE, *tentative.HALVES}
    wrong += tentative.check(
        topic.transactions(end_ms), road, lambda _: streams_all, missing_of, shed_of
    )
    if not verdict.undos <= verdict.failures == verdict.rec_dones:
        wrong.append(
            f"{verdict.failures} failures, {verdict.undos} undos, {verdict.rec_dones} rec_dones"
        )
    return [f"{name}: {text}" for text in shortened(wrong)]


def missing_by_bucket(entries: Iterable[LogEntry]) -> Callable[[int], Collection[str]]:
    """Return the streams that a stage's branches state as missing for a bucket: those of all
    branches that closed it.
    """
    ranges = _tentative_ranges(entries)
    return lambda bucket: {
        name for first, last, each in ranges if first <= bucket <= last for name in each.missing
    }


def shed_by_bucket(entries: Iterable[LogEntry]) -> Callable[[int], int]:
    """Return the largest per mille of the rows that a branch that closed a bucket left out of
    it.
    """
    ranges = _tentative_ranges(entries)
    return lambda bucket: max(
        (each.shed for first, last, each in ranges if first <= bucket <= last), default=0
    )


def _tentative_ranges(entries: Iterable[LogEntry]) -> list[tuple[int, int, BoundaryRecord]]:
    """Return (first bucket, last bucket, record) of what branches closed."""
    closed_upto: dict[str, int] = {}
    ranges: list[tuple[int, int, BoundaryRecord]] = []
    for entry in entries:
        if isinstance(entry, BoundaryRecord) and entry.kind is BoundaryKind.TENTATIVE:
            first = entry.base if entry.base is not None else closed_upto.get(entry.replica, 0)
            ranges.append((first + 1, entry.closed, entry))
            closed_upto[entry.replica] = entry.closed
    return ranges


def nothing_shed(faults: Iterable[Injected], records: Iterable[LiveRecord]) -> list[str]:
    """Return an error if there were rushes and no result lacks a row: the run shows nothing of
    them.
    """
    rushes = sum(fault.kind in OVERLOAD for fault in faults)
    if not rushes or any(record.shed for record in records):
        return []
    return [f"{rushes} rushes, and no result on the live topic says that it lacks rows"]


def repeated(identifiers: Iterable[object]) -> int:
    """How many records there are beyond the first of each id."""
    return sum(count - 1 for count in Counter(identifiers).values())


def by_kind(faults: Iterable[Injected]) -> dict[str, int]:
    """Return the number of faults of each kind, in order of the kinds."""
    counts = Counter(fault.kind for fault in faults)
    return {str(kind): counts[kind] for kind in Kind if counts[kind]}


def grouped(found: Iterable[Recovery]) -> dict[tuple[Kind, str], list[Recovery]]:
    """Group the recoveries by kind and service."""
    groups: dict[tuple[Kind, str], list[Recovery]] = defaultdict(list)
    for each in found:
        groups[each.fault.kind, service_of(each.fault.target)].append(each)
    order = list(Kind)
    return dict(sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))
