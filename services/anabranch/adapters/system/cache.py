"""The folder for what is costly to get or to make, and can be had again: the broker's jars,
archives of Java classes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """``$ANABRANCH_CACHE`` or ``~/.cache/anabranch``; made when missing."""
    named = os.environ.get("ANABRANCH_CACHE")
    path = Path(named) if named else Path.home() / ".cache" / "anabranch"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Processes that do the same to the cache wait here for each other; the lock ends with
    its process.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
