"""Training of the embedded broker's class archive: a broker starts and stops once, and Java writes
down the classes that it loaded (``anabranch classes``).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from anabranch.adapters.system.cache import cache_dir, locked
from anabranch.adapters.system.java import find_java
from anabranch.adapters.system.java_archive import options_to_write
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.local.kafka_classes import archive
from anabranch.local.kafka_jars import kafka_classpath
from anabranch.protocol.errors import Unavailable

_STOP_S: Final = 180.0
"""Timeout for the broker's exit, in seconds: Java writes the archive then."""


def make() -> bool:
    """Make the archive unless it exists: start a broker and stop it, at which Java writes the file.
    Return whether it had to be made.

    Raises:
        ConfigurationError: no Java, no jars.
        Unavailable: the broker did not start, or wrote no archive.
    """
    java = find_java()
    path = archive(java, kafka_classpath())
    with locked(cache_dir() / "kafka-classes.lock"):
        if path.exists():
            return False
        for old in (*cache_dir().glob("kafka-*.jsa"), *cache_dir().glob("kafka-*.aot")):
            old.unlink()
        with tempfile.TemporaryDirectory(prefix="anabranch-classes-") as folder:
            unfinished = Path(folder) / path.name
            broker = EmbeddedKafka(
                Path(folder) / "kafka", java_options=options_to_write(java, unfinished)
            )
            broker.start()
            broker.stop(timeout_s=_STOP_S)
            if not unfinished.exists():
                message = (
                    "no archive of the broker's classes was made; it starts without one, slower"
                )
                raise Unavailable(message)
            beside = path.with_suffix(".unfinished")
            shutil.copyfile(unfinished, beside)
            beside.replace(path)
    return True
