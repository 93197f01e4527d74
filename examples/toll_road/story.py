"""The story of one failure: a source is cut off from Kafka for a while. When it happens, what is seen of it, and what it amounts to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import Message

from anabranch.client import LiveView
from examples.toll_road.comparing import Comparison, Delivered, percentile_ms
from examples.toll_road.live import REC_DONE, TENTATIVE, UNDO, LiveRecord, account, events, live_record, transactions

USUAL_MS = 20_000
"""The time before the cut that tells what is usual: before that, everything was just started and slow."""
_USUAL_BOUNDS_MAX = 2
"""What is usual may be so many times the bound."""
NOTHING = Comparison(0, 0, 0, 0, 0, 0)


class Drills(Protocol):
    """Who can cut and heal."""

    def drill(self, *arguments: str) -> None:
        """``anabranch`` with these arguments; done when it returns."""


class LiveTopic:
    """What came on one live topic so far. Written by a reader thread."""

    def __init__(self) -> None:
        self._records: list[LiveRecord] = []
        self._raw: list[tuple[int, list[tuple[str, bytes]], bytes | None, bytes | None]] = []
        self._lock = threading.Lock()

    def take(self, message: Message) -> None:
        """One record.

        Raises:
            ValueError: it is none of a live topic.
        """
        headers = [(name, content) for name, content in message.headers() or [] if isinstance(content, bytes)]
        key, value = (content if isinstance(content, bytes) else None for content in (message.key(), message.value()))
        partition = message.partition() or 0
        record = live_record(
            headers, value, partition=partition, appended_ms=message.timestamp()[1], received_ms=time.time_ns() // 1_000_000
        )
        with self._lock:
            self._raw.append((partition, headers, key, value))
            self._records.append(record)

    def add(self, record: LiveRecord) -> None:
        """One record that is read already."""
        with self._lock:
            self._records.append(record)

    def answer(self) -> list[Delivered]:
        """The current answer as the client library keeps it: what is final, then what is tentative."""
        with self._lock:
            raw = list(self._raw)
        view = LiveView(1 + max((partition for partition, *_ in raw), default=0))
        for entry in raw:
            view.apply(*entry)
        return [
            Delivered(json.loads(record.value or b"{}"), (record.id.bucket, record.id.position), record.stime_ms or 0, 0, 0, 0)
            for record in view.records()
            if record.id is not None
        ]

    def records(self) -> list[LiveRecord]:
        """All, in order within each partition."""
        with self._lock:
            return list(self._records)


@dataclass(frozen=True, slots=True)
class FailureReport:
    """What a cut did to an output. Times are ms."""

    cut: str
    cut_ms: int
    """How long it was cut off."""
    max_delay_ms: int
    usual_p50_ms: int | None
    """Delay of new results before the cut."""
    usual_max_ms: int | None
    longest_ms: int | None
    """Delay of new results from the cut on: during the failure, the corrections, and after."""
    first_tentative_ms: int | None
    """From the cut."""
    stable_again_ms: int | None
    """From the heal until the last correction."""
    tentative: int = 0
    undone: int = 0
    corrected: int = 0
    failures: int = 0
    """Times that tentative results began: more than one cut makes if the machine is too slow for its load."""
    undos: int = 0
    rec_dones: int = 0
    standing: int = 0
    missing: tuple[str, ...] = ()
    final: Comparison = NOTHING
    """What is final on the live topic, against the oracle."""
    answer: Comparison = NOTHING
    """The answer that the client library keeps, against the oracle."""
    broken: tuple[str, ...] = field(default=())

    @property
    def added_ms(self) -> int | None:
        """By how much the longest delay is longer than the longest usual one."""
        return None if self.longest_ms is None or self.usual_max_ms is None else self.longest_ms - self.usual_max_ms

    def can_judge(self) -> bool:
        """Whether the machine was fast enough before the cut: what a failure adds says nothing beside a long queue.

        Twice the bound: two busy cores need about as long as the bound for the usual way of a result, and a cut of 20 s without tentative
        results would still stand out.
        """
        return self.usual_max_ms is not None and self.usual_max_ms <= _USUAL_BOUNDS_MAX * self.max_delay_ms

    def is_good(self) -> bool:
        """Whether the live topic kept its promises, as far as this machine could show it."""
        return (
            self.can_judge()
            and self.tentative > 0
            and self.undos <= self.failures == self.rec_dones
            and not self.standing
            and not self.broken
            and self.final.is_equal()
            and self.answer.is_equal()
            and self.added_ms is not None
            and self.added_ms <= self.max_delay_ms
        )


@dataclass(slots=True)
class Story:
    """Cuts ``source`` off at ``cut_at_s`` after the start, heals it ``cut_for_s`` later, and tells what is seen on ``topic``."""

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
    _told: int = 0
    """Events of the topic that were told."""

    def tick(self, deployment: Drills) -> None:
        """Do what is due, tell what is new."""
        since_s = time.monotonic() - self._started_s
        if self.cut_ms is None and since_s >= self.cut_at_s:
            self._cut(deployment)
        elif self.cut_ms is not None and self.heal_ms is None and self._now_ms() - self.cut_ms >= 1_000 * self.cut_for_s:
            self._heal(deployment)
        for event in events(self.topic.records(), self.end_ms)[self._told :]:
            self._told += 1
            self._line(self._in_words(event))

    def _cut(self, deployment: Drills) -> None:
        since_ms = self._now_ms() - USUAL_MS
        usual = percentile_ms([new.delay_ms for new in account(self.topic.records()).new if new.received_ms >= since_ms], 0.5)
        self._line(f"so far results come {_seconds(usual)} after their window, final at once")
        deployment.drill("cut", self.source)
        self.cut_ms = self._now_ms()
        self._line(f"[bold]anabranch cut {self.source}[/]: no byte passes between it and Kafka any more")

    def _heal(self, deployment: Drills) -> None:
        deployment.drill("heal", self.source)
        self.heal_ms = self._now_ms()
        self._line(f"[bold]anabranch heal {self.source}[/], after {_seconds(self.heal_ms - (self.cut_ms or 0))}")

    def _in_words(self, event: LiveRecord) -> str:
        if event.kind == TENTATIVE:
            without = f", made without {event.missing.replace(',', ', ')}" if event.missing else ""
            return f"tentative results{without}: {_seconds(event.received_ms - event.stime_ms)} after their window"
        since = ""
        if self.heal_ms is not None:
            since = f", {_seconds(event.received_ms - self.heal_ms)} after the heal"
        if event.kind == UNDO:
            bucket, position = event.identifier
            return f"undo back to result {bucket}.{position}{since}: the corrections begin"
        return f"rec_done{since}: all is corrected, nothing is tentative any more"

    def _line(self, text: str) -> None:
        self.say(f"[dim]{time.monotonic() - self._started_s:5.1f} s[/]  {text}")

    def is_told(self) -> bool:
        """Whether the failure is over for whoever follows the live topic."""
        ended = transactions(self.topic.records(), self.end_ms)
        return self.heal_ms is not None and bool(ended) and not ended[-1].shown

    def report(self, compared: Callable[[list[Delivered]], Comparison]) -> FailureReport:
        """What it amounts to; ``compared`` compares results with the oracle."""
        records = self.topic.records()
        found, happened = account(records, self.end_ms), events(records, self.end_ms)
        cut_ms, heal_ms = self.cut_ms or self._now_ms(), self.heal_ms or self._now_ms()
        before = [new.delay_ms for new in found.new if cut_ms - USUAL_MS <= new.received_ms < cut_ms]
        since = [new.delay_ms for new in found.new if new.received_ms >= cut_ms]
        first = next((event for event in happened if event.kind == TENTATIVE and event.received_ms >= cut_ms), None)
        done = next((event for event in happened if event.kind == REC_DONE and event.received_ms >= heal_ms), None)
        return FailureReport(
            cut=self.source,
            cut_ms=heal_ms - cut_ms,
            max_delay_ms=self.max_delay_ms,
            usual_p50_ms=percentile_ms(before, 0.5),
            usual_max_ms=max(before, default=None),
            longest_ms=max(since, default=None),
            first_tentative_ms=None if first is None else first.received_ms - cut_ms,
            stable_again_ms=None if done is None else done.received_ms - heal_ms,
            tentative=len(found.tentative),
            undone=found.undone,
            corrected=found.corrected,
            failures=found.failures,
            undos=found.undos,
            rec_dones=found.rec_dones,
            standing=len(found.standing),
            missing=tuple(sorted(found.missing)),
            final=compared(found.stable),
            answer=compared(self.topic.answer()),
            broken=tuple(found.broken),
        )

    @staticmethod
    def _now_ms() -> int:
        return time.time_ns() // 1_000_000


def _seconds(value_ms: int | None) -> str:
    return "-" if value_ms is None else f"{value_ms / 1_000:.1f} s"
