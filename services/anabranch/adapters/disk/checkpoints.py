"""Checkpoint directories and timeline files of one replica on a local disk.

::

    <root>/life-<life>/
        timelines/<name>.json  names the stable timeline's directory; <name> has the epoch (rule 8)
        checkpoints/<name>/    Spark's checkpoint
        copying-<name>/        an unfinished copy; removed at the next start
        storing-<name>/        a snapshot being written to the store; removed likewise
        stored/<peer>/         a folder like this one: a peer's checkpoint from the store

A life is that of the stage's log (``streams.stream_life``). Where the log's topic is created again
its offsets, which are the epochs, start again. So what an earlier life left is neither newer nor
older than what is here: it is never found, on this disk or a peer's, and the next start removes it.

Copies are hard links: Spark never changes a finished file. Disks of peers are read, never written.
Where there is a store (``adapters.disk.checkpoint_store``), a folder without a checkpoint gets the
replica's stored one, which then counts as one that lost its last batches in a loss of power (TI6).
A copy is only as durable as its source. Spark syncs nothing, so ``sync`` makes the rest durable,
which takes as long as the disk does.

Bounds: ``checkpoints/`` holds the stable timeline, the branch, and one that is being created or
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
from typing import TYPE_CHECKING, Any, Final

from anabranch.adapters.disk import spark_checkpoint_files
from anabranch.adapters.disk.durable import (
    SyncedTree,
    put_file,
    replace_file,
    sync_folder,
    sync_folders,
)
from anabranch.adapters.disk.state_format import life_folder
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.stateful_plan import StatefulOperator, StatefulPlan
from anabranch.protocol.log.timeline import Timeline, newest, obsolete

if TYPE_CHECKING:
    from anabranch.adapters.disk.checkpoint_store import StoredReplica

_TRIES: Final = 20
"""Number of attempts to copy a checkpoint that its process changes meanwhile."""
_REMOVALS: Final = 2
"""Number of syncs that remove a removed directory again. Spark's maintenance of the state, which
runs every 20 s, may write one more snapshot there after the query has stopped.
"""


class ReplicaDisk:
    """Folder of one replica: the implementation of ``ports.ReplicaDisk``."""

    def __init__(
        self,
        root: Path,
        peers: Mapping[str, Path] | None = None,
        *,
        crash_point: Callable[[str], None] = lambda _: None,
        stored: Callable[[str, str], StoredReplica] | None = None,
        life: str = "",
    ) -> None:
        """Create the folders that are missing.

        ``peers``: folders of the stage's other replicas, which need not exist. ``stored``: lookup
        in the store, by the name of a replica's folder and life; None: there is no store. ``life``:
        life of the stage's log; empty: the log has no lives.
        """
        self._place, self._life = root, life
        self._root = root = root / life_folder(life)
        self._stored = stored
        self._own_stored = None if stored is None else stored(self._place.name, life)
        self._from_store: dict[str, str] = {}
        """Peer without a checkpoint on this machine -> name of the one read from the store."""
        self._peer_places = {replica: place.name for replica, place in (peers or {}).items()}
        self._peers = {
            replica: place / life_folder(life) for replica, place in (peers or {}).items()
        }
        self._crash_point = crash_point
        self._timelines, self._checkpoints = root / "timelines", root / "checkpoints"
        self._synced = SyncedTree()
        self._removed: dict[str, int] = {}
        """Removed directory -> number of syncs that will remove it again."""
        self._removing: set[str] = set()
        """Directories that a thread is removing. Only the creation of one of that name waits."""
        self._changed = threading.Condition()
        """Guards both, and is held for moments only, never while a directory is removed."""
        for folder in (self._timelines, self._checkpoints):
            folder.mkdir(parents=True, exist_ok=True)

    def newest(self) -> Timeline | None:
        """Return the timeline that the newest file names, restored from the store if there is none
        here. None: a new replica, or one that has lost its disk or the directory, and of which the
        store has nothing.

        Raises:
            Unavailable: there is none here, and the store does not answer.
        """
        found = _newest(self._root)
        if found is None and self._own_stored is not None:
            _restore(self._own_stored, self._root)
            found = _newest(self._root)
        return found

    def directory(self, name: str) -> Path:
        """Return the checkpoint directory of a timeline."""
        return self._checkpoints / name

    def copy(self, source: str, target: str) -> None:
        """Make ``target``'s directory a copy of ``source``'s, whole or not at all, and as durable
        as the source. Replaces an earlier copy.

        Raises:
            Unavailable: the source kept changing.
        """
        self._copy(self.directory(source), target)

    def peers(self) -> list[tuple[str, Timeline]]:
        """Return the peers that have a checkpoint on this machine or in the store, each with its
        newest timeline.

        Raises:
            Unavailable: there is no checkpoint here at all, and the store does not answer.
        """
        here = {replica: _newest(root) for replica, root in self._peers.items()}
        if self._stored is not None:
            try:
                for replica, timeline in here.items():
                    if timeline is None:
                        here[replica] = self._fetch_stored(replica)
                    else:
                        self._from_store.pop(replica, None)
            except Unavailable:
                if _newest(self._root) is None and not any(here.values()):
                    raise
        return [(replica, timeline) for replica, timeline in sorted(here.items()) if timeline]

    def _fetch_stored(self, replica: str) -> Timeline | None:
        """Copy the newest checkpoint of a peer from the store into the folder for it, unless it is
        there; return its timeline.
        """
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
        """Return the last committed batch in a peer's directory; -1: none."""
        return last_commit(self._peer_root(replica) / "checkpoints" / name)

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """Make ``target`` a copy of a peer's directory; return False if that vanished, kept
        changing, or is not readable.
        """
        try:
            self._copy(self._peer_root(replica) / "checkpoints" / source, target)
        except (Unavailable, OSError):
            return False
        return True

    def _copy(self, source: Path, target: str) -> None:
        self._forget_removal(target)
        partial = self._root / f"copying-{target}"
        _link_tree(source, partial)
        _move_paths(partial, source, self.directory(target))
        _new_query_id(partial)
        self._crash_point("checkpoint.copying")
        _install(partial, self.directory(target))

    def store(self, name: str) -> bool:
        """Write the directory to the store, if there is one. Return whether another machine could
        start from it now.

        False: it is no longer the newest timeline's, so it may have become a branch meanwhile
        (``protocol.log.timeline``).

        Raises:
            Unavailable: the store is away, full, or denies access.
        """
        if self._own_stored is None:
            return True
        snapshot = self._root / f"storing-{name}"
        _link_tree(self.directory(name), snapshot)
        try:
            # After the snapshot, not before: what it shows was stable if the timeline still is.
            timeline = _newest(self._root)
            if timeline is None or timeline.name != name:
                return False
            self._own_stored.save(asdict(timeline), snapshot, self.directory(name))
        finally:
            shutil.rmtree(snapshot, ignore_errors=True)
        return True

    def create(self, name: str) -> None:
        """Create an empty directory for a replica that starts from nothing.

        An existing one is an abandoned copy, with batches that are not those of the timeline. Its
        removal is synced, so that a loss of power cannot bring it back.
        """
        self._forget_removal(name)
        directory = self.directory(name)
        if directory.exists():
            shutil.rmtree(directory)
            sync_folder(self._checkpoints)
        directory.mkdir()
        sync_folder(self._checkpoints)

    def last_commit(self, name: str) -> int:
        """Return the last batch that Spark committed in the directory; -1: none."""
        return last_commit(self.directory(name))

    def batches(self, name: str) -> Sequence[int]:
        """Return the committed batches that the directory has, newest first."""
        return spark_checkpoint_files.committed_batches(self.directory(name))

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        """Return the first of ``batches`` from which Spark can continue; None: none."""
        return spark_checkpoint_files.first_whole(self.directory(name), batches)

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """Remove from a copy what came after ``batch``."""
        spark_checkpoint_files.cut_back(self.directory(name), batch, keep_plan=keep_plan)
        for folder in (self.directory(name) / "commits", self.directory(name) / "offsets"):
            if folder.exists():
                sync_folder(folder)

    def bucket(self, name: str, batch: int) -> int:
        """Return the last bucket that ``batch`` has read."""
        return spark_checkpoint_files.last_bucket(self.directory(name), batch)

    def within_reach(self) -> int:
        """Return the last bucket of the checkpoint on this machine from which a failover would
        continue now: its own one, otherwise the most advanced of a peer; 0: there is none.

        Changes nothing, since another process may be running in it.
        """
        own = _newest(self._root)
        places = (
            [(self._root, own)]
            if own is not None
            else [(root, timeline) for root in self._peers.values() if (timeline := _newest(root))]
        )
        return max(
            (
                spark_checkpoint_files.last_bucket_now(root / "checkpoints" / timeline.name)
                for root, timeline in places
            ),
            default=0,
        )

    def remove(self, name: str) -> None:
        """Remove one directory, and its timeline file unless it is the newest."""
        if name != newest(path.stem for path in self._timelines.glob("*.json")):
            (self._timelines / f"{name}.json").unlink(missing_ok=True)
        self._remove_directory(name, _REMOVALS)

    def write(self, timeline: Timeline) -> None:
        """Make ``timeline`` the newest, durably."""
        _write_timeline(self._timelines, timeline.name, asdict(timeline))

    def sync(self, name: str) -> None:
        """Make the directory durable. Spark does not: without this a loss of power takes the last
        batches of a checkpoint with it.

        Raises:
            FileNotFoundError: a newer process has removed the directory.
        """
        for removed in list(self._removed):
            self._remove_directory(removed)
        self._synced.sync(self.directory(name))

    def _remove_directory(self, name: str, removals: int | None = None) -> None:
        """Remove a directory. ``removals``: number of later syncs that remove it again; None: this
        call is one of those.
        """
        with self._changed:
            self._changed.wait_for(lambda: name not in self._removing)
            left = self._removed.pop(name, 0) - 1 if removals is None else removals
            if left < 0:
                return  # it was created again meanwhile
            self._removing.add(name)
        try:
            shutil.rmtree(self.directory(name), ignore_errors=True)
        finally:
            with self._changed:
                self._removing.discard(name)
                if left:
                    self._removed[name] = left
                self._changed.notify_all()

    def _forget_removal(self, name: str) -> None:
        """Stop removing a directory that is about to be created; wait for a removal that runs."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._removing)
            self._removed.pop(name, None)

    def clean(self, epoch: int, number: int = 0) -> None:
        """Remove what is older than timeline ``number`` of ``epoch`` (``protocol.log.timeline``,
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
    """Disks of a node's processes, the implementation of ``ports.Disks``: a folder for each
    process, ``<folder>/STAGE.PROCESS``, with one folder in it for each life of the stage's log.
    """

    def __init__(
        self,
        folder: Path,
        *,
        crash_point: Callable[[str], None] = lambda _: None,
        stored: Callable[[str, str], StoredReplica] | None = None,
    ) -> None:
        """Keep the settings. ``stored``: as for ``ReplicaDisk``."""
        self._folder = folder
        self._crash_point = crash_point
        self._stored = stored

    def of(
        self, stage: str, process: str, others: Sequence[str], *, life: str, is_stored: bool
    ) -> ReplicaDisk:
        """Open the disk of one process, see the port."""
        return ReplicaDisk(
            self._folder / f"{stage}.{process}",
            {other: self._folder / f"{stage}.{other}" for other in others},
            crash_point=self._crash_point,
            stored=self._stored if is_stored else None,
            life=life,
        )


def _restore(stored: StoredReplica, root: Path, earlier: Path | None = None) -> str | None:
    """Make the newest whole checkpoint of the store the newest of ``root``, durably; return its
    name in the store. None: there is none. ``earlier``: a directory that has some of its files.
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
    """Make ``target`` a copy of ``source`` by hard links, each file as it is at one moment.

    Raises:
        Unavailable: the source kept changing.
    """
    for _ in range(_TRIES):
        shutil.rmtree(target, ignore_errors=True)
        try:
            shutil.copytree(source, target, copy_function=_link_or_copy)
        except (FileNotFoundError, shutil.Error):
            # The source's process is alive and purges old files: one vanished during the copy.
            continue
        return
    message = f"checkpoint {source} kept changing while it was copied"
    raise Unavailable(message)


def _install(partial: Path, directory: Path) -> None:
    """Move a finished copy to its final name, durably, replacing an earlier directory."""
    # The names in the copy before its own: after a loss of power a directory of that name is whole.
    sync_folders(partial)
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial.rename(directory)
    sync_folder(directory.parent)


def _write_timeline(folder: Path, name: str, fields: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    put_file(folder / f"{name}.json", json.dumps(fields).encode())


def _newest(root: Path) -> Timeline | None:
    """Return the timeline that the newest file in ``root`` names, if both the file and its
    directory are readable.

    Never falls back to an older file: its directory may be a branch by now.
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
        found = {
            "start_tip": None if tip is None else BatchId(**tip),
            "earlier": earlier,
            "plan": _plan(fields.get("plan", {})),
        }
        return Timeline(**(fields | found))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _plan(fields: Mapping[str, Any]) -> StatefulPlan:
    operators = tuple(_operator(each) for each in fields.get("operators", ()))
    return StatefulPlan(
        operators,
        str(fields.get("source", "")),
        str(fields.get("engine", "")),
        int(fields.get("version", 1)),
    )


def _operator(fields: Mapping[str, Any]) -> StatefulOperator:
    facts = tuple((str(aspect), tuple(map(str, items))) for aspect, items in fields["facts"])
    return StatefulOperator(str(fields["kind"]), facts)


def _new_query_id(copy: Path) -> None:
    """Give the copy a query id of its own. Spark stops a running query when another one starts with
    its id, and the original of the copy may be running.
    """
    path = copy / "metadata"
    if path.exists():
        try:
            fields = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            fields = {}  # damaged; Spark needs nothing from it but the id
        replace_file(path, json.dumps(fields | {"id": str(uuid.uuid4())}).encode())
        (copy / ".metadata.crc").unlink(missing_ok=True)


def last_commit(checkpoint: Path) -> int:
    """Return the last batch that Spark committed in ``checkpoint``; -1: none."""
    try:
        names = [path.name for path in (checkpoint / "commits").iterdir()]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        shutil.copy2(source, target)  # no hard links across file systems
    return target


def _move_paths(copy: Path, old: Path, new: Path) -> None:
    """Replace the old directory by the new one in the copy's files. TransformWithState stores the
    absolute path of its schema files; without this the copy breaks when the original is removed.
    """
    for path in copy.glob("state/*/_metadata/**/*"):
        if path.is_file() and not path.name.startswith("."):
            content = path.read_bytes()
            moved = content.replace(str(old).encode(), str(new).encode())
            if moved != content:
                replace_file(path, moved)
                (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
