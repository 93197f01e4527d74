"""Spark's files in a checkpoint directory: which batches are whole, and how to go back to one.

::

    metadata                        {"id": ...}
    offsets/<batch>                 version; metadata; one line per source
                                    (``adapters.spark.offsets``)
    commits/<batch>                 version; {"nextBatchWatermarkMs",
                                    "stateUniqueIds": {operator: [partition: [store: id]]}}
    state/<operator>/_metadata/...  read at every start
    state/<operator>/<partition>/[<store>/]<batch + 1>_<id>.changelog
                                    changes of one batch
    state/<operator>/<partition>/[<store>/]<batch + 1>_<id>.zip
                                    all of the state, in some versions; names files in SSTs/
    .<file>.crc                     Hadoop's sums, one per 512 bytes

Spark syncs none of it, so after a loss of power the newest files may be empty, cut short or gone,
though younger ones are there. Spark would find that out when it reads them, in the middle of its
start or later; here it is found before. State is of format 2: files of a timeline that was
abandoned have other ids and disturb nobody.
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

from anabranch.adapters.spark.offsets import LoggedBatch
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
"""What reading a file raises that is not as it must be."""


def numbered(folder: Path) -> list[int]:
    """The batches that have a file in ``folder``, ascending, whole or not."""
    try:
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    except FileNotFoundError:
        return []


def committed_batches(checkpoint: Path) -> list[int]:
    """The batches that have a commit, whole or not, newest first; [-1]: none ever had; []:
    the commits are gone.
    """
    commits = numbered(checkpoint / "commits")
    if not commits:
        return [-1] if numbered(checkpoint / "offsets") in ([], [0]) else []
    return commits[::-1]


def first_whole(checkpoint: Path, batches: Iterable[int]) -> int | None:
    """The first of ``batches`` from which Spark can go on: -1, or one that has its logs and its
    state.

    Of a snapshot of the state that is damaged nothing is left, if the changes since the one before
    are there: Spark would take the newest.
    """
    state = _State(checkpoint)
    fixed = [
        path
        for path in checkpoint.glob("state/**/_metadata/**/*")
        if path.is_file() and not path.name.startswith(".")
    ]
    for batch in batches:
        if batch < 0 or (
            _is_logged(checkpoint, batch)
            and state.is_whole(batch)
            and all(_is_whole(path) for path in fixed)
        ):
            return batch
    return None


def last_bucket(checkpoint: Path, batch: int) -> int:
    """The query has read its inputs up to this bucket with ``batch``, which is whole; 0 for -1."""
    return 0 if batch < 0 else position_of(LoggedBatch(checkpoint, batch).offsets[0]).bucket


def last_bucket_now(checkpoint: Path) -> int:
    """The same of the last batch that is committed, while a query runs there; 0: of none, or
    it cannot be read.
    """
    try:
        return last_bucket(checkpoint, max(numbered(checkpoint / "commits"), default=-1))
    except _WRONG:
        return 0


def cut_back(checkpoint: Path, batch: int, *, keep_plan: bool) -> None:
    """Remove the logs of every batch after ``batch``; ``keep_plan``: but for the plan of the next
    one, if it is whole.

    Where no plan is left, the state goes too: Spark plans no first batch where there is
    any.
    """
    plan = batch + 1 if keep_plan and _is_logged(checkpoint, batch + 1, committed=False) else batch
    for folder, last in (("commits", batch), ("offsets", plan)):
        for number in numbered(checkpoint / folder):
            if number > last:
                _remove(checkpoint / folder / str(number))
    if plan < 0:
        shutil.rmtree(checkpoint / "state", ignore_errors=True)


def _is_logged(checkpoint: Path, batch: int, *, committed: bool = True) -> bool:
    """Whether the plan of ``batch`` can be read, and its commit."""
    try:
        offsets = LoggedBatch(checkpoint, batch).offsets
        for offset in offsets:
            position_of(offset)
        whole = _is_whole(checkpoint / "offsets" / str(batch))
        if committed:
            _state_ids(checkpoint, batch)
            whole = whole and _is_whole(checkpoint / "commits" / str(batch))
    except ConfigurationError:
        raise  # it is whole, and of no use: people must learn of that
    except _WRONG:
        return False
    return whole


def _state_ids(checkpoint: Path, batch: int) -> dict[tuple[str, int], list[str]]:
    """(operator, partition) -> ids of its stores, as the commit of ``batch`` names them."""
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
    """The state files of one directory."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._file_is_whole = cache(_is_whole)
        self._known: dict[tuple[Path, int, str], bool] = {}

    def is_whole(self, batch: int) -> bool:
        """Whether everything is there that the state after ``batch`` is made of."""
        stores = _state_ids(self._checkpoint, batch)
        return all(
            self._store(operator, partition, batch + 1, ids)
            for (operator, partition), ids in stores.items()
        )

    def _store(self, operator: str, partition: int, version: int, ids: list[str]) -> bool:
        return all(
            self._version(operator, partition, index, version, ident)
            for index, ident in enumerate(ids)
        )

    def _version(self, operator: str, partition: int, index: int, version: int, ident: str) -> bool:
        """Whether a snapshot of ``version`` is whole, or its changes and those since an
        earlier one.
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
        found = [
            *folder.glob(f"{version}_{ident}.changelog"),
            *folder.glob(f"*/{version}_{ident}.changelog"),
        ]
        return [path for path in found if self._file_is_whole(path)]

    def _snapshot(self, folder: Path, version: int, ident: str, *, may_go: bool) -> bool:
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
        """Id of an earlier version of the same store: the commit log has it; where that was
        purged, the only file of the version.
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
    """Whether the file is there, not empty, and as its sums say, if it has any."""
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
    """Whether Hadoop's sums are those of ``content``."""
    if len(sums) < len(_SUM_MAGIC) + 4 or not sums.startswith(_SUM_MAGIC):
        return False
    (size,) = struct.unpack_from(">i", sums, len(_SUM_MAGIC))
    expected = sums[len(_SUM_MAGIC) + 4 :]
    if size < 1:
        return False
    view = memoryview(content)
    return b"".join(_sums(view, size)) == expected


def _sums(view: memoryview, size: int) -> Iterator[bytes]:
    for start in range(0, len(view), size):
        yield zlib.crc32(view[start : start + size]).to_bytes(4, "big")


def _remove(path: Path) -> None:
    """A file and its sums. It may be a hard link: the other name keeps the content."""
    path.unlink(missing_ok=True)
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
