"""Cache folder for what is expensive to download or compute and can be obtained again: the broker's
jars, archives of Java classes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache folder, ``$ANABRANCH_CACHE`` or ``~/.cache/anabranch``; create it if it is
    missing.
    """
    named = os.environ.get("ANABRANCH_CACHE")
    path = Path(named) if named else Path.home() / ".cache" / "anabranch"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``, so that processes that fill the same part of the cache
    run one after the other. The lock ends with its process.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
