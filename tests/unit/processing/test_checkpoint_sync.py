"""When a checkpoint is made durable, and what a store that fails holds up: nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.process.frame import ServiceStatus
from anabranch.process.threads import OWN_THREADS
from anabranch.processing.checkpoint_sync import LONG_SYNC_MS, CheckpointSync
from anabranch.protocol.errors import Fenced, Unavailable
from anabranch.protocol.stage.transfer import STORE_AGAIN_MS, STORE_EVERY_MS
from harness.waiting import wait_until


class Runner:
    """In place of ``ReplicaRunner``."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = threading.Event()
        self.dies_of: Exception | None = None
        self.replaced_by: Fenced | None = None

    def sync(self, store: Callable[[str], bool]) -> None:
        self.begun += 1
        assert self.may_end.wait(60)
        if self.dies_of is not None:
            raise self.dies_of
        store("a timeline")

    def check_epoch(self) -> None:
        if self.replaced_by is not None:
            raise self.replaced_by


def made(clock: VirtualClock, status: ServiceStatus, stored: list[str]) -> Any:
    context = SimpleNamespace(
        clock=clock,
        logger=structlog.get_logger(),
        settings=SimpleNamespace(name="s.0"),
        threads=OWN_THREADS,
    )

    def store(name: str) -> bool:
        stored.append(name)
        return True

    def interval_ms(has_failed: bool) -> int:
        return STORE_AGAIN_MS if has_failed else STORE_EVERY_MS

    return CheckpointSync(context, status, store, interval_ms)  # type: ignore[arg-type]


@pytest.mark.parametrize("jump_ms", [0, -3_600_000, 3_600_000])
def test_one_at_a_time_and_not_too_often(jump_ms: int) -> None:
    """However the wall clock is set meanwhile: it is the machine's, and no matter of waiting."""
    clock, stored = VirtualClock(), list[str]()
    runner: Any = Runner()
    sync = made(clock, ServiceStatus(), stored)
    clock.advance(STORE_EVERY_MS - 1)
    clock.jump(jump_ms)
    sync.sync_if_due(runner)
    assert runner.begun == 0
    clock.advance(1)
    sync.sync_if_due(runner)
    clock.advance(STORE_EVERY_MS)
    sync.sync_if_due(runner)
    wait_until(lambda: runner.begun, 60, "the first")
    runner.may_end.set()
    wait_until(lambda: stored == ["a timeline"], 60, "the first")

    def goes_on() -> bool:
        sync.sync_if_due(runner)
        return len(stored) == 2

    wait_until(goes_on, 60, "the second")
    assert runner.begun == 2


def test_a_store_that_denies_is_shown_until_it_is_mended() -> None:
    clock, stored = VirtualClock(), list[str]()
    status = ServiceStatus()
    runner: Any = Runner()
    sync = made(clock, status, stored)
    runner.may_end.set()
    runner.dies_of = Unavailable("the store is full")
    clock.advance(STORE_EVERY_MS)
    sync.sync_if_due(runner)
    wait_until(lambda: status.detail.get("not_stored") == "the store is full", 60, "what is wrong")
    runner.dies_of = None
    clock.advance(STORE_AGAIN_MS)

    def goes_on() -> bool:
        sync.sync_if_due(runner)
        return bool(stored)

    wait_until(goes_on, 60, "the next try")
    wait_until(lambda: "not_stored" not in status.detail, 60, "nothing is wrong")


def test_a_store_that_hangs_is_shown_until_it_answers() -> None:
    clock, stored = VirtualClock(), list[str]()
    status = ServiceStatus()
    runner: Any = Runner()
    sync = made(clock, status, stored)
    clock.advance(STORE_EVERY_MS)
    sync.sync_if_due(runner)
    wait_until(lambda: runner.begun, 60, "the sync")
    clock.advance(LONG_SYNC_MS - 1)
    sync.sync_if_due(runner)
    assert "not_stored" not in status.detail
    clock.advance(1)
    for _ in range(2):
        sync.sync_if_due(runner)
        assert "does not answer" in str(status.detail["not_stored"])
    runner.may_end.set()
    wait_until(lambda: "not_stored" not in status.detail, 60, "nothing is wrong")
    assert (runner.begun, stored) == (1, ["a timeline"])


@pytest.mark.parametrize("is_replaced", [False, True])
def test_what_a_sync_dies_of_ends_the_replica_and_not_the_process(*, is_replaced: bool) -> None:
    """A newer process removes the directory of one that was replaced: FileNotFoundError."""
    runner: Any = Runner()
    clock = VirtualClock()
    sync = made(clock, ServiceStatus(), [])
    runner.may_end.set()
    runner.dies_of = FileNotFoundError("gone")
    runner.replaced_by = Fenced("a newer one") if is_replaced else None
    clock.advance(STORE_EVERY_MS)
    sync.sync_if_due(runner)

    def ended_by() -> Exception | None:
        try:
            sync.sync_if_due(runner)
        except (Fenced, FileNotFoundError) as error:
            return error
        return None

    error = wait_until(ended_by, 60, "the end of the replica")
    assert isinstance(error, Fenced if is_replaced else FileNotFoundError)
