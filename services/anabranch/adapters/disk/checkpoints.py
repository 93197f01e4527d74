"""Checkpoint directories and timeline files of one replica on a local disk.

::

    <root>/timelines/<name>.json      which directory is the stable timeline; <name> carries the epoch (rule 8)
    <root>/checkpoints/<name>/       Spark's checkpoint
    <root>/copying-<name>/           a copy that is not finished; removed at the next start

Copies are hard links: Spark never changes a finished file. Disks of peers are read, never written.
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
from typing import Final

from anabranch.adapters.disk.durable import SyncedTree, replace_file, sync_folder, sync_folders
from anabranch.adapters.spark import checkpoint_files
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.timeline import Timeline, newest, obsolete

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
    ) -> None:
        """``peers``: the folders of the stage's other replicas, which need not be there."""
        self._root = root
        self._peers = dict(peers or {})
        self._crash_point = crash_point
        self._timelines, self._checkpoints = root / "timelines", root / "checkpoints"
        self._synced = SyncedTree()
        self._removed: dict[str, int] = {}
        """Of directories that were removed, how many syncs still look for them."""
        self._removing = threading.Lock()
        """Held while that changes."""
        for folder in (self._timelines, self._checkpoints):
            folder.mkdir(parents=True, exist_ok=True)

    def newest(self) -> Timeline | None:
        """The timeline that the newest file names; None: a new replica, or one that has lost
        its disk, or what it names.
        """
        return _newest(self._root)

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
        """The peers that have a checkpoint here."""
        found = [(replica, _newest(root)) for replica, root in sorted(self._peers.items())]
        return [(replica, timeline) for replica, timeline in found if timeline is not None]

    def peer_commit(self, replica: str, name: str) -> int:
        """As ``last_commit``, on a peer's disk."""
        return last_commit(self._peers[replica] / "checkpoints" / name)

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """As ``copy``. False: it vanished, or kept changing, or is not readable."""
        try:
            self._copy(self._peers[replica] / "checkpoints" / source, target)
        except (Unavailable, OSError):
            return False
        return True

    def _copy(self, source: Path, target: str) -> None:
        self._makes(target)
        for _ in range(_TRIES):
            partial = self._root / f"copying-{target}"
            shutil.rmtree(partial, ignore_errors=True)
            try:
                shutil.copytree(source, partial, copy_function=_link)
            except (FileNotFoundError, shutil.Error):
                # its old process is still alive and purges: a file vanished under the copy
                continue
            _move_paths(partial, source, self.directory(target))
            _new_query_id(partial)
            self._crash_point("checkpoint.copying")
            sync_folders(partial)
            shutil.rmtree(self.directory(target), ignore_errors=True)
            partial.rename(self.directory(target))
            sync_folder(self._checkpoints)
            return
        message = f"checkpoint {source} kept changing while it was copied"
        raise Unavailable(message)

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
        """The last bucket of the checkpoint from which a failover would go on now: the own one,
        else the furthest of a peer; 0: there is none.

        Another process may run in it: nothing is changed.
        """
        own = _newest(self._root)
        places = (
            [(self._root, own)]
            if own is not None
            else [(self._peers[replica], timeline) for replica, timeline in self.peers()]
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
        with self._removing:
            shutil.rmtree(self.directory(name), ignore_errors=True)
            self._removed[name] = _LOOKS

    def write(self, timeline: Timeline) -> None:
        """Make ``timeline`` the newest, durably."""
        path = self._timelines / f"{timeline.name}.json"
        partial = path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            json.dump(asdict(timeline), file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        sync_folder(self._timelines)

    def sync(self, name: str) -> None:
        """Spark does not: without this a loss of power takes the last batches of a checkpoint with
        it.

        Raises:
            FileNotFoundError: a newer process has removed the directory.
        """
        for removed in list(self._removed):
            self._remove_again(removed)
        self._synced.sync(self.directory(name))

    def _remove_again(self, name: str) -> None:
        with self._removing:
            looks = self._removed.pop(name, 0)
            if looks:  # else another thread makes it anew
                shutil.rmtree(self.directory(name), ignore_errors=True)
            if looks > 1:
                self._removed[name] = looks - 1

    def _makes(self, name: str) -> None:
        """A directory that is made is not removed any more."""
        with self._removing:
            self._removed.pop(name, None)

    def clean(self, epoch: int, number: int = 0) -> None:
        """Remove what is below timeline ``number`` of ``epoch`` (``protocol.log.timeline``,
        TI2).
        """
        for name in obsolete([path.name for path in self._checkpoints.iterdir()], epoch, number):
            shutil.rmtree(self.directory(name), ignore_errors=True)
        for name in obsolete([path.stem for path in self._timelines.glob("*.json")], epoch, number):
            (self._timelines / f"{name}.json").unlink(missing_ok=True)
        for name in obsolete(
            [path.name.removeprefix("copying-") for path in self._root.glob("copying-*")],
            epoch,
            number,
        ):
            shutil.rmtree(self._root / f"copying-{name}", ignore_errors=True)


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
