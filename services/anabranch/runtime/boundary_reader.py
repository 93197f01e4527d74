"""Follows one boundary log: decodes, applies, counts what was rejected, and says why in the
process' log.
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
    RemoteProtocolError,
    Unavailable,
)
from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.log_snapshots import LogStart
from anabranch.protocol.log.records import LogEntry, LogSnapshot, as_known_here
from anabranch.runtime.log_end import end_of, read_to

_FETCH_RECORDS: Final = 2_000
_SILENT_POLLS_MAX: Final = 300
_END_ANSWER_MS: Final = 10_000
"""As long as the client waits for any answer."""

_WHY_CHARS_MAX: Final = 200

_logger = logging.getLogger("anabranch.boundaries")
_NORMAL: Final = {
    "fenced": logging.INFO,
    "older_branch": logging.INFO,
    "ended_branch": logging.INFO,
    "known": logging.DEBUG,
    "log_snapshot": logging.DEBUG,
}
"""Reasons that restarts, failovers and repeated writes bring about. Any other is a warning:
no writer that works does that.
"""

Listener = Callable[[int, LogEntry, Outcome], None]


class Judge(Protocol):
    """Whose signed records count."""

    def refresh(self) -> None:
        """Read the statements about signers by now; called after records were fetched, and before
        they are judged.

        Raises:
            Unavailable: no answer: they are judged later.
        """

    def why_not(
        self, signature: Signature, message: bytes, at_ms: int, *, is_snapshot: bool
    ) -> str:
        """Why a record does not count that the log took at this time; empty: it does."""

    def close(self) -> None:
        """Idempotent."""


@dataclass(frozen=True, slots=True)
class ExpectedStream:
    """What the pipeline file says of a stream, besides its topic and its writers."""

    bucket_ms: int = 0
    """The width of its buckets; 0: any will do."""
    known_as: str = ""
    """What it is called here, if it is another pipeline's (``as_known_here``)."""
    judge: Judge | None = None
    """Only what is signed counts, as it says; None: whoever may write the topic is believed."""
    source: SourceStream | None = None
    """Where it is a source's, what the file says of that."""


_ANY: Final = ExpectedStream()


class StreamReader(Protocol):
    """What follows the boundary log of a stream, wherever that is. Not thread-safe."""

    @property
    def log_state(self) -> LogState:
        """The stream, as far as it was read."""

    @property
    def offset_next(self) -> int:
        """Where reading goes on."""

    @property
    def counts(self) -> Counter[str]:
        """Records by what became of them."""

    @property
    def trouble(self) -> str:
        """Why nothing comes, for people; empty: nothing is known to be wrong."""

    @property
    def is_opening(self) -> bool:
        """Whether nobody knows yet if it can be read."""

    def poll(self, wait_ms: int) -> int:
        """As ``BoundaryReader.poll``."""

    def end(self) -> int:
        """As ``BoundaryReader.end``."""

    def read_to_end(self) -> None:
        """As ``BoundaryReader.read_to_end``."""

    def close(self) -> None:
        """Idempotent."""


class BoundaryReader:
    """One reader of one stream's boundary log. Not thread-safe.

    A crash loses nothing: a new reader reads the log again, from its beginning or from a log
    snapshot on (``protocol.log.log_snapshots``).
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
            log: Where the topic is.
            topic: The boundary log.
            writers: The replicas of the stream; records of others are rejected.
            listener: Called with every decoded record, after it was applied: (offset, record,
                outcome). Where the log is read from a log snapshot on, that comes first, accepted:
                all that was applied until there.
            lock: Guards the log state, for callers that look at it from another thread.
            expected: What the log must match.
        """
        self._log, self._at = log, TopicPartition(topic, 0)
        self.trouble, self.is_opening = "", False
        self._reader = log.reader(committed=False, headers=True, follows=True)
        self._listener = listener
        self._lock = lock if lock is not None else nullcontext()
        self._writers, self._expected = tuple(writers), expected
        self.log_state = LogState(self._writers)
        if expected.source is not None:
            expected.source.tell(self.log_state)
        self.counts: Counter[str] = Counter()
        self.appended_ms: int | None = None
        """The log's time of the record that the listener gets; None: it was read before the log
        snapshot with which the reading begins, and the time is not known any more.
        """
        self._rejected: Counter[tuple[str, str]] = Counter()
        self._unjudged: list[Chunk] = []
        self.offset_next, self._end_at_first = self._reader.offsets(self._at)
        self._start = LogStart(self.log_state, self.offset_next)
        self._reader.assign({self._at: self.offset_next})

    def poll(self, wait_ms: int) -> int:
        """Apply what is there; waits up to ``wait_ms`` for the first record. Returns the number of
        records read.

        Raises:
            ConfigurationError: the stream has buckets of another width; or its source has another
                number of shards by now than the file says.
            DataMissing: the log does not begin at its beginning, and no log snapshot in it says
                what stood there; or it was cut, or this reader was overtaken by trimming: the
                process ends, and the next one begins at a log snapshot.
        """
        read = 0
        for chunk in self._fetch(wait_ms):
            for offset, value, headers, time_ms in zip(
                chunk.offsets, chunk.values, chunk.headers, chunk.timestamps_ms, strict=True
            ):
                read += 1
                try:
                    entry = self._decoded(value, headers, time_ms)
                except RemoteProtocolError as error:
                    self.counts["undecodable"] += 1
                    self._tell("undecodable", "", offset, str(error))
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
        if self._expected.source is not None:
            self._expected.source.check(self.log_state)
        self.offset_next = self._reader.position(self._at)
        if not self._start.is_over and self.offset_next >= self._end_at_first:
            message = (
                f"{self._at.topic}: its first records are deleted, and no log snapshot after them"
                " can be read that says what they were. The consistency manager leaves one behind"
                " when it deletes: this was done by retention, or by hand. Restore the topic from"
                " a copy, or begin anew under another name of the pipeline"
            )
            raise DataMissing(message)
        return read

    def _fetch(self, wait_ms: int) -> list[Chunk]:
        """Records, once all is known by which they are judged."""
        judge = self._expected.judge
        chunks = self._unjudged or self._reader.fetch(_FETCH_RECORDS, wait_ms)
        if judge is None or not chunks:
            return chunks
        self._unjudged = chunks
        try:
            judge.refresh()
        except Unavailable as error:
            _logger.warning("%s: its records wait for their signers: %s", self._at.topic, error)
            return []
        self._unjudged = []
        return chunks

    def _decoded(self, value: bytes | None, headers: Headers, time_ms: int) -> LogEntry:
        if self._expected.judge is None:
            return boundary_records.decode(value, headers)
        # First, since decoding costs more, and a stranger's record is not worth it.
        self._check_signature(value, headers, time_ms, is_snapshot=False)
        entry = boundary_records.decode(value, headers)
        if isinstance(entry, LogSnapshot):
            self._check_signature(value, headers, time_ms, is_snapshot=True)
        return entry

    def _check_signature(
        self, value: bytes | None, headers: Headers, time_ms: int, *, is_snapshot: bool
    ) -> None:
        assert self._expected.judge is not None, "see the caller"  # noqa: S101 - the caller has looked
        message = signed_message(self._at.topic, value)
        reason = self._expected.judge.why_not(
            signature_of(headers), message, time_ms, is_snapshot=is_snapshot
        )
        if reason:
            raise RemoteProtocolError(reason)

    def _check_width(self) -> None:
        width_ms = self.log_state.bucket_ms
        if self._expected.bucket_ms and width_ms and width_ms != self._expected.bucket_ms:
            message = (
                f"{self._at.topic}: this stream has buckets of {width_ms} ms, and the pipeline file"
                f" says {self._expected.bucket_ms} ms: a stream keeps its width. Put"
                f" `bucket: {width_ms}ms` back, or begin anew under another name of the pipeline"
            )
            raise ConfigurationError(message)

    def _begin(self, offset: int, entry: LogEntry) -> None:
        """As long as the beginning is being looked for."""
        steps = self._start.apply(offset, entry)
        while True:
            with self._lock:
                step = next(steps, None)
            if step is None:
                return
            self._pass_on(*step)

    def _pass_on(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        self.counts[outcome.reason] += 1
        if not outcome.accepted:
            self._tell(outcome.reason, outcome.replica, offset)
        if self._listener is not None:
            self._listener(offset, entry, outcome)

    def _tell(self, reason: str, writer: str, offset: int, why: str = "") -> None:
        """Log the first, tenth, hundredth ... record rejected for this reason of this writer:
        all together are no flood, whoever writes them.
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

    def listen(self, listener: Listener | None) -> None:
        """From now on ``listener`` gets what is read, in place of who got it before."""
        self._listener = listener

    def end(self) -> int:
        """Where the log ends now.

        Raises:
            Unavailable: no answer.
        """
        return end_of(self._reader, self._at, _END_ANSWER_MS)

    def read_to_end(self) -> None:
        """Apply everything up to an end offset that is fetched now.

        Raises:
            Unavailable: nothing came for a while although there is more.
            DataMissing: as ``poll``.
        """
        read_to(
            self.end(),
            self._at.topic,
            lambda: self.offset_next,
            self.poll,
            silent_polls_max=_SILENT_POLLS_MAX,
        )

    def reopen(self) -> None:
        """Read on with another client where this one, which has failed, stopped."""
        self._reader.close()
        self._reader = self._log.reader(committed=False, headers=True, follows=True)
        self._reader.assign({self._at: self.offset_next})

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()
        if self._expected.judge is not None:
            self._expected.judge.close()
