"""Folder for the temporary files of one process, removed soon after the process ends.

A killed process cannot remove its files, and a node's Java unpacks 20 MB of libraries at each
start. So each process has a folder of its own below one root, and locks it while it lives. The next
process that starts below the same root removes the folders that are no longer locked. Those of a
process that is paused, or that was replaced and does not know it yet, stay.

    root/NAME.lock   locked by the living process; created before its folder, removed after it
    root/NAME/       its files
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SOCKET_PATH_BYTES_MAX: Final = 103
"""Maximum length of a socket's path, in bytes. Systems other than Linux (107) cannot bind a longer
one, and a stage would end at its start.
"""

_LOCK: Final = ".lock"
_ELSEWHERE: Final = "elsewhere"
"""Link in a process's folder to a second folder with a short path. The link is created first, so
that no second folder is ever left without one.
"""
_PREFIX: Final = "anabranch-"
_NAME_BYTES: Final = 4


class Scratch:
    """Temporary folder of this process below ``root``. Removed at the orderly end of the process,
    otherwise by the next process. Not thread-safe.
    """

    def __init__(self, root: Path) -> None:
        """Remove the folders of dead processes below ``root``, and create one that only this user
        can read.
        """
        root = root.resolve()
        root.mkdir(parents=True, exist_ok=True)
        sweep(root)
        self._descriptor, self.path = _make(root)
        self._pid = os.getpid()
        atexit.register(self.close)

    def socket_path(self, name: str) -> str:
        """Return a path for a socket: in this folder, or, if that path would be too long, in a
        second folder among the system's temporary files.
        """
        path = str(self.path / name)
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
        link = self.path / _ELSEWHERE
        if not link.is_symlink():
            link.symlink_to(
                Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(_NAME_BYTES)}"
            )
            link.readlink().mkdir(mode=0o700)  # raises if the folder exists: it is another user's
        return str(link.readlink() / name)

    @contextmanager
    def for_children(self) -> Iterator[None]:
        """Make programs that are started within this context, and their children, put temporary
        files here. This process does so too meanwhile.
        """
        before, chosen = os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.path)
        try:
            yield
        finally:
            tempfile.tempdir = chosen
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before

    def close(self) -> None:
        """Remove the folder. Idempotent. Called at the end of the process: Java needs the libraries
        that it has unpacked here until then.
        """
        atexit.unregister(self.close)
        # A forked child shares the lock and must leave the folder to its parent.
        if self._descriptor >= 0 and self._pid == os.getpid():
            _remove(self.path)
            os.close(self._descriptor)
        self._descriptor = -1


def sweep(root: Path) -> None:
    """Remove everything below ``root`` that is not locked, including files without locks from older
    versions.
    """
    for name in sorted({entry.name.removesuffix(_LOCK) for entry in root.iterdir()}):
        folder = root / name
        try:
            descriptor = os.open(_lock_of(folder), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            _remove(folder)
            continue
        try:
            if _try_lock(descriptor):
                _remove(folder)
        finally:
            os.close(descriptor)


def _make(root: Path) -> tuple[int, Path]:
    """Create a locked folder; return the descriptor that holds the lock, and the folder."""
    while True:
        folder = root / secrets.token_hex(_NAME_BYTES)
        descriptor = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _try_lock(descriptor) and _is_same_file(_lock_of(folder), descriptor):
            folder.mkdir(mode=0o700)
            return descriptor, folder
        os.close(descriptor)  # another process swept between creating the file and locking it


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(path: Path, descriptor: int) -> bool:
    """Return whether ``path`` still names the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove(folder: Path) -> None:
    """Remove the folder, the one that it links to, and then its lock file. The lock goes last: the
    next process finds by it what could not be removed.
    """
    link = folder / _ELSEWHERE
    if link.is_symlink() and link.readlink().name.startswith(_PREFIX):
        shutil.rmtree(link.readlink(), ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)
    if not folder.exists():
        _lock_of(folder).unlink(missing_ok=True)
