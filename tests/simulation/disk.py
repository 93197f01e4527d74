"""The disk of one replica: checkpoint directories and timeline files in memory, and what a power
cut leaves of them.

A directory holds what Spark keeps in one: per batch its offsets (the plan), its commit, the state
after it. Spark syncs none of it; timeline files are synced, and a copy is as durable as what it is
made from (``adapters.disk.checkpoints``). So a power cut takes away the last operations of any
directory back to its last sync, in their order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.codec.plan_offsets import Offset, position_of
from anabranch.protocol.errors import Fenced, Unavailable
from anabranch.protocol.log.timeline import (
    Timeline,
    epoch_of,
    newest,
    number_of,
    obsolete,
    timeline_name,
)

_TORN_CHANCE: Final = 0.4
State = tuple[tuple[tuple[int, int], int], ...]
"""((end bucket of a window, key), total), sorted."""


@dataclass(frozen=True)
class Logged:
    """A batch in the directory's log, written before it runs."""

    offsets: dict[str, Offset]
    watermark_ms: int


@dataclass
class Directory:
    """One checkpoint directory."""

    name: str
    logged: dict[int, Logged] = field(default_factory=dict)
    commits: dict[int, State] = field(default_factory=dict)
    """Batch -> state after it."""
    unsynced: list[tuple[str, int]] = field(default_factory=list)
    """Operations since the last sync, in their order: (logged or commits, batch)."""

    @property
    def last_commit(self) -> int:
        """-1: none."""
        return max(self.commits, default=-1)

    def log(self, batch: int, logged: Logged) -> None:
        """Before a batch runs."""
        self.logged[batch] = logged
        self.unsynced.append(("logged", batch))

    def commit(self, batch: int, state: State) -> None:
        """After its record was accepted."""
        self.commits[batch] = state
        self.unsynced.append(("commits", batch))

    def unsynced_of(
        self, logged: Mapping[int, Logged], commits: Mapping[int, State]
    ) -> list[tuple[str, int]]:
        """What of these was not synced: a copy is as durable as what it is made from."""
        return [
            (kind, batch)
            for kind, batch in self.unsynced
            if batch in (logged if kind == "logged" else commits)
        ]

    @property
    def synced_bucket(self) -> int:
        """A power cut now would leave everything up to this bucket of its inputs; 0: nothing."""
        lost = {batch for kind, batch in self.unsynced if kind == "commits"}
        kept = max((batch for batch in self.commits if batch not in lost), default=-1)
        return (
            position_of(next(iter(self.logged[kept].offsets.values()))).bucket
            if kept in self.logged
            else 0
        )

    def lose(self, gone: Collection[int]) -> None:
        """These of the unsynced operations, by their number, did not reach the disk."""
        for number in gone:
            kind, batch = self.unsynced[number]
            entries: dict[int, Any] = self.logged if kind == "logged" else self.commits
            entries.pop(batch, None)
        self.unsynced = [
            operation for number, operation in enumerate(self.unsynced) if number not in gone
        ]


class Machine:
    """What outlives the processes of a replica."""

    def __init__(self) -> None:
        self.directories: dict[str, Directory] = {}
        self.timelines: dict[str, Timeline] = {}
        self.epoch = -1
        """The highest of any directory that was ever here."""
        self.copied = (-1, -1)
        """Epoch and number of the highest copy of one that stands by."""

    def add(self, directory: Directory) -> None:
        """There is a new directory."""
        name = directory.name
        self.directories[name] = directory
        self.epoch = max(self.epoch, epoch_of(name) or 0)
        if timeline_name(epoch_of(name) or 0, number_of(name)) != name:
            self.copied = max(self.copied, (epoch_of(name) or 0, number_of(name)))

    def power_cut(self, rng: random.Random) -> tuple[int, bool]:
        """Lose a random tail of what was not synced, or any part of it, as it reached the disk in
        another order.

        Returns:
            How many operations; whether something is left that came after one of them.
        """
        lost, is_torn = 0, False
        for name in sorted(self.directories):
            directory = self.directories[name]
            count = len(directory.unsynced)
            gone = set(range(count - rng.randint(0, count), count))
            if rng.random() < _TORN_CHANCE:
                gone = {number for number in range(count) if rng.random() < 0.5}
            directory.lose(gone)
            lost += len(gone)
            is_torn = is_torn or any(
                number not in gone for number in range(min(gone, default=count), count)
            )
        return lost, is_torn


class SimulatedDisk:
    """``ports.Checkpoints`` of one process."""

    def __init__(
        self,
        machine: Machine,
        step: Callable[[], None],
        reached: Callable[[str], None],
        wrong: Callable[[str], None],
        peers: Callable[[], Mapping[str, Machine]],
        struck: Callable[[str], None],
        write: Callable[[], None],
    ) -> None:
        """``wrong``: told of what must not happen. ``peers``: the machines of the other replicas,
        as they are now.

        ``struck``: told of what the process may end of. ``write``: called before something is
            written; raises Unavailable on a full disk.
        """
        self._machine = machine
        self._step = step
        self._reached = reached
        self._wrong = wrong
        self._peers = peers
        self._struck, self._write = struck, write

    def directory(self, name: str) -> Directory:
        """The directory, for the engine.

        Raises:
            Fenced: it was removed by a newer process (rule 21).
        """
        found = self._machine.directories.get(name)
        if found is None:
            self._removed(name)
            raise Fenced(f"checkpoint {name} is gone")
        return found

    def _removed(self, name: str) -> None:
        """A directory is gone under the process: only a newer one may have removed it, or one
        that has a newer copy of the same epoch (TI2).
        """
        self._reached("directory removed under a process")
        self._struck("directory removed")
        epoch, number = epoch_of(name) or 0, number_of(name)
        if epoch >= self._machine.epoch and (epoch, number) >= self._machine.copied:
            self._wrong(f"checkpoint {name} was removed, and no newer process has one")

    def said_synced(self, name: str, bucket: int) -> None:
        """The process says to others that its checkpoint ``name`` holds everything up to
        ``bucket`` for good (rule 18).
        """
        directory = self._machine.directories.get(name)
        if directory is not None and bucket > directory.synced_bucket:
            self._wrong(
                f"says that checkpoint {name} is synced up to bucket {bucket}, it is up to"
                f" {directory.synced_bucket}"
            )

    def said_newest_synced(self, bucket: int) -> None:
        """The same of the newest that it has."""
        name = newest(self._machine.timelines)
        if name is not None:
            self.said_synced(name, bucket)

    def newest(self) -> Timeline | None:
        """See the port."""
        self._step()
        name = newest(self._machine.timelines)
        return None if name is None else self._machine.timelines[name]

    def create(self, name: str) -> None:
        """See the port."""
        self._write()
        if name in self._machine.directories:
            self._reached("copy given up")
        self._machine.add(Directory(name))

    def copy(self, source: str, target: str) -> None:
        """See the port. File by file: the source may change between its logs and its commits."""
        self._write()
        found = self._machine.directories.get(source)
        if found is None:
            self._removed(source)
            raise Unavailable(f"checkpoint {source} vanished while it was copied")
        logged = dict(found.logged)
        self._step()
        if self._machine.directories.get(source) is not found:
            self._removed(source)
            raise Unavailable(f"checkpoint {source} vanished while it was copied")
        self._machine.add(
            Directory(target, logged, dict(found.commits), found.unsynced_of(logged, found.commits))
        )
        self._step()

    def last_commit(self, name: str) -> int:
        """See the port."""
        self._step()
        return self.directory(name).last_commit

    def batches(self, name: str) -> Sequence[int]:
        """See the port."""
        self._step()
        return sorted(self.directory(name).commits, reverse=True) or [-1]

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        """See the port. Nothing is ever half written here, but a plan may be gone while its
        commit is there.
        """
        self._step()
        directory = self.directory(name)
        return next((batch for batch in batches if batch < 0 or batch in directory.logged), None)

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """See the port."""
        self._step()
        directory = self.directory(name)
        directory.logged = {
            b: logged for b, logged in directory.logged.items() if b <= batch + keep_plan
        }
        directory.commits = {b: state for b, state in directory.commits.items() if b <= batch}
        directory.unsynced = directory.unsynced_of(directory.logged, directory.commits)

    def bucket(self, name: str, batch: int) -> int:
        """See the port."""
        return (
            0
            if batch < 0
            else position_of(next(iter(self.directory(name).logged[batch].offsets.values()))).bucket
        )

    def peers(self) -> Sequence[tuple[str, Timeline]]:
        """See the port."""
        self._step()
        return [
            (r, machine.timelines[name])
            for r, machine in self._peers().items()
            if (name := newest(machine.timelines)) is not None
        ]

    def within_reach(self) -> int:
        """As ``adapters.disk.checkpoints`` has it."""
        self._step()
        own = newest(self._machine.timelines)
        places = (
            [(self._machine, own)]
            if own
            else [
                (each, name) for each in self._peers().values() if (name := newest(each.timelines))
            ]
        )
        found = [
            machine.directories[name] for machine, name in places if name in machine.directories
        ]
        ends = [
            directory.logged[directory.last_commit]
            for directory in found
            if directory.last_commit in directory.logged
        ]
        return max(
            (position_of(next(iter(logged.offsets.values()))).bucket for logged in ends), default=0
        )

    def peer_commit(self, replica: str, name: str) -> int:
        """See ``adapters.disk.checkpoints``."""
        self._step()
        found = self._peers()[replica].directories.get(name)
        return -1 if found is None else found.last_commit

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """See the port. File by file, as ``copy``."""
        self._write()
        found = self._peers()[replica].directories.get(source)
        if found is None:
            return False
        logged = dict(found.logged)
        self._step()
        if self._peers()[replica].directories.get(source) is not found:
            return False
        self._reached("peer copied")
        unsynced = [
            *(("logged", batch) for batch in sorted(logged)),
            *(("commits", batch) for batch in sorted(found.commits)),
        ]
        self._machine.add(
            Directory(
                target,
                logged,
                dict(found.commits),
                sorted(unsynced, key=lambda each: (each[1], each[0] == "commits")),
            )
        )
        self._step()
        return True

    def write(self, timeline: Timeline) -> None:
        """See the port."""
        self._write()
        self._machine.timelines[timeline.name] = timeline
        self._step()

    def sync(self, name: str) -> None:
        """See the port."""
        self._step()
        self.directory(name).unsynced.clear()
        self._step()

    def clean(self, epoch: int, number: int = 0) -> None:
        """See the port."""
        self._step()
        for name in obsolete(list(self._machine.directories), epoch, number):
            del self._machine.directories[name]
        self._step()
        for name in obsolete(list(self._machine.timelines), epoch, number):
            del self._machine.timelines[name]

    def remove(self, name: str) -> None:
        """See the port."""
        self._step()
        self._machine.directories.pop(name, None)
