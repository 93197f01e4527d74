"""Reader of the key ``max_record`` of sources and outputs: the size of their largest value."""

from __future__ import annotations

from typing import Any, Final

from anabranch.pipeline.document import Document, Place
from anabranch.protocol.limits import KEY_AND_HEADERS_BYTES, RECORD_BYTES_ON_BROKER_MAX

_HIGHEST_BYTES: Final = RECORD_BYTES_ON_BROKER_MAX - KEY_AND_HEADERS_BYTES
"""Largest value that may be allowed: a record with key and headers is sent and fetched whole."""


def record_max(document: Document, raw: dict[str, Any], at: Place) -> int | None:
    """Return the size in bytes that ``max_record`` of the section at ``at`` names; None: it names
    none.
    """
    if "max_record" not in raw:
        return None
    return document.size(raw["max_record"], (*at, "max_record"), _HIGHEST_BYTES)
