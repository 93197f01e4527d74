"""An archive of the broker's classes, as Java has loaded and checked them once: the embedded broker
starts with it in 0.6 of the time.

``anabranch classes`` makes it beside that of Spark's (``adapters.spark.class_archive``), which says
what such an archive is. It lies in the cache, 50 MB for each version of Java and Kafka. Java itself
rejects one that does not fit, and goes on without; it changes nothing that the broker does.
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
    """Where the archive for this Java and these jars is, or would be."""
    files = [
        (str(path), path.stat().st_size, int(path.stat().st_mtime))
        for path in (java.resolve(), *jars)
    ]
    return (
        cache_dir()
        / f"kafka-{hashlib.blake2b(repr(files).encode(), digest_size=8).hexdigest()}.jsa"
    )


def options(java: Path, jars: Sequence[Path]) -> list[str]:
    """The options with which Java uses it; none where there is no archive."""
    path = archive(java, jars)
    return [f"{_USE}={path}"] if path.exists() else []


def make() -> bool:
    """Make the archive, unless it is there: start a broker and let Java write at its end. Returns
    whether it had to be made.

    Raises:
        ConfigurationError: no Java, no jars.
        Unavailable: the broker did not start, or wrote no archive.
    """
    from anabranch.adapters.system.java import find_java
    from anabranch.protocol.errors import Unavailable
    from anabranch.up.embedded_kafka import EmbeddedKafka  # it asks this module for the options
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
