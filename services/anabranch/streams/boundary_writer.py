"""Writer to a boundary log: epochs, appends, retries. ``protocol.log.writer`` decides which records
count and when they are sent again.
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
from anabranch.protocol.log.writer import OwnEntry, OwnRecords, Sendings
from anabranch.streams.boundary_reader import BoundaryReader, ExpectedStream, Judge, Listener

_FLUSH_TRIES: Final = 10
_RETRY_MS: Final = 200


class Signing(NamedTuple):
    """Keys with which a writer signs, and the judge of whose records it accepts. It must judge as
    readers of other owners do, so that it chains its records onto ones that they accepted.
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
        """``writers``: of the stream; or a reader of the log, which is the writer's from now on.
        ``started``: with which it begins an epoch; no other process has its token. ``signing``: of
        a stream that other owners read.
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
        self._reader.listen(self._seen)
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
        """From now on ``listener`` gets every record that is read, right after it was
        applied; before ``start``: all of the log, but what its reader had read already.
        """
        self._listener = listener

    def tip(self) -> BatchId | None:
        """Return the id of this replica's last accepted record; None if there is none."""
        return self.log_state.tip(self._started.replica)

    def start(self, may_begin: Callable[[LogState], None] = lambda _: None) -> int:
        """Begin an epoch (rule 1): append ``EpochStarted``, read the log through it. Returns the
        epoch. What stands there before is read first: another process of the replica writes until
        the epoch begins, and a long log is no reason for a pause. ``may_begin`` is called with all
        that stands there, and raises what keeps the epoch from beginning.

        Raises:
            Fenced: another process of this replica began after this one.
            ConfigurationError: a higher version of the stage makes the stream by now (BL15), or it
                has buckets of another width, or is made from another share of its inputs (BL16).
        """
        self._own.begins()
        self._reader.read_to_end()
        # First: another share is another state, too, and this says what to do about it.
        self._own.check_share(self.log_state)
        may_begin(self.log_state)
        is_acknowledged = self._send(self._started)
        # however long that takes: a long log is no reason to begin again
        self._reader.read_to_end()
        if not self._own.has_token:
            self._wait(self._started, lambda: self._own.has_token, is_acknowledged=is_acknowledged)
            self._reader.read_to_end()
        return self._own.begun(self.log_state)

    def check_epoch(self) -> None:
        """Check that the log, as far as it was read, has no newer epoch of this replica.

        Raises:
            Fenced: it has.
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
            LocalProtocolError: it has another epoch, or an earlier record is still in flight: a
                record may continue only one that was seen accepted.
        """
        self._own.put(record)
        self._queue(record)

    def await_accepted(self) -> BoundaryRecord | None:
        """Read the log until the record in flight is seen accepted (rule 2), and return it. Return
        None if none is in flight.

        Raises:
            Fenced: a newer epoch began, or the record was seen and rejected: this process is not
                the writer any more.
            TooManyParts: it was rejected, since too many parts are open.
        """
        record = self._own.under_way
        if not isinstance(record, BoundaryRecord):
            return None
        self._settle(record, self._flush)
        return record

    def append_other(self, entry: BranchEnded | Recomputed) -> None:
        """Append ``entry``, which is no batch's record, and read the log until it is seen (rule 2).

        Raises:
            Fenced: a newer epoch began.
        """
        self._own.put(entry)
        self._settle(entry, self._send)

    def poll(self, wait_ms: int = 0) -> int:
        """Read and apply new records, as ``BoundaryReader.poll``."""
        return self._reader.poll(wait_ms)

    def read_to_end(self) -> None:
        """Read and apply all records up to the log's present end.

        Raises:
            Unavailable: no record arrived for a while although the end is not reached.
        """
        self._reader.read_to_end()

    def close(self) -> None:
        """Idempotent."""
        self._close_writer()
        self._reader.close()

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _seen(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
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
        sendings = Sendings(self._at.topic, entry)
        sendings.sent(self._clock.monotonic_ms(), is_acknowledged=is_acknowledged)
        while not settled():
            self._reader.poll(50)
            if sendings.is_due_again(self._clock.monotonic_ms()):
                is_acknowledged = self._send(entry)
                sendings.sent(self._clock.monotonic_ms(), is_acknowledged=is_acknowledged)
