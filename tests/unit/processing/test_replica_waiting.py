"""A disk or a broker that does not answer holds up nobody but who needs it: followers,
heartbeats and timers go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from anabranch.codec.plan_offsets import position_fields
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.log.records import BoundaryRecord
from harness.replica_bench import WAITS
from harness.replica_world import Process, World, running
from harness.waiting import wait_until

LIMIT_S = 20.0


class Gate:
    """Whoever comes to it waits until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.reached.set()
        assert self.opened.wait(LIMIT_S), "never opened"


class Other(threading.Thread):
    """Does something that another thread of the service does, and keeps its error."""

    def __init__(self, body: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.body, self.error = body, list[BaseException]()
        self.start()

    def run(self) -> None:
        try:
            self.body()
        except BaseException as error:  # noqa: BLE001 - for the test's own thread
            self.error.append(error)

    def end(self) -> None:
        """Wait for it."""
        self.join(LIMIT_S)
        assert not self.is_alive(), "it waits for what somebody else waits for"
        assert self.error == []


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def all_go_on(world: World, process: Process, name: str) -> None:
    """Do what the other threads of the service do while one of them waits."""
    runner, upto = process.runner, process.inputs[name].log_state.upto

    def supervise() -> None:
        runner.orders()
        runner.complete_upto()
        runner.waiting_for()
        with runner.lock:
            assert runner.state is not ReplicaState.FAILURE

    world.close(name, upto + 1)
    Other(lambda: runner.follow(name, 0)).end()
    Other(supervise).end()
    assert process.inputs[name].log_state.upto == upto + 1


def hole() -> tuple[World, Process, str]:
    """Input a lacks what b has, for so long that the stable query forks when it asks next."""
    world, process = running()
    world.close("b", 9, 7, 9)
    process.runner.tick()
    for _ in range(WAITS.first_ms // 100 + 1):
        world.clock.advance(100)
        process.runner.tick()
    return world, process, process.runner.stable_query


@pytest.mark.parametrize("step", ["copy", "write"])
def test_while_a_branch_begins(gate: Gate, step: str) -> None:
    world, process, stable_query = hole()
    real = getattr(world.disk, step)

    def slow(*arguments: object) -> None:
        gate()
        real(*arguments)

    setattr(world.disk, step, slow)
    asks = Other(lambda: process.ask(stable_query))
    assert gate.reached.wait(LIMIT_S)
    all_go_on(world, process, "b")
    gate.opened.set()
    asks.end()
    assert process.runner.branch == stable_query
    assert process.ask(stable_query) is not None


def test_while_a_branch_begins_the_log_is_slow(gate: Gate) -> None:
    """A record is being appended: the fork waits for it with no lock that others need."""
    world, process, stable_query = hole()
    with process.runner.log_lock:
        asks = Other(lambda: process.ask(stable_query))
        wait_until(asks.is_alive, LIMIT_S, "the question")
        all_go_on(world, process, "b")
    asks.end()
    assert process.runner.branch == stable_query


def test_what_is_synced_while_a_branch_begins_is_not_counted(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy that becomes the stable query may have been made before."""
    world, process, stable_query = hole()
    copies = world.disk.copy

    def slowly(source: str, target: str) -> None:
        copies(source, target)
        gate()

    monkeypatch.setattr(world.disk, "copy", slowly)
    asks = Other(lambda: process.ask(stable_query))
    assert gate.reached.wait(LIMIT_S)
    process.runner.sync()
    gate.opened.set()
    asks.end()
    assert (process.runner.branch, process.runner.synced_bucket) == (stable_query, 0)


def test_while_a_checkpoint_is_synced(gate: Gate) -> None:
    world, process = running()
    world.disk.sync = gate  # type: ignore[method-assign, assignment]
    syncs = Other(process.runner.sync)
    assert gate.reached.wait(LIMIT_S)
    all_go_on(world, process, "a")
    world.close("b", 6, 6)
    process.settle()
    assert world.stable_rows() == world.expected(6), "batches run"
    gate.opened.set()
    syncs.end()
    assert process.runner.synced_bucket == 5


def test_while_a_record_is_appended(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    world, process = running()
    for name in world.names:
        world.close(name, 8, 7)
    process.runner.tick()
    append = process.boundary.append

    def slow(record: BoundaryRecord) -> None:
        gate()
        append(record)

    monkeypatch.setattr(process.boundary, "append", slow)
    batch = Other(lambda: process.step(process.runner.stable_query))
    assert gate.reached.wait(LIMIT_S)
    all_go_on(world, process, "a")
    Other(process.runner.check_epoch).end()
    gate.opened.set()
    batch.end()
    assert world.stable_rows() == world.expected(8)


def test_a_question_asked_while_the_branch_begins_makes_no_plan(gate: Gate) -> None:
    """The other input of the same query: it gets its part when the first one has it."""
    world, process, stable_query = hole()
    real = world.disk.copy

    def slow(source: str, target: str) -> None:
        gate()
        real(source, target)

    world.disk.copy = slow  # type: ignore[method-assign]
    asks = Other(lambda: process.ask(stable_query))
    assert gate.reached.wait(LIMIT_S)
    start = position_fields(world.offsets(stable_query)[1])
    assert process.runner.advance(stable_query, "b", start) is None
    gate.opened.set()
    asks.end()
    assert process.runner.advance(stable_query, "b", start) is not None
