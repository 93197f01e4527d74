"""Boundary log of one stream as the manager follows it, with what the manager derives from it.

If the log loses records, all of this is dropped, and a new follower begins at the newest log
snapshot. Nothing that the former one had derived decides about the stream any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.pipeline.waits import known_horizon_buckets
from anabranch.protocol.control.consistency import GapBook, StreamAudit
from anabranch.protocol.errors import DataMissing, Unavailable
from anabranch.streams.stream_life import life_of
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog
    from anabranch.protocol.log.boundary_log import LogState, Outcome
    from anabranch.protocol.log.records import LogEntry
    from anabranch.streams.boundary_reader import BoundaryReader


class FollowedStream:
    """Follower of one stream's boundary log. Not thread-safe."""

    def __init__(
        self,
        log: EventLog,
        pipeline: Pipeline,
        stream: str,
        lives: dict[str, str],
        listener: Callable[[FollowedStream, int, LogEntry, Outcome], None],
    ) -> None:
        """Prepare; the first ``poll`` opens the log.

        Args:
            log: The pipeline's cluster.
            pipeline: The pipeline.
            stream: One of its own streams.
            lives: Life in which this process has read each stream, to which this one is added.
            listener: Called with every record, right after the log state has accepted or rejected
                it.
        """
        self.stream = stream
        self._log, self._pipeline, self._lives = log, pipeline, lives
        self._listener = listener
        self._topic = pipeline.topic_names.boundaries(stream)
        self._reader: BoundaryReader | None = None
        self._is_open = False
        self.ended_by: DataMissing | Unavailable | None = None
        """Error after which the process must begin anew; None: there was none."""
        self.audit = StreamAudit(stream, pipeline.stream_writers(stream))
        stage = pipeline.stages.get(stream)
        self.gaps = (
            GapBook(stream, known_horizon_buckets(pipeline, stream), pipeline.bucket_ms)
            if stage is not None and stage.ha == "amnesia"
            else None
        )

    @property
    def reader(self) -> BoundaryReader:
        """Reader of the log, which is open."""
        assert self._reader is not None, "the log was opened"  # noqa: S101
        return self._reader

    @property
    def log_state(self) -> LogState:
        """State of the stream, as far as its log was read."""
        return self.reader.log_state

    def poll(self) -> None:
        """Read the available records, without waiting. The first call opens the log and reads it to
        its end.

        Raises:
            Unavailable: the log does not exist, or the broker does not answer.
            DataMissing: records are lost. A new follower begins at a log snapshot.
            ConfigurationError: the log contradicts the pipeline file.
        """
        if not self._is_open:
            self._open()
            return
        try:
            self.reader.poll(0)
        except Unavailable as error:
            # The client has given up: whether it is the same log that answers again is not known.
            self.ended_by = error
            raise

    def _open(self) -> None:
        """Open the log and read it to its end.

        Raises:
            Unavailable, DataMissing, ConfigurationError: as for ``poll``.
        """
        self.close()
        self._check_life()
        self._reader = open_stream(
            self._log,
            self._pipeline,
            self.stream,
            listener=lambda offset, entry, outcome: self._listener(self, offset, entry, outcome),
            needs_start=True,
        )
        self._reader.read_to_end()
        # Behind the last record: the topic may have been created again before the first one.
        self._check_life()
        self._is_open = True

    def _check_life(self) -> None:
        """Check that the stream has the life in which this process has read it before.

        Raises:
            Unavailable: it has another one; or there is no such topic, or no answer. In the first
                case the process must end: its trim points are those of the former life.
        """
        life = life_of(self._log, self._topic)
        if self._lives.setdefault(self.stream, life) != life:
            text = f"{self._topic} was deleted and created again: the manager begins anew"
            self.ended_by = DataMissing(text)
            raise Unavailable(text)

    def close(self) -> None:
        """Close the log. Idempotent."""
        if self._reader is not None:
            self._reader.close()
