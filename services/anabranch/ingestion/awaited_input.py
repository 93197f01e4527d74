"""The input of a source before it is read: whether it is there, and why its ingestion waits.

Ingestion asks before it begins an epoch, and again behind it. What is missing, and what an operator
can do then, is decided in ``protocol.edge.missing_input``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.ingestion import topics
from anabranch.protocol.edge.missing_input import described, missing
from anabranch.protocol.errors import InputAwaited, Unavailable
from anabranch.runtime.source_input import input_state
from anabranch.runtime.stream_logs import open_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.ingestion.topics import SourceTopics
    from anabranch.pipeline.model import Pipeline, Source
    from anabranch.ports import EventLog, LogAdmin, LogReader
    from anabranch.protocol.edge.ingestion import SourceProgress
    from anabranch.protocol.edge.missing_input import InputState

_WRITER = "0"


class AwaitedInput:
    """Questions about the input of the process ``stream`` of ``source``."""

    def __init__(self, log: EventLog, pipeline: Pipeline, source: Source, stream: str) -> None:
        """Nothing is contacted yet."""
        self._log, self._pipeline = log, pipeline
        self._source, self._stream = source, stream

    def check_topics(self, admin: LogAdmin) -> SourceTopics:
        """Check all topics of the source (``topics.check``).

        Raises:
            ConfigurationError: one is missing, or is not set as it must be.
            InputAwaited: this is so of an input topic of a source that has run before: it was as it
                must be when the first epoch began. So the file is not wrong, and this is no reason
                to end.
        """
        try:
            return topics.check(admin, self._pipeline, self._source, self._stream)
        except topics.InputError as error:
            if not self._has_run(admin):
                raise
            raise InputAwaited(str(error)) from error

    def _has_run(self, admin: LogAdmin) -> bool:
        """Return whether an epoch has ever begun in the log of the stream."""
        topic = self._pipeline.topic_names.boundaries(self._stream)
        if topic not in admin.partitions([topic]):
            return False
        own = open_stream(self._log, self._pipeline, self._stream)
        try:
            own.read_to_end()
            return own.log_state.epoch(_WRITER) is not None
        finally:
            own.close()

    def state(self, admin: LogAdmin, reader: LogReader, progress: SourceProgress) -> InputState:
        """Return the input as the broker describes it, all of which can be read on from
        ``progress``.

        Raises:
            InputAwaited: a partition cannot be read at the moment, or what the source should read
                next is gone.
        """
        shard = self._source.shard(self._stream)
        try:
            there = input_state(admin, reader, self._source.topics, shard, progress.positions)
        except Unavailable as error:
            raise InputAwaited(f"source {self._stream} waits: {error}") from error
        if found := missing(progress.positions, there):
            raise InputAwaited(described(self._stream, found))
        return there

    def check_identities(self, admin: LogAdmin, known: Mapping[str, str]) -> None:
        """Raises InputAwaited where a topic is not the one that had its identity in ``known``. No
        answer says nothing.
        """
        try:
            now = admin.topic_ids(self._source.topics)
        except Unavailable:
            return
        for topic, identity in known.items():
            if now.get(topic) != identity:
                what = "was created again" if topic in now else "does not exist any more"
                raise InputAwaited(f"source {self._stream}: topic {topic} {what}")
