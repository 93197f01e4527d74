"""Names and ids.

``RecordId`` is (bucket, position in the canonical order of the bucket); it is the same at every
replica, after every replay, and is the ``anabranch-id`` header of a delivered record. In a topic it
and the origin (``edge.origins``) together name the record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")


def is_name(name: str) -> bool:
    """Return whether ``name`` may name a pipeline, stream, stage or participant."""
    return _NAME.match(name) is not None


def checked_name(kind: str, name: str) -> str:
    """Return ``name`` if it may name a pipeline, stream, stage or participant: topics, files and
    metrics are named by it.

    Raises:
        ConfigurationError: ``name`` is not lower case letters, digits, ``_`` and ``-``, starting
            with a letter, at most 63 characters.
    """
    if not is_name(name):
        message = (
            f"{kind} name {name!r}: use lower case letters, digits, '_' and '-', starting with a"
            " letter, at most 63 characters"
        )
        raise ConfigurationError(message)
    return name


@dataclass(frozen=True, slots=True, order=True)
class BatchId:
    """Id of a boundary record of one writer: (timeline, batch), rule 3. ``timeline`` is new
    at every start and every fork.
    """

    timeline: str
    batch: int


@dataclass(frozen=True, slots=True, order=True)
class RecordId:
    """Id of a record in its stream: (bucket, position in the bucket's canonical order)."""

    bucket: int
    position: int

    def __str__(self) -> str:
        return f"{self.bucket}.{self.position}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the id written as ``bucket.position``.

        Raises:
            RemoteProtocolError: ``text`` is not of that form.
        """
        bucket, dot, position = text.partition(".")
        if not (dot and bucket.isdecimal() and position.isdecimal() and len(text) <= 40):
            message = f"{text[:60]!r} is not a record id"
            raise RemoteProtocolError(message)
        return cls(int(bucket), int(position))
