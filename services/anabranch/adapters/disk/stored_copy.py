"""Copy, on this machine, of the newest checkpoint that the store has of one replica.

::

    <root>/files/<sha256>           each file of the checkpoint once, whole and durable
    <root>/checkpoints/<timeline>/  the checkpoint, of hard links to these files
    <root>/timelines/<timeline>.json
    <root>/copying-<timeline>/      an unfinished checkpoint

A file has its digest as its name. So what a checkpoint shares with the one before it is neither
read again nor compared, and an attempt that failed - the store went away, or a newer checkpoint
replaced the one that was being read - leaves what it has read to the next one. Files that another
folder of this machine has under the same name are linked from there once their digest is known.

No query runs in a copy. A process that continues from it takes it into a folder of its own first
(``adapters.disk.checkpoints``).

After a crash: files are whole, since they get their names last. The newest timeline file names a
whole checkpoint, or one that is gone; the next refresh makes it anew from the files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.adapters.disk import spark_checkpoint_files
from anabranch.adapters.disk.checkpoint_folder import (
    install,
    last_commit,
    move_paths,
    new_query_id,
    newest_timeline,
    write_timeline,
)
from anabranch.adapters.disk.durable import sync_file
from anabranch.protocol.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.adapters.disk.checkpoint_store import PackedFile, StoredCheckpoint, StoredReplica
    from anabranch.protocol.log.timeline import Timeline
    from anabranch.protocol.stage.owners_checkpoint import Announced

Position = tuple[str, int]
"""(name of a timeline, last batch that is committed in its directory). Positions of checkpoints of
one replica sort as they are further (TI1).
"""


class StoredCopy:
    """Copy of one replica's checkpoint. One refresh runs at a time; others may read meanwhile."""

    def __init__(
        self,
        stored: StoredReplica,
        root: Path,
        crash_point: Callable[[str], None] = lambda _: None,
        check: Callable[[Path], None] = lambda _: None,
    ) -> None:
        """Prepare the copy in ``root``, which need not exist, without contacting the store.
        ``check``: called with each checkpoint before the copy has it.
        """
        self._stored, self._crash_point, self._check = stored, crash_point, check
        self.root, self._files = root, root / "files"
        self._name = ""
        """Name in the store of the checkpoint that this process has copied; empty: none."""
        self._refreshing = threading.Lock()
        self.lock = threading.Lock()
        """Held while the checkpoint is replaced, and by those that read its directory."""
        self._is_removed = False
        self.bucket = 0
        """Last bucket of input in the checkpoint that this process has copied; 0: none."""
        self.rest_bytes = 0
        """Bytes of the newest stored checkpoint that are not on this machine yet."""
        self.read_bytes = self.linked_bytes = 0
        """Bytes that this process has read from the store; and that it has found here."""

    @property
    def is_fresh(self) -> bool:
        """Whether this process has copied a checkpoint from the store."""
        return bool(self._name)

    @property
    def position(self) -> Position | None:
        """Position of the checkpoint; None: there is none."""
        with self.lock:
            newest = self.newest()
            if newest is None:
                return None
            return newest.name, last_commit(self.directory(newest.name))

    def newest(self) -> Timeline | None:
        """Return the timeline of the checkpoint; None: there is none."""
        return newest_timeline(self.root)

    def directory(self, name: str) -> Path:
        """Return the directory of a timeline."""
        return self.root / "checkpoints" / name

    def refresh(self, own: Position | None = None, here: Path | None = None) -> None:
        """Replace the checkpoint by the newest whole one in the store, if that is further.

        Args:
            own: Position of another checkpoint of the replica on this machine, which is as good;
                None: there is none.
            here: Directory that may have some of the files; they are linked.

        Raises:
            Unavailable: the store does not answer, or denies access.
        """
        with self._refreshing:
            for name in () if self._is_removed else self._stored.names():
                if name == self._name or self._is_removed:
                    break
                checkpoint = self._stored.find(name)
                if checkpoint is None:
                    continue
                if own is not None and checkpoint.position <= own:
                    break
                if self._take(checkpoint, here):
                    self._name = name
                    break
            else:
                return
            self.rest_bytes = 0

    def take_announced(
        self, announced: Announced, own: Position | None = None, here: Path | None = None
    ) -> None:
        """Replace the checkpoint by the announced one, if that is further. Nothing of another one
        is read, and nothing of this one before its manifest was compared (OC2). Otherwise as
        ``refresh``.

        Raises:
            Unavailable: the store does not answer, or denies access; or it does not have the
                announced checkpoint, or not whole.
        """
        with self._refreshing:
            why = "none is the one that the owner's node has announced"
            for name in () if self._is_removed else self._stored.names():
                if self._is_removed:
                    return
                checkpoint = self._stored.find(name, announced.is_named)
                if checkpoint is None:
                    continue
                timeline = str(checkpoint.timeline["name"])
                why = announced.refusal(checkpoint.digest, timeline, checkpoint.plan)
                if not why:
                    is_here = name == self._name or (own is not None and checkpoint.position <= own)
                    if is_here or self._take(checkpoint, here):
                        self._name, self.rest_bytes = name, 0
                        return
                    why = "a file of it is damaged, or gone"
            if not self._is_removed:
                raise Unavailable(f"no checkpoint in the store is used: {why}")

    def remove(self) -> None:
        """Remove the copy for good: the replica has a further checkpoint of its own. A refresh that
        runs meanwhile comes to nothing.
        """
        with self.lock:
            self._is_removed = True
            self._name, self.bucket, self.rest_bytes = "", 0, 0
            shutil.rmtree(self.root, ignore_errors=True)

    def _take(self, checkpoint: StoredCheckpoint, here: Path | None) -> bool:
        """Copy ``checkpoint``; return False if a file of it is damaged, or no longer stored."""
        self._files.mkdir(parents=True, exist_ok=True)
        missing = {
            place.sha256: (path, place)
            for path, place in checkpoint.files.items()
            if not (self._files / place.sha256).exists()
        }
        if here is not None:
            missing = {
                sha256: (path, place)
                for sha256, (path, place) in missing.items()
                if not self._link_same(here / path, place)
            }
        self.rest_bytes = sum(place.size for _, place in missing.values())
        whole = {place.sha256: place for place in checkpoint.files.values()}
        self.linked_bytes += sum(
            place.size for sha256, place in whole.items() if sha256 not in missing
        )
        places = [place for _, place in missing.values()]
        if not self._stored.fetch(places, self._files, self._was_read):
            return False
        self._crash_point("checkpoint.fetched")
        with self.lock:
            if self._is_removed:
                return False
            self._compose(checkpoint)
            self._prune(checkpoint, whole)
        return True

    def _was_read(self, size: int) -> None:
        self.read_bytes += size
        self.rest_bytes -= size

    def _link_same(self, path: Path, place: PackedFile) -> bool:
        """Link the file at ``path`` if it has the content of ``place``; return whether it has."""
        try:
            if path.stat().st_size != place.size:
                return False
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != place.sha256:
                    return False
            os.link(path, self._files / place.sha256)
        except OSError:  # its process removes files; or it is on another file system
            return False
        # Spark syncs nothing, and a file of the copy counts as durable.
        sync_file(self._files / place.sha256)
        return True

    def _compose(self, checkpoint: StoredCheckpoint) -> None:
        """Make the checkpoint's directory of links to its files, durably."""
        timeline = str(checkpoint.timeline["name"])
        partial, directory = self.root / f"copying-{timeline}", self.directory(timeline)
        shutil.rmtree(partial, ignore_errors=True)
        for path, place in checkpoint.files.items():
            (partial / path).parent.mkdir(parents=True, exist_ok=True)
            os.link(self._files / place.sha256, partial / path)
        partial.mkdir(parents=True, exist_ok=True)
        move_paths(partial, Path(checkpoint.directory), directory)
        new_query_id(partial)
        # Now, while no result waits for it.
        self._check(partial)
        install(partial, directory)
        write_timeline(self.root / "timelines", timeline, checkpoint.timeline)
        self.bucket = spark_checkpoint_files.last_bucket_now(directory)

    def _prune(self, checkpoint: StoredCheckpoint, whole: Mapping[str, PackedFile]) -> None:
        """Remove the files and directories that ``checkpoint`` does not have."""
        timeline = str(checkpoint.timeline["name"])
        for folder in (self.root / "checkpoints").iterdir():
            if folder.name != timeline:
                shutil.rmtree(folder, ignore_errors=True)
        for file in (self.root / "timelines").iterdir():
            if file.stem != timeline:
                file.unlink(missing_ok=True)
        for file in self._files.iterdir():
            if file.name not in whole:
                file.unlink(missing_ok=True)
