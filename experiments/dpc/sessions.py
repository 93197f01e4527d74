"""Runs one session on real processes: start, wait until the chain keeps up, failures one
after the other, compare the answer.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.blocks import digest
from anabranch.pipeline.waits import waits
from anabranch.protocol.errors import AnabranchError
from benchmarks.processes import machine_cpu_s, tree
from experiments.dpc.chain import (
    SOURCES,
    WITHHELD,
    ReplicaProcess,
    create_topics,
    stage_names,
    write_pipeline,
)
from experiments.dpc.figures import (
    AFTER_MS,
    Cut,
    FailureFigures,
    Trace,
    death_figures,
    failure_figures,
    in_words,
)
from experiments.dpc.plan import RATE, WIDTH_MS, Session
from experiments.dpc.results import SessionResult
from experiments.dpc.sources import LiveSource, Schedule, Source, Withhold, window_of
from experiments.dpc.watch import Sum, Watch, WatchThread, check_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

READY_S: Final = 180.0
LOADED_READY_S: Final = 60.0
SETTLED_S: Final = 4.0
"""Normal operation before each failure: the failure-free latency is measured in it."""
DONE_S: Final = 170.0
"""Corrections that take longer are reported as unfinished."""
KEEPS_UP_BUCKETS: Final = 10
"""A stage keeps up if it is at most so far behind its sources, and as far again for itself
and for each stage before it.
"""
KEEPS_UP_MS: Final = 1_000
_CAPACITY_ROWS: Final = 1_500_000
_CAPACITY_BUCKETS: Final = 400
_DRAIN_SKIPPED: Final = 1 / 3
"""Share of the backlog before which capacity is not measured: compiled code and caches fill up
meanwhile.
"""


class RunningSession:
    """A session on real processes. ``run`` once."""

    def __init__(
        self,
        session: Session,
        kafka: str,
        broker_pid: int,
        folder: Path,
        *,
        withhold: Withhold,
        say: Callable[[str], None],
    ) -> None:
        """``folder``: the session's own; the pipeline has its name."""
        self._session = session
        self._kafka = kafka
        self._broker_pid = broker_pid
        self._folder = folder
        self._withhold = withhold
        self._say = say
        self._log = KafkaEventLog(kafka)
        self.pipeline = write_pipeline(folder, folder.name, session)
        self.result = SessionResult(
            session,
            waits_ms=[waits(self.pipeline, stage).first_ms for stage in self.pipeline.order()],
        )
        self._processes: dict[str, ReplicaProcess] = {}
        self._observers: list[WatchThread] = []
        self._live: dict[str, LiveSource] = {}
        self._sources: list[Source] = []
        self._schedule: Schedule | None = None
        self._first, self._behind_ms = 1, 0.0
        self._pause = threading.Event()

    def run(self) -> SessionResult:
        """Run it; whatever happens, its processes are ended."""
        begun_s = time.monotonic()
        cpu = machine_cpu_s()
        own = self._own_cpu_s()
        try:
            self._run()
        except AnabranchError as error:
            self.result.error = str(error)
            if self._schedule is not None:
                self.result.traces = [
                    self._trace(observer) for observer in self._observers if observer.trace.events
                ]
        finally:
            seconds = time.monotonic() - begun_s
            others = machine_cpu_s() - cpu - (self._own_cpu_s() - own)
            for process in self._processes.values():
                process.kill()
            for live in self._live.values():
                live.stop()
            for observer in self._observers:
                observer.close()
        self.result.seconds = seconds
        self.result.others = max(0.0, others / seconds / _cores())
        return self.result

    # ---------------------------------------------------------------- phases

    def _run(self) -> None:
        session, result = self._session, self.result
        create_topics(self._log, self.pipeline)
        self._sources = [Source(self._kafka, self.pipeline, name) for name in SOURCES]
        self._observers = [
            WatchThread(self._log, self.pipeline, stage) for stage in stage_names(session.nodes)
        ]
        rows, first = max(1, RATE * WIDTH_MS // 1000), 1
        if session.load:
            rows, first = self._backlog(), _CAPACITY_BUCKETS + 1
        for stage in self.pipeline.order():
            for replica in self.pipeline.stream_writers(stage):
                self._start(f"{stage}.{replica}")
        if session.load:
            rows = self._measure_capacity()
        result.rate = rows * len(SOURCES) * 1000 // WIDTH_MS
        self._first = first
        self._schedule = Schedule(WIDTH_MS, time.monotonic(), first)
        for source in self._sources:
            self._live[source.name] = LiveSource(
                source, self._schedule, rows, first, self._withhold
            )
            self._live[source.name].start()
        self._until(
            self._keeps_up,
            LOADED_READY_S if session.load else READY_S,
            "the chain to keep up with its sources",
        )
        self._settle()
        for seconds in session.failures_s:
            self._fail(seconds)
        for number in range(session.deaths):
            self._die(str(number % session.replicas))
        result.traces = [self._trace(observer) for observer in self._observers]
        result.measure_normal(1000 * SETTLED_S)
        result.compared, result.wrong = check_answer(
            self._observers[-1],
            [s.sums for s in self._sources],
            _window if session.function == "windowed" else None,
        )
        result.lag_ms = max(live.lag_ms for live in self._live.values())

    def _backlog(self) -> int:
        """Write what capacity is measured with. Returns its rows per bucket and source."""
        rows = _CAPACITY_ROWS // _CAPACITY_BUCKETS // len(SOURCES)
        for source in self._sources:
            for first in range(1, _CAPACITY_BUCKETS + 1, 50):
                source.append(first, first + 49, rows, first + 49)
        return rows

    def _measure_capacity(self) -> int:
        """Drain the backlog; the rows per bucket and source that are ``load`` of what was
        reached.
        """
        last, events = self._observers[-1], self._observers[-1].trace.events
        self._until(
            lambda: last.upto >= _CAPACITY_BUCKETS - 1, READY_S, "the backlog to be drained"
        )
        per_bucket = _CAPACITY_ROWS / _CAPACITY_BUCKETS
        skipped = [e for e in events if e.closed >= _CAPACITY_BUCKETS * _DRAIN_SKIPPED]
        taken = max(1.0, skipped[-1].at_ms - skipped[0].at_ms)
        self.result.capacity = int(
            (skipped[-1].closed - skipped[0].closed) * per_bucket / taken * 1000
        )
        rows = int(self.result.capacity * self._session.load / len(SOURCES) * WIDTH_MS / 1000)
        self._say(
            f"  capacity {self.result.capacity} tuples/s; sources write {rows * len(SOURCES) * 10}"
            " tuples/s"
        )
        return max(1, rows)

    def _settle(self) -> None:
        """Let the session run without failures for a while."""
        cpu, begun_s = self._own_cpu_s(), time.monotonic()
        self._wait(SETTLED_S)
        if not self.result.busy:
            self.result.busy = (self._own_cpu_s() - cpu) / (time.monotonic() - begun_s) / _cores()

    def _fail(self, seconds: float) -> None:
        """Withhold one source for ``seconds``, heal, wait for the corrections, and for normal
        operation.
        """
        self._settle()
        live, last = self._live[WITHHELD], self._observers[-1]
        cpu, begun_ms = self._own_cpu_s(), time.monotonic() * 1000
        bucket = live.cut()
        at_ms = time.monotonic() * 1000
        self._wait(seconds)
        live.heal()
        healed = self._schedule_of().reached(time.monotonic() * 1000)
        cut = Cut(bucket, at_ms, time.monotonic() * 1000)
        self.result.cuts.append(cut)
        try:
            self._until(
                lambda: all(o.upto >= max(healed, o.tentative_upto) for o in self._observers),
                DONE_S,
                "the corrections",
            )
            self.result.busy_failing = (
                (self._own_cpu_s() - cpu) / (time.monotonic() * 1000 - begun_ms) * 1000 / _cores()
            )
            self._until(self._keeps_up, DONE_S, "the chain to keep up again")
            self._catch_up(AFTER_MS)
        finally:
            figures = self._figures(cut)
            self.result.failed(figures)
            self._say(
                f"  {in_words(figures[-1])}; by node "
                + " ".join(f"{f.longest_ms:.0f}" for f in figures)
            )
        if last.tentative_upto > last.upto:
            raise AnabranchError("tentative results after the corrections")

    def _figures(self, cut: Cut) -> list[FailureFigures]:
        return [failure_figures(self._trace(observer), cut) for observer in self._observers]

    def _trace(self, observer: Watch) -> Trace:
        schedule = self._schedule_of()
        first = min(live.first for live in self._live.values())
        observer.trace.due_ms = {
            b: schedule.due_ms(b) for b in range(first, observer.trace.events[-1].closed + 1)
        }
        return observer.trace

    def _catch_up(self, after_ms: float) -> None:
        """Wait so long, and until everything that is due by then has come out at the end."""
        self._wait(after_ms / 1000)
        due = self._schedule_of().reached(time.monotonic() * 1000)
        self._until(lambda: self._observers[-1].upto >= due, DONE_S, "results of what is due")

    def _die(self, replica: str) -> None:
        """Kill one replica of every stage, look what it does to the results, start it again."""
        self._settle()
        stages, at_ms = self.pipeline.order(), time.monotonic() * 1000
        for stage in stages:
            self._processes.pop(f"{stage}.{replica}").kill()
        self._catch_up(5_000)
        figures = death_figures(self._trace(self._observers[-1]), at_ms)
        self.result.deaths.append(figures)
        self._say(
            f"  death of replica {replica}: stable results {figures.before_median_ms:.0f} (max"
            f" {figures.before_max_ms:.0f}) ms before, {figures.after_median_ms:.0f} (max"
            f" {figures.after_max_ms:.0f}) ms after; {figures.tentative_rows} tentative"
        )
        if len(self.result.deaths) < self._session.deaths:
            for stage in stages:
                self._start(f"{stage}.{replica}")
            self._until(self._keeps_up, READY_S, "the replica that was started again")

    # ---------------------------------------------------------------- looking after it

    def _start(self, name: str) -> None:
        memory = "1g" if self._session.load else "512m"
        replicas = sum(len(each.process_ids()) for each in self.pipeline.stages.values())
        self._processes[name] = ReplicaProcess(
            self.pipeline, name, self._kafka, self._folder / "state", memory, replicas
        )

    def _schedule_of(self) -> Schedule:
        assert self._schedule is not None, "the sources run"  # noqa: S101
        return self._schedule

    def _keeps_up(self) -> bool:
        now_ms = time.monotonic() * 1000
        now = self._schedule_of().reached(now_ms)
        alive = {tuple(name.split(".")) for name in self._processes}
        if not all(
            o.closed(replica) >= max(now - self._behind_max(depth), self._first + KEEPS_UP_BUCKETS)
            for depth, o in enumerate(self._observers)
            for stage, replica in alive
            if stage == o.stream
        ):
            self._behind_ms = now_ms
        return now_ms - self._behind_ms > KEEPS_UP_MS

    def _behind_max(self, depth: int) -> int:
        """Buckets; under load a batch holds more of them."""
        return KEEPS_UP_BUCKETS * (5 if self._session.load else 2 + depth)

    def _until(self, condition: Callable[[], bool], deadline_s: float, what: str) -> None:
        end_s = time.monotonic() + deadline_s
        while not condition():
            self._raise_errors()
            if time.monotonic() > end_s:
                places = [f"{name} written to {live.closed}" for name, live in self._live.items()]
                places += [
                    f"{o.stream} stable {o.upto} tentative {o.tentative_upto}"
                    for o in self._observers
                ]
                reached = ", ".join(places)
                raise AnabranchError(f"not within {deadline_s:g} s: {what} ({reached})")
            self._pause.wait(0.05)

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._raise_errors()
            self._pause.wait(min(left_s, 0.1))

    def _raise_errors(self) -> None:
        """Raise the error of any process or thread of the session."""
        for process in self._processes.values():
            process.check()
        for error in [
            *(live.error for live in self._live.values()),
            *(observer.error for observer in self._observers),
        ]:
            if error is not None:
                raise AnabranchError(f"{type(error).__name__}: {error}") from error

    def _own_cpu_s(self) -> float:
        return sum({**tree(os.getpid()), **tree(self._broker_pid)}.values())


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _window(bucket: int, counts: Sequence[tuple[int, int]]) -> Sum:
    table = window_of(bucket, counts, WIDTH_MS)
    return Sum(table.num_rows, digest(table))
