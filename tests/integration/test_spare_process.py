"""Ingestion and delivery killed under their supervisor, on a real broker: the spare process takes
the place of each, soon, and nothing is lost or delivered twice.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Self

import pytest

from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import topic_settings
from anabranch.local import state_file
from anabranch.local.deployment import specs_of
from anabranch.local.processes import MARK_OF_ONE, marked, spare_log
from anabranch.local.state_file import Deployment, Lock, ProcessRow
from anabranch.local.supervisor import Supervisor
from anabranch.ports import TopicPartition
from anabranch.protocol.control import placement
from anabranch.protocol.log.records import BoundaryRecord, LogEntry
from anabranch.streams.boundary_reader import BoundaryReader
from harness.crash_world import World
from harness.outputs import Replica, delivered, ids, rows, until_decided
from harness.sources import report
from harness.waiting import given_s, is_busy, wait_until

_log = logging.getLogger(__name__)

pytestmark = pytest.mark.integration

PERIOD_S = 0.1
GAP_MS = 1_500
"""Longest time without results when a process is killed: half of the usual ``max_delay``."""
DEADLINE_S = 120
IMPORTS_S = 4
"""Time in which a process that has the machine for itself has imported what it needs."""
HEALTHY_AFTER_S = 6
ROWS = 3


class Supervised:
    """A supervisor on a thread, of one process and its spare."""

    def __init__(self, world: World, service: str, name: str) -> None:
        self._state = world.folder / "state"
        self._state.mkdir()
        self._lock = Lock(self._state)
        self._lock.acquire()
        self._name = name
        specs = specs_of(
            [(service, name)],
            world.pipeline.path.resolve(),
            self._state,
            world.kafka,
            None,
            has_live=True,
        )
        self.lines: list[str] = []
        self._stopping = threading.Event()
        self._supervisor = Supervisor(
            self._state,
            Deployment(os.getpid(), "p.yaml", world.kafka, None),
            specs,
            SystemClock(),
            self.lines.append,
        )
        self._thread = threading.Thread(target=self._supervisor.run, args=(self._stopping,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        self._supervisor.stop()
        self._lock.release()

    def row(self) -> ProcessRow | None:
        found = state_file.read(self._state)
        return None if found is None else next(iter(found.processes), None)

    def pid(self) -> int | None:
        row = self.row()
        return None if row is None else row.pid

    def running(self) -> bool:
        row = self.row()
        return row is not None and row.state == "running"

    def spares(self) -> list[int]:
        """Return the ids of processes that were started as spare ones."""
        return marked(MARK_OF_ONE, str(spare_log(self._state.resolve())))

    def kill(self) -> tuple[int, int]:
        """Kill the process. Return its id and that of the one that waits for its place."""
        row = self.row()
        assert row is not None
        assert row.pid is not None
        (spare,) = [pid for pid in self.spares() if pid != row.pid]
        os.kill(row.pid, signal.SIGKILL)
        return row.pid, spare


class Beat:
    """Calls ``act`` with 1, 2 ... every PERIOD_S while the block lasts."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.last = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(PERIOD_S):
                self._act(self.last + 1)
                self.last += 1
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.error = error


def kill_again_and_again(
    supervised: Supervised, beat: Beat, poll: Callable[[], list[int]], kills: int
) -> list[int]:
    """Kill the process so often, each time when it has run for a while and a spare one waits.
    Return the longest time, in ms, between two results around each kill.

    ``poll``: the times of all results so far, in ms, by ``waiting.given_s``.
    """

    def until(condition: Callable[[], object], what: str) -> None:
        def check() -> object:
            if beat.error is not None:
                raise beat.error
            poll()
            return condition()

        wait_until(check, DEADLINE_S, lambda: f"{what}; {supervised.lines[-5:]}")

    def kill_once() -> int:
        until(lambda: supervised.running() and len(poll()) > 5, "it runs")
        row = supervised.row()
        assert row is not None
        ran_s = given_s()
        until(lambda: given_s() - ran_s > HEALTHY_AFTER_S, "it has run for a while")
        until(lambda: set(supervised.spares()) - {row.pid}, "a spare process")
        begun_s = given_s()
        until(lambda: given_s() - begun_s > IMPORTS_S, "the spare one is warm")
        killed_ms = round(given_s() * 1_000)
        dead, spare = supervised.kill()
        until(lambda: supervised.pid() == spare, "the spare process has its place")
        until(lambda: poll()[-1] > killed_ms + GAP_MS and supervised.running(), "results continue")
        assert dead not in supervised.spares(), "it is gone"
        around = [at_ms for at_ms in poll() if at_ms > killed_ms - 1_000]
        return max(later - earlier for earlier, later in pairwise(around))

    return [kill_once() for _ in range(kills)]


@pytest.fixture(autouse=True)
def healthy_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process count as healthy between two kills, which are a minute apart in real life."""
    monkeypatch.setattr(placement, "HEALTHY_AFTER_MS", HEALTHY_AFTER_S * 1_000)


BY_DAY, BY_NIGHT = 2, 20
KILLS = [BY_DAY, pytest.param(BY_NIGHT, marks=pytest.mark.nightly)]


def judge(gaps: list[int], results: int) -> None:
    """Check the gaps, if the test had the machine for itself. By day it runs beside others.
    ``results``: number of those that came, each once.
    """
    text = (
        f"{len(gaps)} kills: without results for at least {min(gaps)} ms,"
        f" {round(median(gaps))} at the median, {max(gaps)} at most ({GAP_MS} are allowed);"
        f" {results} results, each once; all gaps: {sorted(gaps)}"
    )
    if len(gaps) <= BY_DAY or is_busy():
        _log.warning("others had the machine, gaps are not judged: %s", text)
    else:
        _log.info(text)
        assert max(gaps) <= GAP_MS, text


@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_delivery_is_replaced_in_time(kafka: str, tmp_path: Path, kills: int) -> None:
    world = World(kafka, f"spare_out_{kills}_{os.getpid()}", tmp_path / "world", live=True)
    sink = world.pipeline.outputs["out"].live
    assert sink is not None
    admin = world.log.admin()
    assert not admin.create([topic_settings("live", sink.topic, 2)])
    admin.close()
    reader = world.log.reader(committed=True, headers=False)
    reader.assign({TopicPartition(sink.topic, each): 0 for each in range(2)})
    times: list[int] = []

    def poll() -> list[int]:
        if reader.fetch(10_000, 10):
            times.append(round(given_s() * 1_000))
        return times

    replica = Replica(world.log, world.pipeline, world.clock, world.entropy)
    with (
        replica.beating(),
        Supervised(world, "delivery", "out") as supervised,
        Beat(lambda bucket: replica.close_buckets(bucket, {bucket: rows(bucket, ROWS)})) as beat,
    ):
        gaps = kill_again_and_again(supervised, beat, poll, kills)
        beat.__exit__()
        expected = ids(dict.fromkeys(range(1, beat.last + 1), ROWS))
        wait_until(
            lambda: len(delivered(world.log, world.pipeline)) >= len(expected), DEADLINE_S, "all"
        )
    reader.close()
    replica.close()
    until_decided(world.log, world.pipeline)
    found = Counter(ident for _, ident, _, _ in delivered(world.log, world.pipeline))
    assert found == Counter(expected), "each once"
    judge(gaps, len(expected))


@pytest.mark.parametrize("kills", KILLS)
def test_a_killed_ingestion_is_replaced_in_time(kafka: str, tmp_path: Path, kills: int) -> None:
    world = World(kafka, f"spare_in_{kills}_{os.getpid()}", tmp_path / "world", live=True)
    writer = world.log.writer()
    topic = world.pipeline.sources["reports"].topics[0]
    sent = 0

    def produce(number: int) -> None:
        nonlocal sent
        for partition in range(2):
            writer.send(TopicPartition(topic, partition), report(100 * number, number))
            sent += 1
        writer.flush()

    times: list[int] = []
    counted: Counter[int] = Counter()

    def seen(_offset: int, entry: LogEntry, outcome: object) -> None:
        if isinstance(entry, BoundaryRecord) and outcome.accepted:  # type: ignore[attr-defined]
            times.append(round(given_s() * 1_000))
            for part in entry.parts:
                counted[part.bucket] += part.rows

    boundaries = BoundaryReader(
        world.log, world.pipeline.topic_names.boundaries("reports"), ["0"], listener=seen
    )

    def poll() -> list[int]:
        boundaries.poll(10)
        return times

    with (
        Supervised(world, "ingestion", "reports") as supervised,
        Beat(produce) as beat,
    ):
        gaps = kill_again_and_again(supervised, beat, poll, kills)
        beat.__exit__()
        wait_until(lambda: poll() and sum(counted.values()) >= sent, DEADLINE_S, "all")
    boundaries.close()
    writer.close()
    assert counted == Counter(dict.fromkeys(range(1, beat.last + 1), 2)), "each once"
    judge(gaps, sent)
