"""Which checkpoint a replica goes on from, and which record it continues."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from anabranch.protocol.errors import LocalProtocolError, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.timeline import (
    Answer,
    CheckEpoch,
    Clean,
    Copy,
    Create,
    CutBack,
    FindBatches,
    FindCommit,
    FindFences,
    FindMissing,
    FindNewest,
    FindPeers,
    FindRecomputed,
    FindWhole,
    Step,
    Steps,
    Timeline,
    Write,
    epoch_of,
    failover_steps,
    fork_steps,
    newest,
    number_of,
    obsolete,
    timeline_name,
)
from harness.present import present


def test_ti1_names_sort_by_epoch_and_number() -> None:
    names = [
        timeline_name(9, 2),
        timeline_name(10, 0),
        timeline_name(10, 1),
        "copying",
        "000000000011-00000x",
    ]
    assert newest(names) == timeline_name(10, 1)
    assert newest(["other"]) is None
    assert [epoch_of(n) for n in names] == [9, 10, 10, None, None]


def test_ti1_the_copies_of_two_processes_have_two_names() -> None:
    one, two = timeline_name(9, 2, "0" * 16), timeline_name(9, 2, "f" * 16)
    assert newest([one, two, timeline_name(9, 1, "f" * 16)]) == two
    assert newest([two, timeline_name(9, 3)]) == timeline_name(9, 3)
    assert [(epoch_of(n), number_of(n)) for n in (one, two)] == [(9, 2), (9, 2)]
    assert epoch_of(f"{timeline_name(9, 2)}-token") is None


def test_ti2_only_what_is_below_is_deleted() -> None:
    other = timeline_name(10, 3, "f" * 16)
    names = [
        timeline_name(9, 0),
        timeline_name(9, 3),
        timeline_name(10, 2),
        other,
        timeline_name(11, 0),
        "something else",
    ]
    assert obsolete(names, 10) == [timeline_name(9, 0), timeline_name(9, 3)]
    assert obsolete(names, 10, 3) == [
        timeline_name(9, 0),
        timeline_name(9, 3),
        timeline_name(10, 2),
    ]
    assert obsolete(names, 10, 4)[-1] == other


def test_ti3_the_tip_is_the_record_of_the_last_committed_batch() -> None:
    first = Timeline.fresh(3)
    assert first.tip(-1) is None
    assert first.tip(4) == BatchId(first.name, 4)
    second = first.copied(timeline_name(8, 0), 4)
    assert second.name == timeline_name(8, 0)
    assert second.tip(4) == BatchId(first.name, 4)
    assert second.tip(5) == BatchId(second.name, 5)
    third = second.copied(timeline_name(20, 0), 4)  # nothing was committed in between
    assert third.tip(4) == BatchId(first.name, 4)
    assert first.copied(timeline_name(9, 0), -1).tip(-1) is None


def test_a_directory_that_stands_before_its_timelines_start_is_rejected() -> None:
    peer = Timeline.from_peer(timeline_name(8, 0), 4, base=9)
    with pytest.raises(LocalProtocolError, match="began after batch 4"):
        peer.tip(3)
    with pytest.raises(LocalProtocolError, match="began after batch 4"):
        Timeline(timeline_name(8, 0), 4, None).tip(3)


class Disk:
    """Whole directories (the last batch committed in each) and timeline files of a replica without
    peers; every step is noted. Damage, fences and peers: ``test_timeline_recovery.py``.
    """

    def __init__(self) -> None:
        self.directories: dict[str, int] = {}
        self.timelines: dict[str, Timeline] = {}
        self.steps: list[Step] = []
        self.before: dict[int, Callable[[], object]] = {}
        """Action of another process just before the n-th step."""

    def newest(self) -> Timeline | None:
        name = newest(self.timelines)
        return None if name is None else self.timelines[name]

    def run(self, steps: Steps, count: int = 1_000) -> Timeline | None:
        """Run the first ``count`` steps. Return the timeline if these were all."""
        answer: Answer = None
        for _ in range(count):
            try:
                step = steps.send(answer)
            except StopIteration as done:
                timeline: Timeline = done.value
                return timeline
            self.before.pop(len(self.steps), lambda: None)()
            self.steps.append(step)
            answer = self.perform(step)
        return None

    def perform(self, step: Step) -> Answer:  # noqa: C901 - a case per step
        match step:
            case FindNewest():
                return self.newest()
            case Create(name):
                self.directories[name] = -1
            case Copy(source, target):
                if source not in self.directories:
                    raise Unavailable(source)
                self.directories[target] = self.directories[source]
            case FindCommit(name):
                return self.directories.get(name, -1)
            case FindBatches(name):
                committed = self.directories.get(name, -1)
                return tuple(range(committed, -1, -1)) or (-1,)
            case FindWhole(_, batches):
                return next(iter(batches), None)
            case CutBack(name, batch, _):
                self.directories[name] = batch
            case FindMissing():
                return ""
            case FindFences() | FindPeers():
                return ()
            case Write(timeline):
                self.timelines[timeline.name] = timeline
            case Clean(epoch, number):
                for name in obsolete(self.directories, epoch, number):
                    del self.directories[name]
                for name in obsolete(self.timelines, epoch, number):
                    del self.timelines[name]
        return None


def began() -> tuple[Disk, Timeline]:
    """Return a replica whose first process, of epoch 3, committed batch 4."""
    disk = Disk()
    first = present(disk.run(failover_steps(3)))
    disk.directories[first.name] = 4
    disk.steps.clear()
    return disk, first


def test_a_new_replica_starts_from_an_empty_directory() -> None:
    disk = Disk()
    assert disk.run(failover_steps(3)) == Timeline.fresh(3) == disk.newest()
    assert disk.directories == {timeline_name(3, 0): -1}
    assert disk.steps[-3:] == [Write(Timeline.fresh(3)), CheckEpoch(), Clean(3)]


def test_rule_8_a_process_goes_on_in_a_copy_of_the_newest_directory() -> None:
    disk, first = began()
    second = disk.run(failover_steps(8))
    assert second == first.copied(timeline_name(8, 0), 4) == disk.newest()
    assert disk.directories == {timeline_name(8, 0): 4}, "what was of lower epochs is gone"
    assert [type(step) for step in disk.steps] == [
        FindNewest,
        FindFences,
        Copy,
        FindBatches,
        FindWhole,
        FindMissing,
        FindRecomputed,
        CutBack,
        FindNewest,
        Write,
        CheckEpoch,
        Clean,
    ]


def test_rule_8_a_fork_of_the_old_process_during_the_copy_makes_the_copy_be_taken_again() -> None:
    """The directory that was copied may have become a branch's."""
    disk, first = began()

    def fork() -> None:
        assert disk.run(fork_steps(first, timeline_name(3, 1))) is not None
        disk.directories[first.name] = 9  # tentative batches of the branch

    for at in range(1, 7):
        disk, first = began()
        disk.before[at] = fork
        second = present(disk.run(failover_steps(8)))
        assert (second.start_batch, second.start_tip) == (4, BatchId(first.name, 4))
        assert Copy(timeline_name(3, 1), timeline_name(8, 0)) in disk.steps


def test_rule_8_a_first_process_that_is_just_beginning_is_found_too() -> None:
    """Nothing was there at the first look, a timeline at the second."""
    disk = Disk()
    disk.before[4] = lambda: disk.run(failover_steps(3))
    second = disk.run(failover_steps(8))
    assert second == Timeline.fresh(3).copied(timeline_name(8, 0), -1)


def test_rule_11_a_fork_copies_first_and_says_so_last() -> None:
    disk, first = began()
    second = disk.run(fork_steps(first, timeline_name(3, 1)))
    assert second == first.forked(timeline_name(3, 1), 4) == disk.newest()
    assert disk.steps == [
        Copy(first.name, timeline_name(3, 1)),
        FindCommit(timeline_name(3, 1)),
        Write(second),
    ]
    assert disk.directories == {first.name: 4, timeline_name(3, 1): 4}, (
        "the branch goes on in the old one"
    )


@pytest.mark.parametrize("at", range(11))
def test_a_crash_between_any_two_steps_leaves_a_timeline_to_go_on_from(at: int) -> None:
    disk, first = began()
    disk.run(failover_steps(8), at)
    assert disk.newest() is not None
    third = present(disk.run(failover_steps(9)))
    assert third.tip(disk.directories[third.name]) == BatchId(first.name, 4), (
        "nothing is lost and nothing doubled"
    )
    assert disk.newest() == third
    assert set(disk.directories) == {third.name}


@pytest.mark.parametrize("at", range(4))
def test_a_crash_between_any_two_steps_of_a_fork_leaves_the_stable_directory(at: int) -> None:
    disk, first = began()
    finished = disk.run(fork_steps(first, timeline_name(3, 1)), at)
    if finished is not None or at == 3:
        disk.directories[first.name] = 9  # the branch runs only after the last step
    third = present(disk.run(failover_steps(9)))
    assert third.tip(disk.directories[third.name]) == BatchId(first.name, 4)


@pytest.mark.parametrize("at", range(11))
def test_ti2_a_slow_starter_takes_nothing_from_a_newer_process(at: int) -> None:
    """The process of epoch 8 stops after any step; that of epoch 9 starts whole and runs;
    then the first goes on.
    """
    disk, first = began()
    newer: list[Timeline | None] = []
    disk.before[at] = lambda: newer.append(disk.run(failover_steps(9)))
    with suppress(Unavailable, LocalProtocolError):  # its copy was taken from it: it ends
        disk.run(failover_steps(8))
    if not newer:
        disk.before.pop(at)()
    found = present(disk.newest())
    assert [found] == newer
    assert found.tip(disk.directories[found.name]) == BatchId(first.name, 4)
