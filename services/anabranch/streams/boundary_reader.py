"""Reader of one boundary log: decodes records, applies them to a log state, and counts and logs
rejected ones.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

from anabranch.codec import boundary_records
from anabranch.codec.boundary_records import Headers
from anabranch.codec.signed_records import signature_of, signed_message
from anabranch.ports import Chunk, EventLog, TopicPartition
from anabranch.protocol.edge.handover import SourceStream
from anabranch.protocol.errors import (
    ConfigurationError,
    DataMissing,
    RecordDamaged,
    RemoteProtocolError,
    Unavailable,
)
from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.log.boundary_log import (
    OTHER_WIDTH,
    UNKNOWN_SUCCESSORS,
    LogState,
    Outcome,
)
from anabranch.protocol.log.log_snapshots import LogStart
from anabranch.protocol.log.records import LogEntry, LogSnapshot, as_known_here
from anabranch.protocol.stage.splitting import UNDECLARED
from anabranch.streams.log_end import end_of, read_to

_FETCH_RECORDS: Final = 2_000
"""Maximum number of records per fetch."""
_END_ANSWER_MS: Final = 10_000
"""Timeout for asking for the log's end, in ms: that of any request of the client."""

_WHY_CHARS_MAX: Final = 200
"""Maximum length of a reason or writer's name in a log line: foreign records contain both."""

_logger = logging.getLogger("anabranch.boundaries")
_NORMAL: Final = {
    "fenced": logging.INFO,
    "older_branch": logging.INFO,
    "ended_branch": logging.INFO,
    "ended": logging.INFO,
    "known": logging.DEBUG,
    "log_snapshot": logging.DEBUG,
}
"""Reasons of rejection, with the log level, that restarts, failovers, repeated writes and splits
cause. Any other reason is logged as a warning: a correct writer does not cause it.
"""

_CONTRADICTS: Final = {
    OTHER_WIDTH: "its buckets have another width than the pipeline file says",
    UNKNOWN_SUCCESSORS: "a record ends it, and the pipeline file names no streams that follow it",
}
"""Reasons of rejection of records that contradict the reader's pipeline file, with the words for
people.
"""

Listener = Callable[[int, LogEntry, Outcome], None]
"""Function (offset, record, outcome) that is called with every applied record."""


class Judge(Protocol):
    """Judge of signed records: decides which count."""

    def refresh(self) -> None:
        """Read all present statements about signers. Called after records were fetched, and before
        they are judged.

        Raises:
            Unavailable: the broker does not answer; the records are judged later.
        """

    def why_not(
        self, signature: Signature, message: bytes, at_ms: int, *, is_snapshot: bool
    ) -> str:
        """Return why a record that the log took at ``at_ms`` does not count; empty if it counts."""

    def close(self) -> None:
        """Close the judge's readers. Idempotent."""


@dataclass(frozen=True, slots=True)
class ExpectedStream:
    """Properties that the pipeline file gives a stream, besides its topic and writers."""

    bucket_ms: int = 0
    """Width of the stream's buckets, in ms; 0 accepts any."""
    known_as: str = ""
    """Name of the stream in this pipeline, if it is another pipeline's (``as_known_here``)."""
    judge: Judge | None = None
    """Judge of signatures; with None every record of the topic counts, signed or not."""
    source: SourceStream | None = None
    """Shards and numbers of the source, if the stream is a source's; else None."""
    may_end: bool = True
    """Whether the pipeline file names streams that may follow the stream, or it is a source's."""
    others_write: bool = False
    """Whether other owners may write the stream. Then records that contradict the file do not count
    (BL22); else they end the reader, since the file was changed.
    """
    needs_start: bool = True
    """Whether first records that are deleted, without a log snapshot that replaces them, end the
    reader. Else the stream counts as missing: its owner may yet write a usable log snapshot.
    """
    new_state: Callable[[Iterable[str]], LogState] = LogState
    """Function (writers) that returns the state of the log before its first record."""


_ANY: Final = ExpectedStream()


class StreamReader(Protocol):
    """Interface of a reader of a boundary log, on this or another cluster. Not thread-safe."""

    @property
    def log_state(self) -> LogState:
        """State of the stream, as far as the log was read."""

    @property
    def offset_next(self) -> int:
        """Offset of the next record to read."""

    @property
    def is_caught_up(self) -> bool:
        """Whether the log was read up to the end that it had when it was opened."""

    @property
    def counts(self) -> Counter[str]:
        """Number of records by outcome."""

    @property
    def trouble(self) -> str:
        """Reason why no records arrive, for messages; empty if nothing is known to be wrong."""

    @property
    def refused(self) -> str:
        """Reason, for people, why what another owner writes now does not count although it can be
        read (BL22); empty if it counts.
        """

    @property
    def is_opening(self) -> bool:
        """Whether it is not known yet if the log can be read."""

    def poll(self, wait_ms: int) -> int:
        """Read and apply new records; see ``BoundaryReader.poll``."""

    def end(self) -> int:
        """Return the log's end offset; see ``BoundaryReader.end``."""

    def read_to_end(self) -> None:
        """Read up to the present end; see ``BoundaryReader.read_to_end``."""

    def close(self) -> None:
        """Close the reader. Idempotent."""


class BoundaryReader:
    """Reader of one stream's boundary log. Not thread-safe.

    A crash loses nothing: a new reader reads the log again, from its beginning or from a log
    snapshot (``protocol.log.log_snapshots``).
    """

    def __init__(
        self,
        log: EventLog,
        topic: str,
        writers: Iterable[str],
        *,
        listener: Listener | None = None,
        lock: AbstractContextManager[object] | None = None,
        expected: ExpectedStream = _ANY,
    ) -> None:
        """Open the log.

        Args:
            log: The cluster of the topic.
            topic: The boundary log's topic.
            writers: The replicas of the stream; records of others are rejected.
            listener: Called with every decoded record, after it was applied. If reading begins at a
                log snapshot, the snapshot comes first, as accepted, in place of all records that
                it replaces.
            lock: Guards the log state, for callers that read it from another thread.
            expected: Properties that the log must have.
        """
        self._log, self._at = log, TopicPartition(topic, 0)
        self.trouble, self.is_opening = "", False
        self._reader = log.reader(committed=False, headers=True, follows=True)
        self._listener = listener
        self._lock = lock if lock is not None else nullcontext()
        self._writers, self._expected = tuple(writers), expected
        self.log_state = expected.new_state(self._writers)
        if expected.source is not None:
            expected.source.tell(self.log_state)
        if expected.others_write:
            self.log_state.bucket_ms_expected = expected.bucket_ms
            self.log_state.may_end = expected.may_end
        self.refused = ""
        self.counts: Counter[str] = Counter()
        self.appended_ms: int | None = None
        """Append time, in ms, of the record that the listener is called with. None if the record is
        older than the log snapshot at which reading began: the time is not known then.
        """
        self._rejected: Counter[tuple[str, str]] = Counter()
        self._unjudged: list[Chunk] = []
        """Records that were fetched and wait for their signers' keys. Meanwhile no others are read.
        """
        self.offset_next, self._end_at_first = self._reader.offsets(self._at)
        self._start = LogStart(self.log_state, self.offset_next)
        self._reader.assign({self._at: self.offset_next})

    @property
    def is_caught_up(self) -> bool:
        """Whether the log was read up to the end that it had when it was opened."""
        return self.offset_next >= self._end_at_first

    def poll(self, wait_ms: int) -> int:
        """Read and apply new records, waiting up to ``wait_ms`` for the first. Return their number.

        Raises:
            ConfigurationError: the stream's buckets have another width, or its source has another
                number of shards now, than the file says; or it has ended, and the file names no
                streams in which it continues.
            DataMissing: the first records of the log were deleted, no log snapshot replaces them,
                and the reader needs them; or the log was truncated, or trimmed beyond this reader's
                position. The process must end; the next one begins at a log
                snapshot.
            RecordDamaged: a record of a log of this pipeline is damaged. Those of another owner's
                log are left out.
        """
        read = 0
        for chunk in self._fetch(wait_ms):
            for offset, value, headers, time_ms in zip(
                chunk.offsets, chunk.values, chunk.headers, chunk.timestamps_ms, strict=True
            ):
                read += 1
                try:
                    entry = self._decode(value, headers, time_ms)
                except RemoteProtocolError as error:
                    self.counts["undecodable"] += 1
                    self._report_rejected("undecodable", "", offset, str(error))
                    continue
                if self._expected.known_as:
                    entry = as_known_here(entry, self._expected.known_as)
                if self._start.is_over:
                    self.appended_ms = time_ms
                    with self._lock:
                        outcome = self.log_state.apply(offset, entry)
                    self._pass_on(offset, entry, outcome)
                else:
                    self._begin(offset, entry)
        if self._unjudged:
            return 0
        self._check_width()
        if self.log_state.heirs and not self._expected.may_end:
            raise ConfigurationError(f"{self._at.topic}: {UNDECLARED}")
        if self._expected.source is not None:
            self._expected.source.check(self.log_state)
        self.offset_next = self._reader.position(self._at)
        self._check_start()
        return read

    def _check_start(self) -> None:
        """Raise DataMissing if the log was read to the end that it had when it was opened, or is
        empty, and nothing replaces its first records, which are deleted.
        """
        if self._start.is_over or not self.is_caught_up:
            return
        if not self._expected.needs_start:
            self._refuse("its first records are deleted, and no log snapshot can be used")
            return
        message = (
            f"{self._at.topic}: its first records are deleted, and no readable log snapshot"
            " replaces them. The consistency manager writes a snapshot before it deletes, so"
            " these were deleted by retention, or by hand. Restore the topic from a copy, or"
            " begin anew under another name of the pipeline"
        )
        raise DataMissing(message)

    def _fetch(self, wait_ms: int) -> list[Chunk]:
        """Fetch records, and then the statements about signers by which they are judged."""
        judge = self._expected.judge
        try:
            chunks = self._unjudged or self._reader.fetch(_FETCH_RECORDS, wait_ms)
        except RecordDamaged as error:
            if not self._expected.known_as:
                raise
            # What continues the damaged record does not count either (rule 4).
            self._refuse(f"its record at offset {error.offset} is damaged")
            self._reader.assign({self._at: max(self.offset_next, error.offset) + 1})
            return []
        if judge is None or not chunks:
            return chunks
        try:
            judge.refresh()
        except Unavailable as error:
            self._wait_for_keys(chunks, str(error), wait_ms)
            return []
        self.trouble = ""
        if self._unjudged:
            self._unjudged = []
            self._reader.assign({self._at: chunks[-1].offset_next})
        return chunks

    def _wait_for_keys(self, chunks: list[Chunk], why: str, wait_ms: int) -> None:
        """Keep ``chunks`` unjudged, and wait ``wait_ms``. The judge may fail at once, each time."""
        trouble = f"its records wait for their signers' keys: {why}"
        if trouble != self.trouble:
            _logger.warning("%s: %s", self._at.topic, trouble)
        self.trouble, self._unjudged = trouble, chunks
        # With no partition a fetch waits its whole time, so that a caller's loop does not spin.
        self._reader.assign({})
        self._reader.fetch(1, wait_ms)

    def _decode(self, value: bytes | None, headers: Headers, time_ms: int) -> LogEntry:
        """Decode a record, after a check of its signature if there is a judge."""
        if self._expected.judge is None:
            return boundary_records.decode(value, headers)
        # The signature first: decoding costs more, and records of unknown writers are not worth it.
        self._check_signature(value, headers, time_ms, is_snapshot=False)
        entry = boundary_records.decode(value, headers)
        if isinstance(entry, LogSnapshot):
            self._check_signature(value, headers, time_ms, is_snapshot=True)
        return entry

    def _check_signature(
        self, value: bytes | None, headers: Headers, time_ms: int, *, is_snapshot: bool
    ) -> None:
        """Raise RemoteProtocolError unless the judge accepts the record."""
        assert self._expected.judge is not None, "see the caller"  # noqa: S101 - the caller has looked
        message = signed_message(self._at.topic, value)
        reason = self._expected.judge.why_not(
            signature_of(headers), message, time_ms, is_snapshot=is_snapshot
        )
        if reason:
            raise RemoteProtocolError(reason)

    def _check_width(self) -> None:
        """Raise ConfigurationError if the stream's buckets have another width than the file
        says.
        """
        width_ms = self.log_state.bucket_ms
        if self._expected.bucket_ms and width_ms and width_ms != self._expected.bucket_ms:
            message = (
                f"{self._at.topic}: this stream has buckets of {width_ms} ms, and the pipeline file"
                f" says {self._expected.bucket_ms} ms: a stream keeps its width. Put"
                f" `bucket: {width_ms}ms` back, or begin anew under another name of the pipeline"
            )
            raise ConfigurationError(message)

    def _begin(self, offset: int, entry: LogEntry) -> None:
        """Handle a record while the reader still searches for a log snapshot to begin with."""
        steps = self._start.apply(offset, entry)
        while True:
            with self._lock:
                step = next(steps, None)
            if step is None:
                return
            self._pass_on(*step)

    def _pass_on(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Count the outcome of a record, log a rejection, and call the listener."""
        self.counts[outcome.reason] += 1
        if outcome.accepted:
            self.refused = ""
        else:
            self._report_rejected(outcome.reason, outcome.replica, offset)
            if self._expected.others_write and outcome.reason in _CONTRADICTS:
                self._refuse(_CONTRADICTS[outcome.reason])
        if self._listener is not None:
            self._listener(offset, entry, outcome)

    def _report_rejected(self, reason: str, writer: str, offset: int, why: str = "") -> None:
        """Log the first, tenth, hundredth ... record of ``writer`` rejected for ``reason``: a
        faulty writer cannot flood the process' log.
        """
        which = reason, writer if writer in self._writers else ""
        self._rejected[which] += 1
        count = str(self._rejected[which])
        if count.rstrip("0") != "1":
            return
        reported = (
            f"a boundary record is rejected: {reason}{f' ({why[:_WHY_CHARS_MAX]})' if why else ''}"
        )
        level = _NORMAL.get(reason, logging.WARNING)
        _logger.log(
            level,
            "%s; writer %r, %s offset %d, number %s",
            reported,
            writer[:_WHY_CHARS_MAX],
            self._at.topic,
            offset,
            count,
        )

    def _refuse(self, why: str) -> None:
        """Note why what another owner has written does not count; log it if it is new."""
        if self.refused != why:
            _logger.error(
                "%s, a stream that others write, counts as missing: %s", self._at.topic, why
            )
        self.refused = why

    def listen(self, listener: Listener | None) -> None:
        """Replace the listener: ``listener`` is called with every record read from now on."""
        self._listener = listener

    def end(self) -> int:
        """Return the log's present end offset.

        Raises:
            Unavailable: the broker does not answer.
        """
        return end_of(self._reader, self._at, _END_ANSWER_MS)

    def read_to_end(self) -> None:
        """Read and apply all records up to the log's present end.

        Raises:
            Unavailable: no record arrived for a while although the end is not reached, or the keys
                of the records' signers cannot be read.
            DataMissing: as for ``poll``.
        """
        try:
            read_to(
                self.end(),
                self._at.topic,
                lambda: self.offset_next,
                self.poll,
            )
            self._check_start()  # an empty log is at its end without a poll
        except Unavailable as error:
            if not self.trouble:
                raise
            raise Unavailable(f"{self._at.topic}: {self.trouble}") from error

    def reopen(self) -> None:
        """Replace the client, which has failed, and continue at the same offset."""
        self._reader.close()
        self._reader = self._log.reader(committed=False, headers=True, follows=True)
        self._reader.assign({self._at: self.offset_next})
        self._unjudged = []

    def close(self) -> None:
        """Close the reader and its judge. Idempotent."""
        self._reader.close()
        if self._expected.judge is not None:
            self._expected.judge.close()
