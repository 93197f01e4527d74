"""Spark's files in a checkpoint directory: which batches are complete, and how to cut the directory
back to one.

::

    metadata                        {"id": ...}
    offsets/<batch>                 version; metadata; one line per source
                                    (``adapters.disk.spark_offsets``)
    commits/<batch>                 version; {"nextBatchWatermarkMs",
                                    "stateUniqueIds": {operator: [partition: [store: id]]}}
    state/<operator>/_metadata/...  read at every start
    state/<operator>/<partition>/[<store>/]<batch + 1>_<id>.changelog
                                    changes of one batch
    state/<operator>/<partition>/[<store>/]<batch + 1>_<id>.zip
                                    snapshot of the state, in some versions; names files in SSTs/
    .<file>.crc                     Hadoop's checksums, one per 512 bytes

Spark syncs none of these, so after a power loss the newest files may be empty, truncated or missing
although younger ones exist. Spark would find that out only when it reads them, during its start or
later; this module finds it before. Nothing else compares the files in ``SSTs`` with their checksums
(``adapters.spark.linked_state``). State has format 2: files of an abandoned timeline have other ids
and are never read.
"""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from anabranch.adapters.disk.spark_offsets import LoggedBatch
from anabranch.codec.plan_offsets import position_of
from anabranch.protocol.errors import AnabranchError, ConfigurationError

_SUM_MAGIC: Final = b"crc\0"
_WRONG: Final = (
    AnabranchError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    zipfile.BadZipFile,
)
"""Exceptions raised by reading a damaged file."""
_File = tuple[int, int, int, int]
"""Identity of a file's content: device, inode, time of the last change in ns, size in bytes."""


def numbered(folder: Path) -> list[int]:
    """Return the batches that have a file in ``folder``, ascending, whether complete or not."""
    try:
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    except FileNotFoundError:
        return []


def committed_batches(checkpoint: Path) -> list[int]:
    """Return the batches that have a commit file, complete or not, newest first. [-1]: none was
    ever committed; []: the commits are lost.
    """
    commits = numbered(checkpoint / "commits")
    if not commits:
        return [-1] if numbered(checkpoint / "offsets") in ([], [0]) else []
    return commits[::-1]


class WholeFiles:
    """Files of one replica that this process has found complete.

    Spark never changes a finished file, and copies of a checkpoint are hard links. So each file is
    read once, however often the checkpoint and its copies are checked: a standby checks a copy of
    gigabytes every few seconds. Only a loss of power takes content from a finished file, and this
    process with it. A file that is still being written gets another size or time.
    """

    def __init__(self) -> None:
        """Begin without knowing any file."""
        self._known: frozenset[_File] = frozenset()
        self._seen: set[_File] = set()

    def has(self, path: Path) -> bool:
        """Return whether the file is there, not empty, and matches its checksums, if it has any."""
        try:
            # Before the content: a file that grows meanwhile is read again the next time.
            facts = path.stat()
        except OSError:
            return False
        file = facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size
        if file not in self._known and file not in self._seen and not _is_whole(path):
            return False
        self._seen.add(file)
        return True

    def forget_unseen(self) -> None:
        """Forget the files that ``has`` was not asked for since the previous call."""
        self._known, self._seen = frozenset(self._seen), set()


def first_whole(checkpoint: Path, batches: Iterable[int], whole_files: WholeFiles) -> int | None:
    """Return the first of ``batches`` from which Spark can continue: -1, or one with complete logs
    and state. ``whole_files``: those of earlier calls.

    Removes damaged state snapshots if the changelogs since the previous snapshot are there: Spark
    would read the newest snapshot.
    """
    found = _first_whole(checkpoint, batches, whole_files)
    whole_files.forget_unseen()
    return found


def _first_whole(checkpoint: Path, batches: Iterable[int], whole_files: WholeFiles) -> int | None:
    state = _State(checkpoint, whole_files)
    fixed = [
        path
        for path in checkpoint.glob("state/**/_metadata/**/*")
        if path.is_file() and not path.name.startswith(".")
    ]
    for batch in batches:
        if batch < 0 or (
            _is_logged(checkpoint, batch)
            and state.is_whole(batch)
            and all(whole_files.has(path) for path in fixed)
        ):
            return batch
    return None


def last_bucket(checkpoint: Path, batch: int) -> int:
    """Return the last bucket of input that the query has read with ``batch``, which is complete; 0
    for -1.
    """
    return 0 if batch < 0 else position_of(LoggedBatch(checkpoint, batch).offsets[0]).bucket


def last_bucket_now(checkpoint: Path) -> int:
    """Return the last bucket of input that the last committed batch has read, while a query runs in
    the directory; 0 if there is none or it cannot be read.
    """
    try:
        return last_bucket(checkpoint, max(numbered(checkpoint / "commits"), default=-1))
    except _WRONG:
        return 0


def cut_back(checkpoint: Path, batch: int, *, keep_plan: bool) -> None:
    """Remove the logs of every batch after ``batch``, with ``keep_plan`` except the plan of the
    next one, if it is complete.

    If no plan is left, remove the state, too: Spark plans no first batch over existing state.
    """
    plan = batch + 1 if keep_plan and _is_logged(checkpoint, batch + 1, committed=False) else batch
    for folder, last in (("commits", batch), ("offsets", plan)):
        for number in numbered(checkpoint / folder):
            if number > last:
                _remove(checkpoint / folder / str(number))
    if plan < 0:
        shutil.rmtree(checkpoint / "state", ignore_errors=True)


def _is_logged(checkpoint: Path, batch: int, *, committed: bool = True) -> bool:
    """Return whether the plan of ``batch`` can be read, and its commit, if ``committed``."""
    try:
        offsets = LoggedBatch(checkpoint, batch).offsets
        for offset in offsets:
            position_of(offset)
        whole = _is_whole(checkpoint / "offsets" / str(batch))
        if committed:
            _state_ids(checkpoint, batch)
            whole = whole and _is_whole(checkpoint / "commits" / str(batch))
    except ConfigurationError:
        raise  # complete but unusable: a person must act
    except _WRONG:
        return False
    return whole


def _state_ids(checkpoint: Path, batch: int) -> dict[tuple[str, int], list[str]]:
    """Return the ids of the stores by (operator, partition), as the commit of ``batch``
    names them.
    """
    version, fields, *_ = (
        (checkpoint / "commits" / str(batch)).read_text(encoding="utf-8").splitlines()
    )
    found: dict[str, Any] = json.loads(fields).get("stateUniqueIds") or {}
    if not version.startswith("v"):
        message = f"commit {batch} has no version"
        raise ValueError(message)
    return {
        (operator, i): list(ids)
        for operator, partitions in found.items()
        for i, ids in enumerate(partitions)
    }


class _State:
    """State files of one directory."""

    def __init__(self, checkpoint: Path, whole_files: WholeFiles) -> None:
        self._checkpoint = checkpoint
        self._file_is_whole = cache(whole_files.has)
        self._known: dict[tuple[Path, int, str], bool] = {}

    def is_whole(self, batch: int) -> bool:
        """Return whether all files that make up the state after ``batch`` are there and
        complete.
        """
        stores = _state_ids(self._checkpoint, batch)
        return all(
            self._store(operator, partition, batch + 1, ids)
            for (operator, partition), ids in stores.items()
        )

    def _store(self, operator: str, partition: int, version: int, ids: list[str]) -> bool:
        """Return whether all stores of a partition are complete at ``version``."""
        return all(
            self._version(operator, partition, index, version, ident)
            for index, ident in enumerate(ids)
        )

    def _version(self, operator: str, partition: int, index: int, version: int, ident: str) -> bool:
        """Return whether a snapshot of ``version`` is complete, or its changelog and those back to
        an earlier snapshot.
        """
        folder = self._checkpoint / "state" / operator / str(partition)
        steps: list[tuple[Path, int, str]] = []
        whole = False
        while True:
            step = (folder, version, ident)
            if step in self._known:
                whole = self._known[step]
                break
            steps.append(step)
            changes = self._changes(folder, version, ident)
            if self._snapshot(folder, version, ident, may_go=bool(changes)) or (
                changes and version == 1
            ):
                whole = True
                break
            before = self._ident_of(operator, partition, index, version - 1) if changes else None
            if before is None:
                break
            version, ident = version - 1, before
        self._known |= dict.fromkeys(steps, whole)
        return whole

    def _changes(self, folder: Path, version: int, ident: str) -> list[Path]:
        """Return the complete changelogs of a version."""
        found = [
            *folder.glob(f"{version}_{ident}.changelog"),
            *folder.glob(f"*/{version}_{ident}.changelog"),
        ]
        return [path for path in found if self._file_is_whole(path)]

    def _snapshot(self, folder: Path, version: int, ident: str, *, may_go: bool) -> bool:
        """Return whether a complete snapshot of a version exists. Remove damaged ones if
        ``may_go``.
        """
        for path in [
            *folder.glob(f"{version}_{ident}.zip"),
            *folder.glob(f"*/{version}_{ident}.zip"),
        ]:
            if self._file_is_whole(path) and self._has_its_files(path):
                return True
            if may_go:
                _remove(path)
        return False

    def _has_its_files(self, snapshot: Path) -> bool:
        """Return whether the files that ``snapshot`` names are there and complete."""
        try:
            with zipfile.ZipFile(snapshot) as archive:
                fields = json.loads(archive.read("metadata").split(b"\n", 1)[1])
            named = [
                (snapshot.parent / "SSTs" / file["dfsSstFileName"], file["sizeBytes"])
                for file in fields.get("sstFiles", ())
            ]
            return all(
                path.stat().st_size == size and self._file_is_whole(path) for path, size in named
            )
        except (*_WRONG, IndexError):
            return False

    def _ident_of(self, operator: str, partition: int, index: int, version: int) -> str | None:
        """Return the id of an earlier version of the same store, from the commit log; if that was
        purged, from the only file of the version; None if it is not known.
        """
        try:
            return _state_ids(self._checkpoint, version - 1)[operator, partition][index]
        except (*_WRONG, IndexError):
            folder = self._checkpoint / "state" / operator / str(partition)
            names = {
                path.stem
                for path in (*folder.glob(f"{version}_*"), *folder.glob(f"*/{version}_*"))
                if path.suffix != ".crc"
            }
            return names.pop().partition("_")[2] if len(names) == 1 else None


def _is_whole(path: Path) -> bool:
    """Return whether the file is there, not empty, and matches its checksums, if it has any."""
    try:
        content = path.read_bytes()
        if not content:
            return False
        sums = path.parent / f".{path.name}.crc"
        if not sums.exists():
            return True
        return _agrees(content, sums.read_bytes())
    except OSError:
        return False


def _agrees(content: bytes, sums: bytes) -> bool:
    """Return whether ``sums``, in Hadoop's format, are the checksums of ``content``."""
    if len(sums) < len(_SUM_MAGIC) + 4 or not sums.startswith(_SUM_MAGIC):
        return False
    (size,) = struct.unpack_from(">i", sums, len(_SUM_MAGIC))
    expected = sums[len(_SUM_MAGIC) + 4 :]
    if size < 1:
        return False
    view = memoryview(content)
    return b"".join(_sums(view, size)) == expected


def _sums(view: memoryview, size: int) -> Iterator[bytes]:
    """Yield the checksum of every ``size`` bytes."""
    for start in range(0, len(view), size):
        yield zlib.crc32(view[start : start + size]).to_bytes(4, "big")


def _remove(path: Path) -> None:
    """Remove a file and its checksums. The file may be a hard link: its other name keeps the
    content.
    """
    path.unlink(missing_ok=True)
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
