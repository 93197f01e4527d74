"""The story of one failure: a source is cut off from Kafka for a while. When it happens, what
is seen of it, and what it amounts to.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import Message

from anabranch.client import LiveView
from demo import tentative
from demo.comparing import (
    Comparison,
    Delivered,
    compare,
    followed,
    percentile_ms,
    result,
    shortened,
)
from demo.consuming import received_ms
from demo.live import Delay, account, delays, events, live_record, seen_event_times_ms
from demo.live_checker import (
    REC_DONE,
    TENTATIVE,
    UNDO,
    LiveRecord,
    Transaction,
    check,
    transactions,
    until,
)
from demo.stalls import NONE_APART, Apart, Stall, judged, overlapping
from demo.tentative import STAGE, Road

USUAL_MS = 20_000
"""Time before the cut over which the usual delay is measured, in ms: everything before was just
started and slow.
"""
_USUAL_BOUNDS_MAX = 2
"""Maximum usual delay, in multiples of the bound."""
_LONGEST_BOUNDS_MAX = 2.5
"""Maximum delay of a result during a failure, in multiples of the bound, whatever the usual
delay.
"""
NOTHING = Comparison(0, 0, 0, 0, 0, 0)


def longest_ms_max(max_delay_ms: int) -> int:
    """Return the maximum age of a new result when a reader receives it, in ms."""
    return int(_LONGEST_BOUNDS_MAX * max_delay_ms)


class Drills(Protocol):
    """Interface for cutting and healing services."""

    def drill(self, *arguments: str) -> None:
        """Run ``anabranch`` with these arguments and wait until it is done."""


class LiveTopic:
    """Records of one live topic so far. A reader thread adds them."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._records: list[LiveRecord] = []
        self._raw: list[tuple[int, list[tuple[str, bytes]], bytes | None, bytes | None]] = []
        self._lock = threading.Lock()

    def take(self, message: Message) -> None:
        """Parse and add a record.

        Raises:
            ValueError: the record does not have the form of a live topic.
        """
        headers = [
            (name, content)
            for name, content in message.headers() or []
            if isinstance(content, bytes)
        ]
        key, value = (
            content if isinstance(content, bytes) else None
            for content in (message.key(), message.value())
        )
        partition = message.partition() or 0
        record = live_record(
            headers,
            key,
            value,
            partition=partition,
            offset=message.offset() or 0,
            received_ms=received_ms(),
        )
        with self._lock:
            self._raw.append((partition, headers, key, value))
            self._records.append(record)

    def add(self, record: LiveRecord) -> None:
        """Add a record that is parsed already."""
        with self._lock:
            self._records.append(record)

    def answer(self) -> list[Delivered]:
        """Return the current answer as the client library keeps it: stable results, then tentative
        ones.
        """
        with self._lock:
            raw = list(self._raw)
        view = LiveView(self.partitions)
        for entry in raw:
            view.apply(*entry)
        return [
            Delivered(
                (record.id.bucket, record.id.position),
                result(
                    json.loads(record.value or b"{}"), record.event_time_ms or 0, record.key, None
                ),
                0,
            )
            for record in view.records()
            if record.id is not None
        ]

    def records(self) -> list[LiveRecord]:
        """Return all records, in order within each partition."""
        with self._lock:
            return list(self._records)

    def transactions(self, end_ms: int | None = None) -> list[Transaction]:
        """Return the complete transactions that count (``live_checker.until``)."""
        return until(transactions(self.records(), self.partitions)[0], end_ms)


@dataclass(frozen=True, slots=True)
class FailureReport:
    """Effects of a cut on an output. Times are ms."""

    cut: str
    cut_ms: int
    """How long it was cut off."""
    max_delay_ms: int
    usual_p50_ms: int | None
    """Delay of new results before the cut."""
    usual_max_ms: int | None
    longest_ms: int | None
    """Longest judged delay of new results from the cut on: during the failure, the corrections,
    and after. The figures of what is usual are of judged delays, too.
    """
    first_tentative_ms: int | None
    """From the cut."""
    stable_again_ms: int | None
    """From the heal until the last correction."""
    tentative: int = 0
    undone: int = 0
    corrected: int = 0
    failures: int = 0
    """Times that tentative results began: more than one cut makes if the machine is too slow
    for its load.
    """
    undos: int = 0
    rec_dones: int = 0
    missing: tuple[str, ...] = ()
    answer: Comparison = NOTHING
    """The answer that the client library keeps, against the oracle."""
    broken: tuple[str, ...] = field(default=())
    """Promises of the live topic that were not kept, in words."""
    apart_before: Apart = NONE_APART
    """Delays before the cut, and those that a stall of the machine leaves unjudged."""
    apart_since: Apart = NONE_APART
    """The same of delays from the cut on."""
    is_held_up: bool = False
    """Whether a stall held up every bucket that was to be shown without the source."""

    @property
    def added_ms(self) -> int | None:
        """Difference between the longest delay and the longest usual one."""
        return (
            None
            if self.longest_ms is None or self.usual_max_ms is None
            else self.longest_ms - self.usual_max_ms
        )

    @property
    def apart(self) -> Apart:
        """All delays, and those left unjudged."""
        return self.apart_before + self.apart_since

    def keeps_up(self) -> bool:
        """Return whether results were soon enough before the cut, as far as that is judged: what a
        failure adds says nothing beside a long queue.

        Twice the bound: two busy cores need about as long as the bound for the usual way of a
        result, and a cut of 20 s without tentative results would still stand out.
        """
        if self.usual_max_ms is None:
            # What a stall held up beyond the cut is among the delays since the cut.
            return self.apart.stalled > 0
        return self.usual_max_ms <= _USUAL_BOUNDS_MAX * self.max_delay_ms

    def is_in_time(self) -> bool:
        """Return whether no judged result from the cut on was late, beside the usual delay or by
        the clock. False if there is no result at all.
        """
        if self.longest_ms is None:
            return self.apart_since.stalled > 0
        if self.longest_ms > longest_ms_max(self.max_delay_ms):
            return False
        return self.keeps_up() and (self.added_ms is None or self.added_ms <= self.max_delay_ms)

    def is_good(self) -> bool:
        """Return whether the live topic kept its promises, as far as this machine could show it."""
        return (
            self.keeps_up()
            and (self.tentative > 0 or self.is_held_up)
            and not self.broken
            and self.answer.is_equal()
            and self.is_in_time()
        )


@dataclass(slots=True)
class Story:
    """Cuts ``source`` off at ``cut_at_s`` after the start, heals it ``cut_for_s`` later, and
    tells what is seen on ``topic``.
    """

    source: str
    cut_at_s: float
    cut_for_s: float
    topic: LiveTopic
    say: Callable[[str], None]
    max_delay_ms: int
    end_ms: int
    """The end of the traffic."""
    cut_ms: int | None = None
    """When it was cut off, by the clock."""
    heal_ms: int | None = None
    _started_s: float = field(default_factory=time.monotonic)
    _shown: int = 0
    """Events of the topic that were shown."""

    def tick(self, deployment: Drills) -> None:
        """Carry out what is due and print new events."""
        since_s = time.monotonic() - self._started_s
        if self.cut_ms is None and since_s >= self.cut_at_s:
            self._cut(deployment)
        elif (
            self.cut_ms is not None
            and self.heal_ms is None
            and received_ms() - self.cut_ms >= 1_000 * self.cut_for_s
        ):
            self._heal(deployment)
        for event in events(self.topic.transactions(self.end_ms))[self._shown :]:
            self._shown += 1
            self._line(self._describe(event))

    def _cut(self, deployment: Drills) -> None:
        since_ms, ordered = received_ms() - USUAL_MS, self.topic.transactions()
        usual = percentile_ms(
            [
                each.delay_ms
                for each in delays(ordered, seen_event_times_ms(ordered))
                if each.covered_ms >= since_ms
            ],
            0.5,
        )
        self._line(f"so far results come {_seconds(usual)} after their window, stable at once")
        deployment.drill("cut", self.source)
        self.cut_ms = received_ms()
        self._line(
            f"[bold]anabranch drill cut {self.source}[/]: no byte passes between it and Kafka any"
            " more"
        )

    def _heal(self, deployment: Drills) -> None:
        deployment.drill("heal", self.source)
        self.heal_ms = received_ms()
        self._line(
            f"[bold]anabranch drill heal {self.source}[/], after"
            f" {_seconds(self.heal_ms - (self.cut_ms or 0))}"
        )

    def _describe(self, event: LiveRecord) -> str:
        if event.kind == TENTATIVE:
            without = f", made without {', '.join(event.missing)}" if event.missing else ""
            return (
                f"tentative results{without}: {_seconds(event.received_ms - event.event_time_ms)}"
                " after their window"
            )
        since = ""
        if self.heal_ms is not None:
            since = f", {_seconds(event.received_ms - self.heal_ms)} after the heal"
        if event.kind == UNDO:
            place = "{}.{}".format(*event.ident) if event.ident else "none"
            return f"undo back to result {place}{since}: the corrections begin"
        return f"rec_done{since}: all is corrected, nothing is tentative any more"

    def _line(self, text: str) -> None:
        self.say(f"[dim]{time.monotonic() - self._started_s:5.1f} s[/]  {text}")

    def is_over(self) -> bool:
        """Return whether the failure is over for a reader of the live topic."""
        ended = self.topic.transactions(self.end_ms)
        return self.heal_ms is not None and bool(ended) and not ended[-1].shown

    def report(
        self, road: Road, again: LiveTopic, *, was_killed: bool, stalls: Sequence[Stall] = ()
    ) -> FailureReport:
        """Judge the effects of the cut.

        Args:
            road: The traffic.
            again: The topic as read once more when everything had stopped.
            was_killed: Whether processes were killed, too: then other streams may have been
                missing, and there may be more than one failure.
            stalls: Stalls of the machine, as ``stalls.merged`` returns them. What overlaps one is
                no broken promise: a delay, a bucket not shown in time, one more failure, another
                stream missing.
        """
        ordered = self.topic.transactions(self.end_ms)
        found, happened = account(ordered), events(ordered)
        cut_ms, heal_ms = self.cut_ms or received_ms(), self.heal_ms or received_ms()
        late = delays(
            ordered, {bucket: rows[0].event_time_ms for bucket, rows in road.answer.items()}
        )
        before, _, apart_before = judged(
            (each for each in late if cut_ms - USUAL_MS <= each.covered_ms < cut_ms),
            stalls,
            _span_ms,
        )
        since, _, apart_since = judged(
            (each for each in late if each.covered_ms >= cut_ms), stalls, _span_ms
        )
        usual_ms = [each.delay_ms for each in before]
        first = next(
            (
                event
                for event in happened
                if event.kind == TENTATIVE and event.received_ms >= cut_ms
            ),
            None,
        )
        done = next(
            (
                event
                for event in happened
                if event.kind == REC_DONE and event.received_ms >= heal_ms
            ),
            None,
        )
        verdict = check(
            again.records(), again.partitions, road.answer, is_complete=True, end_ms=self.end_ms
        )
        stalled = _stalled_buckets(ordered, stalls)

        def may_miss(bucket: int) -> Collection[str]:
            if was_killed or bucket in stalled:
                return {*road.sources, STAGE}
            return streams_of(self.source)

        broken = [
            *verdict.wrong,
            *tentative.check(again.transactions(self.end_ms), road, may_miss, may_miss),
        ]
        due = self._due(road, cut_ms, heal_ms)
        due_in_time = [
            bucket
            for bucket in due
            if not overlapping(stalls, road.answer[bucket][0].event_time_ms, heal_ms)
        ]
        if streams_of(self.source) <= {*road.sources}:
            broken += self._not_shown(again, due_in_time)
        broken += followed("live", self.topic.records(), again.records())
        by_stalls = sum(
            event.kind == TENTATIVE
            and bool(overlapping(stalls, event.event_time_ms, event.received_ms))
            for event in happened
        )
        if verdict.failures > 1 + by_stalls and not was_killed:
            broken.append(f"the topic shows one cut as {verdict.failures} failures")
        return FailureReport(
            cut=self.source,
            cut_ms=heal_ms - cut_ms,
            max_delay_ms=self.max_delay_ms,
            usual_p50_ms=percentile_ms(usual_ms, 0.5),
            usual_max_ms=max(usual_ms, default=None),
            longest_ms=max((each.delay_ms for each in since), default=None),
            first_tentative_ms=None if first is None else first.received_ms - cut_ms,
            stable_again_ms=None if done is None else done.received_ms - heal_ms,
            tentative=len(found.tentative),
            undone=found.undone,
            corrected=found.corrected,
            failures=verdict.failures,
            undos=verdict.undos,
            rec_dones=verdict.rec_dones,
            missing=tuple(sorted(found.missing)),
            answer=compare(road.answer, again.answer()),
            broken=tuple(shortened(broken)),
            apart_before=apart_before,
            apart_since=apart_since,
            is_held_up=bool(due) and not due_in_time,
        )

    def _due(self, road: Road, cut_ms: int, heal_ms: int) -> list[int]:
        """Return the buckets that ended while the target was cut off, long enough before it came
        back to be shown without it.
        """
        until_ms = heal_ms - longest_ms_max(self.max_delay_ms)
        return [
            bucket
            for bucket, rows in road.answer.items()
            if cut_ms < rows[0].event_time_ms <= until_ms
        ]

    def _not_shown(self, again: LiveTopic, due: Sequence[int]) -> list[str]:
        """Describe the buckets of ``due`` that were not shown without the source."""
        shown = {
            record.ident[0]
            for record in again.records()
            if record.kind == TENTATIVE and record.ident
        }
        return [
            f"bucket {bucket} ended while {self.source} was cut off, and was not shown without it"
            for bucket in due
            if bucket not in shown
        ]


def _span_ms(delay: Delay) -> tuple[int, int]:
    return delay.event_time_ms, delay.covered_ms


def _stalled_buckets(ordered: Sequence[Transaction], stalls: Sequence[Stall]) -> set[int]:
    """Return the buckets with tentative results that a stall held up."""
    return {
        record.ident[0]
        for transaction in ordered
        for record in transaction.records
        if record.kind == TENTATIVE
        and record.ident
        and overlapping(stalls, record.event_time_ms, record.received_ms)
    }


def streams_of(target: str) -> set[str]:
    """Return the streams that are missing while SERVICE/NAME is cut off: a source, an output, or
    the stages, which share one node.
    """
    service, _, name = target.partition("/")
    return {STAGE, tentative.OUTPUT} if service == "processing" else {name}


def _seconds(value_ms: int | None) -> str:
    return "-" if value_ms is None else f"{value_ms / 1_000:.1f} s"
