"""The sections ``bindings`` and ``publish`` of a pipeline file: streams of other pipelines that
this one reads, and streams of its own that others may read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch.codec import record_schema
from anabranch.codec.record_schema import RecordSchema
from anabranch.pipeline.document import MISSING, Document, Place, guess
from anabranch.pipeline.kept_bindings import Cluster, LookUp
from anabranch.pipeline.model import Binding
from anabranch.pipeline.named_records import read_record
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.lookup import WantedStream
from anabranch.protocol.identifiers import is_name

BINDING_KEYS: Final = (
    "pipeline",
    "stream",
    "record",
    "replicas",
    "hops",
    "out_of_orderness",
    "cluster",
    "participant",
    "keys",
)
_KEY: Final = re.compile(r"[0-9a-f]{64}\Z")
_LOOKED_UP_KEYS: Final = ("replicas", "hops", "out_of_orderness")
"""Keys that the file must not give for a stream that is looked up: the catalog has them."""


@dataclass(frozen=True, slots=True)
class LookupContext:
    """Everything that looking up a binding needs: the catalog's federation, the reader's bucket
    width, clusters and lookup.
    """

    federation: object
    """Name of the federation as the file gives it, checked or not: the section ``federation``
    reports its mistakes.
    """
    bucket_ms: int
    clusters: Mapping[str, str]
    """Addresses of the clusters that the file names, by name."""
    look_up: LookUp


def bindings(
    file: Document, value: object, streams: Collection[str], catalog: LookupContext
) -> dict[str, Binding]:
    """Return the bindings of the section ``bindings``, by name. ``streams``: names of streams that
    are taken already.
    """
    found, has_federation = {}, catalog.federation is not None
    for name, entry in file.mapping(value, ("bindings",), None).items():
        at: Place = ("bindings", name)
        file.name(name, at, "binding")
        if name in streams:
            file.mistake(
                at, f"{name} is the name of a source or stage here; give the binding its own"
            )
        if isinstance(entry, dict) and "record" not in entry:
            bound = _catalog_binding(file, name, entry, catalog)
            if bound is not None:
                found[name] = bound
            continue
        bound = _binding(file, name, entry)
        if bound is not None and bound.participant and not has_federation:
            file.mistake(
                (*at, "participant"),
                "its keys are those that it publishes in a federation, and this file names none;"
                " add federation, or write keys instead",
            )
        if bound is not None and bound.participant and bound.keys:
            file.mistake(
                (*at, "keys"),
                f"the keys that count are those that {bound.participant} publishes; leave out"
                " participant or keys",
            )
        if bound is not None:
            found[name] = bound
    return found


def _binding(
    file: Document,
    name: str,
    value: object,
) -> Binding | None:
    at: Place = ("bindings", name)
    raw: Mapping[str, Any] = file.mapping(value, at, BINDING_KEYS)
    if not isinstance(value, dict):
        return None
    pipeline = file.name(raw.get("pipeline", MISSING), (*at, "pipeline"), "pipeline")
    stream = file.name(raw.get("stream", MISSING), (*at, "stream"), "stage")
    columns = read_record(file, raw.get("record", MISSING), (*at, "record"))
    replicas = file.integer(raw.get("replicas", 1), (*at, "replicas"), 1, limits.REPLICAS_MAX)
    hops = file.integer(raw.get("hops", 1), (*at, "hops"), 1, limits.HOPS_MAX)
    out_of_orderness_ms = file.duration(
        raw.get("out_of_orderness", "0ms"), (*at, "out_of_orderness")
    )
    participant = (
        file.name(raw["participant"], (*at, "participant"), "participant")
        if "participant" in raw
        else ""
    )
    keys = _keys(file, raw, at)
    cluster = _cluster(file, raw, at)
    if pipeline is None or stream is None or columns is None or participant is None:
        return None
    return Binding(
        name=name,
        pipeline=pipeline,
        stream=stream,
        record=columns,
        replicas=replicas,
        hops=hops,
        out_of_orderness_ms=out_of_orderness_ms or 0,
        cluster=cluster,
        participant=participant,
        keys=keys,
    )


def _catalog_binding(
    file: Document, name: str, entry: dict[str, object], catalog: LookupContext
) -> Binding | None:
    """Return a binding that names only a participant and its stream; all else comes from the
    catalog. None: it has a mistake.
    """
    at: Place = ("bindings", name)
    raw: Mapping[str, Any] = file.mapping(entry, at, BINDING_KEYS)
    for key in _LOOKED_UP_KEYS:
        if key in raw:
            file.mistake((*at, key), "is looked up with the columns; leave it out, or add record")
    if "participant" not in raw:
        file.mistake(
            (*at, "record"),
            "is missing; write record: FILE.avsc, or name the participant in whose catalog it is"
            " looked up",
        )
        return None
    participant = file.name(raw["participant"], (*at, "participant"), "participant")
    stream = file.name(raw.get("stream", MISSING), (*at, "stream"), "stage")
    pipeline = (
        file.name(raw["pipeline"], (*at, "pipeline"), "pipeline") if "pipeline" in raw else ""
    )
    keys = _keys(file, raw, at)
    cluster = _cluster(file, raw, at)
    if participant is None or stream is None or pipeline is None:
        return None
    if not isinstance(catalog.federation, str) or not is_name(catalog.federation):
        file.mistake(
            (*at, "participant"),
            "its catalog is that of a federation, and this file names none; add federation: {name:"
            " NAME, participant: YOURS}, or name pipeline and record of the binding",
        )
        return None
    if not all(map(_KEY.match, keys)):
        return None
    pinned = tuple(bytes.fromhex(key) for key in keys)
    wanted = WantedStream(participant, stream, catalog.bucket_ms, pipeline, pinned)
    where = Cluster(cluster, catalog.clusters.get(cluster, ""))
    if cluster and not where.kafka:
        return None  # an unknown cluster, which ``clusters.check_uses`` reports
    kept = catalog.look_up(catalog.federation, name, wanted, where)
    if isinstance(kept, str):
        file.mistake(at, kept)
        return None
    try:
        columns = record_schema.from_avro(kept.record, name)
    except ConfigurationError as error:
        file.mistake(at, str(error))
        return None
    return Binding(
        name=name,
        pipeline=kept.pipeline,
        stream=stream,
        record=columns,
        replicas=kept.replicas,
        hops=kept.hops,
        out_of_orderness_ms=kept.out_of_orderness_ms,
        cluster=cluster,
        # Pinned keys replace the published ones: a stream is verified by either, never by both.
        participant="" if keys else participant,
        keys=keys,
    )


def _cluster(file: Document, raw: Mapping[str, Any], at: Place) -> str:
    if "cluster" not in raw:
        return ""
    return file.name(raw["cluster"], (*at, "cluster"), "cluster") or ""


def _keys(file: Document, raw: Mapping[str, Any], at: Place) -> list[str]:
    keys = file.texts(raw["keys"], (*at, "keys"), "key") if "keys" in raw else []
    for key, place in keys:
        if not _KEY.match(key):
            file.mistake(place, "a public key has 64 hexadecimal digits")
    return [key for key, _ in keys]


def published(
    file: Document, value: object, stages: Mapping[str, Any]
) -> tuple[dict[str, int], dict[str, RecordSchema]]:
    """Return, for the section ``publish``, how long the blocks of each stage are kept for other
    pipelines, in ms, and the columns of the stages whose entry states them.
    """
    found, listed = {}, {}
    for stage, entry in file.mapping(value, ("publish",), None).items():
        at: Place = ("publish", stage)
        if stage not in stages:
            file.mistake(at, f"there is no stage {stage}; {guess(stage, list(stages))}")
        raw = file.mapping({} if entry is None else entry, at, ("keep", "record"))
        keep_ms = file.duration(raw.get("keep", "1h"), (*at, "keep"), 1)
        found[stage] = keep_ms or 0
        if "record" not in raw:
            continue
        if "offered" in (stages.get(stage) or ()):
            file.mistake((*at, "record"), "the owner of the offer sets this; leave it out")
        columns = read_record(file, raw["record"], (*at, "record"))
        if columns is not None:
            listed[stage] = columns
    return found, listed
