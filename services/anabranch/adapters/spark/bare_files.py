"""Hadoop's local file system as Java itself does it: Spark writes its checkpoints by it.

Without its native library, which is in no wheel, Hadoop's own forks a ``chmod`` for each file that
it makes, and for the file with its sums: 4 to 6 for each batch. The jar that sets permissions by
Java is small and from Maven Central; ``anabranch classes`` puts it into the cache. It writes the
same files, the sums too, by which damage is found (``checkpoint_files``). Where it is missing,
Spark takes Hadoop's own, and costs a tenth more.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

from anabranch.adapters.system.cache import cache_dir, locked
from anabranch.adapters.system.maven import fetched
from anabranch.protocol.errors import ConfigurationError

_ORGANISATION: Final = "com.globalmentor"
_ARTEFACT: Final = "hadoop-bare-naked-local-fs"
_VERSION: Final = "0.1.0"
_SHA256: Final = "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62"
_CLASS: Final = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"


def jar() -> Path | None:
    """The jar in the cache; None: it is not there, or is another."""
    path = _path()
    return (
        path if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == _SHA256 else None
    )


def settings() -> dict[str, str]:
    """The settings with which Spark uses it; none where there is no jar."""
    found = jar()
    return (
        {}
        if found is None
        else {"spark.hadoop.fs.file.impl": _CLASS, "spark.driver.extraClassPath": str(found)}
    )


def fetch() -> None:
    """Put the jar into the cache, unless it is there. A crash leaves it out or whole.

    Raises:
        ConfigurationError: it could not be had, or is not the one that was checked; Spark starts
            without.
    """
    with locked(cache_dir() / "download.lock"):
        if jar() is not None:
            return
        wanted = f"{_ORGANISATION}:{_ARTEFACT}:{_VERSION}"
        otherwise = "stages run without it, and fork a chmod for each file of a checkpoint"
        try:
            source = fetched([[wanted]], cache_dir())[_ORGANISATION, _ARTEFACT]
        except ConfigurationError as error:
            message = f"{wanted} {error}; {otherwise}"
            raise ConfigurationError(message) from error
        unfinished = _path().with_suffix(".unfinished")
        shutil.copyfile(source, unfinished)
        if hashlib.sha256(unfinished.read_bytes()).hexdigest() != _SHA256:
            unfinished.unlink()
            message = (
                f"{wanted} is not the jar that was checked: remove {source}, and ask who put it"
                f" there; {otherwise}"
            )
            raise ConfigurationError(message)
        unfinished.replace(_path())


def _path() -> Path:
    return cache_dir() / f"{_ARTEFACT}-{_VERSION}.jar"
