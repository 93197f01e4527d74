"""An engine that is kept warm: a small one of one thread, which asks its driver as Spark does."""

from __future__ import annotations

from typing import cast

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.ports import PreparedStage, QueryOutput
from anabranch.processing.warming import KEEP_WARM_EVERY_MS, WARM_UP_BATCHES, Warming
from anabranch.protocol.errors import StageFunctionError
from harness.asking_query import AskingStage
from harness.waiting import wait_until

DEADLINE_S = 20


def warming(engine: AskingStage, clock: VirtualClock) -> Warming:
    return Warming(cast("PreparedStage", engine), "0", ["a"], 100, clock)


def test_it_runs_a_few_batches_then_one_now_and_then_until_it_is_stopped() -> None:
    engine, clock = AskingStage(), VirtualClock()
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
    engine, clock = AskingStage(), VirtualClock()
    made = warming(engine, clock)
    made.until_warm(lambda: False)
    engine.fails = True
    made.step()
    clock.advance(KEEP_WARM_EVERY_MS)
    with pytest.raises(StageFunctionError):
        made.step()
    made.stop()


def test_told_to_stop_it_does_not_wait_until_it_is_warm() -> None:
    engine = AskingStage()
    made = warming(engine, VirtualClock())
    made.until_warm(lambda: True)
    made.stop()
