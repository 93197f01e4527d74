"""Makes directory trees durable, file by file.

Not by ``sync``: that writes what every program of the machine has left to write, and where a broker
shares the disk these are gigabytes.
"""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """What is in ``folder``, by name, survives a loss of power: not what its files hold."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_folders(root: Path) -> None:
    """As ``sync_folder``, of ``root`` and every folder below it."""
    for folder, _, _ in os.walk(root):
        sync_folder(Path(folder))


def sync_file(path: Path) -> None:
    """Let what the file at ``path`` holds survive a loss of power: not its name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write the file at ``path`` anew, durably but for its name; of a hard link the other
    names keep what was there. ``mode``: its rights, as far as the process's mask lets them.
    """
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def put_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write the file at ``path``, whole and durably or not at all; also where several processes do
    it at the same time. ``mode``: as of ``replace_file``.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    replace_file(draft, content, mode)
    draft.replace(path)
    sync_folder(path.resolve().parent)


class SyncedTree:
    """A tree of files that never change once they have their names. Remembers which were
    synced, so that each is once.
    """

    def __init__(self) -> None:
        self._synced: frozenset[tuple[int, int, int]] = frozenset()

    def sync(self, root: Path) -> None:
        """What is in the tree now survives a loss of power. A file that is removed meanwhile need
        not.

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
