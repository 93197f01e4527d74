"""Download of a Kafka broker's jars from Maven Central into the cache of ``adapters.system.cache``.

A file that lists the jars marks a complete set. It is written last, so an interrupted download is
resumed. Processes that start at the same time wait for each other on a file lock.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.system.cache import cache_dir, locked
from anabranch.adapters.system.maven import fetched
from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.protocol.errors import ConfigurationError

KAFKA_VERSION: Final = "4.3.1"
_LOG4J_VERSION: Final = "2.25.4"

_GROUPS: Final[Sequence[Sequence[str]]] = (
    (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",),
    # Kafka's POM brings no binding for slf4j 1.7: without it the broker logs nothing at all.
    (
        f"org.apache.logging.log4j:log4j-slf4j-impl:{_LOG4J_VERSION}",
        f"org.apache.logging.log4j:log4j-core:{_LOG4J_VERSION}",
    ),
)
"""Groups of artefacts, each resolved by itself. Resolved together, log4j's parent POM would
override versions of Kafka's own dependencies, kafka-clients among them. Where two groups bring the
same artefact, the first group's version wins.
"""


def kafka_classpath(progress: Progress = unwatched) -> list[Path]:
    """Return the broker's jars. The first call on a machine downloads them, 44 MB; later calls need
    no network. ``progress`` counts the jars.

    Raises:
        ConfigurationError: a jar could not be downloaded; the text says what to do.
    """
    cache = cache_dir()
    listing = _listing(cache)
    jars = _listed(listing, cache)
    if jars is not None:
        return jars
    with locked(cache / "download.lock"):
        jars = _listed(listing, cache)
        if jars is None:
            jars = _download(cache, progress)
            unfinished = listing.with_suffix(".unfinished")
            unfinished.write_text(
                json.dumps([str(jar.relative_to(cache)) for jar in jars], indent=1)
            )
            unfinished.replace(listing)
    return jars


def is_downloaded() -> bool:
    """Return whether the jars are in the cache, so that ``kafka_classpath`` needs no network."""
    cache = cache_dir()
    return _listed(_listing(cache), cache) is not None


def _listing(cache: Path) -> Path:
    """Return the path of the file that lists the jars of this version."""
    return cache / f"kafka-{KAFKA_VERSION}-log4j-{_LOG4J_VERSION}.json"


def _listed(listing: Path, cache: Path) -> list[Path] | None:
    """Return the jars of a complete set; None if it is incomplete or a jar was removed."""
    if not listing.exists():
        return None
    jars = [cache / name for name in json.loads(listing.read_text())]
    return jars if all(jar.exists() for jar in jars) else None


def _download(cache: Path, progress: Progress) -> list[Path]:
    """Resolve and fetch all groups into ``cache``."""
    try:
        jars = fetched(_GROUPS, cache, progress)
    except ConfigurationError as error:
        message = (
            f"the Kafka broker's jars {error}, or give the address of a running broker with --kafka"
        )
        raise ConfigurationError(message) from error
    clients = jars[("org.apache.kafka", "kafka-clients")]
    if KAFKA_VERSION not in clients.name:
        message = (
            f"resolved {clients.name} for a broker of version {KAFKA_VERSION}: remove"
            f" {cache / 'maven'} and try again"
        )
        raise ConfigurationError(message)
    return list(jars.values())
