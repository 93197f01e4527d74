"""One hop under each way of acknowledging: nothing is lost or shown twice, and each costs what it
is there to cost.
"""

from __future__ import annotations

import pytest

from experiments.backtracking.disciplines import RESEND_MS
from experiments.backtracking.virtual import WAYS, Costs, Hop, Outcome, Way

pytestmark = pytest.mark.no_cover  # the lines are those of an experiment
RATE = 100
SECONDS = 12.0
KILL_S = 7.3
BY_NAME = {way.name: way for way in WAYS}


def run(way: Way, kill_s: float | None = None) -> Outcome:
    return Hop(way, RATE, Costs()).run(SECONDS, kill_s)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("kill_s", [None, KILL_S, 7.0041, 10.0])
def test_each_tuple_is_shown_once_and_in_order(way: Way, kill_s: float | None) -> None:
    outcome = run(way, kill_s)
    shown = [number for _, sent in outcome.taken for number in range(sent.first, sent.next)]
    assert outcome.sent > RATE * SECONDS - 1
    assert shown == list(range(outcome.sent))
    assert outcome.again <= RATE * SECONDS


def test_a_window_has_one_acknowledgement_and_checkpoint() -> None:
    outcome = run(BY_NAME["ASK, window 1 s"])
    assert outcome.control.messages == outcome.checkpoints == SECONDS
    assert run(BY_NAME["ASK, tuple"]).control.messages == RATE * SECONDS + 1


def test_a_window_is_processed_again_and_a_checkpointed_tuple_is_not() -> None:
    assert run(BY_NAME["ASK, tuple"], KILL_S).again == 0
    assert run(BY_NAME["ASK, window 1 s"], KILL_S).again == pytest.approx(0.3 * RATE, abs=1)
    assert run(BY_NAME["ASK, window 5 s"], KILL_S).again == pytest.approx(2.3 * RATE, abs=1)


def test_a_log_needs_no_acknowledgement_and_no_request() -> None:
    outcome = run(BY_NAME["ASK, block (anabranch)"], KILL_S)
    assert outcome.control.messages == outcome.data.messages, "a boundary record for each block"


def test_who_waits_for_acknowledgements_recovers_by_its_timeout() -> None:
    def first_ms(name: str) -> float:
        taken = run(BY_NAME[name], KILL_S + 0.001).taken
        return next(at for at, _ in taken if at > 1_000 * KILL_S + 1) - 1_000 * KILL_S

    assert first_ms("ACK, tuple") >= RESEND_MS
    assert first_ms("ASK, tuple") < RESEND_MS
