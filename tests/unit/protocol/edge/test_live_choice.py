"""Which tentative buckets the live topic can show: of which replica, and when."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.edge import live_choice as module
from anabranch.protocol.edge.live_choice import LIVE_HOLD_MS, Candidate, Hold, LiveChoice
from anabranch.protocol.edge.live_delivery import Available, LiveProgress
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BranchEnded, LogEntry
from anabranch.protocol.stage.availability import Policy, Waits
from harness.boundary_logs import part, record, started, state_after, tentative

STABLE, FAILING = ReplicaState.STABLE, ReplicaState.UP_FAILURE
BOTH = {"0": FAILING, "1": STABLE}
SAVED_MS = 1_400


def hold(policy: Policy = Policy.PROCESS, saved_ms: int = SAVED_MS) -> Hold:
    return Hold(Waits(2_500, 2_500 - saved_ms), policy)


def left_ms(
    of: Hold,
    now_ms: int,
    *,
    first: int = 5,
    last: int | None = None,
    first_closed: int = 9,
    states: dict[str, ReplicaState] = BOTH,
    failing: bool = False,
) -> int:
    offer = Candidate("0", first, first if last is None else last, first_closed)
    return of.left_ms(offer, states, now_ms, failing=failing)


def test_held_only_while_a_peer_is_stable_and_not_for_long() -> None:
    made = hold()
    assert left_ms(made, 1_000) == LIVE_HOLD_MS
    assert left_ms(made, 1_000 + LIVE_HOLD_MS - 1) == 1
    assert left_ms(made, 1_000 + LIVE_HOLD_MS) == 0
    assert left_ms(made, 1_000 + LIVE_HOLD_MS, first=6) == LIVE_HOLD_MS


@pytest.mark.parametrize(
    "states",
    [{}, {"0": STABLE}, {"0": STABLE, "1": FAILING}, {"0": FAILING, "1": ReplicaState.FAILURE}],
)
def test_otherwise_shown_at_once(states: dict[str, ReplicaState]) -> None:
    assert left_ms(hold(), 1_000, states=states, first_closed=4) == 0


def test_the_wait_begins_when_the_bucket_could_be_shown() -> None:
    made = hold()
    assert left_ms(made, 1_000, states={"1": FAILING}) == 0
    assert left_ms(made, 1_050) == LIVE_HOLD_MS - 50


@pytest.mark.parametrize("first", [1, 5])
def test_a_bucket_behind_another_does_not_begin_its_wait_anew(first: int) -> None:
    made = hold()
    assert left_ms(made, 1_000, first=first, last=first + 2) == LIVE_HOLD_MS
    assert left_ms(made, 1_150, first=first + 1, last=first + 3) == LIVE_HOLD_MS - 150
    assert left_ms(made, 1_160, first=first + 3) == LIVE_HOLD_MS - 10


def test_what_a_branch_closes_later_is_held_for_what_later_waits_are_shorter() -> None:
    made = hold()
    assert left_ms(made, 1_000, first_closed=4) == SAVED_MS
    assert left_ms(made, 1_000 + SAVED_MS, first_closed=4) == 0


def test_what_it_closes_first_has_waited_already() -> None:
    assert left_ms(hold(), 1_000, first_closed=5) == LIVE_HOLD_MS


def test_within_a_failure_nothing_is_held_longer() -> None:
    assert left_ms(hold(), 1_000, first_closed=4, failing=True) == LIVE_HOLD_MS


@pytest.mark.parametrize(
    ("policy", "saved_ms"),
    [(Policy.DELAY, SAVED_MS), (Policy.PROCESS, 0), (Policy.PROCESS, LIVE_HOLD_MS - 1)],
)
def test_where_later_waits_save_nothing_none_is_held_longer(policy: Policy, saved_ms: int) -> None:
    assert left_ms(hold(policy, saved_ms), 1_000, first_closed=4) == LIVE_HOLD_MS


OWN_MS = 10_000
PATIENCE_MS = OWN_MS - 2_500
ALONE = {"0": FAILING}


def patient(policy: Policy = Policy.PROCESS) -> Hold:
    return Hold(Waits(2_500, 2_500 - SAVED_MS), policy, OWN_MS)


def test_lh4_a_patient_output_waits_for_its_own_bound() -> None:
    made = patient()
    assert left_ms(made, 1_000, states=ALONE) == PATIENCE_MS
    assert left_ms(made, 1_000 + PATIENCE_MS - 1, states=ALONE) == 1
    assert left_ms(made, 1_000 + PATIENCE_MS, states=ALONE) == 0
    later_ms = left_ms(patient(), 1_000, states=ALONE, first_closed=4)
    assert later_ms == PATIENCE_MS + SAVED_MS, "it came so much earlier"


def test_lh4_what_a_stable_peer_is_about_to_close_is_awaited_beyond_that() -> None:
    assert left_ms(patient(), 1_000) == PATIENCE_MS + LIVE_HOLD_MS


@pytest.mark.parametrize(("policy", "held_ms"), [(Policy.PROCESS, 0), (Policy.DELAY, PATIENCE_MS)])
def test_lh4_within_a_failure_the_policy_of_the_stage_counts(policy: Policy, held_ms: int) -> None:
    assert left_ms(patient(policy), 1_000, states=ALONE, failing=True) == held_ms


def test_lh4_a_wait_shorter_than_the_stages_adds_nothing() -> None:
    made = Hold(Waits(2_500, 1_100), Policy.PROCESS, 2_000)
    assert left_ms(made, 1_000, states=ALONE) == 0


def test_lh5_what_was_offered_before_has_no_patience() -> None:
    made = patient()
    made.begin(5)
    made.begin(6)
    assert left_ms(made, 1_000, states=ALONE) == 0
    assert left_ms(made, 1_000, first=6, states=ALONE) == PATIENCE_MS


def test_buckets_that_are_none_are_not_held() -> None:
    with pytest.raises(LocalProtocolError, match=r"5\.\.4 of 0"):
        left_ms(hold(), 1_000, first=5, last=4)


def at(stable: int, shown: int = 0) -> LiveProgress:
    return LiveProgress("out", 2, sequence=1, stable=stable, shown=shown)


def log(*more: LogEntry) -> LogState:
    """Stable up to 3; the branch of "0" has closed 4 to 6, that of "1" 4 to 8."""
    return state_after(
        started("0"),
        started("1"),
        record(0, 0, 3, (part(1), part(3))),
        tentative(0, 0, 6, part(4), part(6), base=3),
        tentative(1, 0, 8, part(5), part(8), base=3, replica="1"),
        *more,
    )


class Choosing:
    """A choice, what the replicas say, and the time."""

    def __init__(self, own_ms: int | None = None) -> None:
        self.choice = LiveChoice(Waits(2_500, 1_100), Policy.PROCESS, own_ms)
        self.states = {"0": FAILING, "1": FAILING}
        self.now_ms = 1_000

    def ask(self, now: LiveProgress, log_state: LogState) -> Available:
        return self.choice.available(now, log_state, self.states, (), self.now_ms)


def buckets(sizes: object) -> list[int]:
    return [bucket for bucket, _ in sizes]  # type: ignore[attr-defined]


def test_what_there_is() -> None:
    found = Choosing().ask(at(0), log())
    assert (found.upto, found.tentative_upto, found.settled, found.now_ms) == (3, 8, False, 1_000)
    assert list(found.stable) == [(1, part(1).rows), (3, part(3).rows)]
    assert buckets(found.tentative) == [5, 8]
    assert buckets(found.shown) == []
    ended = log(BranchEnded("0", 0, 1), BranchEnded("1", 1, 1))
    assert Choosing().ask(at(0), ended).settled


def test_lc1_what_is_shown_or_delivered_is_offered_no_more() -> None:
    choosing = Choosing()
    found = choosing.ask(at(3, shown=5), log())
    assert (found.tentative_upto, buckets(found.tentative)) == (8, [8])
    assert buckets(found.shown) == [5], "of the same one"
    assert buckets(choosing.ask(at(3, shown=8), log()).shown) == [8, 5], "the newest first"
    assert choosing.ask(at(8), log()).tentative_upto == 0


def test_it_stays_with_one_replica_until_another_is_better() -> None:
    choosing = Choosing()
    choosing.states = {"0": ReplicaState.UP_FAILURE, "1": ReplicaState.STABILIZATION}
    assert choosing.ask(at(3), log()).tentative_upto == 6
    choosing.states = dict.fromkeys("01", ReplicaState.UP_FAILURE)
    assert choosing.ask(at(3), log()).tentative_upto == 6
    assert choosing.ask(at(3, shown=6), log()).tentative_upto == 8
    assert choosing.ask(at(3, shown=4), log()).tentative_upto == 8


def test_while_it_is_held_back_nothing_is_offered() -> None:
    choosing = Choosing()
    assert choosing.choice.hold_ms == 0
    choosing.states = {"0": ReplicaState.STABLE, "1": FAILING}
    log_state = state_after(
        started("0"), started("1"), tentative(1, 0, 8, part(5), base=3, replica="1")
    )
    found = choosing.ask(at(3), log_state)
    assert (found.tentative_upto, buckets(found.tentative)) == (0, [])
    assert choosing.choice.hold_ms == LIVE_HOLD_MS
    assert choosing.choice.new(log_state, 5) is None
    choosing.now_ms += LIVE_HOLD_MS
    assert buckets(choosing.ask(at(3), log_state).tentative) == [5]
    assert choosing.choice.hold_ms == 0


def test_lh5_a_process_that_begins_in_a_failure_shows_what_it_finds() -> None:
    assert Choosing(OWN_MS).ask(at(3), log()).tentative_upto == 8
    choosing = Choosing(OWN_MS)
    assert choosing.ask(at(3), state_after(started("0"))).tentative_upto == 0
    assert choosing.ask(at(3), log()).tentative_upto == 0, "it has seen it come: 4 is held"
    assert choosing.choice.hold_ms == PATIENCE_MS
    choosing.now_ms += PATIENCE_MS
    assert choosing.ask(at(3), log()).tentative_upto == 8


def test_a_bucket_is_shown_again_by_whoever_has_it() -> None:
    choosing, log_state = Choosing(), log()
    choosing.ask(at(3), log_state)
    shown = [choosing.choice.again(log_state, bucket) for bucket in (4, 5, 9)]
    assert [None if each is None else each.replica for each in shown] == ["1", "1", None]
    choosing.choice.cannot_be_read("1", 5, (1, 1))
    again = choosing.choice.again(log_state, 5)
    assert again is not None
    assert again.replica == "0"


def test_lc2_what_could_not_be_read_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNREADABLE_BUCKETS_MAX", 2)
    choosing, log_state = Choosing(), log()
    choosing.ask(at(3), log_state)
    assert choosing.choice.new(log_state, 5) is not None
    choosing.choice.cannot_be_read("1", 5, (1, 1))
    assert choosing.choice.new(log_state, 5) is None
    assert buckets(choosing.ask(at(3), log_state).tentative) == [8]
    choosing.choice.cannot_be_read("0", 4, (0, 1))
    choosing.choice.cannot_be_read("0", 6, (0, 1))
    assert choosing.choice.new(log_state, 5) is not None, "the oldest is forgotten"


def test_lc3_what_is_left_of_a_branch_that_has_ended_begins_no_other_failure() -> None:
    choosing = Choosing()
    log_state = log(record(0, 1, 5), BranchEnded("0", 0, 1), BranchEnded("1", 1, 1))
    assert choosing.ask(at(5), log_state).tentative_upto == 0
    assert choosing.choice.hold_ms == 0, "it is not waited for"
    assert choosing.ask(at(5, shown=6), log_state).tentative_upto == 8, "in a failure it is shown"
    one_runs = log(BranchEnded("1", 1, 1))
    assert choosing.ask(at(3), one_runs).tentative_upto == 6, "of the one that runs"
    one_is_dead = choosing.choice.available(at(3), log(), choosing.states, ("1",), 1_000)
    assert one_is_dead.tentative_upto == 6


@pytest.mark.parametrize("page", [1, 2, 3, 9])
def test_whatever_fits_on_a_page(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(module, "DELIVERY_BUCKETS_MAX", page)
    found = Choosing().ask(at(0), log())
    assert buckets(found.stable) == [1, 3]
    assert buckets(found.tentative) == [5, 8]
