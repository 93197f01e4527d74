"""Whose turn it is to take over, and which checkpoint is worth a copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control import Heartbeat
from anabranch.protocol.limits import OBSERVED_STEP_MS, PRIMARY_SILENT_MS, STANDBY_TURN_MS
from anabranch.protocol.lineage import Lineage, lineage_name
from anabranch.protocol.standby import STANDBY_SERVICE, Held, StandbyWatch, copy_name, to_copy

PRIMARY = Heartbeat("processing", "tolls", "0", 7, "running", 3, 0)
_STEP_MS = 100


class Standby:
    """A watch and its clock."""

    def __init__(self, process: str = "1", bucket: int = 5, epoch: int | None = 7) -> None:
        self.watch = StandbyWatch("processing", "tolls", process, ["0", "1", "2"])
        self.now_ms, self.bucket = 1_000_000, bucket
        self.watch.epoch_seen(epoch, self.now_ms)

    def due_after(self, *others: Heartbeat, limit_ms: int = 60_000) -> int:
        """So long it takes from now until its turn; ``others`` are heard all the while."""
        begun_ms = self.now_ms
        while not self.watch.due(self.now_ms, self.bucket):
            self.now_ms += _STEP_MS
            for beat in others:
                self.watch.heard(beat, self.now_ms)
            assert self.now_ms - begun_ms < limit_ms, "never"
        return self.now_ms - begun_ms


def standby(process: str, bucket: int = 5) -> Heartbeat:
    return Heartbeat(STANDBY_SERVICE, "tolls", process, -1, "standby", 3, 0, checkpoint_bucket=bucket)


def test_s1_it_waits_for_the_silence_of_the_primary() -> None:
    made = Standby()
    for _ in range(200):
        made.now_ms += _STEP_MS
        made.watch.heard(PRIMARY, made.now_ms)
        assert not made.watch.due(made.now_ms, 5)
    assert made.due_after() == PRIMARY_SILENT_MS


def test_s1_a_new_epoch_is_a_sign_of_life() -> None:
    made = Standby()
    made.now_ms += 1_000
    made.watch.epoch_seen(7, made.now_ms)
    made.now_ms += 1_000
    made.watch.epoch_seen(9, made.now_ms)
    assert made.due_after() == PRIMARY_SILENT_MS


def test_where_no_epoch_began_there_is_nobody_to_wait_for() -> None:
    assert Standby(epoch=None).due_after() == 0


def test_before_the_log_was_read_nobody_takes_over() -> None:
    watch = StandbyWatch("processing", "tolls", "0", ["0", "1"])
    assert not watch.due(0, 0)


@pytest.mark.parametrize(
    "other", [{"epoch": 6}, {"service": "delivery"}, {"name": "totals"}, {"service": STANDBY_SERVICE}, {"service": STANDBY_SERVICE, "replica": "9"}]
)  # fmt: skip
def test_s2_others_are_no_sign_of_life(other: dict[str, str]) -> None:
    beat = replace(PRIMARY, **{"replica": "1", **other})  # type: ignore[arg-type]
    assert Standby("1").due_after(beat) == PRIMARY_SILENT_MS


def test_s3_a_pause_of_its_own_is_no_silence_of_others() -> None:
    made = Standby()
    made.watch.heard(PRIMARY, made.now_ms)
    made.now_ms += 600_000
    assert not made.watch.due(made.now_ms, 5)
    assert made.due_after() == PRIMARY_SILENT_MS - OBSERVED_STEP_MS


def test_s4_turns() -> None:
    assert Standby("0").due_after(standby("1"), standby("2")) == PRIMARY_SILENT_MS
    assert Standby("1").due_after(standby("0"), standby("2")) == PRIMARY_SILENT_MS + STANDBY_TURN_MS
    assert Standby("2").due_after(standby("0"), standby("1")) == PRIMARY_SILENT_MS + 2 * STANDBY_TURN_MS
    assert Standby("1").due_after(standby("0", 0), standby("2")) == PRIMARY_SILENT_MS, "who has none lets it go first"
    assert Standby("0", 0).due_after(standby("1"), standby("2", 0)) == PRIMARY_SILENT_MS + STANDBY_TURN_MS


def test_s4_the_dead_have_no_turn() -> None:
    made = Standby("1")
    made.watch.heard(standby("0"), made.now_ms)
    assert made.due_after() == PRIMARY_SILENT_MS


def held(process: str, epoch: int, commit: int) -> Held:
    return Held(process, Lineage.fresh(epoch), commit)


def test_s5_the_furthest_is_copied_and_only_if_it_is_further() -> None:
    one, two, three = held("0", 5, 9), held("1", 5, 12), held("2", 7, 3)
    assert to_copy(None, []) is None
    assert to_copy(None, [held("0", 5, -1)]) is None, "it has no batch yet"
    assert to_copy(None, [one, two]) == two
    assert to_copy(two, [one]) is None
    assert to_copy(two, [two]) is None
    assert to_copy(two, [one, three]) == three, "a newer epoch went on from less, and is the one that counts"
    assert to_copy(held("1", 9, -1), [one]) == one


def test_s6_names_of_copies() -> None:
    assert copy_name(lineage_name(5, 3), None) == lineage_name(5, 0)
    assert copy_name(lineage_name(5, 3), lineage_name(4, 9)) == lineage_name(5, 0)
    assert copy_name(lineage_name(5, 3), lineage_name(5, 8)) == lineage_name(5, 9)
    assert Held("0", replace(Lineage.fresh(1), name="?"), 3).reached == (0, 3)
    assert copy_name("?", None) == lineage_name(0, 0)
