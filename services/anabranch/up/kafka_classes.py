"""Class archive of the embedded broker: its classes as Java loaded and verified them once. With it
the broker starts in 0.6 of the time.

``anabranch classes`` makes it together with Spark's (``adapters.spark.class_archive`` explains such
archives). It is in the cache, 50 MB for each version of Java and Kafka. Java ignores an archive
that does not fit; the broker behaves the same with and without.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.system.cache import cache_dir, locked

_EXIT: Final = "-XX:ArchiveClassesAtExit"
_USE: Final = "-XX:SharedArchiveFile"


def archive(java: Path, jars: Sequence[Path]) -> Path:
    """Return the path of the archive for this Java and these jars, whether it exists or not."""
    files = [
        (str(path), path.stat().st_size, int(path.stat().st_mtime))
        for path in (java.resolve(), *jars)
    ]
    return (
        cache_dir()
        / f"kafka-{hashlib.blake2b(repr(files).encode(), digest_size=8).hexdigest()}.jsa"
    )


def options(java: Path, jars: Sequence[Path]) -> list[str]:
    """Return the JVM options to use the archive; empty if it does not exist."""
    path = archive(java, jars)
    return [f"{_USE}={path}"] if path.exists() else []


def make() -> bool:
    """Make the archive unless it exists: start a broker and stop it, at which Java writes the file.
    Return whether it had to be made.

    Raises:
        ConfigurationError: no Java, no jars.
        Unavailable: the broker did not start, or wrote no archive.
    """
    from anabranch.adapters.system.java import find_java
    from anabranch.protocol.errors import Unavailable
    from anabranch.up.embedded_kafka import EmbeddedKafka  # a circle: it imports this module
    from anabranch.up.kafka_jars import kafka_classpath

    path = archive(find_java().executable, kafka_classpath())
    with locked(cache_dir() / "kafka-classes.lock"):
        if path.exists():
            return False
        for old in cache_dir().glob("kafka-*.jsa"):
            old.unlink()
        with tempfile.TemporaryDirectory(prefix="anabranch-classes-") as folder:
            unfinished = Path(folder) / "classes.jsa"
            broker = EmbeddedKafka(Path(folder) / "kafka", java_options=[f"{_EXIT}={unfinished}"])
            broker.start()
            broker.stop(timeout_s=60.0)
            if not unfinished.exists():
                message = (
                    "no archive of the broker's classes was made; it starts without one, slower"
                )
                raise Unavailable(message)
            beside = path.with_suffix(".unfinished")
            shutil.copyfile(unfinished, beside)
            beside.replace(path)
    return True
