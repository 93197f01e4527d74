"""Lookup of the streams of other participants that a pipeline file names without their columns.

The definitions that are found in the catalogs are kept in a file beside the pipeline file, so that
services start without the catalogs. After a crash that file is the old one or the new one, whole.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk.durable import put_file
from anabranch.federation.catalog_reader import read_catalogs
from anabranch.pipeline.catalog_entry import binding_of, known_formats
from anabranch.pipeline.file import load
from anabranch.pipeline.kept_bindings import (
    Cluster,
    KeptBinding,
    from_kept,
    kept_path,
    kept_text,
    read_kept,
)
from anabranch.pipeline.times import format_time
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.lookup import Lookup, NotFound

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog
    from anabranch.protocol.federation.lookup import WantedStream

AGAIN: Final = "anabranch catalog --keep"
"""Command that replaces the kept definitions by those of the catalogs, for error messages."""


class BindingLookup:
    """Lookup of streams in the catalogs of their clusters.

    A cluster's catalogs are read once, when the first stream on it is looked up.
    """

    def __init__(
        self, log: EventLog, clock: Clock, other_cluster: Callable[[str, str], EventLog]
    ) -> None:
        """Prepare the lookup without contacting a cluster.

        Args:
            log: The pipeline's own cluster.
            clock: Clock by which catalog entries expire.
            other_cluster: Function that opens another cluster of the file, by name and address.
        """
        self._log, self._clock = log, clock
        self._other_cluster = other_cluster
        self._lookups: dict[tuple[str, str], Lookup] = {}
        """Catalogs that were read, by (federation, cluster)."""
        self.found: dict[str, KeptBinding] = {}
        """Definitions that ``find`` found, by the names of the bindings."""

    def find(
        self, federation: str, name: str, wanted: WantedStream, cluster: Cluster
    ) -> KeptBinding | str:
        """Return the definition of the stream that binding ``name`` names, or why there is none.

        This is a ``LookUp`` for ``load``.

        Raises:
            Unavailable: the cluster does not answer.
        """
        lookup = self._lookups.get((federation, cluster.name))
        if lookup is None:
            topics = FederationTopics(federation)
            log = self._at(cluster.name, cluster.kafka)
            lookup = read_catalogs(log, topics, known_formats())
            self._lookups[federation, cluster.name] = lookup
        found = lookup.find(wanted, self._clock.now_ms())
        if isinstance(found, NotFound):
            since = "" if found.since_ms is None else f" since {format_time(found.since_ms)}"
            return f"{found.why}{since}"
        try:
            kept = self.found[name] = binding_of(found)
        except ConfigurationError as error:
            return str(error)
        return kept

    def unreadable_logs(self, pipeline: Pipeline) -> list[str]:
        """Return a sentence for each binding whose boundary log this principal does not see.

        Checks the bindings that ``find`` found and those on other clusters.

        Raises:
            Unavailable: a cluster does not answer; the text names each one that does not.
        """
        notes: list[str] = []
        unanswered = []
        for cluster in ("", *pipeline.clusters):
            topics = {
                pipeline.topic_names.boundaries(name): f"binding {name}"
                for name, binding in pipeline.bindings.items()
                if binding.cluster == cluster and (cluster or name in self.found)
            }
            if not topics:
                continue
            try:
                with closing(
                    self._at(cluster, pipeline.clusters.get(cluster, "")).admin()
                ) as admin:
                    visible = admin.partitions(list(topics))
            except Unavailable as error:
                # The other clusters are still asked, so that one message names all that fail.
                unanswered.append(f"cluster {cluster}: {error}" if cluster else str(error))
                continue
            where = f" on cluster {cluster}" if cluster else ""
            notes += [
                f"{what}: there is no topic {topic}{where}, or this principal may not see it"
                for topic, what in topics.items()
                if topic not in visible
            ]
        if unanswered:
            raise Unavailable("\n".join(unanswered))
        return notes

    def _at(self, cluster: str, kafka: str) -> EventLog:
        """Return the log of ``cluster``; empty: of the pipeline's own."""
        return self._other_cluster(cluster, kafka) if cluster else self._log


def keep_missing(path: Path, offers: Path | None, lookup: BindingLookup) -> list[str]:
    """Look up the bindings of the pipeline file at ``path`` that are not kept yet, and keep them.

    Returns what was done, as sentences.

    Raises:
        ConfigurationError: the pipeline file is wrong, or a stream is not found.
        Unavailable: a cluster does not answer.
    """
    kept = from_kept(path)

    def look_up(
        federation: str, name: str, wanted: WantedStream, cluster: Cluster
    ) -> KeptBinding | str:
        known = kept(federation, name, wanted, cluster)
        return lookup.find(federation, name, wanted, cluster) if isinstance(known, str) else known

    load(path, offers, look_up=look_up)
    return _keep(path, {**read_kept(path), **lookup.found}) if lookup.found else []


def keep_anew(path: Path, offers: Path | None, lookup: BindingLookup) -> list[str]:
    """Look up all bindings of the pipeline file at ``path``, and replace the kept definitions.

    Returns what has changed, as sentences.

    Raises:
        ConfigurationError: the pipeline file is wrong, or a stream is not found.
        Unavailable: a cluster does not answer.
    """
    load(path, offers, look_up=lookup.find)
    changed = differences(read_kept(path), lookup.found)
    return [*changed, *_keep(path, lookup.found)] if lookup.found else []


def check_kept(path: Path, offers: Path | None, lookup: BindingLookup) -> Pipeline:
    """Return the pipeline of the file at ``path`` after comparing its kept bindings with the
    catalogs. Keeps the definitions that are not kept yet.

    Raises:
        ConfigurationError: the pipeline file is wrong, or a stream is not found, or its definition
            has changed since it was kept.
        Unavailable: a cluster does not answer.
    """
    load(path, offers, look_up=lookup.find)
    kept = read_kept(path)
    changed = differences(kept, lookup.found)
    if changed:
        raise ConfigurationError(
            "\n".join(f"{path}: {each}; to accept the change: {AGAIN}" for each in changed)
        )
    if lookup.found.keys() - kept.keys():
        _keep(path, lookup.found)
    return load(path, offers)


def differences(kept: dict[str, KeptBinding], now: dict[str, KeptBinding]) -> list[str]:
    """Return a sentence for each kept binding whose definition in the catalog differs ``now``."""
    return [
        f"bindings.{name}: {', '.join(changes)} changed since it was looked up"
        for name, binding in sorted(kept.items())
        if name in now and (changes := binding.changes(now[name]))
    ]


def _keep(path: Path, found: dict[str, KeptBinding]) -> list[str]:
    """Replace the file beside the pipeline file at ``path``, and return a sentence about it."""
    kept = kept_path(path)
    try:
        put_file(kept, kept_text(found).encode())
    except OSError as error:
        raise ConfigurationError(f"{kept}: cannot be written: {error.strerror}") from None
    return [f"kept in {kept}: {', '.join(sorted(found))}"]
