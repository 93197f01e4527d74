"""Store of checkpoints that other machines can read: a shared folder or S3.

::

    <url>/<pipeline>/<stage>.<replica>/life-<life>/
        <timeline>-<number>.pack  the files of a checkpoint, one after the other
        <timeline>-<number>.json  manifest: the files' positions; written last

A replica without a checkpoint on its machine starts from the newest one in the store: its own, or a
peer's (``protocol.log.timeline``, TI4). Spark never changes a finished file, so a process writes
each file once, all new files of one checkpoint into one pack. It refers to packs of its own only:
so a process that was replaced and still runs removes no pack that a newer one refers to.

Spark writes some files at their final names, and a hard link shares the file with it. So a file
that changes while it is read is left out of the checkpoint. No committed batch refers to it yet:
Spark names a file in a commit or in a snapshot of the state only after the file is whole.

A life is that of the stage's log (``streams.stream_life``). Epochs of another life mean nothing in
this one, so its checkpoints are never found, and the next save removes them.

Names sort as (epoch, timeline, number): the newest checkpoint is that of the newest process, and
only names below the saved one are ever removed (TI2).

After a crash: the next process removes a pack without a manifest. A checkpoint that cannot be read
is skipped in favour of the one before it, which stays until there are two newer ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pyarrow import fs

from anabranch.adapters.disk.checkpoint_folder import plan_of
from anabranch.adapters.disk.durable import sync_file, sync_folder
from anabranch.adapters.disk.state_format import FORMAT, life_folder
from anabranch.protocol.errors import ConfigurationError, Unavailable, headline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from anabranch.protocol.log.stateful_plan import StatefulPlan

STORE_URL_EXAMPLES: Final = "file:///mnt/checkpoints or s3://BUCKET/FOLDER?region=eu-central-1"
"""Examples of a store's address, for messages."""
_MANIFEST_BYTES_MAX: Final = 64 << 20
"""Maximum size of a manifest, in bytes. A checkpoint of more than a million files fits."""
_MANIFESTS_RETAINED: Final = 2
"""Number of readable checkpoints that a save leaves, its own included, whichever process wrote
them. More than one, because another process may be reading the one before, or need it if the newest
is damaged.
"""
_READ_BYTES: Final = 1 << 20
_DEAD_SHARE_MAX: Final = 0.5
"""Maximum share of unused bytes in a pack. Above it the next checkpoint writes the pack's other
files anew, and the pack is removed.
"""
_CONNECT_TIMEOUT_S: Final = 10
_REQUEST_TIMEOUT_S: Final = 60
"""Timeout of a request, in s. A request transfers at most a part of a pack, of 10 MB."""
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_NAME = re.compile(r"(?P<timeline>[0-9]{12}-[0-9]{6}(-[0-9a-f]{16})?)-[0-9]{9}\.(json|pack)\Z")


@dataclass(frozen=True, slots=True)
class PackedFile:
    """Position of one file's bytes in a pack, and their digest."""

    pack: str
    offset: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """Manifest of a checkpoint in the store."""

    name: str
    timeline: Mapping[str, object]
    """Fields of its timeline file."""
    directory: str
    """Directory that it was copied from. Some of its files name that directory."""
    files: Mapping[str, PackedFile]
    plan: StatefulPlan
    """Operators that hold the state, by the timeline."""
    digest: str
    """SHA-256 of the manifest."""

    @property
    def position(self) -> tuple[str, int]:
        """Name of its timeline, and the last batch that is committed in it; -1: none."""
        commits = (path.removeprefix("commits/") for path in self.files)
        last = max((int(name) for name in commits if name.isdecimal()), default=-1)
        return str(self.timeline["name"]), last


def folder_of(url: str) -> Path | None:
    """Return the folder of the store at ``url``; None: it is no folder of this machine."""
    parts = urlsplit(url)
    has_query = bool(parse_qsl(parts.query, keep_blank_values=True))
    folder = parts.path.strip("/")
    is_folder = parts.scheme == "file" and not parts.netloc and not has_query and folder
    return Path(f"/{folder}") if is_folder else None


def open_store(url: str) -> fs.FileSystem:
    """Open the store at ``url``, whose folder or bucket must exist. Nothing is contacted yet.

    Credentials of S3 come from AWS's own variables or files.

    Raises:
        ConfigurationError: ``url`` is not the address of a store.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    folder = parts.path.strip("/")
    wrong = f"{url.partition('?')[0].rpartition('@')[2]!r} is no store of checkpoints"
    if parts.username or parts.password:
        raise ConfigurationError(
            f"{wrong}: credentials come by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by AWS's"
            " files, never in the address"
        )
    if (own := folder_of(url)) is not None:
        return fs.SubTreeFileSystem(str(own), fs.LocalFileSystem())
    if parts.scheme == "s3" and parts.netloc and query.keys() <= {"region", "endpoint"}:
        endpoint = urlsplit(query.get("endpoint", ""))
        if not endpoint.scheme or (endpoint.scheme in ("http", "https") and endpoint.netloc):
            return fs.SubTreeFileSystem(
                f"{parts.netloc}/{folder}".rstrip("/"),
                fs.S3FileSystem(
                    region=query.get("region"),
                    scheme=endpoint.scheme or "https",
                    endpoint_override=endpoint.netloc or None,
                    connect_timeout=_CONNECT_TIMEOUT_S,
                    request_timeout=_REQUEST_TIMEOUT_S,
                ),
            )
    raise ConfigurationError(
        f"{wrong}: give {STORE_URL_EXAMPLES} (for another server than Amazon's add"
        " endpoint=http://HOST:PORT)"
    )


def stored_replicas(url: str, pipeline: str) -> Callable[[str, str], StoredReplica]:
    """Return a lookup in the store at ``url``: from ``STAGE.REPLICA`` and life to the checkpoints.

    Raises:
        ConfigurationError: ``url`` is not the address of a store.
    """
    store = open_store(url)
    return lambda place, life: StoredReplica(store, f"{pipeline}/{place}", life)


def is_stored(url: str, pipeline: str) -> bool:
    """Return whether the store at ``url`` has anything of ``pipeline``.

    Raises:
        ConfigurationError: ``url`` is not the address of a store.
        Unavailable: the store does not answer, or denies access.
    """
    try:
        store = open_store(url)
        _check_root(store)
        return bool(store.get_file_info(pipeline).type == fs.FileType.Directory)
    except OSError as error:
        raise _unavailable(pipeline, "read", error) from error


def delete_stored(url: str, pipeline: str) -> None:
    """Delete all checkpoints of ``pipeline`` in the store at ``url``, of every life.

    Raises:
        ConfigurationError: ``url`` is not the address of a store.
        Unavailable: the store does not answer, or denies access; some may be deleted.
    """
    try:
        open_store(url).delete_dir(pipeline)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unavailable(pipeline, "written", error) from error


class StoredReplica:
    """Checkpoints of one replica in the store, as one process reads and writes them."""

    def __init__(self, store: fs.FileSystem, place: str, life: str = "") -> None:
        """Prepare access. ``place``: ``PIPELINE/STAGE.REPLICA``. ``life``: life of the stage's log;
        empty: the log has no lives.
        """
        self._store = store
        self._place, self._life = place, life_folder(life)
        self._folder = f"{place}/{self._life}".rstrip("/")
        self._number = 0
        self._former_lives: list[str] = []
        """Folders of lives before this one (``note_former_lives``)."""
        self._written: dict[_FileKey, PackedFile] = {}
        """Places of the files that this process has packed whole."""
        self._packs: dict[str, int] = {}
        """Packs of this process, with their sizes in bytes."""
        self._packs_of: dict[str, frozenset[str]] = {}
        """Manifest -> its packs, for the retained checkpoints, whichever process wrote them."""
        self.saved = ""
        """SHA-256 of the manifest of the last checkpoint that this process has stored; empty:
        none.
        """

    def save(self, timeline: Mapping[str, object], snapshot: Path, directory: Path) -> None:
        """Store the content of ``snapshot``, which must not change, as a checkpoint of
        ``timeline``, whole or not at all. ``directory``: the directory that ``snapshot`` is a copy
        of.

        Raises:
            Unavailable: the store is away, full, or denies access.
        """
        self._number += 1
        name = f"{timeline['name']}-{self._number:09d}"
        try:
            _check_root(self._store)
            if self._store.base_fs.type_name == "local":
                self._store.create_dir(self._folder, recursive=True)
            # The pack before the manifest: a reader that finds a manifest finds all its bytes.
            files = self._write_files(name, snapshot)
            manifest = {
                "format": FORMAT,
                "timeline": dict(timeline),
                "directory": str(directory),
                "files": {p: [f.pack, f.offset, f.size, f.sha256] for p, f in files.items()},
            }
            content = json.dumps(manifest, separators=(",", ":")).encode()
            self._put(f"{name}.json", content)
            self.saved = hashlib.sha256(content).hexdigest()
            self._packs_of[f"{name}.json"] = frozenset(file.pack for file in files.values())
            self._clean(f"{name}.json")
        except OSError as error:
            raise self._unavailable("written", error) from error

    def names(self) -> list[str]:
        """Return the names of the checkpoints, the newest first.

        Raises:
            Unavailable: the store does not answer, or denies access.
        """
        try:
            _check_root(self._store)
            return sorted((_stem(name) for name in self._listed(".json")), reverse=True)
        except OSError as error:
            raise self._unavailable("read", error) from error

    def find(
        self, name: str, is_wanted: Callable[[str], bool] = lambda _digest: True
    ) -> StoredCheckpoint | None:
        """Return one of ``names``; None: it was removed meanwhile, or is damaged, or not wanted.

        Args:
            name: One of ``names``.
            is_wanted: Function from the SHA-256 of its manifest to whether it is wanted. Otherwise
                the manifest, which anyone may have written, is not parsed.

        Raises:
            Unavailable: the store does not answer, or denies access.
        """
        try:
            return self._read_manifest(f"{name}.json", is_wanted)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable("read", error) from error

    def fetch(
        self, places: Iterable[PackedFile], folder: Path, was_read: Callable[[int], None]
    ) -> bool:
        """Write the bytes of each of ``places`` to a file of its digest's name in ``folder``,
        durably. Return False if one is damaged, or no longer in the store; files that were written
        before stay.

        Args:
            places: Places of a checkpoint, results of ``find``.
            folder: A folder that exists.
            was_read: Called after each piece with its size in bytes.

        Raises:
            Unavailable: the store does not answer, or denies access.
        """
        by_pack: dict[str, list[PackedFile]] = {}
        for place in places:
            by_pack.setdefault(place.pack, []).append(place)
        try:
            for pack, wanted in by_pack.items():
                if not self._unpack(pack, wanted, folder, was_read):
                    return False
            sync_folder(folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unavailable("read", error) from error
        return True

    def _write_files(self, name: str, snapshot: Path) -> dict[str, PackedFile]:
        """Write those files of ``snapshot`` that are in no pack yet, as one pack. Return the place
        of each file, without files that changed while they were read.
        """
        found = {str(path.relative_to(snapshot)): path for path in _files(snapshot)}
        keys = {relative: _file_key(relative, path.stat()) for relative, path in found.items()}
        known = {
            key: place for key in keys.values() if (place := self._written.get(key)) is not None
        }
        live_bytes = Counter[str]()
        for place in known.values():
            live_bytes[place.pack] += place.size
        known = {
            key: place
            for key, place in known.items()
            if live_bytes[place.pack] >= self._packs[place.pack] * (1 - _DEAD_SHARE_MAX)
        }
        fresh = [relative for relative, key in keys.items() if key not in known]
        pack, offset = f"{name}.pack", 0
        if fresh:
            with self._new_file(pack) as stream:
                for relative in fresh:
                    key, sha256, size = _append_file(stream, relative, found[relative])
                    if key is not None:
                        known[key] = PackedFile(pack, offset, size, sha256)
                    offset += size
            self._packs[pack] = offset
        self._written = known
        return {key.relative: place for key, place in known.items()}

    def _clean(self, name: str) -> None:
        """Remove files with names below ``name`` that no retained checkpoint uses."""
        listed = [each for each in self._listed("") if _stem(each) <= _stem(name)]
        # The own checkpoint first, even if a newer process has removed it: its packs are reused.
        retained = {name: self._packs_of[name]}
        others = {each for each in listed if each.endswith(".json")} - {name}
        for manifest in sorted(others, reverse=True):
            if len(retained) == _MANIFESTS_RETAINED:
                break
            packs = self._packs_of.get(manifest) or self._packs_named(manifest)
            if packs is not None:
                retained[manifest] = packs
        in_use = frozenset[str]().union(*retained.values())
        for each in listed:
            if _stem(each) < _stem(name) and each not in retained and each not in in_use:
                self._store.delete_file(f"{self._folder}/{each}")
        self._packs_of = retained
        self._packs = {pack: size for pack, size in self._packs.items() if pack in in_use}
        self._clean_former_lives()

    def note_former_lives(self) -> None:
        """Note what the replica has stored in lives of its stage's log before the present one. The
        next ``save`` removes it.

        Checkpoints that are stored later, by a process of a later life, are never removed: this
        process may outlive its log. If the store does not answer, nothing is noted and a later
        process removes it.
        """
        if not self._life:
            return
        selector = fs.FileSelector(self._place, allow_not_found=True)
        with suppress(OSError):
            self._former_lives = [
                info.base_name
                for info in self._store.get_file_info(selector)
                if info.type == fs.FileType.Directory and info.base_name != self._life
            ]

    def _clean_former_lives(self) -> None:
        """Remove the checkpoints of the noted lives."""
        while self._former_lives:
            with suppress(FileNotFoundError):
                self._store.delete_dir(f"{self._place}/{self._former_lives[-1]}")
            self._former_lives.pop()

    def _packs_named(self, manifest: str) -> frozenset[str] | None:
        """Return the packs of another process's checkpoint; None: it cannot be read, or a process
        has removed it.
        """
        try:
            checkpoint = self._read_manifest(manifest)
        except FileNotFoundError:
            return None
        if checkpoint is None:
            return None
        return frozenset(file.pack for file in checkpoint.files.values())

    def _listed(self, ending: str) -> list[str]:
        selector = fs.FileSelector(self._folder, allow_not_found=True)
        names = [info.base_name for info in self._store.get_file_info(selector)]
        return [name for name in names if name.endswith(ending) and _NAME.match(name)]

    def _put(self, name: str, content: bytes) -> None:
        with self._new_file(name) as stream:
            stream.write(content)

    @contextmanager
    def _new_file(self, name: str) -> Iterator[BinaryIO]:
        """Open the new file ``name``; make it durable at the end, or remove it after an error."""
        path = f"{self._folder}/{name}"
        try:
            with self._store.open_output_stream(path) as stream:
                yield stream
            self._make_durable(name)
        except OSError:
            # In a full store what was written would take the space that the next attempt needs:
            # nothing else removes it before one succeeds.
            with suppress(OSError):
                self._store.delete_file(path)
            raise

    def _make_durable(self, name: str) -> None:
        """Make a file of a shared folder survive a loss of power, as everything survives that S3
        acknowledged. Inputs are trimmed once a checkpoint counts as stored, so it must not vanish.
        """
        if self._store.base_fs.type_name == "local":
            root = Path(self._store.base_path)
            path = root / self._folder / name
            sync_file(path)
            for folder in path.relative_to(root).parents:
                sync_folder(root / folder)

    def _read_manifest(
        self, name: str, is_wanted: Callable[[str], bool] = lambda _digest: True
    ) -> StoredCheckpoint | None:
        """Return the checkpoint that a manifest describes; None: it is damaged, has another format,
        or its digest is not wanted.
        """
        path = f"{self._folder}/{name}"
        if self._store.get_file_info(path).size > _MANIFEST_BYTES_MAX:
            return None
        with self._store.open_input_stream(path) as stream:
            content = stream.read(_MANIFEST_BYTES_MAX)
        digest = hashlib.sha256(content).hexdigest()
        if not is_wanted(digest):
            return None
        try:
            fields = json.loads(content)
            files = {
                str(path): PackedFile(str(pack), int(offset), int(size), str(sha256))
                for path, (pack, offset, size, sha256) in fields["files"].items()
            }
            timeline, directory = dict(fields["timeline"]), str(fields["directory"])
            plan = plan_of(timeline)
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            return None
        match = _NAME.match(name)
        if (
            match is None
            or fields.get("format") != FORMAT
            or timeline.get("name") != match["timeline"]
            or not all(_is_good(path, place) for path, place in files.items())
        ):
            return None
        return StoredCheckpoint(_stem(name), timeline, directory, files, plan, digest)

    def _unpack(
        self, pack: str, places: list[PackedFile], folder: Path, was_read: Callable[[int], None]
    ) -> bool:
        draft = folder / "reading"
        with self._store.open_input_file(f"{self._folder}/{pack}") as source:
            for place in sorted(places, key=lambda each: each.offset):
                digest, left = hashlib.sha256(), place.size
                source.seek(place.offset)
                with draft.open("wb") as file:
                    while left and (piece := source.read(min(left, _READ_BYTES))):
                        file.write(piece)
                        digest.update(piece)
                        left -= len(piece)
                        was_read(len(piece))
                    file.flush()
                    os.fsync(file.fileno())
                if left or digest.hexdigest() != place.sha256:
                    draft.unlink()
                    return False
                # The name last: a file that has it is whole.
                draft.replace(folder / place.sha256)
        return True

    def _unavailable(self, what: str, error: OSError) -> Unavailable:
        return _unavailable(self._folder, what, error)


def _check_root(store: fs.FileSystem) -> None:
    """Check that the folder or bucket of ``store`` exists. The folder of a missing mount is empty
    or does not exist; what is written below it would go to the machine's own disk.
    """
    root = store.base_path.rstrip("/")
    if store.base_fs.type_name != "local":
        root = root.partition("/")[0]
    if store.base_fs.get_file_info(root).type != fs.FileType.Directory:
        raise FileNotFoundError(f"{root} does not exist, or is no folder")


def _unavailable(folder: str, what: str, error: OSError) -> Unavailable:
    first = headline(str(error))
    return Unavailable(
        f"the checkpoint store cannot be {what} at {folder}: {first}: check that it is"
        " mounted or reachable, has space, and grants the node's user access"
    )


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in sorted(names):
            yield Path(folder) / name


class _FileKey(NamedTuple):
    """Identity of a file's content at one moment. Spark never reuses a name, and writing a file
    changes its size or time.
    """

    relative: str
    """Path below the checkpoint."""
    mtime_ns: int
    size: int


def _file_key(relative: str, facts: os.stat_result) -> _FileKey:
    return _FileKey(relative, facts.st_mtime_ns, facts.st_size)


def _append_file(stream: BinaryIO, relative: str, path: Path) -> tuple[_FileKey | None, str, int]:
    """Append a file to a pack. Return its key, and the SHA-256 and number of the appended bytes. No
    key is returned if the file changed meanwhile: the bytes are then not its final content.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        # The key is taken before the first byte is read: one taken afterwards could be that of the
        # finished file although the bytes are of the unfinished one.
        key = _file_key(relative, os.fstat(file.fileno()))
        while piece := file.read(_READ_BYTES):
            stream.write(piece)
            digest.update(piece)
            size += len(piece)
        after = _file_key(relative, os.fstat(file.fileno()))
    return (key if key == after and size == key.size else None), digest.hexdigest(), size


def _is_good(path: str, place: PackedFile) -> bool:
    """Return whether a file name stays below the folder that it is written into, and its place is
    valid. A manifest comes from another machine, so neither is certain.
    """
    parts = PurePosixPath(path)
    return (
        not parts.is_absolute()
        and ".." not in parts.parts
        and _NAME.match(place.pack) is not None
        and min(place.offset, place.size) >= 0
        and _SHA256.match(place.sha256) is not None
    )


def _stem(name: str) -> str:
    return name.rpartition(".")[0]
