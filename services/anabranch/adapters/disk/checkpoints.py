"""Checkpoint directories and timeline files of one replica on a local disk.

::

    <root>/life-<life>/
        timelines/<name>.json  the stable timeline's directory; <name> carries the epoch (rule 8)
        checkpoints/<name>/    Spark's checkpoint
        copying-<name>/        a copy that is not finished; removed at the next start
        storing-<name>/        what is being written to the store; likewise
        stored/<peer>/         as this folder: what the store has of a peer

A life is that of the stage's log (``runtime.stream_life``): where the log's topic is made anew its
offsets, which epochs are, begin again, so that what an earlier life left is neither newer nor older
than what is here. It is never found, on this disk or a peer's, and goes with the next start.

Copies are hard links: Spark never changes a finished file. Disks of peers are read, never written.
Where there is a store (``adapters.disk.checkpoint_store``), a folder without a checkpoint gets the
one that is stored of the replica: it is as one that a loss of power took batches from (TI6).
A copy is durable as far as what it is made from is; Spark syncs nothing, so that ``sync`` makes the
rest durable, which takes as long as the disk does.

Bounds: ``checkpoints/`` holds the stable timeline, the branch, and one that is being made or
    removed; ``timelines/`` as many files.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk.durable import (
    SyncedTree,
    put_file,
    replace_file,
    sync_folder,
    sync_folders,
)
from anabranch.adapters.disk.state_format import life_folder
from anabranch.adapters.spark import checkpoint_files
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.timeline import Timeline, newest, obsolete

if TYPE_CHECKING:
    from anabranch.adapters.disk.checkpoint_store import StoredReplica

_TRIES: Final = 20
_LOOKS: Final = 2
"""A directory that was removed is removed again by so many syncs. Spark's maintenance of the state,
which comes every 20 s, may write a snapshot there once more, after the query has stopped.
"""


class ReplicaDisk:
    """The folder of one replica."""

    def __init__(
        self,
        root: Path,
        peers: Mapping[str, Path] | None = None,
        *,
        crash_point: Callable[[str], None] = lambda _: None,
        stored: Callable[[str, str], StoredReplica] | None = None,
        life: str = "",
    ) -> None:
        """``peers``: the folders of the stage's other replicas, which need not be there.
        ``stored``: what the store has of the replica whose folder has that name, and of that life;
            None: there is no store.
        ``life``: of the stage's log; empty: there is no other.
        """
        self._place, self._life = root, life
        self._root = root = root / life_folder(life)
        self._stored = stored
        self._own_stored = None if stored is None else stored(self._place.name, life)
        self._from_store: dict[str, str] = {}
        """Of peers that have no checkpoint within reach, the name of what was read from the
        store.
        """
        self._peer_places = {replica: place.name for replica, place in (peers or {}).items()}
        self._peers = {
            replica: place / life_folder(life) for replica, place in (peers or {}).items()
        }
        self._crash_point = crash_point
        self._timelines, self._checkpoints = root / "timelines", root / "checkpoints"
        self._synced = SyncedTree()
        self._removed: dict[str, int] = {}
        """Of directories that were removed, how many syncs still look for them."""
        self._removing: set[str] = set()
        """Directories that a thread removes now: who makes one of that name waits, and nobody else.
        """
        self._changed = threading.Condition()
        """Guards both, for moments only: nobody has it while a directory is removed."""
        for folder in (self._timelines, self._checkpoints):
            folder.mkdir(parents=True, exist_ok=True)

    def newest(self) -> Timeline | None:
        """The timeline that the newest file names; None: a new replica, or one that has lost
        its disk, or what it names, and of which the store has nothing.

        Raises:
            Unavailable: there is none here, and the store does not answer.
        """
        found = _newest(self._root)
        if found is None and self._own_stored is not None:
            _restore(self._own_stored, self._root)
            found = _newest(self._root)
        return found

    def directory(self, name: str) -> Path:
        """The checkpoint directory of a timeline."""
        return self._checkpoints / name

    def copy(self, source: str, target: str) -> None:
        """Make ``target``'s directory a copy of ``source``'s, whole or not at all, and as durable;
        replaces an earlier copy.

        Raises:
            Unavailable: the source kept changing.
        """
        self._copy(self.directory(source), target)

    def peers(self) -> list[tuple[str, Timeline]]:
        """The peers that have a checkpoint here, or in the store.

        Raises:
            Unavailable: there is no checkpoint here at all, and the store does not answer.
        """
        here = {replica: _newest(root) for replica, root in self._peers.items()}
        if self._stored is not None:
            try:
                for replica, timeline in here.items():
                    if timeline is None:
                        here[replica] = self._read_stored(replica)
                    else:
                        self._from_store.pop(replica, None)
            except Unavailable:
                if _newest(self._root) is None and not any(here.values()):
                    raise
        return [(replica, timeline) for replica, timeline in sorted(here.items()) if timeline]

    def _read_stored(self, replica: str) -> Timeline | None:
        """The newest checkpoint of a peer in the store, which is in the folder for it then."""
        assert self._stored is not None, "there is a store"  # noqa: S101
        root = self._stored_root(replica)
        stored = self._stored(self._peer_places[replica], self._life)
        names = stored.names()
        if names and names[0] != self._from_store.get(replica):
            before = _newest(root)
            earlier = None if before is None else root / "checkpoints" / before.name
            self._from_store[replica] = _restore(stored, root, earlier) or ""
            found = _newest(root)
            for folder in (root / "checkpoints").glob("*"):
                if found is not None and folder.name < found.name:
                    shutil.rmtree(folder, ignore_errors=True)
                    (root / "timelines" / f"{folder.name}.json").unlink(missing_ok=True)
        return _newest(root) if names else None

    def _stored_root(self, replica: str) -> Path:
        return self._root / "stored" / self._peer_places[replica]

    def _peer_root(self, replica: str) -> Path:
        return self._stored_root(replica) if replica in self._from_store else self._peers[replica]

    def peer_commit(self, replica: str, name: str) -> int:
        """As ``last_commit``, on a peer's disk."""
        return last_commit(self._peer_root(replica) / "checkpoints" / name)

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """As ``copy``. False: it vanished, or kept changing, or is not readable."""
        try:
            self._copy(self._peer_root(replica) / "checkpoints" / source, target)
        except (Unavailable, OSError):
            return False
        return True

    def _copy(self, source: Path, target: str) -> None:
        self._makes(target)
        partial = self._root / f"copying-{target}"
        _link_tree(source, partial)
        _move_paths(partial, source, self.directory(target))
        _new_query_id(partial)
        self._crash_point("checkpoint.copying")
        _install(partial, self.directory(target))

    def store(self, name: str) -> bool:
        """Write what is in the directory to the store, if there is one; whether another machine
        could go on from it now.

        False: it is not the newest timeline's any more, so it may have become a branch meanwhile
            (``protocol.log.timeline``).

        Raises:
            Unavailable: the store is away, full, or denies it.
        """
        if self._own_stored is None:
            return True
        snapshot = self._root / f"storing-{name}"
        _link_tree(self.directory(name), snapshot)
        try:
            timeline = _newest(self._root)
            if timeline is None or timeline.name != name:
                return False
            self._own_stored.save(asdict(timeline), snapshot, self.directory(name))
        finally:
            shutil.rmtree(snapshot, ignore_errors=True)
        return True

    def create(self, name: str) -> None:
        """An empty directory for a replica that starts from nothing.

        What is there is a copy that was given up: its batches are not those of the timeline, so a
        loss of power must not bring it back.
        """
        self._makes(name)
        directory = self.directory(name)
        if directory.exists():
            shutil.rmtree(directory)
            sync_folder(self._checkpoints)
        directory.mkdir()
        sync_folder(self._checkpoints)

    def last_commit(self, name: str) -> int:
        """The last batch that Spark committed in the directory; -1: none."""
        return last_commit(self.directory(name))

    def batches(self, name: str) -> Sequence[int]:
        """The batches that have a commit, newest first."""
        return checkpoint_files.committed_batches(self.directory(name))

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        """The first of ``batches`` from which Spark can go on."""
        return checkpoint_files.first_whole(self.directory(name), batches)

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """Forget what came after ``batch``."""
        checkpoint_files.cut_back(self.directory(name), batch, keep_plan=keep_plan)
        for folder in (self.directory(name) / "commits", self.directory(name) / "offsets"):
            if folder.exists():
                sync_folder(folder)

    def bucket(self, name: str, batch: int) -> int:
        """The last bucket that was read with ``batch``."""
        return checkpoint_files.last_bucket(self.directory(name), batch)

    def within_reach(self) -> int:
        """The last bucket of the checkpoint on this machine from which a failover would go on now:
        the own one, else the furthest of a peer; 0: there is none.

        Another process may run in it: nothing is changed.
        """
        own = _newest(self._root)
        places = (
            [(self._root, own)]
            if own is not None
            else [(root, timeline) for root in self._peers.values() if (timeline := _newest(root))]
        )
        return max(
            (
                checkpoint_files.last_bucket_now(root / "checkpoints" / timeline.name)
                for root, timeline in places
            ),
            default=0,
        )

    def remove(self, name: str) -> None:
        """Remove one directory, and its timeline file if it is not the newest."""
        if name != newest(path.stem for path in self._timelines.glob("*.json")):
            (self._timelines / f"{name}.json").unlink(missing_ok=True)
        self._remove_directory(name, _LOOKS)

    def write(self, timeline: Timeline) -> None:
        """Make ``timeline`` the newest, durably."""
        _write_timeline(self._timelines, timeline.name, asdict(timeline))

    def sync(self, name: str) -> None:
        """Spark does not: without this a loss of power takes the last batches of a checkpoint with
        it.

        Raises:
            FileNotFoundError: a newer process has removed the directory.
        """
        for removed in list(self._removed):
            self._remove_directory(removed)
        self._synced.sync(self.directory(name))

    def _remove_directory(self, name: str, looks: int | None = None) -> None:
        """``looks``: so many syncs look for it afterwards; None: this is one of them."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._removing)
            left = self._removed.pop(name, 0) - 1 if looks is None else looks
            if left < 0:
                return  # it is made anew
            self._removing.add(name)
        try:
            shutil.rmtree(self.directory(name), ignore_errors=True)
        finally:
            with self._changed:
                self._removing.discard(name)
                if left:
                    self._removed[name] = left
                self._changed.notify_all()

    def _makes(self, name: str) -> None:
        """A directory that is made is not removed any more."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._removing)
            self._removed.pop(name, None)

    def clean(self, epoch: int, number: int = 0) -> None:
        """Remove what is below timeline ``number`` of ``epoch`` (``protocol.log.timeline``,
        TI2), and what other lives left.
        """
        if self._life:
            for former in self._place.iterdir():
                if former != self._root and former.is_dir():
                    shutil.rmtree(former, ignore_errors=True)
        for name in obsolete([path.name for path in self._checkpoints.iterdir()], epoch, number):
            shutil.rmtree(self.directory(name), ignore_errors=True)
        for name in obsolete([path.stem for path in self._timelines.glob("*.json")], epoch, number):
            (self._timelines / f"{name}.json").unlink(missing_ok=True)
        for prefix in ("copying-", "storing-"):
            for name in obsolete(
                [path.name.removeprefix(prefix) for path in self._root.glob(f"{prefix}*")],
                epoch,
                number,
            ):
                shutil.rmtree(self._root / f"{prefix}{name}", ignore_errors=True)


class ReplicaDisks:
    """``ports.Disks``: a folder for each process, ``<folder>/STAGE.PROCESS``, and in it one for
    each life of the stage's log.
    """

    def __init__(
        self,
        folder: Path,
        *,
        crash_point: Callable[[str], None] = lambda _: None,
        stored: Callable[[str, str], StoredReplica] | None = None,
    ) -> None:
        """``stored``: as for ``ReplicaDisk``."""
        self._folder = folder
        self._crash_point = crash_point
        self._stored = stored

    def of(
        self, stage: str, process: str, others: Sequence[str], *, life: str, is_stored: bool
    ) -> ReplicaDisk:
        """See the port."""
        return ReplicaDisk(
            self._folder / f"{stage}.{process}",
            {other: self._folder / f"{stage}.{other}" for other in others},
            crash_point=self._crash_point,
            stored=self._stored if is_stored else None,
            life=life,
        )


def _restore(stored: StoredReplica, root: Path, earlier: Path | None = None) -> str | None:
    """Make the newest checkpoint of the store that is whole the newest of ``root``, durably; its
    name there. None: there is none. ``earlier``: a directory that has some of its files.
    """
    for name in stored.names():
        checkpoint = stored.find(name)
        if checkpoint is None:
            continue
        timeline = str(checkpoint.timeline["name"])
        partial, directory = root / f"copying-{timeline}", root / "checkpoints" / timeline
        shutil.rmtree(partial, ignore_errors=True)
        if stored.read(checkpoint, partial, earlier):
            _move_paths(partial, Path(checkpoint.directory), directory)
            _new_query_id(partial)
            _install(partial, directory)
            _write_timeline(root / "timelines", timeline, checkpoint.timeline)
            return name
        shutil.rmtree(partial, ignore_errors=True)
    return None


def _link_tree(source: Path, target: Path) -> None:
    """Make ``target`` a copy of ``source``, as it is at one moment as far as its files go.

    Raises:
        Unavailable: the source kept changing.
    """
    for _ in range(_TRIES):
        shutil.rmtree(target, ignore_errors=True)
        try:
            shutil.copytree(source, target, copy_function=_link)
        except (FileNotFoundError, shutil.Error):
            # its process is alive and purges: a file vanished under the copy
            continue
        return
    message = f"checkpoint {source} kept changing while it was copied"
    raise Unavailable(message)


def _install(partial: Path, directory: Path) -> None:
    """Give a finished copy its name, durably, in place of what has it."""
    sync_folders(partial)
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial.rename(directory)
    sync_folder(directory.parent)


def _write_timeline(folder: Path, name: str, fields: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    put_file(folder / f"{name}.json", json.dumps(fields).encode())


def _newest(root: Path) -> Timeline | None:
    """The timeline that the newest file in ``root`` names, if both the file and the directory are
    there and can be read.

    Never an older one: its directory may be a branch by now.
    """
    name = newest(path.stem for path in (root / "timelines").glob("*.json"))
    if name is None or not (root / "checkpoints" / name).is_dir():
        return None
    try:
        fields = json.loads((root / "timelines" / f"{name}.json").read_text(encoding="utf-8"))
        tip, earlier = (
            fields["start_tip"],
            tuple(BatchId(**each) for each in fields.get("earlier", ())),
        )
        return Timeline(
            **(fields | {"start_tip": None if tip is None else BatchId(**tip), "earlier": earlier})
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _new_query_id(copy: Path) -> None:
    """Spark stops the query that runs when another one starts with its id: the copy of a
    running query's checkpoint needs its own.
    """
    path = copy / "metadata"
    if path.exists():
        try:
            fields = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            fields = {}  # damaged; Spark wants nothing from it but the id
        replace_file(path, json.dumps(fields | {"id": str(uuid.uuid4())}).encode())
        (copy / ".metadata.crc").unlink(missing_ok=True)


def last_commit(checkpoint: Path) -> int:
    """The last batch that Spark committed in ``checkpoint``; -1: none."""
    try:
        names = [path.name for path in (checkpoint / "commits").iterdir()]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        shutil.copy2(source, target)  # another file system
    return target


def _move_paths(copy: Path, old: Path, new: Path) -> None:
    """TransformWithState notes the absolute path of its schema files: without this the copy
    breaks when the original goes.
    """
    for path in copy.glob("state/*/_metadata/**/*"):
        if path.is_file() and not path.name.startswith("."):
            content = path.read_bytes()
            moved = content.replace(str(old).encode(), str(new).encode())
            if moved != content:
                replace_file(path, moved)
                (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
