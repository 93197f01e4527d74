"""Format of a state directory, which its file ``format.json`` states.

A directory of another format is rejected before anything in it is read or changed. Otherwise its
checkpoints would be taken for damaged ones, or for state with another meaning.

Invariants:
    SD1 ``format.json`` is whole and durable before any checkpoint exists. So a directory that has
        checkpoints without it was written by a version that did not know the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from anabranch.adapters.disk.durable import put_file
from anabranch.protocol.errors import ConfigurationError

FILE_NAME: Final = "format.json"
# Format that this version writes. Raise it when the layout of the directory changes, or when older
# and newer versions would read the content of a checkpoint differently.
FORMAT: Final = 1
_STATE: Final = "processing"
"""Folder with the checkpoints. The files beside it are logs for people, and the data of embedded
servers, which have formats of their own.
"""


def claim(state_dir: Path) -> None:
    """Check that ``state_dir`` has this version's format; mark it so if it has no state yet.

    Several processes that share the directory may do this at once.

    Raises:
        ConfigurationError: the directory has another format. Nothing in it is changed.
    """
    path = state_dir / FILE_NAME
    found = _format_of(path)
    if found == FORMAT:
        return
    if found is not None or (state_dir / _STATE).exists():
        raise ConfigurationError(
            f"{state_dir} holds the state of another version of anabranch (format"
            f" {'none' if found is None else found}, this version has {FORMAT}): run the version"
            " that wrote it; or name another directory with --state-dir, and replicas start from a"
            " peer's checkpoint or from their input; or start over with `anabranch reset`,"
            " which deletes what the pipeline has made"
        )
    state_dir.mkdir(parents=True, exist_ok=True)
    put_file(path, json.dumps({"format": FORMAT}).encode())


def life_folder(life: str) -> str:
    """Return the name of the folder for one life of a stage's log; empty if there are no lives."""
    return f"life-{life}" if life else ""


def _format_of(path: Path) -> int | str | None:
    """Return the format that the file states, or a word where it states none; None: there is no
    file.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return "unreadable"
    found = content.get("format") if isinstance(content, dict) else None
    return found if isinstance(found, int) else "unknown"
