"""What the pipeline file says of other pipelines: streams of theirs that are read here, and streams
of one's own that they may read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from anabranch.pipeline.document import MISSING, Document, Place
from anabranch.pipeline.model import Binding
from anabranch.pipeline.named_records import read_record
from anabranch.protocol import limits

BINDING_KEYS: Final = (
    "pipeline",
    "stream",
    "record",
    "replicas",
    "hops",
    "out_of_orderness",
    "participant",
    "keys",
)
_KEY: Final = re.compile(r"[0-9a-f]{64}\Z")
_HOPS_MAX: Final = 64
"""More stages one after the other than any pipeline has: what is above is a slip of the pen."""


def bindings(
    file: Document,
    value: object,
    streams: Collection[str],
    *,
    has_federation: bool,
) -> dict[str, Binding]:
    """The section ``bindings``. ``streams``: names that are taken. ``has_federation``: the file
    names one, whose participants publish keys.
    """
    found = {}
    for name, entry in file.mapping(value, ("bindings",), None).items():
        at: Place = ("bindings", name)
        file.name(name, at, "binding")
        if name in streams:
            file.mistake(
                at, f"{name} is the name of a source or stage here; give the binding its own"
            )
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
    hops = file.integer(raw.get("hops", 1), (*at, "hops"), 1, _HOPS_MAX)
    out_of_orderness_ms = file.duration(
        raw.get("out_of_orderness", "0ms"), (*at, "out_of_orderness")
    )
    participant = (
        file.name(raw["participant"], (*at, "participant"), "participant")
        if "participant" in raw
        else ""
    )
    keys = file.texts(raw["keys"], (*at, "keys"), "key") if "keys" in raw else []
    for key, place in keys:
        if not _KEY.match(key):
            file.mistake(place, "a public key has 64 hexadecimal digits")
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
        participant=participant,
        keys=[key for key, _ in keys],
    )


def published(file: Document, value: object, stages: Collection[str]) -> dict[str, int]:
    """The section ``publish``: how long the blocks of each stage are kept for others, in ms."""
    found = {}
    for stage, entry in file.mapping(value, ("publish",), None).items():
        at: Place = ("publish", stage)
        if stage not in stages:
            file.mistake(at, f"there is no stage {stage}; a stage's stream can be published")
        raw = file.mapping({} if entry is None else entry, at, ("keep",))
        keep_ms = file.duration(raw.get("keep", "1h"), (*at, "keep"), 1)
        found[stage] = keep_ms or 0
    return found
