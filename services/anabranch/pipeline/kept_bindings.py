"""File of looked-up bindings: the result of looking up a pipeline file's bindings in the catalog,
kept beside it.

Every process reads the pipeline file, and all must read the same streams with the same columns
whatever the catalog says meanwhile. So a command looks them up once, and its result is part of the
deployment like the pipeline file itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anabranch.pipeline.durations import format_ms
from anabranch.pipeline.yaml_text import read_limited
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.protocol.federation.lookup import WantedStream

_SUFFIX: Final = ".bindings.json"


class KeptBinding(BaseModel):
    """Stream of another participant, as it was found in the catalog."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    participant: str
    pipeline: str
    stream: str
    record: dict[str, Any]
    """Its columns, as an Avro schema."""
    bucket_ms: int = Field(ge=1)
    replicas: int = Field(ge=1, le=limits.REPLICAS_MAX)
    hops: int = Field(ge=1)
    out_of_orderness_ms: int = Field(ge=0)

    def changes(self, now: KeptBinding) -> list[str]:
        """Return the keys of the file whose values differ in ``now``."""
        return [
            name for name in type(self).model_fields if getattr(self, name) != getattr(now, name)
        ]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    bindings: dict[str, KeptBinding]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Kafka cluster that holds a stream and the catalog of its owner."""

    name: str = ""
    """Name in the pipeline file; empty: the pipeline's own cluster."""
    kafka: str = ""
    """Address of another owner's cluster; empty: the own one."""


LookUp = Callable[[str, str, "WantedStream", Cluster], KeptBinding | str]
"""Lookup of a binding: (federation, name of the binding, wanted stream, cluster) to the binding
found, or to the reason why there is none.
"""


def kept_path(pipeline_file: Path) -> Path:
    """Return the path of the file of a pipeline file: ``billing.bindings.json`` beside
    ``billing.yaml``.
    """
    return pipeline_file.with_suffix(_SUFFIX)


def read_kept(pipeline_file: Path) -> dict[str, KeptBinding]:
    """Return the kept bindings of ``pipeline_file``, by name; none where there is no such file.

    Raises:
        ConfigurationError: the file cannot be read, or has not the form that ``kept_text`` writes.
    """
    path = kept_path(pipeline_file)
    if not path.exists():
        return {}
    raw = read_limited(path, "file of bindings")
    try:
        return _File.model_validate_json(raw).bindings
    except ValidationError:
        raise ConfigurationError(
            f"{path}: not what `anabranch catalog --keep` writes; delete it, and run that command"
        ) from None


def kept_text(bindings: Mapping[str, KeptBinding]) -> str:
    """Return the content of the file for ``bindings``."""
    found = {name: kept.model_dump() for name, kept in sorted(bindings.items())}
    return json.dumps({"bindings": found}, indent=1) + "\n"


def from_kept(pipeline_file: Path) -> LookUp:
    """Return a lookup that finds kept bindings only. It reads the file when the first binding is
    looked up.
    """
    kept: dict[str, KeptBinding] | None = None

    def look_up(_: str, name: str, wanted: WantedStream, __: Cluster) -> KeptBinding | str:
        nonlocal kept
        try:
            kept = read_kept(pipeline_file) if kept is None else kept
        except ConfigurationError as error:
            kept = None
            return str(error)
        found = kept.get(name)
        if found is None or not is_of(found, wanted):
            return (
                f"its columns are not known; look up {wanted.stream} of {wanted.participant} with"
                " `anabranch catalog --keep --kafka ADDR`, or name pipeline and record"
            )
        if found.bucket_ms != wanted.bucket_ms:
            return (
                f"buckets of {wanted.stream} are {found.bucket_ms} ms wide, and"
                f" {wanted.bucket_ms} ms here; both pipelines need the same: write bucket:"
                f" {format_ms(found.bucket_ms)}"
            )
        return found

    return look_up


def is_of(kept: KeptBinding, wanted: WantedStream) -> bool:
    """Return whether ``kept`` was found for the stream that is wanted now."""
    return (kept.participant, kept.stream) == (wanted.participant, wanted.stream) and (
        wanted.pipeline in ("", kept.pipeline)
    )
