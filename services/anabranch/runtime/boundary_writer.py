"""Appends to a boundary log as one writer of it: rules 1 and 2.

An acknowledgement proves nothing: a record counts when the writer has read it back from the log,
accepted. So an unknown outcome needs no case of its own: the identical record is sent again and the
log state ignores a second one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from anabranch.codec import boundary_records
from anabranch.codec.signed_records import Sign, signed
from anabranch.ports import Clock, EventLog, LogWriter, TopicPartition
from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    LocalProtocolError,
    OutcomeUnknown,
    TooManyParts,
    Unavailable,
)
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import PENDING_PARTS_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, LogEntry, Recomputed
from anabranch.runtime.boundary_reader import BoundaryReader, ExpectedStream, Judge, Listener

_SEND_TRIES: Final = 10
_SEEN_WAIT_MS: Final = 10_000
"""What was acknowledged is in the log: that it is not seen is the reader's trouble."""
_UNKNOWN_WAIT_MS: Final = 1_000
"""A record that may be lost is sent again soon: nothing goes on without it, and a second one
does no harm. (A second start of an epoch would.)
"""


class Signing(NamedTuple):
    """How a writer signs, and whose records it takes for accepted. Where it goes by the same as
    readers of other owners do, it chains its records onto those that they know.
    """

    sign: Sign
    judge: Judge | None = None


class BoundaryWriter:
    """One writer (a source's ingestion, or a replica of a stage) of one stream. Not thread-safe."""

    def __init__(
        self,
        log: EventLog,
        topic: str,
        writers: list[str],
        started: EpochStarted,
        clock: Clock,
        *,
        signing: Signing | None = None,
    ) -> None:
        """``started``: with which it begins an epoch; no other process has its token. ``signing``:
        of a stream that other owners read.
        """
        self._sign = None if signing is None else signing.sign
        self._log = log
        self._clock = clock
        self._started = started
        self._at = TopicPartition(topic, 0)
        self._reader = BoundaryReader(
            log,
            topic,
            writers,
            listener=self._seen,
            expected=ExpectedStream(
                bucket_ms=started.bucket_ms, judge=None if signing is None else signing.judge
            ),
        )
        self._writer: LogWriter | None = None
        self._token_offset = -1
        self._superseded = False
        self._rejected: dict[BatchId, str] = {}
        self._listener: Listener | None = None
        self._recomputed: Recomputed | None = None
        self._under_way: BoundaryRecord | None = None
        self._seen_wait_ms = _SEEN_WAIT_MS
        self.epoch = -1

    @property
    def replica(self) -> str:
        """As which it writes."""
        return self._started.replica

    @property
    def log_state(self) -> LogState:
        """The stream as this writer sees it."""
        return self._reader.log_state

    def listen(self, listener: Listener | None) -> None:
        """From now on ``listener`` gets every record that is read, right after it was
        applied; before ``start``: all of the log.
        """
        self._listener = listener

    def tip(self) -> BatchId | None:
        """Id of the last accepted record of this replica."""
        return self.log_state.tip(self._started.replica)

    def start(self) -> int:
        """Begin an epoch (rule 1): append ``EpochStarted``, read the log through it. Returns the
        epoch.

        Raises:
            Fenced: another process of this replica began after this one.
            ConfigurationError: a higher version of the stage makes the stream by now (BL15), or it
                has buckets of another width (BL16).
        """
        self._token_offset = -1
        self._send(self._started)
        # however long that takes: a long log is no reason to begin again
        self._reader.read_to_end()
        if self._token_offset < 0:
            self._wait(lambda: self._token_offset >= 0, "the epoch record")
            self._reader.read_to_end()
        if self._superseded:
            version, after = self.log_state.version
            message = (
                f"{self._at.topic}: version {version} makes this stream after bucket {after}, and"
                f" this process has version {self._started.version}: give the stage `version:"
                f" {version}` and its function, or `version: {version + 1}` to go back on purpose"
            )
            raise ConfigurationError(message)
        self.epoch = self._token_offset
        self.check_epoch()
        return self.epoch

    def check_epoch(self) -> None:
        """Raises Fenced when the log, as far as it was read, has a newer epoch of this replica."""
        current = self.log_state.epoch(self._started.replica)
        if current != self.epoch:
            message = (
                f"{self._at.topic}: epoch {self.epoch} of replica {self._started.replica} was ended by"
                f" epoch {current}"
            )
            raise Fenced(message)

    def append(self, record: BoundaryRecord) -> None:
        """``send`` and ``await_accepted``."""
        self.send(record)
        self.await_accepted()

    def send(self, record: BoundaryRecord) -> None:
        """Put ``record`` under way, without waiting. Whether it counts, ``await_accepted`` says.

        Raises:
            LocalProtocolError: it is of another epoch, or an earlier one is still under way: the
                chain goes on only from a record that is seen accepted.
        """
        if self._under_way is not None:
            message = f"record {record.id} given to a writer that waits for {self._under_way.id}"
            raise LocalProtocolError(message)
        if record.epoch != self.epoch:
            message = f"record of epoch {record.epoch} given to the writer of epoch {self.epoch}"
            raise LocalProtocolError(message)
        self._rejected.pop(record.id, None)
        self._under_way = record
        self._queue(record)

    def await_accepted(self) -> BoundaryRecord | None:
        """Rule 2: read the log until the record that is under way is seen accepted. Returns it;
        None: none is.

        Raises:
            Fenced: a newer epoch began, or the record was seen and rejected: this process is not
                the writer any more.
            TooManyParts: it was rejected since too much is open.
        """
        record = self._under_way
        if record is None:
            return None

        def settled() -> bool:
            self.check_epoch()
            if record.id in self._rejected:
                if self._rejected[record.id] == "pending":
                    message = (
                        f"{self._at.topic}: more than {PENDING_PARTS_MAX} parts would be open, the"
                        " most that readers hold"
                    )
                    raise TooManyParts(message)
                message = (
                    f"{self._at.topic}: own record {record.id} was rejected:"
                    f" {self._rejected[record.id]}"
                )
                raise Fenced(message)
            return self.log_state.accepted(self._started.replica, record.id)

        try:
            self._flush(record)
            self._wait(settled, f"record {record.id}", resend=record)
        finally:
            self._under_way = None
        return record

    def append_recomputed(self, entry: Recomputed) -> None:
        """Rule 2, for blocks that are named once more: append ``entry`` and read the log until it
        is seen.

        Raises:
            Fenced: a newer epoch began.
        """
        if entry.epoch != self.epoch:
            message = (
                f"recomputed blocks of epoch {entry.epoch} given to the writer of epoch"
                f" {self.epoch}"
            )
            raise LocalProtocolError(message)
        self._recomputed = entry
        self._send(entry)

        def seen() -> bool:
            self.check_epoch()
            return self._recomputed is None

        self._wait(seen, "the record of recomputed blocks", resend=entry)

    def poll(self, wait_ms: int = 0) -> int:
        """Read on without writing."""
        return self._reader.poll(wait_ms)

    def read_to_end(self) -> None:
        """Read on without writing, up to where the log ends now.

        Raises:
            Unavailable: nothing came for a while although there is more.
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
        if entry == self._started:
            self._token_offset, self._superseded = offset, not outcome.accepted
        if outcome.accepted and entry == self._recomputed:
            self._recomputed = None
        if (
            isinstance(entry, BoundaryRecord)
            and entry.replica == self._started.replica
            and not outcome.accepted
            and outcome.reason != "known"
        ):
            if len(self._rejected) > _SEND_TRIES:
                self._rejected.clear()  # zombies' records, not waited for
            self._rejected[entry.id] = outcome.reason
        if self._listener is not None:
            self._listener(offset, entry, outcome)

    def _send(self, entry: EpochStarted | BoundaryRecord | Recomputed) -> None:
        self._queue(entry)
        self._flush(entry)

    def _queue(self, entry: EpochStarted | BoundaryRecord | Recomputed) -> LogWriter:
        """Give ``entry`` to the client, and open one if there is none."""
        value, headers = boundary_records.encode(entry)
        if self._sign is not None:
            headers = [*headers, *signed(self._at.topic, value, self._sign)]
        if self._writer is None:
            self._writer = self._log.writer()
        self._writer.send(self._at, value, key=self._started.replica.encode(), headers=headers)
        return self._writer

    def _flush(self, entry: EpochStarted | BoundaryRecord | Recomputed) -> None:
        """Wait for an acknowledgement of ``entry``, which is queued, or an unknown outcome; the log
        says afterwards what happened.
        """
        for attempt in range(_SEND_TRIES):
            try:
                (self._writer or self._queue(entry)).flush()
            except OutcomeUnknown:
                self._close_writer()
                self._seen_wait_ms = _UNKNOWN_WAIT_MS
                return
            except Unavailable:
                self._close_writer()
                if attempt == _SEND_TRIES - 1:
                    raise
                self._clock.sleep_ms(200)
            else:
                self._seen_wait_ms = _SEEN_WAIT_MS
                return

    def _wait(
        self, done: Callable[[], bool], what: str, resend: BoundaryRecord | Recomputed | None = None
    ) -> None:
        deadline = self._clock.monotonic_ms() + (
            _SEEN_WAIT_MS if resend is None else self._seen_wait_ms
        )
        tries = 0
        while not done():
            self._reader.poll(50)
            if self._clock.monotonic_ms() > deadline:
                tries += 1
                if tries > _SEND_TRIES:
                    message = f"{self._at.topic}: {what} is not in the log after {tries} tries"
                    raise Unavailable(message)
                if resend is not None:
                    self._send(resend)
                else:
                    self._send(self._started)
                deadline = self._clock.monotonic_ms() + (
                    _SEEN_WAIT_MS if resend is None else self._seen_wait_ms
                )
