"""Names of the internal topics of a pipeline and a federation, and of a pipeline's keys in the
index.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.identifiers import is_name


def index_prefix(pipeline: str) -> str:
    """Return the prefix of all keys of a pipeline's index in Redis."""
    return f"anabranch:{pipeline}:"


def block_reader_id(stream: str) -> str:
    """Return the Kafka client id of readers of a stream's blocks. ``stream``: ``PIPELINE.STREAM``,
    as its topics begin.
    """
    return f"anabranch.{stream}"


def stream_of_blocks(topic: str) -> str:
    """Return the ``PIPELINE.STREAM`` of a topic of blocks: the same for all its replicas."""
    return topic.rpartition(".blocks.")[0] or topic


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Names of the internal topics of a pipeline. Their settings are in schemas/topics."""

    pipeline: str
    bound: tuple[tuple[str, str, str], ...] = ()
    """Streams of other pipelines: (name here, pipeline, name there)."""

    def _stream(self, stream: str) -> str:
        for here, pipeline, there in self.bound:
            if stream == here:
                return f"{pipeline}.{there}"
        return f"{self.pipeline}.{stream}"

    def boundaries(self, stream: str) -> str:
        """Return the topic of a stream's boundary log. It has one partition, which all writers of
        the stream share.
        """
        return f"{self._stream(stream)}.boundaries"

    def blocks(self, stream: str, replica: str) -> str:
        """Return the topic of the blocks that one replica writes for a stream."""
        return f"{self._stream(stream)}.blocks.{replica}"

    def block_reader_id(self, stream: str) -> str:
        """Return the Kafka client id of readers of a stream's blocks."""
        return block_reader_id(self._stream(stream))

    def control(self, service: str, name: str) -> str:
        """Return the topic of what one process publishes: heartbeats, recompute requests and
        replies.
        """
        return f"{self.pipeline}.control.{service}.{name}"

    def node_reports(self, node: str) -> str:
        """Return the topic of a node's reports of its load, which only a pipeline that is scaled
        has.
        """
        return f"{self.pipeline}.control.node.{node}"

    def manager(self) -> str:
        """Return the topic of the manager's heartbeats and trim points."""
        return f"{self.pipeline}.manager"

    def fences(self) -> str:
        """Return the topic on which the manager names the processes that must end. It is kept for
        ever.
        """
        return f"{self.pipeline}.fences"

    def placement(self) -> str:
        """Return the topic of moves: replicas that run elsewhere than the pipeline file places
        them.
        """
        return f"{self.pipeline}.placement"

    def alarms(self) -> str:
        """Return the topic of alarms, which need a person's attention."""
        return f"{self.pipeline}.control.alarms"

    def progress(self, process: str) -> str:
        """Return the topic of progress records of a delivery process: of an output, or of one of
        its shards.
        """
        return f"{self.pipeline}.{process}.progress"

    def live_progress(self, output: str) -> str:
        """Return the topic of progress records of an output's live topic."""
        return f"{self.pipeline}.{output}.live.progress"


@dataclass(frozen=True, slots=True)
class FederationTopics:
    """Names of the topics of a federation, which all its participants share."""

    federation: str

    def keys(self, participant: str) -> str:
        """Return the topic of a participant's public keys. Only the participant writes it."""
        return f"{self.federation}.keys.{participant}"

    def catalog(self, participant: str) -> str:
        """Return the topic of a participant's catalog of its pipelines. Only the participant writes
        it.
        """
        return f"{self.federation}.catalog.{participant}"

    def contract(self, contract_id: str) -> str:
        """Return the topic of a contract's history: all statements of its parties and the
        auditor.
        """
        return f"{self.federation}.contract.{contract_id}"

    def offers(self, contract_id: str) -> str:
        """Return the topic on which the parties of a contract negotiate."""
        return f"{self.federation}.offers.{contract_id}"

    def owner_of(self, topic: str) -> tuple[str, str]:
        """Return (kind, participant or contract) of a topic; both empty: it is none of these."""
        for kind in ("keys", "catalog", "contract", "offers"):
            before = f"{self.federation}.{kind}."
            if topic.startswith(before) and is_name(topic.removeprefix(before)):
                return kind, topic.removeprefix(before)
        return "", ""
