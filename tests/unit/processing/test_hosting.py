"""A replica on a node: started, looked after, started again. What ends one ends no other."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import structlog

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.ports import Flag
from anabranch.process.frame import ServiceStatus
from anabranch.processing.hosting import HostedReplica
from anabranch.protocol.control.placement import (
    HEALTHY_AFTER_MS,
    RESTART_FIRST_MS,
    RESTART_MAX_MS,
    STAGE_FAILED_DELAY_MAX_MS,
    AfterEnd,
)
from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    Outvoted,
    StageFunctionError,
    Unavailable,
)
from harness.waiting import wait_until


class Acting:
    """A replica that does what it is told from outside."""

    def __init__(self, stopping: Flag, cannot_start: Exception | None = None) -> None:
        self.status, self.stopping = ServiceStatus(), stopping
        self.cannot_start = cannot_start
        self.dies_of: BaseException | None = None
        self.stops_with: Exception | None = None
        self.stopped = 0

    def start(self) -> None:
        if self.cannot_start is not None:
            raise self.cannot_start
        self.status.state = "running"

    def step(self) -> None:
        if self.dies_of is not None:
            raise self.dies_of
        self.stopping.wait(0.005)

    def stop(self) -> None:
        self.stopped += 1
        if self.stops_with is not None:
            raise self.stops_with


class Bench:
    """One place of a node."""

    def __init__(self) -> None:
        self.clock, self.made = VirtualClock(), list[Acting]()
        self.after_end = AfterEnd.AGAIN
        self.cannot_start: Exception | None = None
        self.fenced: list[bool] = []
        self.hosted = HostedReplica(
            "sums.0", self._make, self.clock, structlog.get_logger(), self._after_end
        )

    def _make(self, stopping: Flag, restarts: int) -> Acting:
        assert restarts == len(self.made)
        self.made.append(Acting(stopping, self.cannot_start))
        return self.made[-1]

    def _after_end(self, is_fenced: bool) -> AfterEnd:
        self.fenced.append(is_fenced)
        return (
            AfterEnd.END_NODE if is_fenced and self.after_end is AfterEnd.AGAIN else self.after_end
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: (self.hosted.supervise(), condition())[1], 20, what)  # type: ignore[func-returns-value]

    def runs(self) -> None:
        self.until(lambda: self.hosted.state == "running" and self.hosted.error is None, "it runs")

    def die(self, error: BaseException) -> None:
        """Let the one that runs end, and look until that is seen."""
        self.made[-1].dies_of = error
        self.until(lambda: self.hosted.state != "running", "its end is seen")

    def pause_ms(self) -> int:
        """How long until it is started again."""
        begun, count = self.clock.monotonic_ms(), len(self.made)
        while len(self.made) == count:
            self.clock.sleep_ms(100)
            self.hosted.supervise()
        return self.clock.monotonic_ms() - begun

    def end(self) -> None:
        self.hosted.request_stop()
        assert self.hosted.join(20)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_runs_until_it_is_told_to_stop(bench: Bench) -> None:
    assert (bench.hosted.state, bench.hosted.join(0)) == ("starting", True)
    bench.runs()
    shown = bench.hosted.shown()
    assert (shown["stage"], shown["replica"], shown["state"], shown["restarts"]) == (
        "sums",
        "0",
        "running",
        0,
    )
    bench.end()
    bench.hosted.supervise()
    assert (bench.hosted.state, bench.made[0].stopped, len(bench.made)) == ("stopped", 1, 1)
    bench.hosted.supervise()
    assert len(bench.made) == 1


@pytest.mark.parametrize(
    ("error", "state", "delay_max_ms"),
    [
        (StageFunctionError("f raised"), "failed", STAGE_FAILED_DELAY_MAX_MS),
        (ConfigurationError("no module f"), "failed", STAGE_FAILED_DELAY_MAX_MS),
        (Outvoted("the others agree"), "restarting", RESTART_MAX_MS),
        (Unavailable("no broker"), "restarting", RESTART_MAX_MS),
        (KeyError("a bug"), "restarting", RESTART_MAX_MS),
    ],
    ids=["function", "module", "outvoted", "broker", "bug"],
)
def test_what_ends_is_started_again_later_each_time(
    bench: Bench, error: Exception, state: str, delay_max_ms: int
) -> None:
    pauses = []
    for _ in range(9):
        bench.runs()
        bench.die(error)
        assert (bench.hosted.state, bench.hosted.shown()["error"]) == (state, bench.hosted.error)
        assert bench.hosted.error
        pauses.append(bench.pause_ms())
    assert pauses[:2] == [RESTART_FIRST_MS, 2 * RESTART_FIRST_MS]
    assert pauses[-1] == delay_max_ms
    assert bench.hosted.shown()["restarts"] == 9
    assert all(made.stopped == 1 for made in bench.made[:-1])
    bench.runs()
    bench.clock.sleep_ms(HEALTHY_AFTER_MS)
    bench.die(error)
    assert bench.pause_ms() == RESTART_FIRST_MS
    bench.end()


def test_what_keeps_it_from_starting_is_a_mistake_until_it_runs(bench: Bench) -> None:
    """A configuration error of one that ran is of what changed around it, and may change again."""
    bench.cannot_start = ConfigurationError("stage sums:\nno module f")
    bench.until(lambda: bench.hosted.state == "failed", "its end is seen")
    assert bench.hosted.shown()["mistake"] == "stage sums:\nno module f"
    assert bench.hosted.error == "stage sums: no module f"
    bench.cannot_start = None
    bench.pause_ms()
    bench.runs()
    assert bench.hosted.shown()["mistake"] is None
    bench.die(ConfigurationError("the topic is gone"))
    assert bench.hosted.shown()["mistake"] is None
    bench.end()


def test_a_second_process_of_the_same_name_ends_the_node(bench: Bench) -> None:
    bench.runs()
    with pytest.raises(Fenced):
        bench.die(Fenced("a newer process replaced this one"))
    assert bench.made[0].stopped == 1


def test_what_is_no_error_ends_the_node(bench: Bench) -> None:
    bench.runs()
    with pytest.raises(SystemExit):
        bench.die(SystemExit(7))


def test_an_error_of_the_end_is_reported_unless_there_was_one_before(bench: Bench) -> None:
    bench.runs()
    bench.made[0].stops_with = OSError("disk")
    bench.die(Unavailable("first"))
    assert bench.hosted.error == "first"
    bench.pause_ms()
    bench.runs()
    bench.made[1].stops_with = OSError("no room")
    bench.made[1].stopping.set()
    bench.until(lambda: bench.hosted.state != "running", "its end is seen")
    assert bench.hosted.error == "no room"
    bench.end()


@pytest.mark.parametrize(
    "error",
    [
        Fenced("the other node replaced this one"),
        Unavailable("no broker"),
        StageFunctionError("f raised"),
    ],
)
def test_pc5_one_whose_place_is_elsewhere_ends_for_good_and_nothing_else_does(
    bench: Bench, error: Exception
) -> None:
    bench.runs()
    bench.after_end = AfterEnd.GONE
    bench.die(error)
    bench.clock.sleep_ms(10 * RESTART_MAX_MS)
    bench.hosted.supervise()
    assert (bench.hosted.state, bench.hosted.is_over, len(bench.made)) == ("stopped", True, 1)
    assert bench.fenced == [isinstance(error, Fenced)]


def test_one_that_is_told_to_stop_is_over_when_it_has_ended(bench: Bench) -> None:
    bench.runs()
    bench.hosted.request_stop()
    assert not bench.hosted.is_over
    bench.until(lambda: bench.hosted.is_over, "its end")
    never = HostedReplica(
        "sums.1", lambda *_: Acting(threading.Event()), bench.clock, structlog.get_logger()
    )
    assert not never.is_over
    never.request_stop()
    assert never.is_over
