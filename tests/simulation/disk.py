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
from pathlib import Path
from typing import Any, Final

from anabranch.codec.plan_offsets import Offset, position_of
from anabranch.ports import Reach
from anabranch.protocol.errors import Fenced, LocalProtocolError, Unavailable
from anabranch.protocol.log.timeline import (
    Timeline,
    epoch_of,
    newest,
    number_of,
    obsolete,
)
from anabranch.protocol.stage.owners_checkpoint import Announced, StoreUse
from simulation.stores import CALLS_MAX, CheckpointStore, Stored

_OUT_OF_ORDER_CHANCE: Final = 0.4
_HALF_CHANCE: Final = 0.4
State = tuple[tuple[tuple[int, int], int], ...]
"""((end bucket of a window, key), total), sorted."""


@dataclass(frozen=True)
class Logged:
    """A batch in the directory's log, written before it runs."""

    offsets: dict[str, Offset]
    """Offset of each source, one for each use of an input."""
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
    torn: set[tuple[str, int]] = field(default_factory=set)
    """Unsynced files that a power cut left half written."""

    @property
    def last_commit(self) -> int:
        """-1: none."""
        return max(self.commits, default=-1)

    @property
    def last_bucket(self) -> int:
        """The last bucket that the last committed batch has read; 0: none, or it cannot be read."""
        last = self.last_commit
        if last < 0 or not self.is_whole(last):
            return 0
        return position_of(next(iter(self.logged[last].offsets.values()))).bucket

    def log(self, batch: int, logged: Logged) -> None:
        """Before a batch runs."""
        self.logged[batch] = logged
        self.torn.discard(("logged", batch))
        self.unsynced.append(("logged", batch))

    def commit(self, batch: int, state: State) -> None:
        """After its record was accepted."""
        self.commits[batch] = state
        self.torn.discard(("commits", batch))
        self.unsynced.append(("commits", batch))

    def state(self, batch: int) -> State:
        """After ``batch``.

        Raises:
            LocalProtocolError: it is half written.
        """
        if ("commits", batch) in self.torn:
            raise LocalProtocolError(f"{self.name}: the state after batch {batch} is torn")
        return self.commits[batch] if batch >= 0 else ()

    def is_whole(self, batch: int) -> bool:
        """Whether a query can go on after it."""
        return batch < 0 or (
            batch in self.logged and not self.torn & {("logged", batch), ("commits", batch)}
        )

    def unsynced_of(
        self, logged: Mapping[int, Logged], commits: Mapping[int, State]
    ) -> list[tuple[str, int]]:
        """Return which of these files are not synced: a copy is as durable as its source."""
        return [
            (kind, batch)
            for kind, batch in self.unsynced
            if batch in (logged if kind == "logged" else commits)
        ]

    @property
    def synced_bucket(self) -> int:
        """A power cut now would leave everything up to this bucket of its inputs; 0: nothing."""
        lost = {batch for kind, batch in self.unsynced if kind == "commits"}
        kept = max((b for b in self.commits if b not in lost and self.is_whole(b)), default=-1)
        return (
            position_of(next(iter(self.logged[kept].offsets.values()))).bucket
            if kept in self.logged
            else 0
        )

    def snapshot(self) -> Directory:
        """Return what is in it now, which survives a loss of power where it is written."""
        return Directory(self.name, dict(self.logged), dict(self.commits), torn=set(self.torn))

    def lose(self, gone: Collection[int]) -> None:
        """Lose these of the unsynced operations, by number: they did not reach the disk."""
        for number in gone:
            kind, batch = self.unsynced[number]
            self.torn.discard((kind, batch))
            entries: dict[int, Any] = self.logged if kind == "logged" else self.commits
            entries.pop(batch, None)
        self.unsynced = [
            operation for number, operation in enumerate(self.unsynced) if number not in gone
        ]

    def tear(self) -> bool:
        """Leave the last unsynced operation that reached the disk half done. Return whether there
        was one.
        """
        chance = random.Random(f"{self.name}/{self.unsynced[-1:]}").random()
        if self.unsynced and chance < _HALF_CHANCE:
            self.torn.add(self.unsynced[-1])
        return bool(self.torn)


class Machine:
    """State that outlives the processes of a replica."""

    def __init__(self) -> None:
        self.directories: dict[str, Directory] = {}
        self.timelines: dict[str, Timeline] = {}
        self.epoch = -1
        """The highest of any directory that was ever here."""
        self.copied = (-1, -1)
        """Epoch and number of the highest copy of a peer's."""
        self.life = ""
        """The life of the stage's log in which the above is."""
        self.fetched: Stored | None = None
        """Copy of the replica's checkpoint in the store, which another machine has written."""
        self.beside: dict[str, Machine] = {}
        """State of other replicas of this node, by label."""
        self.other_lives: dict[str, Machine] = {}
        """State that other lives of the log have left on this machine, by life."""

    def enter(self, life: str) -> None:
        """Find only what ``life`` has left here, until another one is entered."""
        if life == self.life:
            return
        if self._is_entered:
            left = self.other_lives[self.life] = Machine()
            left._take(self)
        self._take(self.other_lives.pop(life, Machine()))
        self.life = life

    def of(self, life: str) -> Machine:
        """Return what ``life`` has left here; nothing, which nobody finds, if that was removed."""
        return self if life == self.life else self.other_lives.get(life, Machine())

    def remove_lives(self, lives: Collection[str]) -> None:
        """Remove what these lives have left here."""
        for life in lives:
            self.other_lives.pop(life, None)
            if life == self.life:
                self._take(Machine())

    def lives(self) -> frozenset[str]:
        """Return the lives that have left anything here, be it an empty folder."""
        own = {self.life} if self._is_entered else set[str]()
        return frozenset(own | {*self.other_lives})

    @property
    def _is_entered(self) -> bool:
        return bool(self.life or self.directories or self.timelines)

    def _take(self, other: Machine) -> None:
        self.directories, self.timelines = other.directories, other.timelines
        self.epoch, self.copied = other.epoch, other.copied
        self.fetched = other.fetched

    def add(self, directory: Directory) -> None:
        """There is a new directory."""
        name = directory.name
        self.directories[name] = directory
        self.epoch = max(self.epoch, epoch_of(name) or 0)

    def newest(self) -> Timeline | None:
        """Return the timeline that the newest file names, if its directory exists. Never return an
        older one: its directory may be a branch by now.
        """
        name = newest(self.timelines)
        return self.timelines[name] if name is not None and name in self.directories else None

    def position(self) -> tuple[str, int]:
        """Timeline of the newest checkpoint here, and its last batch; both are least: none."""
        found = self.newest()
        return ("", -1) if found is None else (found.name, self.directories[found.name].last_commit)

    def part(self, label: str) -> Machine:
        """Return the state of another replica that runs on the same node."""
        return self.beside.setdefault(label, Machine())

    def power_cut(self, rng: random.Random) -> tuple[int, bool, bool]:
        """Lose a random tail of what was not synced, or any part of it, as it reached the disk in
        another order; of what is left the last may be half written.

        Returns:
            How many operations; whether something is left that came after one of them; whether
            something is half written.
        """
        lost = 0
        is_out_of_order = False
        is_torn = False
        for name in sorted(self.directories):
            directory = self.directories[name]
            count = len(directory.unsynced)
            gone = set(range(count - rng.randint(0, count), count))
            if rng.random() < _OUT_OF_ORDER_CHANCE:
                gone = {number for number in range(count) if rng.random() < 0.5}
            directory.lose(gone)
            lost += len(gone)
            is_out_of_order = is_out_of_order or any(
                number not in gone for number in range(min(gone, default=count), count)
            )
            is_torn = directory.tear() or is_torn
        for _, machine in sorted(self.beside.items()):
            more, is_more_out_of_order, is_more_torn = machine.power_cut(rng)
            lost += more
            is_out_of_order, is_torn = (
                is_out_of_order or is_more_out_of_order,
                is_torn or is_more_torn,
            )
        return lost, is_out_of_order, is_torn


def _fault(what: str) -> None:
    raise AssertionError(what)


class SimulatedDisk:
    """``ports.Checkpoints`` of one process."""

    def __init__(
        self,
        machine: Machine,
        step: Callable[[], None] = lambda: None,
        reached: Callable[[str], None] = lambda _: None,
        wrong: Callable[[str], None] = _fault,
        peers: Callable[[], Mapping[str, Machine]] = dict,
        struck: Callable[[str], None] = lambda _: None,
        write: Callable[[], None] = lambda: None,
        store: CheckpointStore | None = None,
    ) -> None:
        """``wrong``: told of what must not happen. ``peers``: the machines of the other replicas,
        as they are now.

        ``struck``: told of what the process may end of. ``write``: called before something is
            written; raises Unavailable on a full disk.
        ``store``: of checkpoints; None: there is none.
        """
        self._shared_store = store
        self._store_use, self._announces = StoreUse.NONE, ""
        self._store: CheckpointStore | None = None
        self._stage = self._place = ""
        self._has_fetched = self._is_cleaned = False
        """This process has fetched a checkpoint; it has one of its own epoch."""
        self._written: str | None = None
        """Name of the last timeline file that this process wrote."""
        self._rest_bytes = self._read_bytes = 0
        self._from_store: dict[str, Machine] = {}
        """Checkpoints that were read from the store, of peers that have none within reach."""
        self._whole, self._life = machine, ""
        self._former = self._former_stored = frozenset[str]()
        """Lives that had left something here before this one was found to be the present one."""
        self._step = step
        self._reached = reached
        self._wrong = wrong
        self._peers = peers
        self._struck, self._write = struck, write

    def open_in(self, life: str, stage: str, process: str, *, store_use: StoreUse) -> None:
        """Find only what ``life`` of the stage's log has left. ``store_use``: how the process
        uses the store.
        """
        self._former = self._whole.lives() - {life}
        self._whole.enter(life)
        self._life = life
        self._stage, self._place = stage, f"{stage}.{process}"
        self._store_use, self._announces = store_use, ""
        self._store = None if store_use is StoreUse.NONE else self._shared_store
        if self._store is not None:
            self._former_stored = self._store.lives(self._place) - {life}
        self._has_fetched = self._is_cleaned = False
        self._written = None
        self._rest_bytes = self._read_bytes = 0

    @property
    def _machine(self) -> Machine:
        """Files on its machine of the life in which the process was opened."""
        return self._whole.of(self._life)

    def _within_reach(self) -> dict[str, Machine]:
        """Return what the machines of the peers have of this life."""
        return {peer: each.of(self._life) for peer, each in self._peers().items()}

    def directory(self, name: str) -> Path:
        """See the port."""
        return Path(name)

    def store(self, name: str) -> bool:
        """See the port."""
        if self._store is None or self._store_use is StoreUse.TAKES:
            return True
        snapshot = self.opened(name).snapshot()
        timeline = self._machine.newest()
        if timeline is None or timeline.name != name:
            return False
        self._store.check()
        for _ in range(self._store.saved % CALLS_MAX):
            self._step()
        saved = self._store.save(self._place, self._life, timeline, snapshot, self._former_stored)
        if self._store_use is StoreUse.OFFERS:
            self._announces = saved.digest
        self._reached("checkpoint stored")
        return True

    @property
    def announces(self) -> str:
        """See the port."""
        return self._announces

    def _restore(self, place: str, machine: Machine) -> None:
        """Give ``machine`` the newest checkpoint that the store has of a replica."""
        assert self._store is not None, "there is a store"
        self._step()
        try:
            found = self._store.newest(place, self._life)
        except Unavailable:
            self._struck("store away")
            raise
        if found is not None:
            machine.add(found.directory.snapshot())
            machine.timelines[found.timeline.name] = found.timeline
            self._reached("checkpoint restored")

    def check_stored(self, bucket: int) -> None:
        """Check the claim that the process never reads anything up to ``bucket`` again: if there is
        a store, another machine must be able to start from it.
        """
        if self._store is None or self._store_use is not StoreUse.WHOLE:
            return
        stored = self._store.bucket(self._place, self._life)
        if bucket > stored:
            self._wrong(f"says that it is stored up to bucket {bucket}, it is up to {stored}")

    def opened(self, name: str) -> Directory:
        """Return the directory, for the engine.

        Raises:
            Fenced: it was removed by a newer process (rule 21).
        """
        found = self._machine.directories.get(name)
        if found is None:
            self._removed(name)
            raise Fenced(f"checkpoint {name} is gone")
        return found

    def _removed(self, name: str) -> None:
        """Judge that a directory disappeared: only a newer process may have removed it, or one that
        has a newer copy of the same epoch (TI2).
        """
        self._reached("directory removed under a process")
        self._struck("directory removed")
        epoch, number = epoch_of(name) or 0, number_of(name)
        if self._life != self._whole.life:
            return  # a process of another life has removed all of this one
        if epoch >= self._machine.epoch and (epoch, number) >= self._machine.copied:
            self._wrong(f"checkpoint {name} was removed, and no newer process has one")

    def check_synced(self, name: str, bucket: int) -> None:
        """Check the claim that the checkpoint ``name`` durably holds everything up to ``bucket``
        (rule 18).
        """
        directory = self._machine.directories.get(name)
        if directory is not None and bucket > directory.synced_bucket:
            self._wrong(
                f"says that checkpoint {name} is synced up to bucket {bucket}, it is up to"
                f" {directory.synced_bucket}"
            )

    def check_claimed(self, timeline: Timeline, bucket: int) -> None:
        """Check that what becomes the newest checkpoint, under ``timeline``, holds all that the
        process claims to have, up to ``bucket``.
        """
        if timeline.name not in self._machine.directories:
            return  # a newer process has removed it, and counts instead
        held = self.bucket(timeline.name, timeline.start_batch)
        if held < bucket:
            self._wrong(f"{timeline.name} has all up to bucket {held}, {bucket} is claimed")

    def check_newest_synced(self, bucket: int) -> None:
        """Check the same claim for the newest checkpoint, if this process wrote its timeline file:
        another one may have slept while it copied.
        """
        if self._written is not None and self._written == newest(self._machine.timelines):
            self.check_synced(self._written, bucket)

    def newest(self) -> Timeline | None:
        """See the port."""
        self._step()
        machine, fetched = self._machine, self._machine.fetched
        restores = self._store_use is StoreUse.WHOLE and not self._has_fetched
        if self._store is not None and machine.newest() is None and restores:
            self._restore(self._place, machine)
        elif fetched is not None and fetched.position > machine.position():
            machine.add(fetched.directory.snapshot())
            machine.timelines[fetched.timeline.name] = fetched.timeline
            self._reached("fetched checkpoint taken")
        return machine.newest()

    @property
    def has_store(self) -> bool:
        """See the port."""
        return self._store is not None

    def _found(self, announced: Announced | None) -> Stored | None:
        """Return the checkpoint to copy.

        Raises:
            Unavailable: the store is away, or does not have what is announced.
        """
        assert self._store is not None, "there is a store"
        if announced is None:
            return self._store.newest(self._place, self._life)
        for stored in self._store.served(self._place, self._life):
            timeline = stored.timeline
            if not announced.refusal(stored.digest, timeline.name, timeline.plan):
                self._reached("announced checkpoint found")
                return stored
            self._reached("stored checkpoint refused")
        raise Unavailable("the store does not have what is announced")

    def _has_begun(self) -> bool:
        """Whether this process has a checkpoint of its own epoch, and no use for a copy."""
        return self._is_cleaned

    def copy_within_reach(self, target: str) -> bool:
        """See the port."""
        machine, fetched = self._machine, self._machine.fetched
        own = machine.newest()
        if self._has_fetched and fetched is not None and fetched.position > machine.position():
            self._write()
            found = fetched.directory.snapshot()
            machine.add(Directory(target, found.logged, found.commits, torn=found.torn))
            self._step()
        elif own is not None:
            self.copy(own.name, target)
        else:
            return False
        self._reached("rehearsed from a checkpoint")
        return True

    def fetch(self, announced: Announced | None = None) -> None:
        """See the port. Reading takes long, and the store may go away, or remove it, meanwhile."""
        if self._store is None or self._has_begun():
            return
        if announced is None and self._store_use is not StoreUse.WHOLE:
            return
        self._step()
        try:
            found = self._found(announced)
            if found is None or found.position <= self._machine.position():
                self._rest_bytes = 0
                return
            if self._has_fetched and found is self._machine.fetched:
                return
            self._rest_bytes = found.bytes_since(self._machine.fetched)
            for _ in range(found.number % CALLS_MAX):
                self._step()
            self._store.check()
        except Unavailable:
            self._reached("fetch without a store")
            raise
        if self._has_begun() or not self._store.has(self._place, self._life, found):
            return
        self._read_bytes += self._rest_bytes
        self._rest_bytes = 0
        self._machine.fetched, self._has_fetched = found, True
        self._reached("checkpoint fetched")

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
            Directory(
                target,
                logged,
                dict(found.commits),
                found.unsynced_of(logged, found.commits),
                set(found.torn),
            )
        )
        self._step()

    def last_commit(self, name: str) -> int:
        """See the port."""
        self._step()
        return self.opened(name).last_commit

    def batches(self, name: str) -> Sequence[int]:
        """See the port."""
        self._step()
        directory = self.opened(name)
        if not directory.commits:
            return [-1] if set(directory.logged) <= {0} else []
        return sorted(directory.commits, reverse=True)

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        """See the port. A plan may be gone while its commit is there, and either half written."""
        self._step()
        directory = self.opened(name)
        found = next((batch for batch in batches if directory.is_whole(batch)), None)
        if found is not None and any(batch > found for _, batch in directory.torn):
            self._reached("torn checkpoint files passed over")
        return found

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """See the port."""
        self._step()
        directory = self.opened(name)
        plan = batch + (keep_plan and ("logged", batch + 1) not in directory.torn)
        directory.logged = {b: logged for b, logged in directory.logged.items() if b <= plan}
        directory.commits = {b: state for b, state in directory.commits.items() if b <= batch}
        directory.unsynced = directory.unsynced_of(directory.logged, directory.commits)
        directory.torn = {(kind, b) for kind, b in directory.torn if b <= batch}

    def bucket(self, name: str, batch: int) -> int:
        """See the port."""
        return (
            0
            if batch < 0
            else position_of(next(iter(self.opened(name).logged[batch].offsets.values()))).bucket
        )

    def peers(self) -> Sequence[tuple[str, Timeline]]:
        """See the port."""
        self._step()
        here = self._within_reach()
        found = {replica: machine.newest() for replica, machine in here.items()}
        if self._store is not None:
            try:
                for replica in self._peers():
                    if found.get(replica) is None:
                        stored = self._from_store.setdefault(replica, Machine())
                        self._restore(f"{self._stage}.{replica}", stored)
                        found[replica] = stored.newest()
                    else:
                        self._from_store.pop(replica, None)
            except Unavailable:
                if self._machine.newest() is None and not any(found.values()):
                    raise
        return [(replica, timeline) for replica, timeline in found.items() if timeline is not None]

    def within_reach(self) -> Reach:
        """See the port."""
        self._step()
        machines = [self._machine] if self._machine.newest() else self._within_reach().values()
        found = [
            machine.directories[timeline.name]
            for machine in machines
            if (timeline := machine.newest()) is not None
        ]
        if self._has_fetched and self._machine.fetched is not None:
            found.append(self._machine.fetched.directory)
        bucket = max((directory.last_bucket for directory in found), default=0)
        return Reach(bucket, self._rest_bytes, self._read_bytes)

    def _peer(self, replica: str) -> Machine:
        return self._from_store.get(replica) or self._within_reach().get(replica, Machine())

    def peer_commit(self, replica: str, name: str) -> tuple[int, int]:
        """See the port."""
        self._step()
        found = self._peer(replica).directories.get(name)
        return (-1, 0) if found is None else (found.last_commit, found.last_bucket)

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """See the port. File by file, as ``copy``."""
        self._write()
        found = self._peer(replica).directories.get(source)
        if found is None:
            return False
        logged = dict(found.logged)
        self._step()
        if self._peer(replica).directories.get(source) is not found:
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
                set(found.torn),
            )
        )
        place = epoch_of(target) or 0, number_of(target)
        self._machine.copied = max(self._machine.copied, place)
        self._step()
        return True

    def write(self, timeline: Timeline) -> None:
        """See the port."""
        self._write()
        self._machine.timelines[timeline.name] = timeline
        self._written = timeline.name
        self._step()

    def sync(self, name: str) -> None:
        """See the port."""
        self._step()
        self.opened(name).unsynced.clear()
        self._step()

    def clean(self, epoch: int, number: int = 0) -> None:
        """See the port."""
        self._step()
        self._whole.remove_lives(self._former)
        self._machine.fetched, self._has_fetched, self._is_cleaned = None, False, True
        for name in obsolete(list(self._machine.directories), epoch, number):
            del self._machine.directories[name]
        self._step()
        for name in obsolete(list(self._machine.timelines), epoch, number):
            del self._machine.timelines[name]

    def remove(self, name: str) -> None:
        """See the port."""
        self._step()
        if name != newest(self._machine.timelines):
            self._machine.timelines.pop(name, None)
        self._machine.directories.pop(name, None)
