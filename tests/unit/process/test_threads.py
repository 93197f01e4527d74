"""Threads of this process and of a simulated one keep the same promises."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from anabranch.ports import Threads
from anabranch.process.threads import OWN_THREADS
from simulation.scheduler import Process, Scheduler
from simulation.threads import SimulatedThreads


def _simulated(body: Callable[[Threads], None]) -> None:
    scheduler, process = Scheduler(random.Random(1)), Process("s", 0)
    scheduler.spawn(process, lambda: body(SimulatedThreads(scheduler, process)))
    try:
        scheduler.run_until(600_000)
    finally:
        scheduler.close()


def _own(body: Callable[[Threads], None]) -> None:
    body(OWN_THREADS)


@pytest.fixture(params=[_own, _simulated])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[Threads], None]], None]:
    found: Callable[[Callable[[Threads], None]], None] = request.param
    return found


def test_what_is_begun_runs_beside_and_is_joined(
    run: Callable[[Callable[[Threads], None]], None],
) -> None:
    done = list[str]()

    def body(threads: Threads) -> None:
        goes_on = threads.event()
        thread = threads.begin("t", lambda: done.append(str(goes_on.wait(20))))
        thread.join(0.01)
        assert (thread.is_alive(), done) == (True, [])
        goes_on.set()
        thread.join(20)
        assert (thread.is_alive(), done, goes_on.is_set()) == (False, ["True"], True)

    run(body)
    assert done == ["True"]


def test_an_event_that_nobody_sets_is_waited_for_as_long_as_allowed(
    run: Callable[[Callable[[Threads], None]], None],
) -> None:
    answers = list[bool]()
    run(lambda threads: answers.append(threads.event().wait(0.01)))
    assert answers == [False]


def test_a_condition_is_reentrant_and_given_up_while_its_owner_waits(
    run: Callable[[Callable[[Threads], None]], None],
) -> None:
    done = list[str]()

    def body(threads: Threads) -> None:
        condition = threads.condition()

        def notify() -> None:
            with condition:
                done.append("notified")
                condition.notify_all()

        with condition, condition:
            thread = threads.begin("n", notify)
            while not done:
                condition.wait(20)
            done.append("woke")
        thread.join(20)

    run(body)
    assert done == ["notified", "woke"]


def test_a_turn_is_taken_by_one_thread_at_a_time(
    run: Callable[[Callable[[Threads], None]], None],
) -> None:
    taken = list[bool]()

    def body(threads: Threads) -> None:
        turn = threads.turn()
        with turn:
            threads.begin("other", lambda: taken.append(turn.acquire(blocking=False))).join(20)
        assert turn.acquire()
        turn.release()

    run(body)
    assert taken == [False]
