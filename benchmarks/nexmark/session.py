"""One session: one system drains one query's events, and all its answers are judged."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from anabranch.local.embedded_kafka import EmbeddedKafka
from benchmarks.broker import ResultReader, create_topics, produce_backlog
from benchmarks.nexmark.generator import Events, Plan, end_line, lines
from benchmarks.nexmark.systems import System, start
from benchmarks.nexmark.verdict import Verdict, judge, parse
from benchmarks.processes import Sampler
from benchmarks.systems import Running

_END_AFTER_MS: Final = 30_000
"""Distance of the records that end the stream from its last event, in ms: all windows of the
queries are over by then.
"""
_QUIET_S: Final = 3.0
"""Time without a further answer after which a drain counts as done, in seconds."""
_SAMPLE_S: Final = 0.6
"""Time in which the sampler takes one more sample, in seconds."""


@dataclass(frozen=True, slots=True)
class Input:
    """Stream of a run: all sessions get the same records."""

    plan: Plan
    warm_up: int
    """Number of events that come first and only warm up the system."""
    events: Events
    records: list[str]

    @classmethod
    def of(cls, plan: Plan, warm_up: int, events: Events) -> Input:
        """Encode ``events``."""
        return cls(plan, warm_up, events, lines(events))

    @property
    def measured(self) -> int:
        """Number of events whose drain is measured."""
        return len(self.records) - self.warm_up

    @property
    def end(self) -> str:
        """Record that ends the stream."""
        last_ms = self.plan.start_ms + self.plan.events * 1_000 // self.plan.rate
        return end_line(last_ms + _END_AFTER_MS)


@dataclass(frozen=True, slots=True)
class Figures:
    """Measurements of one session."""

    query: str
    system: System
    events: int
    seconds: float
    """Time from just before the events become readable to the append of the last answer."""
    cpu_s: float
    """Processor seconds of all processes of the system in that time, the broker's not included."""
    others_cpu_s: float
    """Processor seconds of what is no part of the benchmark in that time."""
    load: float
    """Load average of the machine over a minute, at the end."""
    verdict: Verdict

    @property
    def per_core(self) -> float:
        """Events per second and core."""
        return self.events / self.cpu_s if self.cpu_s else 0.0


class _Drain:
    """A started system, and the answers that it has given so far."""

    def __init__(self, running: Running, reader: ResultReader, deadline_s: float) -> None:
        self._running = running
        self._reader = reader
        self._deadline_s = deadline_s
        self.values: list[bytes] = []
        self.last_ms = 0

    def wait(self, count: int) -> None:
        """Wait until ``count`` answers are there and no more come, or until none has come for the
        time of the deadline.
        """
        changed_s = time.time()
        while time.time() - changed_s < self._deadline_s:
            self._running.check_alive()
            more = self._reader.read_to_end()
            if more.values:
                self.values += more.values
                self.last_ms = max(self.last_ms, *more.appended_ms)
                changed_s = time.time()
            elif len(self.values) >= count and time.time() - changed_s > _QUIET_S:
                return
            time.sleep(0.25)


def run_session(
    system: System,
    query: str,
    name: str,
    given: Input,
    expected: pl.DataFrame,
    kafka: EmbeddedKafka,
    folder: Path,
    deadline_s: float,
) -> Figures:
    """Run ``query`` by ``system`` in topics that begin with ``name``.

    Raises:
        Unavailable: the system ended, or did not become ready.
    """
    folder.mkdir(parents=True)
    source, answers = f"{name}.events", f"{name}.answers"
    create_topics(kafka.address, source, answers)
    produce_backlog(kafka.address, given.records[: given.warm_up], None, source)
    running = start(system, query, kafka.address, source, answers, folder)
    sampler = Sampler(running.pid, kafka.pid or 0)
    reader = ResultReader(kafka.address, answers)
    try:
        sampler.start()
        running.await_ready()
        drain = _Drain(running, reader, deadline_s)
        # One answer shows that all code has run. How many there are before the next events come
        # differs between systems, so that more cannot be asked for.
        drain.wait(1)
        begun_s = produce_backlog(kafka.address, given.records[given.warm_up :], given.end, source)
        drain.wait(expected.height)
        time.sleep(_SAMPLE_S)
        last_s = max(drain.last_ms / 1_000, begun_s)
        return Figures(
            query,
            system,
            given.measured,
            last_s - begun_s,
            sum(sampler.cpu_between(begun_s, last_s).values()),
            sampler.beside_between(begun_s, last_s)[1],
            os.getloadavg()[0],
            judge(expected, parse(expected, drain.values)),
        )
    finally:
        sampler.stop()
        running.stop()
        reader.close()
