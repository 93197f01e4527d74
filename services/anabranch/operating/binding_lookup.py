"""Looks up streams of other participants that a pipeline file names without their columns, and
keeps what was found beside it.

After a crash the file beside the pipeline file is the old one or the new one, whole.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk.durable import put_file
from anabranch.operating.give_up import in_words
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
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.lookup import Lookup, NotFound
from anabranch.runtime.catalog_reader import read_catalogs

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog
    from anabranch.protocol.federation.lookup import WantedStream

AGAIN: Final = "anabranch catalog --keep"


class BindingLookup:
    """Finds streams in the catalogs of their clusters, each of which is read when the first on it
    is wanted.
    """

    def __init__(
        self, log: EventLog, clock: Clock, other_cluster: Callable[[str, str], EventLog]
    ) -> None:
        """Nothing is contacted yet.

        Args:
            log: The own cluster.
            clock: For leases.
            other_cluster: (name, address) -> a cluster that the file names.
        """
        self._log, self._clock = log, clock
        self._other_cluster = other_cluster
        self._lookups: dict[tuple[str, str], Lookup] = {}
        self.found: dict[str, KeptBinding] = {}
        """What was found, by the names of the bindings."""

    def find(
        self, federation: str, name: str, wanted: WantedStream, cluster: Cluster
    ) -> KeptBinding | str:
        """As of ``LookUp``.

        Raises:
            Unavailable: no answer.
        """
        lookup = self._lookups.get((federation, cluster.name))
        if lookup is None:
            topics = FederationTopics(federation)
            log = self._at(cluster.name, cluster.kafka)
            lookup = read_catalogs(log, topics, known_formats())
            self._lookups[federation, cluster.name] = lookup
        found = lookup.find(wanted, self._clock.now_ms())
        if isinstance(found, NotFound):
            since = "" if found.since_ms is None else f" since {in_words(found.since_ms)}"
            return f"{found.why}{since}"
        try:
            kept = self.found[name] = binding_of(found)
        except ConfigurationError as error:
            return str(error)
        return kept

    def without_log(self, pipeline: Pipeline) -> list[str]:
        """A sentence for each stream whose boundary log this principal does not see, of those that
        were found, or are on another cluster.

        Raises:
            Unavailable: no answer of a cluster; the text names each that gives none.
        """
        notes: list[str] = []
        silent = []
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
                    there = admin.partitions(list(topics))
            except Unavailable as error:
                silent.append(f"cluster {cluster}: {error}" if cluster else str(error))
                continue
            where = f" on cluster {cluster}" if cluster else ""
            notes += [
                f"{what}: there is no topic {topic}{where}, or this principal may not see it"
                for topic, what in topics.items()
                if topic not in there
            ]
        if silent:
            raise Unavailable("\n".join(silent))
        return notes

    def _at(self, cluster: str, kafka: str) -> EventLog:
        return self._other_cluster(cluster, kafka) if cluster else self._log


def keep_missing(path: Path, offers: Path | None, lookup: BindingLookup) -> list[str]:
    """Look up what is not kept yet of the bindings in the pipeline file at ``path``, and keep it;
    what was done, as sentences.

    Raises:
        ConfigurationError: as of ``load``, or one is not found.
        Unavailable: no answer.
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
    """Look up all of them, and keep what is found in place of what was kept; what has changed, as
    sentences.

    Raises:
        ConfigurationError: as of ``load``, or one is not found.
        Unavailable: no answer.
    """
    load(path, offers, look_up=lookup.find)
    changed = differences(read_kept(path), lookup.found)
    return [*changed, *_keep(path, lookup.found)] if lookup.found else []


def check_kept(path: Path, offers: Path | None, lookup: BindingLookup) -> Pipeline:
    """The pipeline in the file at ``path``, whose bindings are as the catalogs have them now. What
    is not kept yet is kept.

    Raises:
        ConfigurationError: as of ``load``, or one is not found, or has changed since.
        Unavailable: no answer.
    """
    load(path, offers, look_up=lookup.find)
    kept = read_kept(path)
    changed = differences(kept, lookup.found)
    if changed:
        raise ConfigurationError("\n".join(f"{path}: {each}; {AGAIN} takes it" for each in changed))
    if lookup.found.keys() - kept.keys():
        _keep(path, lookup.found)
    return load(path, offers)


def differences(kept: dict[str, KeptBinding], now: dict[str, KeptBinding]) -> list[str]:
    """How what was kept differs from what is found now, as sentences."""
    return [
        f"bindings.{name}: {', '.join(changes)} changed since it was looked up"
        for name, binding in sorted(kept.items())
        if name in now and (changes := binding.changes(now[name]))
    ]


def _keep(path: Path, found: dict[str, KeptBinding]) -> list[str]:
    kept = kept_path(path)
    try:
        put_file(kept, kept_text(found).encode())
    except OSError as error:
        raise ConfigurationError(f"{kept}: cannot be written: {error.strerror}") from None
    return [f"kept in {kept}: {', '.join(sorted(found))}"]
