"""Of which format is a state directory?

``format.json`` says it. A directory of another format is rejected before anything in it is read or
changed: its checkpoints would be taken for damaged ones, or for state that means something else.

Invariants:
    SD1 ``format.json`` is there, whole and durable, before any checkpoint is. So a directory that
        has checkpoints without it is of a version that did not write it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from anabranch.adapters.disk.durable import put_file
from anabranch.protocol.errors import ConfigurationError

FILE_NAME: Final = "format.json"
# Of what this version writes. It changes with the layout of the directory, and with whatever a
# checkpoint holds that an older or a newer version reads otherwise.
FORMAT: Final = 1
_STATE: Final = "processing"
"""The folder with the checkpoints. Besides it there are logs for people, and the data of embedded
servers, which have formats of their own.
"""


def claim(state_dir: Path) -> None:
    """See that ``state_dir`` is of this version's format; make it, where there is no state yet.

    Processes that share the directory may do it at the same time.

    Raises:
        ConfigurationError: it is of another format. Nothing in it is changed.
    """
    path = state_dir / FILE_NAME
    found = _format_of(path)
    if found == FORMAT:
        return
    if found is not None or (state_dir / _STATE).exists():
        raise ConfigurationError(
            f"{state_dir} holds the state of another version of anabranch (format"
            f" {'none' if found is None else found}, this version has {FORMAT}): go on with the"
            " version that wrote it; or name another directory with --state-dir, and replicas begin"
            " with a peer's checkpoint or with their input; or begin anew with `anabranch reset`,"
            " which deletes what the pipeline has made"
        )
    state_dir.mkdir(parents=True, exist_ok=True)
    put_file(path, json.dumps({"format": FORMAT}).encode())


def life_folder(life: str) -> str:
    """Return the name of the folder of what belongs to one life of a stage's log; empty: there are
    no lives.
    """
    return f"life-{life}" if life else ""


def _format_of(path: Path) -> int | str | None:
    """What the file says; None: there is none."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return "unreadable"
    found = content.get("format") if isinstance(content, dict) else None
    return found if isinstance(found, int) else "unknown"
