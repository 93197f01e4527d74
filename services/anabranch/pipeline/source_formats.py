"""Reader of the formats that sources name: of their values, and of keys with a record."""

from __future__ import annotations

from anabranch.codec.formats import FORMATS
from anabranch.pipeline.document import Document, Place


def read_format(document: Document, value: object, at: Place, *, has_registry: bool) -> str:
    """Return the format that ``value`` names. ``has_registry``: the file names a schema registry,
    without which some have no schemas.
    """
    found = document.choice(value, at, tuple(FORMATS))
    if FORMATS[found].needs_registry and not has_registry:
        document.mistake(
            at,
            f"format {found} needs the registry that has its schemas; write schema_registry: URL"
            " at the top of the file",
        )
    return found
