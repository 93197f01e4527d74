"""The gate's rows one by one, and the manager's grants. Histories: ``tests/transcripts/staggering``; invariants: ``tests/properties``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control import Fence, Grant, Heartbeat
from anabranch.protocol.limits import (
    FAILURE_AFTER_MS,
    GRANT_LONGEST_MS,
    GRANT_MARGIN_MS,
    GRANT_MS,
    GRANT_RENEW_MS,
    GRANT_STALL_MS,
    GRANT_TURN_MS,
    GRANT_WAIT_MS,
    HEARTBEAT_LIFETIME_MS,
)
from anabranch.protocol.staggering import CorrectionGate, Grants, Why, in_force

NOW = 1_000_000
BEAT = Heartbeat("processing", "tolls", "0", 7, "running", 0, NOW)
MANAGER = Heartbeat("consistency_manager", "p", "0", -1, "running", 0, NOW)
GRANT = Grant("tolls", "1", 9, NOW, NOW, NOW + GRANT_MS)


class Gate:
    """Replica 1 of three, with its clock; looks every 100 ms."""

    def __init__(self, *, wants: bool = True) -> None:
        self.gate, self.now = CorrectionGate("tolls", "1", ["0", "1", "2"], epoch=9), NOW
        self.gate.open(self.now)
        if wants:
            self.gate.want(self.now)

    def hears(self, replica: str, **other: object) -> None:
        self.gate.heard(replace(BEAT, replica=replica, written_ms=self.now, **other), self.now)  # type: ignore[arg-type]

    def hears_manager(self) -> None:
        self.gate.heard(replace(MANAGER, written_ms=self.now), self.now)

    def after(self, duration_ms: int, *beats: tuple[str, dict[str, object]], manager: bool = False) -> Why:
        """``duration_ms`` later, having heard ``beats`` all the time."""
        for _ in range(duration_ms // 100):
            self.now += 100
            for replica, other in beats:
                self.hears(replica, **other)
            if manager:
                self.hears_manager()
            self.gate.open(self.now)
        return self.gate.why


def test_who_serves_new_results_meanwhile() -> None:
    gate = Gate()
    assert not gate.gate.sibling_serves(gate.now)
    for state, serves in (("", False), ("failure", False), ("stable", True), ("up_failure", True), ("stabilization", True)):
        gate.hears("2", replica_state=state)
        assert gate.gate.sibling_serves(gate.now) is serves, state
    gate.hears("2", replica_state="stabilization", corrects=True)
    assert not gate.gate.sibling_serves(gate.now)
    gate.hears("0", replica_state="stable")
    assert gate.gate.sibling_serves(gate.now)
    gate.after(FAILURE_AFTER_MS)
    assert not gate.gate.sibling_serves(gate.now), "it is not heard any more"


def test_1_nothing_is_wanted() -> None:
    gate = Gate(wants=False)
    assert gate.after(10_000) is Why.NOTHING_WANTED
    assert (gate.gate.wants_grant, gate.gate.corrects) == (False, False)


def test_2_a_grant_opens_until_it_ends() -> None:
    gate = Gate()
    gate.gate.granted(GRANT, gate.now)
    assert gate.gate.wants_grant
    assert gate.after(GRANT_MS - 100, ("0", {})) is Why.GRANTED
    assert (gate.gate.wants_grant, gate.gate.corrects) == (False, True)
    assert gate.after(100, ("0", {}), manager=True) is Why.WAITING


def test_2_a_renewal_keeps_it_open() -> None:
    gate = Gate()
    gate.gate.granted(GRANT, gate.now)
    assert gate.after(4_000, ("0", {})) is Why.GRANTED
    gate.gate.granted(replace(GRANT, written_ms=gate.now, until_ms=gate.now + GRANT_MS), gate.now)
    assert gate.after(4_000, ("0", {})) is Why.GRANTED


def test_g3_a_grant_to_another_process_or_stage_is_none() -> None:
    gate = Gate()
    gate.gate.granted(replace(GRANT, epoch=8), gate.now)
    assert gate.after(100, ("0", {})) is Why.WAITING
    gate.gate.granted(replace(GRANT, stage="totals", number=GRANT.number + 1), gate.now)
    assert gate.after(100, ("0", {})) is Why.WAITING
    gate.gate.epoch = -1
    assert gate.after(100, ("0", {})) is Why.GRANTED


def test_g3_what_was_given_back_or_came_unwanted_is_spent() -> None:
    gate = Gate(wants=False)
    gate.gate.granted(GRANT, gate.now)
    gate.gate.want(gate.now)
    assert gate.after(100, ("0", {})) is Why.WAITING
    gate.gate.granted(replace(GRANT, number=GRANT.number + 1), gate.now)
    assert gate.after(100, ("0", {})) is Why.GRANTED
    gate.gate.done()
    assert not gate.gate.corrects
    gate.gate.want(gate.now)
    gate.gate.granted(replace(GRANT, number=GRANT.number + 1, until_ms=GRANT.until_ms + 500), gate.now)
    assert gate.after(100, ("0", {})) is Why.WAITING


def test_g4_an_older_grant_is_not_heard_after_a_newer_one() -> None:
    gate = Gate()
    gate.gate.granted(replace(GRANT, replica="2", number=GRANT.number + 1), gate.now)
    gate.gate.granted(GRANT, gate.now)
    assert gate.after(100, ("0", {})) is Why.ANOTHER_IS_GRANTED


def test_3_a_siblings_grant_closes_what_was_open() -> None:
    gate = Gate()
    assert gate.after(FAILURE_AFTER_MS + 100) is Why.ALONE
    gate.gate.granted(replace(GRANT, replica="2", until_ms=gate.now + GRANT_MS), gate.now)
    assert gate.after(100) is Why.ANOTHER_IS_GRANTED


def test_4_alone_at_once_without_siblings_and_after_a_while_without_living_ones() -> None:
    single = CorrectionGate("tolls", "0", ["0"])
    single.want(NOW)
    assert single.open(NOW)
    gate = Gate()
    assert gate.after(FAILURE_AFTER_MS - 100) is Why.WAITING
    assert gate.after(100) is Why.ALONE
    assert gate.after(100) is Why.ALONE
    assert gate.after(100, ("2", {})) is Why.OWN_TURN_GOES_ON


def test_4_a_pause_does_not_make_one_alone() -> None:
    gate = Gate()
    gate.after(500, ("0", {"wants_grant": True}))
    gate.now += 3_600_000
    assert gate.after(100) is Why.WAITING


def test_5_two_on_their_own_account_the_lower_id_goes_on() -> None:
    gate = Gate()
    gate.after(FAILURE_AFTER_MS)
    assert gate.after(100, ("2", {"corrects": True})) is Why.OWN_TURN_GOES_ON
    assert gate.after(100, ("0", {"corrects": True}), ("2", {"corrects": True})) is Why.ANOTHER_CORRECTS


def test_6_a_sibling_that_corrects_is_waited_for_unless_it_stalls() -> None:
    gate = Gate()
    for bucket in range(0, GRANT_STALL_MS // 100, 10):
        assert gate.after(1_000, ("0", {"corrects": True, "bucket": bucket})) is Why.ANOTHER_CORRECTS
    last: dict[str, object] = {"corrects": True, "bucket": bucket}
    gate.after(GRANT_STALL_MS - 1_000, ("0", last))
    assert gate.gate.why is Why.ANOTHER_CORRECTS
    assert gate.after(GRANT_TURN_MS, ("0", last)) is Why.OWN_TURN


@pytest.mark.parametrize(("ahead", "expected_ms"), [((), GRANT_TURN_MS), (("0",), 2 * GRANT_TURN_MS)])
def test_7_without_a_manager_turns_go_by_id(ahead: tuple[str, ...], expected_ms: int) -> None:
    gate = Gate(wants=False)
    beats: list[tuple[str, dict[str, object]]] = [(r, {"wants_grant": r in ahead}) for r in "02"]
    gate.after(GRANT_WAIT_MS, *beats)
    gate.gate.want(gate.now)
    assert gate.after(expected_ms - 100, *beats) is Why.WAITING
    assert gate.after(100, *beats) is Why.OWN_TURN


def test_7_with_a_manager_that_serves_nobody_after_the_longest_wait() -> None:
    gate = Gate()
    assert gate.after(GRANT_LONGEST_MS - 100, ("0", {}), manager=True) is Why.WAITING
    assert gate.after(100, ("0", {}), manager=True) is Why.OWN_TURN


def test_7_the_wait_begins_anew_when_somebody_was_served() -> None:
    gate = Gate()
    gate.after(GRANT_LONGEST_MS - 1_000, ("0", {}), manager=True)
    gate.gate.granted(replace(GRANT, replica="2", until_ms=gate.now + 1_000), gate.now)
    assert gate.after(1_000, ("0", {}), manager=True) is Why.WAITING
    assert gate.after(GRANT_LONGEST_MS - 200, ("0", {}), manager=True) is Why.WAITING
    assert gate.after(100, ("0", {}), manager=True) is Why.OWN_TURN


def test_a_manager_of_yesterday_is_not_heard() -> None:
    gate = Gate()
    gate.after(GRANT_WAIT_MS, ("0", {}))
    gate.gate.heard(replace(MANAGER, written_ms=gate.now - HEARTBEAT_LIFETIME_MS - 1), gate.now)
    assert gate.after(GRANT_TURN_MS, ("0", {})) is Why.OWN_TURN


def test_to_want_twice_is_to_want_once() -> None:
    gate = Gate(wants=False)
    gate.after(GRANT_WAIT_MS, ("0", {}))
    gate.gate.want(gate.now)
    gate.after(GRANT_TURN_MS - 100, ("0", {}))
    gate.gate.want(gate.now)
    assert gate.after(100, ("0", {})) is Why.OWN_TURN


def test_done_without_a_grant() -> None:
    gate = Gate()
    gate.gate.done()
    assert gate.after(100) is Why.NOTHING_WANTED


@pytest.mark.parametrize(
    ("now", "margin", "expected"),
    [
        (GRANT.until_ms - 1, 0, True),
        (GRANT.until_ms, 0, False),
        (GRANT.until_ms + 99, 100, True),
        (NOW - GRANT_MARGIN_MS, 0, True),
        (NOW - GRANT_MARGIN_MS - 1, 0, False),
    ],
)
def test_a_grant_is_in_force_around_its_time(now: int, margin: int, expected: bool) -> None:
    """Also not from the future: a clock that was set back an hour must not close all gates for an hour."""
    assert in_force(GRANT, now, margin) is expected


def test_a_fence_means_one_process() -> None:
    gate = CorrectionGate("tolls", "1", [], epoch=9)
    fence = Fence("tolls", "1", 9, "", NOW)
    assert gate.is_fenced_by(fence)
    assert not any(gate.is_fenced_by(replace(fence, **other)) for other in ({"stage": "t"}, {"replica": "2"}, {"epoch": 8}))


class Manager:
    """Grants for one stage of two, with a clock."""

    def __init__(self, now: int = NOW) -> None:
        self.grants, self.now = Grants({"tolls": ["0", "1"]}), now

    def hears(self, replica: str, **other: object) -> None:
        self.grants.heard(replace(BEAT, replica=replica, written_ms=self.now, **other), self.now)  # type: ignore[arg-type]

    def after(self, duration_ms: int, *beats: tuple[str, dict[str, object]]) -> list[Grant]:
        """What it writes in the next ``duration_ms``, hearing ``beats`` all the time."""
        made = []
        for _ in range(duration_ms // 100):
            self.now += 100
            for replica, other in beats:
                self.hears(replica, **other)
            made += self.grants.due(self.now)
        return made


WANTS: dict[str, object] = {"wants_grant": True}
CORRECTS: dict[str, object] = {"corrects": True}


def test_who_wants_is_granted_the_lowest_id_first() -> None:
    manager = Manager()
    (grant,) = manager.after(100, ("1", WANTS), ("0", {**WANTS, "epoch": 8}))
    assert grant == Grant("tolls", "0", 8, manager.now, manager.now, manager.now + GRANT_MS)


def test_nobody_who_does_not_want_and_nobody_unknown() -> None:
    manager = Manager()
    manager.grants.heard(replace(BEAT, name="other", wants_grant=True), manager.now)
    manager.grants.seen(replace(GRANT, stage="other"))
    assert manager.after(1_000, ("0", {}), ("2", WANTS)) == []


def test_a_grant_is_renewed_while_its_holder_corrects() -> None:
    manager = Manager()
    (first,) = manager.after(100, ("0", WANTS), ("1", WANTS))
    renewals = manager.after(3_000, ("0", CORRECTS), ("1", WANTS))
    assert [r.until_ms - first.until_ms for r in renewals] == [GRANT_RENEW_MS, 2 * GRANT_RENEW_MS, 3 * GRANT_RENEW_MS]
    assert {(r.replica, r.number) for r in renewals} == {("0", first.number)}


def test_g5_no_other_grant_before_a_silent_holders_ends() -> None:
    manager = Manager()
    (first,) = manager.after(100, ("0", WANTS), ("1", WANTS))
    assert manager.after(GRANT_MS + GRANT_MARGIN_MS - 100, ("1", WANTS)) == []
    (second,) = manager.after(100, ("1", WANTS))
    assert second.replica == "1"
    assert second.number > first.number


@pytest.mark.parametrize("ended", [{}, {"epoch": 8}, {"epoch": 8, "wants_grant": True}])
def test_another_grant_at_once_when_the_holder_is_done_or_another_process(ended: dict[str, object]) -> None:
    manager = Manager()
    manager.after(100, ("0", WANTS), ("1", WANTS))
    manager.after(1_000, ("0", CORRECTS), ("1", WANTS))
    (second,) = manager.after(100, ("0", ended), ("1", WANTS))
    assert second.replica == "1", "whose turn it is"


def test_a_holder_that_still_waits_was_only_not_reached_yet() -> None:
    manager = Manager()
    manager.after(100, ("0", WANTS))
    assert manager.after(GRANT_MS, ("0", WANTS)) == []


def test_a_holder_that_waits_again_gave_it_back_in_between() -> None:
    manager = Manager()
    manager.after(100, ("0", WANTS))
    manager.after(500, ("0", CORRECTS))
    (second,) = manager.after(100, ("0", WANTS))
    assert second.replica == "0"


def test_a_holder_without_progress_gives_way_only_if_somebody_waits() -> None:
    manager = Manager()
    manager.after(100, ("0", WANTS))
    assert {g.replica for g in manager.after(2 * GRANT_STALL_MS, ("0", CORRECTS), ("1", {}))} == {"0"}
    assert {g.replica for g in manager.after(GRANT_MS + GRANT_MARGIN_MS, ("0", CORRECTS), ("1", WANTS))} == {"1"}


def test_who_corrects_on_its_own_account_is_granted_before_others() -> None:
    manager = Manager()
    (grant,) = manager.after(100, ("0", WANTS), ("1", CORRECTS))
    assert grant.replica == "1"


def test_g4_a_new_manager_knows_what_was_granted_by_the_log() -> None:
    first = Manager()
    (grant,) = first.after(100, ("1", WANTS))
    second = Manager(first.now)
    second.grants.seen(grant)
    second.grants.seen(replace(grant, number=grant.number - 1, replica="0"))
    assert second.after(1_000, ("0", WANTS), ("1", WANTS)) == []
    second.grants.seen(replace(grant, until_ms=grant.until_ms + 2_000))
    second.grants.seen(grant)
    assert second.after(GRANT_MS, ("0", WANTS)) == []
    (later,) = second.after(3_000, ("0", WANTS))
    assert later.number > grant.number
    set_back = Manager(NOW - 3_600_000)
    set_back.grants.seen(grant)
    (after_all,) = set_back.after(100, ("0", WANTS))
    assert after_all.number == grant.number + 1
