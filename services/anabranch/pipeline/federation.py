"""What the pipeline file says of the federation that its owner belongs to."""

from __future__ import annotations

from typing import Final

from anabranch.pipeline.document import MISSING, Document
from anabranch.pipeline.model import Federation

FEDERATION_KEYS: Final = ("name", "participant", "auditor")


def federation(file: Document, value: object) -> Federation | None:
    """The section ``federation``; None: there is none, or it has a mistake."""
    if value is MISSING:
        return None
    raw = file.mapping(value, ("federation",), FEDERATION_KEYS)
    name, participant = (
        file.name(raw.get(key, MISSING), ("federation", key), kind)
        for key, kind in (("name", "federation"), ("participant", "participant"))
    )
    auditor = (
        file.name(raw["auditor"], ("federation", "auditor"), "participant")
        if "auditor" in raw
        else ""
    )
    if name is None or participant is None or auditor is None:
        return None
    return Federation(name=name, participant=participant, auditor=auditor)
