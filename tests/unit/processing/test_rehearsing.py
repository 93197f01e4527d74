"""A rehearsal on a disk of its own, with a query that asks its driver as Spark does."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.adapters.memory.clock import VirtualClock
from anabranch.ports import PreparedStage, QueryOutput
from anabranch.process.threads import OWN_THREADS
from anabranch.processing.rehearsing import Rehearsing
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.timeline import Timeline, timeline_name
from anabranch.protocol.stage.rehearsal import REHEARSED_BATCHES, Rehearsal
from harness import spark_files
from harness.asking_query import AskingStage
from harness.boundary_logs import part, record, started, state_after
from harness.waiting import wait_until

OWN = timeline_name(7, 0)
TOKEN = "0" * 16
COPY = timeline_name(0, 999_998, TOKEN)


class World:
    """A replica whose checkpoint is here, and a node that rehearses."""

    def __init__(self, folder: Path, batches: int = 3) -> None:
        self.logged = list[tuple[str, dict[str, Any]]]()
        self.disk = ReplicaFolder(folder / "s.0")
        if batches:
            self.disk.create(OWN)
            self.disk.write(Timeline.fresh(7))
        for batch in range(batches):
            spark_files.log_batch(self.disk.directory(OWN), batch)
            spark_files.commit_batch(self.disk.directory(OWN), batch, partitions=1)
        self.engine = AskingStage()
        self.clock, self.stopping = VirtualClock(), threading.Event()
        logger = SimpleNamespace(info=self._log, warning=self._log)
        context: Any = SimpleNamespace(
            clock=self.clock,
            pipeline=SimpleNamespace(bucket_ms=100),
            settings=SimpleNamespace(name="s.0"),
            stopping=self.stopping,
            threads=OWN_THREADS,
            logger=logger,
        )
        self.rehearsal = Rehearsal(is_wanted=True)
        assert self.rehearsal.begins(0, is_near=True)
        self.made = Rehearsing(
            context,
            cast("PreparedStage", self.engine),
            self.disk,
            "0",
            (lambda: {"a": log_state()}, nullcontext()),
        )

    def _log(self, event: str, **facts: Any) -> None:
        self.logged.append((event, facts))

    def rehearse(self) -> None:
        self.made.begin(self.rehearsal, TOKEN, 5)
        self.made.join()


def log_state() -> LogState:
    records = [record(0, bucket - 1, bucket, (part(bucket),)) for bucket in range(1, 13)]
    return state_after(started(), *records)


def test_it_runs_the_first_batches_in_a_copy_and_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    files = sorted(tmp_path.rglob("*"))
    world.made.join()
    world.rehearse()
    assert world.engine.batches == REHEARSED_BATCHES
    assert world.engine.output == QueryOutput("0", -1, is_written=False)
    assert world.engine.place == str(world.disk.directory(COPY))
    assert not world.engine.is_alive()
    assert not world.rehearsal.is_running
    assert not world.rehearsal.delays(0)
    assert world.logged == [("rehearsed", {"stage": "s.0", "ms": 0})]
    assert sorted(tmp_path.rglob("*")) == files


def test_without_a_checkpoint_there_is_nothing_to_rehearse(tmp_path: Path) -> None:
    world = World(tmp_path, batches=0)
    world.rehearse()
    assert world.engine.place == "not started"
    assert not world.rehearsal.delays(0)
    assert world.logged == []


def test_nor_in_one_without_a_whole_batch(tmp_path: Path) -> None:
    world = World(tmp_path)
    for path in world.disk.directory(OWN).glob("offsets/*"):
        path.write_bytes(b"")
    world.rehearse()
    assert world.engine.place == "not started"
    assert not world.rehearsal.delays(0)


def test_one_that_fails_delays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(world.engine, "_run", lambda *_: None)
    world.engine.fails = True
    world.rehearse()
    assert world.logged == [("rehearsal_failed", {"stage": "s.0", "error": "f raised"})]
    assert not world.rehearsal.delays(0)
    assert not world.disk.directory(COPY).exists()


@pytest.mark.parametrize("ends", ["takes over", "stops"])
def test_one_that_is_told_to_stop_ends_soon(
    tmp_path: Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    go_on = threading.Event()
    monkeypatch.setattr(world.engine, "_run", lambda *_: go_on.wait())
    monkeypatch.setattr(world.engine, "stop", go_on.set)
    world.made.begin(world.rehearsal, TOKEN, 5)
    wait_until(world.engine.is_alive, 20, "the query runs")
    assert world.rehearsal.delays(0)
    if ends == "takes over":
        world.made.stop()
    else:
        world.stopping.set()
    world.made.join()
    assert not world.rehearsal.delays(0)
    assert not world.disk.directory(COPY).exists()
