"""Jar with a local file system for Hadoop in plain Java, through which Spark writes its
checkpoints.

Without its native library, which no wheel contains, Hadoop's own implementation forks a ``chmod``
for each file and for the file of its checksums: 4 to 6 per batch. The jar, from Maven Central, sets
permissions from Java; ``anabranch classes`` puts it into the cache. It writes the same files,
including the checksums by which damage is found (``adapters.disk.spark_checkpoint_files``). Without
the jar Spark uses Hadoop's own implementation, at a tenth more processor time.
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
    """Return the jar in the cache; None if it is missing or its checksum differs."""
    path = _path()
    return (
        path if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == _SHA256 else None
    )


def settings() -> dict[str, str]:
    """Return the settings by which Spark uses the jar; none if there is no jar."""
    found = jar()
    return (
        {}
        if found is None
        else {"spark.hadoop.fs.file.impl": _CLASS, "spark.driver.extraClassPath": str(found)}
    )


def fetch() -> None:
    """Download the jar into the cache, unless it is there. After a crash the jar is complete or
    absent.

    Raises:
        ConfigurationError: the download failed, or its checksum is wrong. Spark starts without
            the jar.
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
