"""Checks of a source's input before it is read: whether it is available, or why ingestion waits.

Ingestion checks before it begins an epoch and once more after. ``protocol.edge.missing_input``
decides what counts as missing and what an operator can do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.ingestion import source_topics
from anabranch.protocol.edge.missing_input import described, missing, replaced_topic
from anabranch.protocol.errors import InputAwaited, InputMissing, Unavailable
from anabranch.streams.source_input import input_state
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.ingestion.source_topics import SourceTopics
    from anabranch.pipeline.model import Pipeline, Source
    from anabranch.ports import EventLog, LogAdmin, LogReader
    from anabranch.protocol.edge.ingestion import SourceProgress
    from anabranch.protocol.edge.missing_input import InputState

_WRITER = "0"


class AwaitedInput:
    """Checks of the input that the process writing ``stream`` of ``source`` reads."""

    def __init__(self, log: EventLog, pipeline: Pipeline, source: Source, stream: str) -> None:
        """Keep the arguments; contact nothing."""
        self._log, self._pipeline = log, pipeline
        self._source, self._stream = source, stream

    def check_topics(self, admin: LogAdmin) -> SourceTopics:
        """Check all topics of the source (``source_topics.check``).

        Raises:
            ConfigurationError: a topic is missing or has wrong settings.
            InputMissing: an input topic is missing or has wrong settings, but the source has run
                before: the topic was correct when the first epoch began, so the pipeline file is
                not wrong, and the process waits instead of ending.
        """
        try:
            return source_topics.check(admin, self._pipeline, self._source, self._stream)
        except source_topics.InputError as error:
            if not self._has_run(admin):
                raise
            raise InputMissing(str(error)) from error

    def _has_run(self, admin: LogAdmin) -> bool:
        """Return whether the stream's boundary log has ever had an epoch."""
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
        """Return the input's partitions, offsets and topic ids as the broker reports them, once
        all can be read from the positions in ``progress``.

        Raises:
            InputAwaited: a partition cannot be asked for at the moment.
            InputMissing: the records that the source must read next were deleted.
        """
        shard = self._source.shard(self._stream)
        try:
            there = input_state(admin, reader, self._source.topics, shard, progress.positions)
        except Unavailable as error:
            raise InputAwaited(f"source {self._stream} waits: {error}") from error
        if found := missing(progress.positions, there):
            raise InputMissing(described(self._stream, found))
        return there

    def check_identities(self, admin: LogAdmin, known: Mapping[str, str]) -> None:
        """Check that each topic in ``known`` still has its topic id. Does nothing if the broker
        does not answer.

        Raises:
            InputMissing: a topic was deleted, or deleted and created again.
        """
        try:
            now = admin.topic_ids(self._source.topics)
        except Unavailable:
            return
        if found := replaced_topic(known, now):
            raise InputMissing(f"source {self._stream}: {found}")
