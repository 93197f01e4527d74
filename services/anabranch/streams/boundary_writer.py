"""Writer of a boundary log: epochs, appends, retries. ``protocol.log.writer`` decides which records
count and when to send one again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from anabranch.codec import boundary_records
from anabranch.codec.signed_records import Sign, signed
from anabranch.ports import Clock, EventLog, LogWriter, TopicPartition
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    Recomputed,
)
from anabranch.protocol.log.writer import OwnEntry, OwnRecords, SendRetries
from anabranch.streams.boundary_reader import BoundaryReader, ExpectedStream, Judge, Listener

_FLUSH_TRIES: Final = 10
"""Maximum number of flushes of one record while the broker is unavailable."""
_RETRY_MS: Final = 200
"""Pause between two of them, in ms."""


class Signing(NamedTuple):
    """Signature function of a writer, and the judge of the records that it accepts. The judge must
    decide as readers of other owners do, so that the writer chains its records onto ones that they
    accepted.
    """

    sign: Sign
    judge: Judge | None = None


class BoundaryWriter:
    """Writer of one stream: a source's ingestion, or a replica of a stage. Not thread-safe."""

    def __init__(
        self,
        log: EventLog,
        topic: str,
        writers: list[str] | BoundaryReader,
        started: EpochStarted,
        clock: Clock,
        *,
        signing: Signing | None = None,
    ) -> None:
        """Prepare the writer; ``start`` begins its epoch.

        Args:
            log: The cluster of the topic.
            topic: The boundary log's topic.
            writers: The stream's replicas; or an open reader of the log, which this writer takes
                over.
            started: The record that begins the epoch. Its token is unique to this process.
            clock: The clock of this process.
            signing: Signs the records, for a stream that other owners read.
        """
        self._sign = None if signing is None else signing.sign
        self._log = log
        self._clock = clock
        self._started = started
        self._at = TopicPartition(topic, 0)
        self._reader = (
            writers
            if isinstance(writers, BoundaryReader)
            else BoundaryReader(
                log,
                topic,
                writers,
                expected=ExpectedStream(
                    bucket_ms=started.bucket_ms, judge=None if signing is None else signing.judge
                ),
            )
        )
        self._reader.listen(self._on_entry)
        self._writer: LogWriter | None = None
        self._own = OwnRecords(topic, started)
        self._listener: Listener | None = None

    @property
    def replica(self) -> str:
        """Name of the replica that it writes as."""
        return self._started.replica

    @property
    def epoch(self) -> int:
        """Epoch that this writer began; -1 before that."""
        return self._own.epoch

    @property
    def log_state(self) -> LogState:
        """State of the stream, as far as this writer has read the log."""
        return self._reader.log_state

    def listen(self, listener: Listener | None) -> None:
        """Call ``listener`` with every record that is read from now on, right after it was applied.
        Set before ``start``, it is called with the whole log, except what a given reader had read
        already.
        """
        self._listener = listener

    def tip(self) -> BatchId | None:
        """Return the id of this replica's last accepted record; None if there is none."""
        return self.log_state.tip(self._started.replica)

    def start(self, may_begin: Callable[[LogState], None] = lambda _: None) -> int:
        """Begin an epoch (rule 1): append ``EpochStarted`` and read the log through it. Return the
        epoch.

        The existing log is read first: the replica's previous process writes until the epoch
        begins, so a long log causes no pause. ``may_begin`` is called with the state of that log,
        and raises if no epoch may begin.

        Raises:
            Fenced: another process of this replica began after this one.
            ConfigurationError: a higher version of the stage writes the stream by now (BL15), or
                the stream has buckets of another width, or another share of the inputs (BL16).
        """
        self._own.begins()
        self._reader.read_to_end()
        # Checked first: another share is another state, too, and this error says what to do.
        self._own.check_share(self.log_state)
        may_begin(self.log_state)
        is_acknowledged = self._send(self._started)
        # However long this takes: a long log does not make ``EpochStarted`` due again.
        self._reader.read_to_end()
        if not self._own.has_token:
            self._wait(self._started, lambda: self._own.has_token, is_acknowledged=is_acknowledged)
            self._reader.read_to_end()
        return self._own.begun(self.log_state)

    def check_epoch(self) -> None:
        """Check that the log, as far as it was read, has no newer epoch of this replica.

        Raises:
            Fenced: the log has one.
        """
        self._own.check_epoch(self.log_state)

    def append(self, record: BoundaryRecord) -> None:
        """Send ``record`` and wait until it is accepted. Raises as ``send`` and
        ``await_accepted``.
        """
        self.send(record)
        self.await_accepted()

    def send(self, record: BoundaryRecord) -> None:
        """Send ``record`` without waiting; ``await_accepted`` returns whether it counts.

        Raises:
            LocalProtocolError: ``record`` has another epoch, or an earlier record is still in
                flight: a record may continue only one that was seen accepted.
        """
        self._queue(self._own.put(record))

    def await_accepted(self) -> BoundaryRecord | None:
        """Read the log until the record in flight is seen accepted (rule 2), and return it. Return
        None if none is in flight.

        Raises:
            Fenced: a newer epoch began, or the log rejected the record: this process is no longer
                the writer.
            TooManyParts: the log rejected the record, since too many parts are open.
        """
        record = self._own.under_way
        if not isinstance(record, BoundaryRecord):
            return None
        self._settle(record, self._flush)
        return record

    def append_other(self, entry: BranchEnded | Recomputed) -> None:
        """Append ``entry``, which is not a batch's record, and read the log until it is seen (rule
        2).

        Raises:
            Fenced: a newer epoch began.
        """
        self._settle(self._own.put(entry), self._send)

    def poll(self, wait_ms: int = 0) -> int:
        """Read and apply new records; see ``BoundaryReader.poll``."""
        return self._reader.poll(wait_ms)

    def read_to_end(self) -> None:
        """Read and apply all records up to the log's present end.

        Raises:
            Unavailable: no record arrived for a while although the end is not reached.
        """
        self._reader.read_to_end()

    def close(self) -> None:
        """Close the producer and the reader. Idempotent."""
        self._close_writer()
        self._reader.close()

    def _close_writer(self) -> None:
        """Close the producer; the next record opens another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _on_entry(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Note a record that was read, and pass it to the listener."""
        self._own.seen(offset, entry, outcome)
        if self._listener is not None:
            self._listener(offset, entry, outcome)

    def _settle(self, entry: OwnEntry, deliver: Callable[[OwnEntry], bool]) -> None:
        """Call ``deliver`` for ``entry`` and wait until it is seen in the log."""
        try:
            self._wait(
                entry,
                lambda: self._own.is_settled(self.log_state),
                is_acknowledged=deliver(entry),
            )
        finally:
            self._own.forget()

    def _send(self, entry: OwnEntry) -> bool:
        """Send ``entry``. Return whether it was acknowledged."""
        self._queue(entry)
        return self._flush(entry)

    def _queue(self, entry: OwnEntry) -> LogWriter:
        """Queue ``entry`` at the client, which is opened if needed; return the client."""
        value, headers = boundary_records.encode(entry)
        if self._sign is not None:
            headers = [*headers, *signed(self._at.topic, value, self._sign)]
        if self._writer is None:
            self._writer = self._log.writer()
        self._writer.send(self._at, value, key=self._started.replica.encode(), headers=headers)
        return self._writer

    def _flush(self, entry: OwnEntry) -> bool:
        """Wait for the acknowledgement of ``entry``, which is queued. False if the outcome is
        unknown: reading the log then shows what happened.
        """
        for attempt in range(_FLUSH_TRIES):
            try:
                (self._writer or self._queue(entry)).flush()
            except OutcomeUnknown:
                self._close_writer()
                return False
            except Unavailable:
                self._close_writer()
                if attempt == _FLUSH_TRIES - 1:
                    raise
                self._clock.sleep_ms(_RETRY_MS)
            else:
                break
        return True

    def _wait(self, entry: OwnEntry, settled: Callable[[], bool], *, is_acknowledged: bool) -> None:
        """Read the log until ``entry``, which was sent, is ``settled``; send it again when due."""
        sendings = SendRetries(self._at.topic, entry)
        sendings.sent(self._clock.monotonic_ms(), is_acknowledged=is_acknowledged)
        while not settled():
            self._reader.poll(50)
            if sendings.is_due_again(self._clock.monotonic_ms()):
                is_acknowledged = self._send(entry)
                sendings.sent(self._clock.monotonic_ms(), is_acknowledged=is_acknowledged)
