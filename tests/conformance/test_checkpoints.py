"""Conformance suite of ``Checkpoints``: the folder on a disk, and that of the simulation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.ports import Checkpoints
from anabranch.protocol.errors import Fenced, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.stateful_plan import StatefulOperator, StatefulPlan
from anabranch.protocol.log.timeline import Timeline, timeline_name
from harness import spark_files
from simulation.disk import Logged, Machine, SimulatedDisk

ONE, TWO, THREE = (timeline_name(epoch, 0) for epoch in (1, 2, 3))
COPY = timeline_name(2, 1)
PEER = "1"
GONE = (Fenced, FileNotFoundError)
"""Errors of a process whose directory was removed (rule 21)."""


class Rig(ABC):
    """The disk of a replica that has one peer, and the engine that writes on both."""

    own: Checkpoints
    peer: Checkpoints

    @abstractmethod
    def restarted(self) -> Checkpoints:
        """Return the disk as the next process sees it."""

    @abstractmethod
    def plan(self, disk: Checkpoints, name: str, batch: int) -> None:
        """Log the plan of a batch that reads up to bucket ``10 * (batch + 1)``."""

    @abstractmethod
    def commit(self, disk: Checkpoints, name: str, batch: int) -> None:
        """Commit the batch."""

    @abstractmethod
    def damage(self, name: str, kind: str, batch: int) -> None:
        """Truncate the plan (``offsets``) or the commit (``commits``) of a batch, as a power loss
        does.
        """

    @abstractmethod
    def lose_commits(self, name: str) -> None:
        """Remove all commits, as a power loss does."""

    @abstractmethod
    def planned(self, name: str) -> list[int]:
        """Return the batches that have a plan."""

    def run(self, disk: Checkpoints, name: str, batches: int, *, first: int = 0) -> None:
        """Batches up to ``batches`` run in the directory."""
        for batch in range(first, batches):
            self.plan(disk, name, batch)
            self.commit(disk, name, batch)

    def begun(self, disk: Checkpoints, name: str, batches: int) -> None:
        """Start a replica from nothing and run so many batches."""
        disk.create(name)
        disk.write(Timeline(name, start_batch=-1, start_tip=None, floor=-1))
        self.run(disk, name, batches)


class FolderRig(Rig):
    """Files as Spark writes them."""

    def __init__(self, folder: Path) -> None:
        self._roots = folder / "s.0", folder / "s.1"
        self.own: ReplicaFolder = self.restarted()
        self.peer: ReplicaFolder = ReplicaFolder(self._roots[1])

    def restarted(self) -> ReplicaFolder:
        return ReplicaFolder(self._roots[0], {PEER: self._roots[1]})

    def _directory(self, disk: Checkpoints, name: str) -> Path:
        assert isinstance(disk, ReplicaFolder)
        return disk.directory(name)

    def plan(self, disk: Checkpoints, name: str, batch: int) -> None:
        spark_files.log_batch(self._directory(disk, name), batch)

    def commit(self, disk: Checkpoints, name: str, batch: int) -> None:
        spark_files.commit_batch(self._directory(disk, name), batch, partitions=1)

    def damage(self, name: str, kind: str, batch: int) -> None:
        file = self.own.directory(name) / kind / str(batch)
        file.write_bytes(file.read_bytes()[:3])

    def lose_commits(self, name: str) -> None:
        for file in (self.own.directory(name) / "commits").iterdir():
            file.unlink()

    def planned(self, name: str) -> list[int]:
        plans = (self.own.directory(name) / "offsets").iterdir()
        return sorted(int(file.name) for file in plans if file.name.isdecimal())


class SimulatedRig(Rig):
    """Directories in memory."""

    def __init__(self) -> None:
        self._machines = Machine(), Machine()
        self.own: SimulatedDisk = self.restarted()
        self.peer: SimulatedDisk = SimulatedDisk(self._machines[1])

    def restarted(self) -> SimulatedDisk:
        return SimulatedDisk(
            self._machines[0], wrong=lambda _: None, peers=lambda: {PEER: self._machines[1]}
        )

    def plan(self, disk: Checkpoints, name: str, batch: int) -> None:
        assert isinstance(disk, SimulatedDisk)
        disk.opened(name).log(batch, Logged({"a": spark_files.position(batch)}, 0))

    def commit(self, disk: Checkpoints, name: str, batch: int) -> None:
        assert isinstance(disk, SimulatedDisk)
        disk.opened(name).commit(batch, ())

    def damage(self, name: str, kind: str, batch: int) -> None:
        kinds = {"offsets": "logged", "commits": "commits"}
        self.own.opened(name).torn.add((kinds[kind], batch))

    def lose_commits(self, name: str) -> None:
        self.own.opened(name).commits.clear()

    def planned(self, name: str) -> list[int]:
        return sorted(self.own.opened(name).logged)


@pytest.fixture(params=["simulated", "folder"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return SimulatedRig() if request.param == "simulated" else FolderRig(tmp_path)


def is_there(disk: Checkpoints, name: str) -> bool:
    try:
        disk.sync(name)
    except GONE:
        return False
    return True


def committed(disk: Checkpoints, name: str) -> list[int]:
    return list(disk.batches(name))


def test_a_new_replica_has_nothing(rig: Rig) -> None:
    assert rig.own.newest() is None
    assert list(rig.own.peers()) == []
    assert not rig.own.copy_peer(PEER, ONE, TWO)
    assert not is_there(rig.own, TWO)


def test_a_directory_that_was_made_is_empty(rig: Rig) -> None:
    rig.own.create(ONE)
    assert (rig.own.last_commit(ONE), committed(rig.own, ONE)) == (-1, [-1])
    assert (rig.own.whole(ONE, [-1]), rig.own.bucket(ONE, -1)) == (-1, 0)


def test_whatever_was_there_before(rig: Rig) -> None:
    rig.begun(rig.own, ONE, 3)
    rig.own.create(ONE)
    assert committed(rig.own, ONE) == [-1]


def test_the_newest_timeline_is_that_of_the_highest_name(rig: Rig) -> None:
    tip = BatchId(ONE, 3)
    first = Timeline(ONE, start_batch=-1, start_tip=None)
    operator = StatefulOperator("aggregate", (("per", ("w", "k")), ("computes", ())))
    plan = StatefulPlan((operator,), "source", "engine", 3)
    second = Timeline(TWO, 3, tip, base=4, earlier=(BatchId(ONE, 2), tip), floor=1, plan=plan)
    for timeline in (second, first):
        rig.own.create(timeline.name)
        rig.own.write(timeline)
    assert rig.own.newest() == rig.restarted().newest() == second


def test_no_older_timeline_takes_the_place_of_one_whose_directory_is_gone(rig: Rig) -> None:
    """The directory of an older one may be a branch's by now."""
    rig.begun(rig.peer, ONE, 1)
    rig.begun(rig.peer, TWO, 1)
    rig.peer.remove(TWO)
    assert rig.peer.newest() is None
    assert list(rig.own.peers()) == []


def test_the_batches_of_a_directory(rig: Rig) -> None:
    rig.begun(rig.own, ONE, 3)
    rig.plan(rig.own, ONE, 3)
    disk = rig.restarted()
    assert (disk.last_commit(ONE), committed(disk, ONE)) == (2, [2, 1, 0])
    assert [disk.bucket(ONE, batch) for batch in (-1, 0, 2)] == [0, 10, 30]
    assert disk.whole(ONE, [2, 1]) == 2


def test_a_first_batch_that_was_not_committed_is_none(rig: Rig) -> None:
    rig.own.create(ONE)
    rig.plan(rig.own, ONE, 0)
    assert (rig.own.last_commit(ONE), committed(rig.own, ONE)) == (-1, [-1])


def test_a_directory_whose_commits_are_gone_is_not_a_new_one(rig: Rig) -> None:
    rig.begun(rig.own, ONE, 3)
    rig.lose_commits(ONE)
    assert (rig.own.last_commit(ONE), committed(rig.own, ONE)) == (-1, [])


@pytest.mark.parametrize("kind", ["offsets", "commits"])
def test_a_damaged_batch_is_passed_over(rig: Rig, kind: str) -> None:
    rig.begun(rig.own, ONE, 3)
    rig.damage(ONE, kind, 2)
    assert committed(rig.own, ONE) == [2, 1, 0]
    assert rig.own.whole(ONE, [2, 1, 0]) == 1
    assert rig.own.whole(ONE, [2]) is None


class TestCopy:
    def test_has_all_and_is_a_directory_of_its_own(self, rig: Rig) -> None:
        rig.begun(rig.own, ONE, 2)
        rig.own.copy(ONE, TWO)
        rig.run(rig.own, TWO, 3, first=2)
        rig.run(rig.own, ONE, 5, first=2)
        assert (committed(rig.own, TWO), rig.own.bucket(TWO, 1)) == ([2, 1, 0], 20)
        assert committed(rig.own, ONE) == [4, 3, 2, 1, 0]

    def test_replaces_an_earlier_one(self, rig: Rig) -> None:
        rig.begun(rig.own, ONE, 2)
        rig.own.copy(ONE, TWO)
        rig.run(rig.own, TWO, 5, first=2)
        rig.own.copy(ONE, TWO)
        assert committed(rig.own, TWO) == [1, 0]

    def test_of_what_is_gone_changes_nothing(self, rig: Rig) -> None:
        rig.begun(rig.own, TWO, 2)
        with pytest.raises(Unavailable):
            rig.own.copy(ONE, TWO)
        with pytest.raises(Unavailable):
            rig.own.copy(ONE, THREE)
        assert committed(rig.own, TWO) == [1, 0]
        assert not is_there(rig.own, THREE)


class TestCutBack:
    @pytest.fixture
    def disk(self, rig: Rig) -> Checkpoints:
        """Return a copy of four batches and the plan of a fifth."""
        rig.begun(rig.own, ONE, 4)
        rig.plan(rig.own, ONE, 4)
        rig.own.copy(ONE, TWO)
        return rig.own

    @pytest.mark.parametrize(("keep_plan", "plans"), [(True, [0, 1, 2]), (False, [0, 1])])
    def test_forgets_what_came_after(
        self, rig: Rig, disk: Checkpoints, *, keep_plan: bool, plans: list[int]
    ) -> None:
        disk.cut_back(TWO, 1, keep_plan=keep_plan)
        assert (disk.last_commit(TWO), committed(disk, TWO)) == (1, [1, 0])
        assert rig.planned(TWO) == plans
        assert (committed(disk, ONE), rig.planned(ONE)) == ([3, 2, 1, 0], [0, 1, 2, 3, 4])

    def test_keeps_no_plan_that_is_damaged(self, rig: Rig, disk: Checkpoints) -> None:
        rig.damage(TWO, "offsets", 2)
        disk.cut_back(TWO, 1, keep_plan=True)
        assert rig.planned(TWO) == [0, 1]

    def test_may_go_back_to_the_beginning(self, rig: Rig, disk: Checkpoints) -> None:
        disk.cut_back(TWO, -1, keep_plan=False)
        assert (disk.last_commit(TWO), committed(disk, TWO)) == (-1, [-1])
        assert rig.planned(TWO) == []

    def test_and_what_runs_then_is_whole(self, rig: Rig, disk: Checkpoints) -> None:
        rig.damage(TWO, "commits", 2)
        disk.cut_back(TWO, 1, keep_plan=True)
        rig.run(disk, TWO, 3, first=2)
        assert disk.whole(TWO, committed(disk, TWO)) == 2


class TestPeers:
    def test_are_those_that_have_a_timeline(self, rig: Rig) -> None:
        rig.peer.create(ONE)
        assert list(rig.own.peers()) == []
        rig.begun(rig.peer, ONE, 2)
        assert list(rig.own.peers()) == [(PEER, rig.peer.newest())]
        assert rig.own.newest() is None

    def test_a_copy_of_theirs_is_of_its_own(self, rig: Rig) -> None:
        rig.begun(rig.peer, ONE, 2)
        assert rig.own.copy_peer(PEER, ONE, TWO)
        rig.run(rig.peer, ONE, 4, first=2)
        rig.run(rig.own, TWO, 3, first=2)
        assert committed(rig.own, TWO) == [2, 1, 0]
        assert committed(rig.peer, ONE) == [3, 2, 1, 0]

    def test_of_what_is_gone_nothing_is_copied(self, rig: Rig) -> None:
        rig.begun(rig.own, TWO, 2)
        assert not rig.own.copy_peer(PEER, ONE, TWO)
        assert committed(rig.own, TWO) == [1, 0]

    def test_what_they_have_committed_is_known(self, rig: Rig) -> None:
        rig.begun(rig.peer, ONE, 2)
        assert [rig.own.peer_commit(PEER, name) for name in (ONE, TWO)] == [(1, 20), (-1, 0)]

    def test_theirs_is_within_reach_where_there_is_no_own_one(self, rig: Rig) -> None:
        assert rig.own.within_reach().bucket == 0
        rig.begun(rig.peer, ONE, 3)
        assert rig.own.within_reach().bucket == 30
        rig.begun(rig.own, TWO, 1)
        assert rig.own.within_reach().bucket == 10


def test_a_directory_that_is_gone_cannot_be_synced(rig: Rig) -> None:
    rig.begun(rig.own, ONE, 2)
    rig.own.sync(ONE)
    rig.begun(rig.own, TWO, 2)
    rig.restarted().clean(2)
    with pytest.raises(GONE):
        rig.own.sync(ONE)


def test_only_what_is_below_is_cleaned_away(rig: Rig) -> None:
    for name in (ONE, TWO, COPY, THREE):
        rig.begun(rig.own, name, 1)
    rig.own.clean(2, 1)
    assert [is_there(rig.own, name) for name in (ONE, TWO, COPY, THREE)] == [
        False,
        False,
        True,
        True,
    ]
    rig.own.clean(3)
    assert not is_there(rig.own, COPY)
    newest = rig.own.newest()
    assert newest is not None
    assert newest.name == THREE


def test_one_directory_is_removed(rig: Rig) -> None:
    for name in (ONE, TWO, THREE):
        rig.begun(rig.own, name, 1)
    for _ in range(2):
        rig.own.remove(TWO)
    assert [is_there(rig.own, name) for name in (ONE, TWO, THREE)] == [True, False, True]
    newest = rig.own.newest()
    assert newest is not None
    assert newest.name == THREE
