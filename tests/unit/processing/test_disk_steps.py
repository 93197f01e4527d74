"""Each step that needs nothing but a disk is carried out by it, and answered."""

from __future__ import annotations

from typing import get_args

from anabranch.processing.disk_steps import on_disk
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.timeline import (
    Clean,
    Copy,
    CopyPeer,
    Create,
    CutBack,
    DiskStep,
    FindBatches,
    FindBucket,
    FindCommit,
    FindNewest,
    FindPeers,
    FindWhole,
    Remove,
    Sync,
    Timeline,
    Write,
    timeline_name,
)
from simulation.disk import Machine, SimulatedDisk

FIRST, SECOND, THEIRS = (timeline_name(1, number) for number in (0, 1, 2))


def test_each_is_carried_out_and_answered() -> None:
    own, theirs = Machine(), Machine()
    disk, peer = SimulatedDisk(own, peers=lambda: {"1": theirs}), SimulatedDisk(theirs)
    fresh, timeline = Timeline.fresh(0), Timeline(SECOND, -1, BatchId(FIRST, -1))
    peer.create(fresh.name)
    peer.write(fresh)
    steps: list[tuple[DiskStep, object]] = [
        (FindNewest(), None),
        (Create(FIRST), None),
        (Copy(FIRST, SECOND), None),
        (Write(timeline), None),
        (FindNewest(), timeline),
        (FindPeers(), (("1", fresh),)),
        (CopyPeer("1", fresh.name, THEIRS), True),
        (CopyPeer("1", "none", THEIRS), False),
        (FindCommit(SECOND), -1),
        (FindBatches(SECOND), (-1,)),
        (FindBucket(SECOND, -1), 0),
        (FindWhole(SECOND, (0, -1)), -1),
        (CutBack(SECOND, -1, keep_plan=False), None),
        (Sync(SECOND), None),
        (Remove(THEIRS), None),
        (Clean(1, 1), None),
    ]
    for step, expected in steps:
        assert on_disk(disk, step) == expected, step
    assert {type(step) for step, _ in steps} == set(get_args(DiskStep))
    assert list(own.directories) == [SECOND], "what is below the second timeline is gone"
    assert list(own.timelines) == [SECOND]
