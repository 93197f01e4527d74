"""Class archive of the embedded broker: its classes as Java loaded and verified them once. With it
the broker starts in 0.6 of the time.

``local.kafka_class_training`` makes it (``adapters.spark.class_archive`` explains such archives).
It is in the cache, 50 to 70 MB for each version of Java and Kafka. Java ignores an archive that
does not fit; the broker behaves the same with and without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from anabranch.adapters.system.cache import cache_dir
from anabranch.adapters.system.java import Java
from anabranch.adapters.system.java_archive import options_to_use, suffix


def archive(java: Java, jars: Sequence[Path]) -> Path:
    """Return the path of the archive for this Java and these jars, whether it exists or not."""
    files = [
        (str(path), path.stat().st_size, int(path.stat().st_mtime))
        for path in (java.executable.resolve(), *jars)
    ]
    name = hashlib.blake2b(repr(files).encode(), digest_size=8).hexdigest()
    return cache_dir() / f"kafka-{name}{suffix(java)}"


def options(java: Java, jars: Sequence[Path]) -> list[str]:
    """Return the JVM options to use the archive; empty if it does not exist."""
    path = archive(java, jars)
    return options_to_use(java, path) if path.exists() else []
