"""What was looked up of the bindings of a pipeline file, kept in a file beside it.

Every process reads the pipeline file, and all must read the same streams by the same columns,
whatever the catalog says meanwhile. So a lookup is done once, by command, and what it found is part
of the deployment as the pipeline file is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anabranch.pipeline.yaml_text import read_limited
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.protocol.federation.lookup import WantedStream

_SUFFIX: Final = ".bindings.json"


class KeptBinding(BaseModel):
    """One stream of another participant's, as it was found."""

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
        """What differs in ``now``, as keys of the file."""
        return [
            name for name in type(self).model_fields if getattr(self, name) != getattr(now, name)
        ]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    bindings: dict[str, KeptBinding]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a stream is, and the catalog of its owner."""

    name: str = ""
    """Empty: on the own cluster."""
    kafka: str = ""
    """The address of another one."""


LookUp = Callable[[str, str, "WantedStream", Cluster], KeptBinding | str]
"""(federation, name of the binding, what it names, where) -> what is found, or why nothing is."""


def kept_path(pipeline_file: Path) -> Path:
    """Where it is kept: ``billing.bindings.json`` beside ``billing.yaml``."""
    return pipeline_file.with_suffix(_SUFFIX)


def read_kept(pipeline_file: Path) -> dict[str, KeptBinding]:
    """What is kept of the bindings in ``pipeline_file``, by their names; nothing where there is no
    such file.

    Raises:
        ConfigurationError: it cannot be read, or is not what was written.
    """
    path = kept_path(pipeline_file)
    if not path.exists():
        return {}
    raw = read_limited(path, "file of bindings")
    try:
        return _File.model_validate_json(raw).bindings
    except ValidationError:
        raise ConfigurationError(
            f"{path}: not what `anabranch catalog --keep` writes; delete it, and give that command"
        ) from None


def kept_text(bindings: Mapping[str, KeptBinding]) -> str:
    """The content of the file."""
    found = {name: kept.model_dump() for name, kept in sorted(bindings.items())}
    return json.dumps({"bindings": found}, indent=1) + "\n"


def from_kept(pipeline_file: Path) -> LookUp:
    """Finds what is kept, and nothing else. The file is read when the first binding asks."""
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
                f"its columns are not known; have {wanted.stream} of {wanted.participant} looked"
                " up, anabranch catalog --keep --kafka ADDR, or name pipeline and record"
            )
        if found.bucket_ms != wanted.bucket_ms:
            return (
                f"buckets of {wanted.stream} are {found.bucket_ms} ms wide, and"
                f" {wanted.bucket_ms} ms here; both pipelines need the same"
            )
        return found

    return look_up


def is_of(kept: KeptBinding, wanted: WantedStream) -> bool:
    """Whether it was found for what is wanted now."""
    return (kept.participant, kept.stream) == (wanted.participant, wanted.stream) and (
        wanted.pipeline in ("", kept.pipeline)
    )
