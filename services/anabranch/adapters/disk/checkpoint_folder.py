"""Folders of checkpoints on a local disk: copies by hard links, timeline files, and what a copy may
not share with its original.

::

    <root>/timelines/<name>.json  names the newest timeline's directory
    <root>/checkpoints/<name>/    Spark's checkpoint
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from anabranch.adapters.disk.durable import put_file, replace_file, sync_folder, sync_folders
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.stateful_plan import StatefulOperator, StatefulPlan
from anabranch.protocol.log.timeline import Timeline, newest

_TRIES: Final = 20
"""Number of attempts to copy a checkpoint that its process changes meanwhile."""


def link_tree(source: Path, target: Path) -> None:
    """Make ``target`` a copy of ``source`` by hard links, each file as it is at one moment.

    Raises:
        Unavailable: the source kept changing.
        OSError: the disk is full, or cannot be written or read.
    """
    for _ in range(_TRIES):
        shutil.rmtree(target, ignore_errors=True)
        try:
            target.mkdir(parents=True)
            _link_all(source, target)
        except FileNotFoundError:
            # The source's process is alive and purges old files: one vanished during the copy.
            continue
        return
    message = f"checkpoint {source} kept changing while it was copied"
    raise Unavailable(message)


def install(partial: Path, directory: Path) -> None:
    """Move a finished copy to its final name, durably, replacing an earlier directory."""
    # The names in the copy before its own: after a loss of power a directory of that name is whole.
    sync_folders(partial)
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial.rename(directory)
    sync_folder(directory.parent)


def write_timeline(folder: Path, name: str, fields: Mapping[str, object]) -> None:
    """Write the timeline file ``name`` in ``folder``, which is created, durably."""
    folder.mkdir(parents=True, exist_ok=True)
    put_file(folder / f"{name}.json", json.dumps(fields).encode())


def newest_timeline(root: Path) -> Timeline | None:
    """Return the timeline that the newest file in ``root`` names, if both the file and its
    directory are readable.

    Never falls back to an older file: its directory may be a branch by now.
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
        found = {
            "start_tip": None if tip is None else BatchId(**tip),
            "earlier": earlier,
            "plan": plan_of(fields),
        }
        return Timeline(**(fields | found))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def plan_of(timeline: Mapping[str, Any]) -> StatefulPlan:
    """Return the operators with state that the fields of a timeline file name.

    Raises:
        KeyError, TypeError, ValueError: the fields are damaged.
    """
    fields = timeline.get("plan", {})
    operators = tuple(_operator(each) for each in fields.get("operators", ()))
    return StatefulPlan(
        operators,
        str(fields.get("source", "")),
        str(fields.get("engine", "")),
        int(fields.get("version", 1)),
    )


def _operator(fields: Mapping[str, Any]) -> StatefulOperator:
    facts = tuple((str(aspect), tuple(map(str, items))) for aspect, items in fields["facts"])
    return StatefulOperator(str(fields["kind"]), facts)


def new_query_id(copy: Path) -> None:
    """Give the copy a query id of its own. Spark stops a running query when another one starts with
    its id, and the original of the copy may be running.
    """
    path = copy / "metadata"
    if path.exists():
        try:
            fields = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            fields = {}  # damaged; Spark needs nothing from it but the id
        replace_file(path, json.dumps(fields | {"id": str(uuid.uuid4())}).encode())
        (copy / ".metadata.crc").unlink(missing_ok=True)


def last_commit(checkpoint: Path) -> int:
    """Return the last batch that Spark committed in ``checkpoint``; -1: none."""
    try:
        names = [path.name for path in (checkpoint / "commits").iterdir()]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _link_all(source: Path, target: Path) -> None:
    """Link what is in the folder ``source`` into the folder ``target``.

    ``shutil.copytree`` would collect all errors as texts, in which a full disk looks like a file
    that has vanished.
    """
    with os.scandir(source) as entries:
        for entry in entries:
            place = target / entry.name
            if entry.is_dir(follow_symlinks=False):
                place.mkdir()
                _link_all(Path(entry.path), place)
            else:
                _link_or_copy(entry.path, place)


def _link_or_copy(source: str, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)  # no hard links across file systems


def move_paths(copy: Path, old: Path, new: Path) -> None:
    """Replace the old directory by the new one in the copy's files. TransformWithState stores the
    absolute path of its schema files; without this the copy breaks when the original is removed.
    """
    for path in copy.glob("state/*/_metadata/**/*"):
        if path.is_file() and not path.name.startswith("."):
            content = path.read_bytes()
            moved = content.replace(str(old).encode(), str(new).encode())
            if moved != content:
                replace_file(path, moved)
                (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
