"""Durable writes of files and folders: what they return from survives a loss of power.

Every file is synced by itself. ``sync`` would write the unwritten data of all programs of the
machine, which is gigabytes where a broker shares the disk.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

TAKES_NOTHING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Numbers of the errors of a file system that takes nothing more: it is full, its user has no quota
left, or it has become read-only.
"""


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable; not the content of its files."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_folders(root: Path) -> None:
    """Make the names in ``root`` and in every folder below it durable."""
    for folder, _, _ in os.walk(root):
        sync_folder(Path(folder))


def sync_file(path: Path) -> None:
    """Make the content of the file at ``path`` durable; not its name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace the file at ``path`` by a new one, durably except for its name. Other hard links to
    the old file keep its content. ``mode``: permissions, which the process's umask restricts.
    """
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def put_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write the file at ``path`` whole and durably, or not at all, even if several processes do so
    at once. ``mode``: as in ``replace_file``.
    """
    # Content first, then the name, then the folder: a crash leaves either the old file or the new.
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    replace_file(draft, content, mode)
    draft.replace(path)
    sync_folder(path.resolve().parent)


class SyncedTree:
    """Tree of files that never change once they have their final names. Remembers which files were
    synced, so that each is synced once.
    """

    def __init__(self) -> None:
        self._synced: frozenset[tuple[int, int, int]] = frozenset()

    def sync(self, root: Path) -> None:
        """Make everything that is in the tree now durable. A file that is removed meanwhile is
        ignored.

        Raises:
            FileNotFoundError: there is no such tree.
        """
        found = set()
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder) / name
                try:
                    facts = path.stat()
                    file = facts.st_ino, facts.st_mtime_ns, facts.st_size
                    if file not in self._synced:
                        sync_file(path)
                except FileNotFoundError:
                    continue
                found.add(file)
            if Path(folder) != root:
                _sync_if_there(Path(folder))
        sync_folder(root)
        self._synced = frozenset(found)


def _sync_if_there(folder: Path) -> None:
    try:
        sync_folder(folder)
    except FileNotFoundError:
        return
