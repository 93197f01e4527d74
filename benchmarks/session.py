"""One session: a fresh broker, one system, one job; a cold drain, a warm drain, a steady load."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import polars as pl

from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.protocol.errors import LocalProtocolError
from benchmarks.broker import ResultReader, Results, create_topics, part_spans, produce_backlog
from benchmarks.generator import times_of
from benchmarks.processes import Sampler
from benchmarks.systems import Running, System, start
from benchmarks.workload import (
    ENDER_AFTER_MS,
    EVENT_TIME_MS,
    WINDOW_MS,
    Job,
    Verdict,
    backlog,
    compare,
    ender,
    event_time,
    expected,
    parse,
    payloads,
    readings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_QUIET_S: Final = 3.0
_WARM_UP_RECORDS: Final = 400_000
"""Number of records of a backlog that only warms up the system, if no drain is measured."""
_HEAD_START_S: Final = 3.0
"""Between the generator's start and its first record."""
_TAIL_S: Final = 5.0
"""Load goes on so long after the measured time, so that its last results are made under load
too.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a session."""

    records: int = 2_000_000
    rate: int = 5_000
    warm_up_s: float = 30.0
    measured_s: float = 45.0
    drain_timeout_s: float = 240.0
    phases: tuple[str, ...] = ("cold", "warm", "steady")


@dataclass(slots=True)
class Phase:
    """Measurements of one phase; times in seconds unless named otherwise."""

    seconds: float = 0.0
    records: int = 0
    cpu_s: float = 0.0
    broker_cpu_s: float = 0.0
    others_cpu_s: float = 0.0
    cpu_by_process: dict[str, float] = field(default_factory=dict)
    peak_pss_mib: float = 0.0
    peak_rss_mib: float = 0.0
    verdict: dict[str, int] = field(default_factory=dict)
    right: bool = False
    p50_ms: float | None = None
    p99_ms: float | None = None
    seen_p50_ms: float | None = None
    seen_p99_ms: float | None = None
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    note: str = ""

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Outcome:
    """Measurements of one session."""

    system: System
    job: Job
    ready_s: float = 0.0
    phases: dict[str, Phase] = field(default_factory=dict)
    error: str = ""

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Build an outcome from the JSON of ``asdict``."""
        return cls(
            **(
                fields
                | {"phases": {name: Phase(**phase) for name, phase in fields["phases"].items()}}
            )
        )


class _Session:
    """State of a session while it runs."""

    def __init__(
        self, job: Job, plan: Plan, kafka: str, broker_pid: int, system: Callable[[], Running]
    ) -> None:
        self._job: Job = job
        self._plan = plan
        self._kafka = kafka
        self._broker_pid = broker_pid
        self._start = system
        self._reader = ResultReader(kafka)
        # Event times lie before the clock, so that no system takes them for records from the
        # future.
        self._base_ms = int(time.time() - 900) * 1000 // WINDOW_MS * WINDOW_MS
        self.running: Running | None = None
        self.sampler: Sampler | None = None

    def _started(self) -> tuple[Running, Sampler]:
        """Return the system and its sampler.

        Raises:
            LocalProtocolError: the phase ``cold``, which starts them, was not run.
        """
        if self.running is None or self.sampler is None:
            message = "the system is started by the phase 'cold'"
            raise LocalProtocolError(message)
        return self.running, self.sampler

    def cold(self, outcome: Outcome) -> None:
        """Write a backlog, then start the system. If no drain is measured, the backlog is small and
        only warms up.
        """
        plan = self._plan
        drains = {"cold", "warm"} & set(plan.phases)
        frame = backlog(
            plan.records if drains else min(plan.records, _WARM_UP_RECORDS), self._base_ms
        )
        produce_backlog(
            self._kafka, payloads(frame), ender(self._base_ms + EVENT_TIME_MS + ENDER_AFTER_MS)
        )
        self.running = self._start()
        self.sampler = Sampler(self.running.pid, self._broker_pid)
        self.sampler.start()
        outcome.ready_s = self.running.await_ready()
        outcome.phases["cold"] = self._drained(frame, self.running.started_s)

    def warm(self, outcome: Outcome) -> None:
        """Write another backlog at once while the system is idle."""
        start_ms = self._base_ms + 2 * EVENT_TIME_MS
        frame = backlog(self._plan.records, start_ms)
        visible_s = produce_backlog(
            self._kafka, payloads(frame), ender(start_ms + EVENT_TIME_MS + ENDER_AFTER_MS)
        )
        outcome.phases["warm"] = self._drained(frame, visible_s)

    def _drained(self, frame: pl.DataFrame, since_s: float) -> Phase:
        """Wait until all results of ``frame`` are there, then judge them."""
        running = self._started()[0]
        wanted = expected(self._job, frame)
        first_position = self._reader.position()
        deadline_s = time.time() + self._plan.drain_timeout_s
        results = Results()
        end, changed_s = first_position, time.time()
        while time.time() < deadline_s:
            running.check_alive()
            time.sleep(0.25)
            now = self._reader.end()
            if now != end:
                end, changed_s = now, time.time()
            elif time.time() - changed_s > _QUIET_S and end - first_position >= wanted.height:
                more = self._reader.read_to_end()
                results.values += more.values
                results.appended_ms += more.appended_ms
                if self._verdict(frame, wanted, results)[0].missing == 0:
                    break
        more = self._reader.read_to_end()
        results.values += more.values
        results.appended_ms += more.appended_ms
        verdict, last_ms = self._verdict(frame, wanted, results)
        last_s = last_ms / 1000 if last_ms else time.time()
        phase = self._phase(since_s, last_s, verdict)
        phase.records = frame.height
        phase.spans = part_spans(self._kafka, since_s)
        return phase

    def _verdict(
        self, frame: pl.DataFrame, wanted: pl.DataFrame, results: Results
    ) -> tuple[Verdict, int]:
        """(verdict, append time in ms of the last result) of the results that belong to
        ``frame``.
        """
        first, last = int(frame["time"].min()), int(frame["time"].max())  # type: ignore[arg-type]
        got = parse(self._job, results.values).with_columns(
            pl.Series("appended", results.appended_ms, dtype=pl.Int64)
        )
        due = event_time(self._job)
        got = got.filter((pl.col("region") >= 0) & due.is_between(first, last + WINDOW_MS))
        latest = got["appended"].max() if got.height else 0
        return compare(self._job, wanted, got.drop("appended")), int(latest or 0)  # type: ignore[arg-type]

    def _phase(self, first_s: float, last_s: float, verdict: Verdict) -> Phase:
        sampler = self._started()[1]
        time.sleep(0.6)  # one more sample
        by_process = sampler.cpu_between(first_s, last_s)
        broker_s, others_s = sampler.beside_between(first_s, last_s)
        pss, rss = sampler.peak_mib(first_s, last_s)
        return Phase(
            seconds=last_s - first_s,
            cpu_s=sum(by_process.values()),
            broker_cpu_s=broker_s,
            others_cpu_s=others_s,
            cpu_by_process=by_process,
            peak_pss_mib=pss,
            peak_rss_mib=rss,
            verdict=asdict(verdict),
            right=verdict.right,
        )

    def steady(self, outcome: Outcome) -> None:
        """Run a steady load and measure the latency of the results due in the measured part
        of it.
        """
        running = self._started()[0]
        plan = self._plan
        seconds = plan.warm_up_s + plan.measured_s + _TAIL_S
        start_s = time.time() + _HEAD_START_S
        self._reader.read_to_end()
        command = [sys.executable, "-m", "benchmarks.generator", self._kafka]
        command += [str(int(start_s * 1000)), str(plan.rate), str(seconds)]
        generator = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
        )
        try:
            results = self._reader.follow(start_s + seconds + 3.0)
            printed, _ = generator.communicate(timeout=60)
        finally:
            generator.kill()
        running.check_alive()
        first_ms = int((start_s + plan.warm_up_s) * 1000)
        last_ms = int(first_ms + plan.measured_s * 1000)
        frame = readings(times_of(int(start_s * 1000), plan.rate, seconds))
        due = event_time(self._job)
        wanted = expected(self._job, frame).filter(due.is_between(first_ms, last_ms))
        got = parse(self._job, results.values).with_columns(
            pl.Series("appended", results.appended_ms, dtype=pl.Int64),
            pl.Series("seen", results.seen_ms, dtype=pl.Float64),
        )
        got = got.filter((pl.col("region") >= 0) & due.is_between(first_ms, last_ms))
        verdict = compare(self._job, wanted, got.drop("appended", "seen"))
        phase = self._phase(first_ms / 1000, last_ms / 1000, verdict)
        phase.records = int(plan.rate * plan.measured_s)
        phase.note = (
            f"generator at most {printed.split()[2]} ms late"
            if printed.split()
            else "generator failed"
        )
        late = got.select(
            (pl.col("appended") - due).alias("appended"), (pl.col("seen") - due).alias("seen")
        )
        phase.p50_ms, phase.p99_ms = late["appended"].quantile(0.5), late["appended"].quantile(0.99)
        phase.seen_p50_ms, phase.seen_p99_ms = (
            late["seen"].quantile(0.5),
            late["seen"].quantile(0.99),
        )
        outcome.phases["steady"] = phase

    def close(self) -> None:
        """End the system."""
        if self.sampler is not None:
            self.sampler.stop()
        if self.running is not None:
            self.running.stop()
        self._reader.close()


def run_session(
    system: System, job: Job, plan: Plan, folder: Path, say: Callable[[str], None]
) -> Outcome:
    """Run one session in ``folder``, which keeps the log of the system.

    Raises:
        Unavailable: the broker or the system ended.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcome = Outcome(system, job)
    kafka = EmbeddedKafka(folder / "kafka", heap_mib=768)
    kafka.start()
    try:
        create_topics(kafka.address)
        session = _Session(
            job,
            plan,
            kafka.address,
            kafka.pid or 0,
            lambda: start(system, job, kafka.address, folder),
        )
        try:
            for phase in ("cold", *(name for name in plan.phases if name != "cold")):
                getattr(session, phase)(outcome)
                say(f"{system} {job} {phase}: {describe(outcome.phases[phase])}")
                if phase not in plan.phases:
                    del outcome.phases[phase]
        finally:
            session.close()
    finally:
        kafka.stop()
        shutil.rmtree(folder / "kafka", ignore_errors=True)
    return outcome


def describe(phase: Phase) -> str:
    """Describe a phase in one line."""
    if (
        phase.p50_ms is not None
        and phase.p99_ms is not None
        and phase.seen_p50_ms is not None
        and phase.seen_p99_ms is not None
    ):
        speed = (
            f"p50 {phase.p50_ms:.0f} p99 {phase.p99_ms:.0f} ms (seen {phase.seen_p50_ms:.0f} /"
            f" {phase.seen_p99_ms:.0f})"
        )
    else:
        speed = f"{phase.records} records in {phase.seconds:.1f} s = {phase.rate / 1000:.0f} k/s"
    spans = " ".join(
        f"{topic} {first:.1f}-{last:.1f}s" for topic, (first, last) in phase.spans.items()
    )
    memory = f"PSS {phase.peak_pss_mib:.0f} RSS {phase.peak_rss_mib:.0f} MiB"
    return (
        f"{speed}, CPU {phase.cpu_s:.1f} s (broker {phase.broker_cpu_s:.1f}, others"
        f" {phase.others_cpu_s:.1f}) {phase.cpu_by_process}, {memory}, {phase.verdict} {spans}"
        f" {phase.note}".rstrip()
    )
