"""The gate's rows one by one. Histories: ``tests/transcripts/correction_order``; invariants:
``test_correction_order_properties.py``.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.control.failure_detector import OBSERVED_STEP_MS, FailureDetector
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import FAILURE_AFTER_MS
from anabranch.protocol.stage.correction_order import (
    CORRECTION_STALL_MS,
    CORRECTION_TURN_MS,
    CorrectionGate,
    Why,
)

NOW = 1_000_000
BEAT = Heartbeat("processing", "tolls", "0", 7, "running", 0, NOW, "up_failure")
COULD: dict[str, object] = {"replica_state": "stabilization"}
CORRECTS: dict[str, object] = {**COULD, "corrects": True}


class Gate:
    """Replica 1 of three, with its clock; looks every 100 ms."""

    def __init__(self, *, wants: bool = True) -> None:
        self.detector, self.now = FailureDetector.of_replicas({"tolls": "012"}), NOW
        self.gate = CorrectionGate("tolls", "1", self.detector)
        self.gate.open(self.now)
        if wants:
            self.gate.want(self.now)

    def hears(self, replica: str, **other: object) -> None:
        self.detector.heard(replace(BEAT, replica=replica, written_ms=self.now, **other), self.now)  # type: ignore[arg-type]

    def after(self, duration_ms: int, *beats: tuple[str, dict[str, object]]) -> Why:
        """``duration_ms`` later, having heard ``beats`` all the time."""
        for _ in range(duration_ms // 100):
            self.now += 100
            for replica, other in beats:
                self.hears(replica, **other)
            self.gate.open(self.now)
        return self.gate.why


def test_who_serves_new_results_meanwhile() -> None:
    gate = Gate()
    assert not gate.gate.peer_serves(gate.now)
    for state, serves in (
        ("", False),
        ("failure", False),
        ("stable", True),
        ("up_failure", True),
        ("stabilization", True),
    ):
        gate.hears("2", replica_state=state)
        assert gate.gate.peer_serves(gate.now) is serves, state
    gate.hears("2", replica_state="stabilization", corrects=True)
    assert not gate.gate.peer_serves(gate.now)
    gate.hears("0", replica_state="stable")
    assert gate.gate.peer_serves(gate.now)
    gate.after(FAILURE_AFTER_MS)
    assert not gate.gate.peer_serves(gate.now), "it is not heard any more"


def test_1_nothing_is_wanted() -> None:
    gate = Gate(wants=False)
    assert gate.after(10_000) is Why.NOTHING_WANTED
    assert not gate.gate.corrects
    gate.gate.want(gate.now)
    assert gate.after(100) is Why.OWN_TURN
    gate.gate.done()
    assert not gate.gate.corrects
    assert gate.after(100) is Why.NOTHING_WANTED


def test_2_of_two_that_have_begun_the_lower_id_goes_on() -> None:
    gate = Gate()
    assert gate.after(FAILURE_AFTER_MS) is Why.OWN_TURN
    assert gate.gate.corrects
    assert gate.after(100, ("0", COULD), ("2", CORRECTS)) is Why.GOES_ON
    assert gate.after(100, ("0", CORRECTS), ("2", CORRECTS)) is Why.ANOTHER_CORRECTS
    assert not gate.gate.corrects


def test_3_a_peer_that_corrects_is_waited_for_unless_it_stalls() -> None:
    gate = Gate()
    for bucket in range(0, CORRECTION_STALL_MS // 100, 10):
        assert gate.after(1_000, ("2", {**CORRECTS, "bucket": bucket})) is Why.ANOTHER_CORRECTS
    last: dict[str, object] = {**CORRECTS, "bucket": bucket}
    assert gate.after(CORRECTION_STALL_MS - 1_000, ("2", last)) is Why.ANOTHER_CORRECTS
    assert gate.after(100, ("2", last)) is Why.OWN_TURN


def test_4_the_first_by_id_is_waited_for_unless_it_stalls() -> None:
    gate = Gate()
    assert gate.after(CORRECTION_STALL_MS, ("0", COULD), ("2", COULD)) is Why.ANOTHER_IS_FIRST
    assert gate.after(100, ("0", COULD), ("2", COULD)) is Why.OWN_TURN


def test_4_one_that_could_not_is_not_waited_for() -> None:
    for state in ("", "stable", "up_failure", "failure"):
        assert Gate().after(FAILURE_AFTER_MS, ("0", {"replica_state": state})) is Why.OWN_TURN


def test_5_at_once_without_peers() -> None:
    single = CorrectionGate("tolls", "0", FailureDetector.of_replicas({"tolls": "0"}))
    single.want(NOW)
    assert single.open(NOW)


def test_5_a_peer_that_was_never_heard_might_be_there() -> None:
    gate = Gate()
    assert gate.after(FAILURE_AFTER_MS - 100) is Why.WAITING
    assert gate.after(100) is Why.OWN_TURN


def test_5_whoever_has_a_lower_id_and_lives_has_a_moment_to_say_that_it_could() -> None:
    gate = Gate(wants=False)
    gate.after(FAILURE_AFTER_MS, ("0", {}))
    gate.gate.want(gate.now)
    assert gate.after(CORRECTION_TURN_MS - 100, ("0", {})) is Why.WAITING
    gate.gate.want(gate.now)
    assert gate.after(100, ("0", {})) is Why.OWN_TURN, "to want twice is to want once"


def test_5_those_with_higher_ids_are_not_waited_for() -> None:
    gate = Gate(wants=False)
    gate.after(FAILURE_AFTER_MS, ("2", COULD))
    gate.gate.want(gate.now)
    assert gate.after(100, ("2", COULD)) is Why.OWN_TURN


def test_6_a_pause_does_not_make_one_alone() -> None:
    gate = Gate()
    gate.after(500, ("0", COULD))
    gate.now += 3_600_000
    assert gate.after(100) is Why.ANOTHER_IS_FIRST
    assert gate.after(FAILURE_AFTER_MS - OBSERVED_STEP_MS - 100) is Why.ANOTHER_IS_FIRST
    assert gate.after(100) is Why.OWN_TURN
