"""Names, ids, and the internal topics that are named by them.

``RecordId`` is (bucket, position in the canonical order of the bucket); it is the same at every
replica, after every replay, and is the ``anabranch-id`` header of a delivered record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")


def checked_name(kind: str, name: str) -> str:
    """``name`` if it may name a pipeline, stream, stage or participant: topics, files and metrics
    are named by it.

    Raises:
        ConfigurationError: it is not lower case letters, digits, ``_`` and ``-``, starting with a
            letter, at most 63 characters.
    """
    if not _NAME.match(name):
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
        """The id written as ``bucket.position``.

        Raises:
            RemoteProtocolError: ``text`` is not of that form.
        """
        bucket, dot, position = text.partition(".")
        if not (dot and bucket.isdecimal() and position.isdecimal() and len(text) <= 40):
            message = f"{text[:60]!r} is not a record id"
            raise RemoteProtocolError(message)
        return cls(int(bucket), int(position))


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The internal topics of a pipeline (schemas/topics holds their settings)."""

    pipeline: str
    bound: tuple[tuple[str, str, str], ...] = ()
    """Streams of other pipelines: (as it is called here, its pipeline, as it is called there)."""

    def _stream(self, stream: str) -> str:
        for here, pipeline, there in self.bound:
            if stream == here:
                return f"{pipeline}.{there}"
        return f"{self.pipeline}.{stream}"

    def boundaries(self, stream: str) -> str:
        """The boundary log of a stream: one partition, all its writers."""
        return f"{self._stream(stream)}.boundaries"

    def blocks(self, stream: str, replica: str) -> str:
        """The blocks that one replica writes for a stream."""
        return f"{self._stream(stream)}.blocks.{replica}"

    def control(self, service: str, name: str) -> str:
        """What one process says: heartbeats, recompute requests and replies."""
        return f"{self.pipeline}.control.{service}.{name}"

    def manager(self) -> str:
        """What the manager says: its heartbeats, fences and trim points."""
        return f"{self.pipeline}.manager"

    def placement(self) -> str:
        """Where replicas run beside what the pipeline file says."""
        return f"{self.pipeline}.placement"

    def alarms(self) -> str:
        """What a person should look at."""
        return f"{self.pipeline}.control.alarms"

    def progress(self, output: str) -> str:
        """Progress records of the delivery of an output."""
        return f"{self.pipeline}.{output}.progress"

    def live_progress(self, output: str) -> str:
        """Progress records of the live topic of an output."""
        return f"{self.pipeline}.{output}.live.progress"


@dataclass(frozen=True, slots=True)
class FederationTopics:
    """The topics of a federation, which all its participants share."""

    federation: str

    def keys(self, participant: str) -> str:
        """The public keys of a participant, which alone writes it."""
        return f"{self.federation}.keys.{participant}"

    def contract(self, contract_id: str) -> str:
        """Everything that was said about a contract: its parties and the auditor."""
        return f"{self.federation}.contract.{contract_id}"

    def offers(self, contract_id: str) -> str:
        """What the parties of a contract say to each other."""
        return f"{self.federation}.offers.{contract_id}"

    def owner_of(self, topic: str) -> tuple[str, str]:
        """(kind, participant or contract) of a topic; empty: it is none of these."""
        for kind in ("keys", "contract", "offers"):
            before = f"{self.federation}.{kind}."
            if topic.startswith(before) and _NAME.match(topic.removeprefix(before)):
                return kind, topic.removeprefix(before)
        return "", ""
