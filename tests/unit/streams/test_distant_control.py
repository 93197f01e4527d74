"""Tests that control topics on another cluster are read once it answers, without waiting for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import ControlRecord, Heartbeat, Speaker
from anabranch.protocol.errors import DataMissing
from anabranch.streams import distant_control as module
from anabranch.streams.distant_control import DistantControl, JointControl
from anabranch.streams.heartbeats import ControlReader
from harness.silent_cluster import SilentCluster
from harness.waiting import wait_until

OWN, THEIRS = (
    Heartbeat("processing", stage, "0", 7, "running", 9, 1) for stage in ("tolls", "speeds")
)


def speakers_of(beat: Heartbeat) -> dict[str, Speaker]:
    return {"c": Speaker(frozenset({(beat.service, beat.name, beat.replica)}))}


class World:
    """Two clusters, each with one control topic."""

    def __init__(self) -> None:
        self.own, self.there = SilentCluster(), SilentCluster()
        for each in (self.own, self.there):
            each.admin().create([TopicSettings("c", 1)])
        self.joint: JointControl | None = None

    def open(self) -> JointControl:
        own = ControlReader(self.own, speakers_of(OWN))
        self.joint = JointControl(own, [DistantControl(self.there, speakers_of(THEIRS))])
        return self.joint

    def say(self, log: SilentCluster, beat: Heartbeat) -> None:
        writer = log.writer()
        writer.send(TopicPartition("c", 0), control_records.encode(beat))
        writer.flush()
        writer.close()

    def hears(self, *beats: Heartbeat) -> None:
        joint, heard = self.joint, list[ControlRecord]()
        assert joint is not None

        def all_of_them() -> bool:
            for beat in beats:
                self.say(self.own if beat is OWN else self.there, beat)
            heard.extend(joint.poll(10))
            return all(beat in heard for beat in beats)

        wait_until(all_of_them, 10, "it is heard")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(module, "CLUSTER_AGAIN_MS", 10)
    monkeypatch.setattr(module, "_POLL_MS", 10)
    made = World()
    yield made
    if made.joint is not None:
        made.joint.close()


def test_both_are_heard_and_a_silent_cluster_holds_up_nobody(world: World) -> None:
    world.there.is_silent = True
    world.open()
    world.hears(OWN)
    wait_until(lambda: world.there.requests > 0, 10, "the silent one is asked")
    world.there.is_silent = False
    world.hears(OWN, THEIRS)
    world.there.is_closed_to_us = True
    world.hears(OWN)
    world.there.is_closed_to_us = False
    world.hears(THEIRS)


def test_what_is_wrong_there_is_an_error_of_who_listens(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> ControlReader:
        raise DataMissing("a bug")

    joint = world.open()
    monkeypatch.setattr(module, "ControlReader", broken)
    other = DistantControl(world.there, speakers_of(THEIRS))

    def raised() -> bool:
        try:
            other.poll()
        except DataMissing:
            return True
        return False

    wait_until(raised, 10, "the error")
    joint.close()
