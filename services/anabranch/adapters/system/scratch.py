"""A folder for the temporary files of one process, which does not outlive it for long.

A process that is killed cannot remove what it wrote, and a node's Java unpacks 20 MB of libraries
at each start. So each process has a folder of its own below one root, and a lock on it for as long
as it lives. Whoever starts next below the same root removes the folders that nobody has locked any
more: those of a process that is paused, or that was replaced and does not know it yet, stay.

    root/NAME.lock   locked by the living process: made before its folder, removed after it
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
"""Of the path of a socket: one byte more, and another system than Linux (107) could not bind
it; a stage would end at its start.
"""

_LOCK: Final = ".lock"
_ELSEWHERE: Final = "elsewhere"
"""Link in a process' folder to a second one with a short path. The link is made first, so
that none is ever left without it.
"""
_PREFIX: Final = "anabranch-"
_NAME_BYTES: Final = 4


class Scratch:
    """The folder of this process below ``root``; removed when the process ends in order, else
    by the next one. Not thread-safe.
    """

    def __init__(self, root: Path) -> None:
        """Remove what dead processes have left below ``root``, and make a folder that only
        this user may look into.
        """
        root = root.resolve()
        root.mkdir(parents=True, exist_ok=True)
        sweep(root)
        self._descriptor, self.path = _make(root)
        self._pid = os.getpid()
        atexit.register(self.close)

    def socket_path(self, name: str) -> str:
        """Where a socket may be: in this folder, else, since the path of a socket must be
        short, in one among the system's temporary files.
        """
        path = str(self.path / name)
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
        link = self.path / _ELSEWHERE
        if not link.is_symlink():
            link.symlink_to(
                Path(tempfile.gettempdir()) / f"{_PREFIX}{secrets.token_hex(_NAME_BYTES)}"
            )
            link.readlink().mkdir(mode=0o700)  # raises if it is another's
        return str(link.readlink() / name)

    @contextmanager
    def for_children(self) -> Iterator[None]:
        """Programs that are started meanwhile, and whatever they start later, keep their
        temporary files here. So does this process meanwhile.
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
        """Remove the folder. Idempotent. It is called at the end of the process: what Java
        has unpacked here is needed until then.
        """
        atexit.unregister(self.close)
        if (
            self._descriptor >= 0 and self._pid == os.getpid()
        ):  # not in a copy of the process that was made by a fork
            _remove(self.path)
            os.close(self._descriptor)
        self._descriptor = -1


def sweep(root: Path) -> None:
    """Remove what nobody below ``root`` has locked; also what an older version left there,
    without locks.
    """
    for name in sorted({entry.name.removesuffix(_LOCK) for entry in root.iterdir()}):
        folder = root / name
        try:
            descriptor = os.open(_lock_of(folder), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            _remove(folder)
            continue
        try:
            if _taken(descriptor):
                _remove(folder)
        finally:
            os.close(descriptor)


def _make(root: Path) -> tuple[int, Path]:
    """(the descriptor that holds the lock, the folder)."""
    while True:
        folder = root / secrets.token_hex(_NAME_BYTES)
        descriptor = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _taken(descriptor) and _is_there(_lock_of(folder), descriptor):
            folder.mkdir(mode=0o700)
            return descriptor, folder
        os.close(descriptor)  # somebody who sweeps came between the file and its lock


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one of this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove(folder: Path) -> None:
    """The folder, the one it links to, and then its lock, by which the next one would find
    what could not be removed.
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
