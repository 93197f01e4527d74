"""An engine that is kept warm: a small one of one thread, which asks its driver as Spark does."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.codec.plan_offsets import INITIAL, position_of
from anabranch.ports import PreparedStage, QueryDriver, QueryOutput
from anabranch.processing.warming import KEEP_WARM_EVERY_MS, WARM_UP_BATCHES, Warming
from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.stage.planner import PlanTraits
from harness.waiting import wait_until

DEADLINE_S = 20


class Engine:
    """``ports.PreparedStage`` and its one query."""

    def __init__(self) -> None:
        self.traits = PlanTraits(is_stateful=True, is_batch_safe=True)
        self.batches = self.questions = 0
        self.fails = False
        self.output: QueryOutput | None = None
        self.place: str | None = "not started"
        self._stopping, self._thread = threading.Event(), threading.Thread()

    def start(
        self, query: str, driver: QueryDriver, output: QueryOutput, place: str | None, done: object
    ) -> Engine:
        del done
        self.output, self.place = output, place
        self._thread = threading.Thread(target=self._run, args=(query, driver))
        self._thread.start()
        return self

    def _run(self, query: str, driver: QueryDriver) -> None:
        start: dict[str, Any] = dict(INITIAL)
        while not self._stopping.is_set():
            self.questions += 1
            found = driver.advance(query, "a", start)
            if found is None:
                continue
            offset = json.loads(json.dumps(found))
            before = position_of(start)
            driver.begin(query, [offset], 100 * offset["bucket"], before)
            driver.finish(query, self.batches, ())
            start, self.batches = offset, self.batches + 1

    def ended(self, wait_ms: int) -> bool:
        if self.fails:
            raise StageFunctionError("f raised")
        self._thread.join(wait_ms / 1_000)
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def warming(engine: Engine, clock: VirtualClock) -> Warming:
    return Warming(cast("PreparedStage", engine), "0", ["a"], 100, clock)


def test_it_runs_a_few_batches_then_one_now_and_then_until_it_is_stopped() -> None:
    engine, clock = Engine(), VirtualClock()
    made = warming(engine, clock)
    made.until_warm(lambda: False)
    wait_until(lambda: engine.batches == WARM_UP_BATCHES, DEADLINE_S, "the last one is counted")
    assert (engine.output, engine.place) == (QueryOutput("0", -1), None)
    for more in (1, 2):
        clock.advance(KEEP_WARM_EVERY_MS - 1)
        made.step()
        assert engine.batches == WARM_UP_BATCHES + more - 1
        clock.advance(1)
        made.step()
        made.step()
        wait_until(lambda: engine.batches == WARM_UP_BATCHES + more, DEADLINE_S, "a batch")  # noqa: B023 - called in this round only
    assert engine.questions < 20, "one that has no plan waits"
    ending = made.stop()
    assert ending is not None
    ending.join(DEADLINE_S)
    assert not ending.is_alive()
    assert made.stop() is None
    clock.advance(KEEP_WARM_EVERY_MS)
    made.step()
    assert engine.batches == WARM_UP_BATCHES + 2


def test_what_the_query_dies_of_is_raised() -> None:
    engine, clock = Engine(), VirtualClock()
    made = warming(engine, clock)
    made.until_warm(lambda: False)
    engine.fails = True
    made.step()
    clock.advance(KEEP_WARM_EVERY_MS)
    with pytest.raises(StageFunctionError):
        made.step()
    made.stop()


def test_told_to_stop_it_does_not_wait_until_it_is_warm() -> None:
    engine = Engine()
    made = warming(engine, VirtualClock())
    made.until_warm(lambda: True)
    made.stop()
