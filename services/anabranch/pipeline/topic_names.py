"""What the internal topics of a pipeline and a federation are called, and its keys in the index."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.identifiers import is_name


def index_prefix(pipeline: str) -> str:
    """What all keys of a pipeline's index in Redis begin with."""
    return f"anabranch:{pipeline}:"


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
        """What the manager says of what is going on: its heartbeats and trim points."""
        return f"{self.pipeline}.manager"

    def fences(self) -> str:
        """Which processes must end, by the manager: kept for ever."""
        return f"{self.pipeline}.fences"

    def placement(self) -> str:
        """Where replicas run beside what the pipeline file says."""
        return f"{self.pipeline}.placement"

    def alarms(self) -> str:
        """What a person should look at."""
        return f"{self.pipeline}.control.alarms"

    def progress(self, process: str) -> str:
        """Progress records of the delivery of an output, or of one of its shards."""
        return f"{self.pipeline}.{process}.progress"

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

    def catalog(self, participant: str) -> str:
        """What a participant publishes of its pipelines, which alone writes it."""
        return f"{self.federation}.catalog.{participant}"

    def contract(self, contract_id: str) -> str:
        """The history of a contract: all that its parties and the auditor state."""
        return f"{self.federation}.contract.{contract_id}"

    def offers(self, contract_id: str) -> str:
        """What the parties of a contract say to each other."""
        return f"{self.federation}.offers.{contract_id}"

    def owner_of(self, topic: str) -> tuple[str, str]:
        """(kind, participant or contract) of a topic; empty: it is none of these."""
        for kind in ("keys", "catalog", "contract", "offers"):
            before = f"{self.federation}.{kind}."
            if topic.startswith(before) and is_name(topic.removeprefix(before)):
                return kind, topic.removeprefix(before)
        return "", ""
