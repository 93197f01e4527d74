"""Checkpoint directories and timeline files of one replica on a local disk.

::

    <root>/life-<life>/
        timelines/<name>.json  names the stable timeline's directory; <name> has the epoch (rule 8)
        checkpoints/<name>/    Spark's checkpoint
        copying-<name>/        an unfinished copy; removed at the next start
        storing-<name>/        a snapshot being written to the store; removed likewise
        stored/<replica>/      a copy of a replica's checkpoint in the store: a peer's, or the own
                               one that another machine has written (``adapters.disk.stored_copy``)

A life is that of the stage's log (``streams.stream_life``). Where the log's topic is created again
its offsets, which are the epochs, start again. So what an earlier life left is neither newer nor
older than what is here: it is never found, on this disk or a peer's, and the next start removes it.

Copies are hard links: Spark never changes a finished file. Disks of peers are read, never written.
Where there is a store (``adapters.disk.checkpoint_store``), a folder without a checkpoint gets the
replica's stored one, which then counts as one that lost its last batches in a loss of power (TI6).
So does a folder whose checkpoint is older than the stored one that ``fetch`` has copied: the
replica ran elsewhere meanwhile.
A copy is only as durable as its source. Spark syncs nothing, so ``sync`` makes the rest durable,
which takes as long as the disk does.

Bounds: ``checkpoints/`` holds the stable timeline, the branch, and one that is being created or
    removed; ``timelines/`` as many files.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk import spark_checkpoint_files
from anabranch.adapters.disk.checkpoint_folder import (
    install,
    last_commit,
    link_tree,
    move_paths,
    new_query_id,
    newest_timeline,
    write_timeline,
)
from anabranch.adapters.disk.durable import TAKES_NOTHING, SyncedTree, sync_folder
from anabranch.adapters.disk.state_format import life_folder
from anabranch.adapters.disk.stored_copy import Position, StoredCopy
from anabranch.ports.disk import Reach
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.timeline import Timeline, newest, obsolete
from anabranch.protocol.stage.owners_checkpoint import Announced, StoreUse

if TYPE_CHECKING:
    from anabranch.adapters.disk.checkpoint_store import StoredReplica

_logger = logging.getLogger("anabranch.checkpoints")

_REMOVALS: Final = 2
"""Number of syncs that remove a removed directory again. Spark's maintenance of the state, which
runs every 20 s, may write one more snapshot there after the query has stopped.
"""


class ReplicaFolder:
    """Folder of one replica: the implementation of ``ports.ReplicaDisk``."""

    def __init__(
        self,
        root: Path,
        peers: Mapping[str, Path] | None = None,
        *,
        crash_point: Callable[[str], None] = lambda _: None,
        stored: Callable[[str, str], StoredReplica] | None = None,
        life: str = "",
        store_use: StoreUse = StoreUse.WHOLE,
    ) -> None:
        """Create the folders that are missing.

        ``peers``: folders of the stage's other replicas, which need not exist. ``stored``: lookup
        in the store, by the name of a replica's folder and life; None: there is no store. ``life``:
        life of the stage's log; empty: the log has no lives. ``store_use``: how the process uses
        the store, if there is one.
        """
        self._place, self._life = root, life
        self._root = root = root / life_folder(life)
        self._store_use = store_use
        stored = None if store_use is StoreUse.NONE else stored
        self._stored = stored
        self._own_stored = None if stored is None else stored(self._place.name, life)
        self._peers = {
            replica: place / life_folder(life) for replica, place in (peers or {}).items()
        }
        self._crash_point = crash_point
        self._own_copy = self._copy_of(self._place.name, self._check)
        self._peer_copies = {
            replica: made
            for replica, place in (peers or {}).items()
            if (made := self._copy_of(place.name)) is not None
        }
        self._from_store: set[str] = set()
        """Peers without a checkpoint on this machine."""
        self._former_lives = [
            each
            for each in (self._place.iterdir() if life and self._place.exists() else ())
            if each != root and each.is_dir()
        ]
        """Folders of lives before the one that is present when this disk is opened. A later life is
        not among them: its checkpoints would be lost to a process that outlived its log.
        """
        if self._own_stored is not None:
            self._own_stored.note_former_lives()
        self._timelines, self._checkpoints = root / "timelines", root / "checkpoints"
        self._synced = SyncedTree()
        self._whole_files = spark_checkpoint_files.WholeFiles()
        self._checking = threading.Lock()
        """Held while a checkpoint is checked: each check replaces what the one before remembers."""
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
        here and the process may. None: a new replica, or one that has lost its disk or the
        directory, and of which the store has nothing.

        Raises:
            Unavailable: there is none here, and the store does not answer.
        """
        copy = self._own_copy
        if copy is None:
            return newest_timeline(self._root)
        restores = self._store_use is StoreUse.WHOLE and not copy.is_fresh
        if restores and newest_timeline(self._root) is None:
            copy.refresh()
        self._take_fetched(copy)
        return newest_timeline(self._root)

    def fetch(self, announced: Announced | None = None) -> None:
        """Copy the replica's checkpoint from the store, or the ``announced`` one, unless the one
        here is as far. The copy becomes the replica's own at the next ``newest``.

        Raises:
            Unavailable: the store does not answer, or denies access; or it does not have the
                announced checkpoint, or not whole.
        """
        if self._own_copy is None:
            return
        own = newest_timeline(self._root)
        here = None if own is None else self.directory(own.name)
        if announced is not None:
            self._own_copy.take_announced(announced, self._position(), here)
        elif self._store_use is StoreUse.WHOLE:
            self._own_copy.refresh(self._position(), here)

    def _position(self) -> Position | None:
        own = newest_timeline(self._root)
        return None if own is None else (own.name, last_commit(self.directory(own.name)))

    def _take_fetched(self, copy: StoredCopy) -> None:
        """Make the fetched checkpoint the newest here, if it is further than what is here."""
        own, fetched = self._position(), copy.position
        if fetched is None or (own is not None and own >= fetched):
            return
        name, _ = fetched
        self._crash_point("checkpoint.taking_fetched")
        with copy.lock:
            timeline = copy.newest()
            if timeline is None or timeline.name != name:
                return  # replaced meanwhile by a checkpoint that the next call finds
            self._copy(copy.directory(name), name)
        self.write(timeline)

    def _copy_of(
        self, place: str, check: Callable[[Path], None] = lambda _: None
    ) -> StoredCopy | None:
        if self._stored is None:
            return None
        stored = self._stored(place, self._life)
        return StoredCopy(stored, self._root / "stored" / place, self._crash_point, check)

    def directory(self, name: str) -> Path:
        """Return the checkpoint directory of a timeline."""
        return self._checkpoints / name

    def copy(self, source: str, target: str) -> None:
        """Make ``target``'s directory a copy of ``source``'s, whole or not at all, and as durable
        as the source. Replaces an earlier copy.

        Raises:
            Unavailable: the source kept changing.
            OSError: the disk is full, or cannot be written or read.
        """
        self._copy(self.directory(source), target)

    def peers(self) -> list[tuple[str, Timeline]]:
        """Return the peers that have a checkpoint on this machine or in the store, each with its
        newest timeline.

        Raises:
            Unavailable: there is no checkpoint here at all, and the store does not answer.
        """
        here = {replica: newest_timeline(root) for replica, root in self._peers.items()}
        self._from_store = {replica for replica in self._peer_copies if here[replica] is None}
        try:
            for replica in sorted(self._from_store):
                copy = self._peer_copies[replica]
                copy.refresh()
                here[replica] = copy.newest() if copy.is_fresh else None
        except Unavailable:
            if newest_timeline(self._root) is None and not any(here.values()):
                raise
        return [(replica, timeline) for replica, timeline in sorted(here.items()) if timeline]

    def _peer_root(self, replica: str) -> Path:
        if replica in self._from_store:
            return self._peer_copies[replica].root
        return self._peers[replica]

    def peer_commit(self, replica: str, name: str) -> tuple[int, int]:
        """Return the last committed batch in a peer's directory, and the last bucket that it has
        read; (-1, 0): none. The bucket is 0, too, if it cannot be read now.
        """
        directory = self._peer_root(replica) / "checkpoints" / name
        return last_commit(directory), spark_checkpoint_files.last_bucket_now(directory)

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """Make ``target`` a copy of a peer's directory; return False if that vanished, kept
        changing, or is not readable.

        Raises:
            OSError: the own disk takes nothing more. Without this error a standby would keep its
                old checkpoint, and a start would go without the peer's, and nobody would know why.
        """
        try:
            self._copy(self._peer_root(replica) / "checkpoints" / source, target)
        except Unavailable:
            return False
        except OSError as error:
            if error.errno in TAKES_NOTHING:
                raise
            return False
        return True

    def _copy(self, source: Path, target: str) -> None:
        self._forget_removal(target)
        partial = self._root / f"copying-{target}"
        try:
            link_tree(source, partial)
            move_paths(partial, source, self.directory(target))
            new_query_id(partial)
            self._crash_point("checkpoint.copying")
            install(partial, self.directory(target))
        except (OSError, Unavailable):
            # On a full disk it would take the space that the next attempt needs.
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def store(self, name: str) -> bool:
        """Write the directory to the store, if there is one. Return whether another machine could
        start from it now.

        False: it is no longer the newest timeline's, so it may have become a branch meanwhile
        (``protocol.log.timeline``).

        Raises:
            Unavailable: the store is away, full, or denies access; or the own disk is full.
        """
        if self._own_stored is None or self._store_use is StoreUse.TAKES:
            return True
        snapshot = self._root / f"storing-{name}"
        try:
            try:
                link_tree(self.directory(name), snapshot)
            except OSError as error:
                raise Unavailable(f"checkpoint {name} cannot be copied: {error}") from error
            # After the snapshot, not before: what it shows was stable if the timeline still is.
            timeline = newest_timeline(self._root)
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
        return self._first_whole(self.directory(name), batches)

    def _check(self, directory: Path) -> None:
        """Check the newest batch of a checkpoint, so that a start from a copy of it finds its files
        known.
        """
        self._first_whole(directory, (last_commit(directory),))

    def _first_whole(self, directory: Path, batches: Sequence[int]) -> int | None:
        with self._checking:
            return spark_checkpoint_files.first_whole(directory, batches, self._whole_files)

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """Remove from a copy what came after ``batch``."""
        spark_checkpoint_files.cut_back(self.directory(name), batch, keep_plan=keep_plan)
        for folder in (self.directory(name) / "commits", self.directory(name) / "offsets"):
            if folder.exists():
                sync_folder(folder)

    def bucket(self, name: str, batch: int) -> int:
        """Return the last bucket that ``batch`` has read."""
        return spark_checkpoint_files.last_bucket(self.directory(name), batch)

    def within_reach(self) -> Reach:
        """Return how far the checkpoint is from which a failover would continue now: the
        replica's own, here or as ``fetch`` has copied it, otherwise the most advanced of a peer.

        Changes nothing, since another process may be running in it.
        """
        own, copy = newest_timeline(self._root), self._own_copy
        places = (
            [(self._root, own)]
            if own is not None
            else [
                (root, timeline)
                for root in self._peers.values()
                if (timeline := newest_timeline(root))
            ]
        )
        buckets = [
            spark_checkpoint_files.last_bucket_now(root / "checkpoints" / timeline.name)
            for root, timeline in places
        ]
        if copy is None:
            return Reach(max(buckets, default=0))
        return Reach(
            max([*buckets, copy.bucket]), copy.rest_bytes, copy.read_bytes, copy.linked_bytes
        )

    def copy_within_reach(self, target: str) -> bool:
        """Make ``target`` a copy of the replica's own checkpoint, here or as ``fetch`` has copied
        it, whichever is further; return False if there is none.

        Raises:
            Unavailable: the checkpoint kept changing.
            OSError: the disk is full, or cannot be written or read.
        """
        own, copy = self._position(), self._own_copy
        fetched = None if copy is None else copy.position
        if copy is not None and fetched is not None and (own is None or own < fetched):
            with copy.lock:
                source = copy.directory(fetched[0])
                if not source.is_dir():
                    return False  # replaced meanwhile by a further one
                self._copy(source, target)
            return True
        if own is None:
            return False
        self._copy(self.directory(own[0]), target)
        return True

    @property
    def has_store(self) -> bool:
        """Whether the process uses a store of checkpoints."""
        return self._own_stored is not None

    @property
    def announces(self) -> str:
        """Digest of the last checkpoint that this process has stored for processes that read only
        what is announced; empty: none.
        """
        if self._own_stored is None or self._store_use is not StoreUse.OFFERS:
            return ""
        return self._own_stored.saved

    def remove(self, name: str) -> None:
        """Remove one directory, and its timeline file unless it is the newest."""
        if name != newest(path.stem for path in self._timelines.glob("*.json")):
            (self._timelines / f"{name}.json").unlink(missing_ok=True)
        self._remove_directory(name, _REMOVALS)

    def write(self, timeline: Timeline) -> None:
        """Make ``timeline`` the newest, durably."""
        write_timeline(self._timelines, timeline.name, asdict(timeline))

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
        TI2), and what lives before had left when this disk was opened.
        """
        while self._former_lives:
            _discard(self._former_lives.pop())
        for name in obsolete([path.name for path in self._checkpoints.iterdir()], epoch, number):
            _discard(self.directory(name))
        for name in obsolete([path.stem for path in self._timelines.glob("*.json")], epoch, number):
            (self._timelines / f"{name}.json").unlink(missing_ok=True)
        if self._own_copy is not None:
            self._own_copy.remove()
        for prefix in ("copying-", "storing-"):
            for name in obsolete(
                [path.name.removeprefix(prefix) for path in self._root.glob(f"{prefix}*")],
                epoch,
                number,
            ):
                _discard(self._root / f"{prefix}{name}")


def _discard(path: Path) -> None:
    """Remove a directory. Log if it cannot be removed; the next start tries it again."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        _logger.warning("%s cannot be removed, and takes up the disk: check its owner", path)


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
        """Keep the settings. ``stored``: as for ``ReplicaFolder``."""
        self._folder = folder
        self._crash_point = crash_point
        self._stored = stored

    def of(
        self, stage: str, process: str, others: Sequence[str], *, life: str, store_use: StoreUse
    ) -> ReplicaFolder:
        """Open the disk of one process, see the port."""
        return ReplicaFolder(
            self._folder / f"{stage}.{process}",
            {other: self._folder / f"{stage}.{other}" for other in others},
            crash_point=self._crash_point,
            stored=self._stored,
            life=life,
            store_use=store_use,
        )
