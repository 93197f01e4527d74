"""When a checkpoint is made durable, and what a store that fails holds up: nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import structlog

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.processing.checkpoint_sync import CHECKPOINT_SYNC_EVERY_MS, CheckpointSync
from anabranch.protocol.errors import Unavailable
from anabranch.runtime.own_threads import OWN_THREADS
from anabranch.runtime.service import ServiceStatus
from harness.waiting import wait_until

CLOCK = VirtualClock()
BEGUN_MS = CLOCK.now_ms()


class Runner:
    """In place of ``ReplicaRunner``."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = threading.Event()
        self.dies_of: Exception | None = None

    def sync(self, store: Callable[[str], bool]) -> None:
        self.begun += 1
        assert self.may_end.wait(60)
        if self.dies_of is not None:
            raise self.dies_of
        store("a timeline")


def made(status: ServiceStatus, stored: list[str]) -> Any:
    context = SimpleNamespace(
        clock=CLOCK,
        logger=structlog.get_logger(),
        settings=SimpleNamespace(name="s.0"),
        threads=OWN_THREADS,
    )

    def store(name: str) -> bool:
        stored.append(name)
        return True

    return CheckpointSync(context, status, store)  # type: ignore[arg-type]


def test_one_at_a_time_and_not_too_often() -> None:
    stored: list[str] = []
    runner: Any = Runner()
    sync = made(ServiceStatus(), stored)
    sync.look(runner, BEGUN_MS + CHECKPOINT_SYNC_EVERY_MS - 1)
    assert runner.begun == 0
    sync.look(runner, BEGUN_MS + CHECKPOINT_SYNC_EVERY_MS)
    sync.look(runner, BEGUN_MS + 2 * CHECKPOINT_SYNC_EVERY_MS)
    wait_until(lambda: runner.begun, 60, "the first")
    runner.may_end.set()
    wait_until(lambda: stored == ["a timeline"], 60, "the first")

    def goes_on() -> bool:
        sync.look(runner, BEGUN_MS + 3 * CHECKPOINT_SYNC_EVERY_MS)
        return len(stored) == 2

    wait_until(goes_on, 60, "the second")
    assert runner.begun == 2


def test_a_store_that_denies_is_shown_until_it_is_mended() -> None:
    status, stored = ServiceStatus(), list[str]()
    runner: Any = Runner()
    sync = made(status, stored)
    runner.may_end.set()
    runner.dies_of = Unavailable("the store is full")
    sync.look(runner, BEGUN_MS + CHECKPOINT_SYNC_EVERY_MS)
    wait_until(lambda: status.detail.get("not_stored") == "the store is full", 60, "what is wrong")
    runner.dies_of = None

    def goes_on() -> bool:
        sync.look(runner, BEGUN_MS + 2 * CHECKPOINT_SYNC_EVERY_MS)
        return bool(stored)

    wait_until(goes_on, 60, "the next try")
    wait_until(lambda: "not_stored" not in status.detail, 60, "nothing is wrong")
