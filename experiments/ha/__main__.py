"""Measurement of the cost of each mode of ``ha`` and of the time until results resume: ``python -m
experiments.ha``, to docs/experiments/high_availability.md.

First in virtual time, against interval, window and rate (``experiments.ha.sweep``). Then real runs
of one setting: one stage, a window of 2 s over 20 keys, is fed at a steady rate on a real broker.
After a while one process, the one that runs the query, is killed (SIGKILL); what ends is, as
``anabranch up`` does, started again half a second later. After another while, and where a process
stands by once it has a copy again, the one that runs it then is killed and its state directory
deleted. The stable stream is compared with the answer.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.protocol.errors import AnabranchError
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, EpochStarted
from anabranch.protocol.stage.standby import PRIMARY_SILENT_MS
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.boundary_reader import BoundaryReader
from benchmarks.machine import commit, machine
from benchmarks.processes import exit_on_signals, memory_mib, tree
from experiments.dpc.chain import ReplicaProcess, create_topics
from experiments.dpc.sources import Schedule, Source, window_of
from experiments.ha.stage import write_stage
from experiments.ha.sweep import Sweep, blocks_and_plots
from experiments.pages import table, write_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry

PAGE: Final = Path(__file__).parents[2] / "docs/experiments/high_availability.md"
WIDTH_MS: Final = 250
WINDOW_BUCKETS: Final = 8
RATE: Final = 4_000
STEADY_S: Final = 10.0
WARM_S: Final = 5.0
RESTART_S: Final = 0.5
SETTLED_S: Final = 20.0
_DEADLINE_S: Final = 240.0
_FIRST: Final = 2 * WINDOW_BUCKETS
MODES: Final = {
    "active, replicas: 1": "replicas: 1",
    "active, replicas: 2": "replicas: 2",
    "passive, replicas: 2": "ha: passive\n    replicas: 2",
    "upstream_backup": "ha: upstream_backup\n    state_horizon: 2s",
    "amnesia": "ha: amnesia\n    state_horizon: 2s",
}


@dataclass(slots=True)
class Row:
    """Measurements of one mode."""

    mode: str
    cpu_s_per_million: float
    """CPU seconds of all processes of the stage per million input records, at the steady rate."""
    pss_mib: float
    kill_s: float
    """From the kill until a bucket is stable that was not due yet at the kill."""
    disk_s: float
    kill_cpu_s: float
    """CPU seconds from the kill until then, of the processes that were not killed and of the one
    that was started again.
    """
    failovers: list[dict[str, int]]
    """Duration of each phase of each standby's failover, in ms, from ``failed_over``."""
    again: float
    """Result rows that were written to the log more than once, for each result, the work of
    peers included.
    """
    wrong: int
    """Windows that a reader gets otherwise than they must be, twice for example."""
    lost: int
    """Windows without results."""
    given_up: int
    """Number of these windows that the log says are given up."""
    date: str
    commit: str


@dataclass(slots=True)
class _Watch:
    """Follows the stage's log in a thread of its own."""

    seen: list[tuple[float, int]] = field(default_factory=list)
    """(time, stable up to)."""
    rows: int = 0
    given_up: list[tuple[int, int]] = field(default_factory=list)
    runs_on: str = ""

    def take(self, _offset: int, entry: LogEntry, outcome: Outcome) -> None:
        if isinstance(entry, EpochStarted):
            self.runs_on = entry.node
        elif (
            isinstance(entry, BoundaryRecord)
            and outcome.accepted
            and entry.kind is BoundaryKind.STABLE
        ):
            self.rows += sum(part.rows for part in entry.parts)
            if entry.missing:
                before = self.seen[-1][1] if self.seen else 0
                self.given_up.append((before + 1, entry.closed))


class Session:
    """One mode on a broker that is there."""

    def __init__(self, kafka: str, mode: str, folder: Path) -> None:
        self.mode, self.state = mode, folder / "state"
        name = f"ha{len(mode)}{int(time.time()) % 100_000}"
        self.pipeline = write_stage(
            folder,
            name,
            MODES[mode],
            width_ms=WIDTH_MS,
            window_s=WINDOW_BUCKETS * WIDTH_MS // 1_000,
        )
        self._kafka, self._log = kafka, KafkaEventLog(kafka)
        create_topics(self._log, self.pipeline)
        self.ids = self.pipeline.stages["s"].process_ids()
        self.processes: dict[str, ReplicaProcess] = {}
        self._watch = _Watch()
        writers = self.pipeline.stream_writers("s")
        self.reader = BoundaryReader(
            self._log, self.pipeline.topic_names.boundaries("s"), writers, listener=self._watch.take
        )
        self._stopping = threading.Event()
        self._source = Source(kafka, self.pipeline, "a")
        self._per_bucket = RATE * WIDTH_MS // 1_000
        self._threads = [
            threading.Thread(target=each, daemon=True)
            for each in (self._feed, self._follow, self._supervise)
        ]
        self._starting = threading.Lock()

    def run(self) -> Row:
        """Run the whole session."""
        try:
            self._schedule = Schedule(WIDTH_MS, time.monotonic(), _FIRST)
            for process in self.ids:
                self._start(process)
            for thread in self._threads:
                thread.start()
            self._until(_FIRST + WINDOW_BUCKETS)
            time.sleep(WARM_S)
            cpu_s = self._cpu_s()
            begun_s = time.monotonic()
            time.sleep(STEADY_S)
            per_million = (self._cpu_s() - cpu_s) / (time.monotonic() - begun_s) / RATE * 1e6
            pss = sum(
                memory_mib(pid)[0]
                for process in self.processes.values()
                for pid in tree(process.pid)
            )
            self._await_copy()
            kill_s, kill_cpu_s = self._lose(disk=False)
            time.sleep(SETTLED_S)
            self._await_copy()
            disk_s, _ = self._lose(disk=True)
            time.sleep(SETTLED_S / 2)
            self._stopping.set()
            for thread in self._threads:
                thread.join()
            return Row(
                self.mode,
                per_million,
                pss,
                kill_s,
                disk_s,
                kill_cpu_s,
                self._failovers(),
                *self._judge(),
                time.strftime("%Y-%m-%d", time.gmtime()),
                commit(),
            )
        finally:
            self._stopping.set()
            with self._starting:
                for running in self.processes.values():
                    running.kill()

    def _start(self, process: str) -> None:
        self.processes[process] = ReplicaProcess(
            self.pipeline, f"s.{process}", self._kafka, self.state, "700m", len(self.ids)
        )

    def _supervise(self) -> None:
        """Start again what has ended: one that was killed, and of two standbys that began at
        once the one that lost.
        """
        ended_s: dict[str, float] = {}
        while not self._stopping.wait(0.02):
            for name, process in list(self.processes.items()):
                if (
                    process.has_ended
                    and time.monotonic() - ended_s.setdefault(name, time.monotonic()) >= RESTART_S
                ):
                    del ended_s[name]
                    with self._starting:
                        if not self._stopping.is_set():
                            self._start(name)

    def _cpu_s(self) -> float:
        return sum(sum(tree(process.pid).values()) for process in self.processes.values())

    def _feed(self) -> None:
        done = _FIRST - 1
        while not self._stopping.wait(0.02):
            due = self._schedule.reached(time.monotonic() * 1_000)
            if due > done:
                self._source.append(done + 1, due, self._per_bucket, due)
                done = due

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self.reader.poll(50)
            upto = self.reader.log_state.upto
            if not self._watch.seen or upto > self._watch.seen[-1][1]:
                self._watch.seen.append((time.monotonic(), upto))

    def _until(self, bucket: int) -> float:
        """When ``bucket`` became stable."""
        deadline_s = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline_s:
            found = next((at_s for at_s, upto in list(self._watch.seen) if upto >= bucket), None)
            if found is not None:
                return found
            time.sleep(0.05)
        logs = "\n".join(each.last_words() for each in self.processes.values())
        raise AnabranchError(
            f"{self.mode}: bucket {bucket} did not become stable; {self.reader.log_state.upto} is;"
            f" last said:\n{logs}"
        )

    def _await_copy(self) -> None:
        """Wait, if a process stands by, until it has a copy of a checkpoint of the newest epoch."""
        if self.pipeline.stages["s"].ha != "passive":
            return
        deadline_s = time.monotonic() + _DEADLINE_S
        (writer,) = self.pipeline.stream_writers("s")
        while time.monotonic() < deadline_s:
            epoch, running = self.reader.log_state.epoch(writer), self._running()
            copies = [
                path
                for process in self.ids
                if process != running
                for path in self.state.glob(f"processing/s.{process}/timelines/{epoch:012d}-*.json")
            ]
            if copies:
                return
            time.sleep(0.1)
        raise AnabranchError(f"{self.mode}: nobody has a copy of the newest checkpoint")

    def _lose(self, *, disk: bool) -> tuple[float, float]:
        """Kill the process that runs the query; seconds until results come again of what was
        not due by then, and CPU seconds of the others meanwhile.
        """
        victim = self._running()
        due = self._schedule.reached(time.monotonic() * 1_000)
        killed_s = time.monotonic()
        with self._starting:
            self.processes[victim].kill()
            cpu_s = self._cpu_s()
            if disk:
                shutil.rmtree(self.state / "processing" / f"s.{victim}")
        again_s = self._until(due + 1) - killed_s
        return again_s, self._cpu_s() - cpu_s

    def _failovers(self) -> list[dict[str, int]]:
        """Return what standbys logged of their failovers; not of the first start, when no primary
        was silent.
        """
        logs = [path.read_text(errors="replace") for path in sorted(self.state.glob("*.log"))]
        lines = [line for text in logs for line in text.splitlines() if '"failed_over"' in line]
        found: list[dict[str, int]] = [json.loads(line)["ms"] for line in lines]
        return [each for each in found if each["silence"] >= PRIMARY_SILENT_MS]

    def _running(self) -> str:
        """Return the process that began last, which runs on its own node."""
        return self._watch.runs_on.rpartition(".")[2]

    def _judge(self) -> tuple[float, int, int, int]:
        log_state, names = self.reader.log_state, self.pipeline.topic_names
        upto = log_state.upto // WINDOW_BUCKETS * WINDOW_BUCKETS
        blocks = BlockReader(self._log, lambda replica: names.blocks("s", replica), SystemClock())
        made = dict(blocks.read_buckets(log_state.stable(1, upto)))
        wrong = 0
        lost = 0
        given_up = 0
        rows = 0
        for bucket in range(_FIRST + WINDOW_BUCKETS, upto + 1, WINDOW_BUCKETS):
            counts = [
                (at, self._per_bucket) for at in range(bucket - WINDOW_BUCKETS + 1, bucket + 1)
            ]
            expected = window_of(bucket, counts, WIDTH_MS).sort_by("key").to_pylist()
            found = made[bucket].sort_by("key").to_pylist() if bucket in made else []
            rows += len(found)
            if not found:
                lost += 1
                given_up += any(first <= bucket <= last for first, last in self._watch.given_up)
            elif found != expected:
                wrong += 1
        blocks.close()
        return self._watch.rows / max(rows, 1) - 1, wrong, lost, given_up


def report(rows: Sequence[Row]) -> str:
    """Return the table of the real runs, with the means of each mode's runs."""
    lines = []
    for mode in MODES:
        mine = [row for row in rows if row.mode == mode]
        if mine:
            lines.append(
                [
                    mode,
                    str(len(mine)),
                    f"{mean(r.cpu_s_per_million for r in mine):.0f}",
                    f"{mean(r.pss_mib for r in mine):.0f}",
                    f"{mean(r.kill_s for r in mine):.1f} s",
                    f"{mean(r.kill_cpu_s for r in mine):.1f}",
                    f"{mean(r.disk_s for r in mine):.1f} s",
                    f"{mean(r.again for r in mine):.0%}",
                    str(sum(r.wrong for r in mine)),
                    str(sum(r.lost for r in mine)),
                    str(sum(r.given_up for r in mine)),
                    mine[-1].date,
                    f"`{mine[-1].commit}`",
                ]
            )
    head = ["`ha`", "runs", "CPU s per million records", "MiB", "results after SIGKILL"]
    head += ["CPU s until then", "after loss of the disk", "rows made again", "wrong", "lost"]
    return "\n".join(
        [
            table([*head, "said", "date", "commit"], lines),
            "",
            f"Measured on {machine()}.",
            "",
            *_phases(rows),
        ]
    ).rstrip()


def _phases(rows: Sequence[Row]) -> list[str]:
    """Describe the mean phases of failovers by a standby; empty if there were none."""
    failovers = [each for row in rows for each in row.failovers]
    if not failovers:
        return []
    names = list(failovers[0])
    means = [f"{mean(each[name] for each in failovers):.0f}" for name in names]
    return [
        f"Of {len(failovers)} failovers by a standby, means in ms:",
        "",
        f"| {' | '.join(name.replace('_', ' ') for name in names)} |",
        "|---" * len(names) + "|",
        f"| {' | '.join(means)} |",
        "",
    ]


def main(arguments: Sequence[str]) -> int:
    """Run the sweep, then the modes that are asked for; add them to the results of earlier calls,
    and write the page.
    """
    parser = argparse.ArgumentParser(prog="python -m experiments.ha", description=__doc__)
    parser.add_argument("--virtual", action="store_true", help="only the figures in virtual time")
    parser.add_argument(
        "--mode", action="append", choices=MODES, help="only this real run; may be given repeatedly"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(tempfile.gettempdir()) / "anabranch-ha.json",
        help="rows of all calls",
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write the figures to")
    given = parser.parse_args(arguments)
    exit_on_signals()
    if given.virtual or not given.mode:
        write_page(given.page, *blocks_and_plots(Sweep()))
    if given.virtual:
        return 0
    rows = (
        [Row(**fields) for fields in json.loads(given.results.read_text())]
        if given.results.exists()
        else []
    )
    for mode in given.mode or MODES:
        with tempfile.TemporaryDirectory() as folder:
            kafka = EmbeddedKafka(Path(folder) / "kafka")
            try:
                rows.append(Session(kafka.start(), mode, Path(folder) / "run").run())
            finally:
                kafka.stop(3.0)
        print(rows[-1])
        given.results.write_text(json.dumps([asdict(row) for row in rows]))
        write_page(given.page, {"measured": report(rows)}, {})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
