"""Writer of a source's dead letters: rejected records with their original bytes and the reason.

Delivery is at least once: a crash between the flush and the boundary record repeats dead letters.
Readers de-duplicate them by (topic, partition, offset), which the headers carry. After a crash a
record may also be accepted that was a dead letter before: one rejected as ``beyond_max_ahead``
since the clock has moved on, or a late one if the source then has another number of shards.

A record that is too large for the topic or the client is truncated; its headers name the place of
the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.ports import TopicPartition
from anabranch.protocol.errors import OutcomeUnknown, RecordRejected, RecordTooLarge, Unavailable
from anabranch.protocol.limits import (
    DEAD_LETTER_CUT_BYTES,
    DEAD_LETTER_CUT_MORE_BYTES,
    WRITE_TRIES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anabranch.ports import Chunk, EventLog, Headers, LogWriter

ERROR_CHARACTERS_MAX: Final = 1_000
"""Maximum length of the explanation in a dead letter's header, in characters: value and headers
must together fit the topic's size limit.
"""

TRUNCATED: Final = "anabranch-truncated"
"""Header of a truncated dead letter: total size of the original's key, value and headers, in
bytes.
"""

_RESERVED_PREFIX: Final = "anabranch-"
"""Prefix of the header names that this writer adds."""
_SENDER_PREFIX: Final = "sender-"
"""Prefix put before a producer's header names that start with the reserved prefix: a reader that
takes the first header of a name must not get a place or reason that a producer wrote.
"""


class _DeadLetter(NamedTuple):
    """Rejected record with its place and the reason."""

    at: TopicPartition
    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    why: RecordRejected
    cut_from_bytes: int | None = None
    """Size of the original in bytes; None if not truncated."""

    @property
    def size_bytes(self) -> int:
        """Total size of key, value and headers, in bytes."""
        return (
            len(self.value or b"")
            + len(self.key or b"")
            + sum(len(_sent_name(name)) + len(text or b"") for name, text in self.headers)
        )

    def sent_headers(self) -> Iterator[tuple[str, bytes | None]]:
        """Return the producer's headers, duplicates and nulls included. They are renamed where they
        use the reserved prefix, or have names that are not UTF-8, which the client cannot send.
        """
        for name, text in self.headers:
            is_reserved = name.lower().startswith(_RESERVED_PREFIX)
            sent = _sent_name(name).decode()
            yield (_SENDER_PREFIX + sent if is_reserved else sent), text

    @property
    def reason(self) -> list[tuple[str, bytes | None]]:
        """Headers that state the record's place, the reason, and its size if it was truncated."""
        return [
            *(
                []
                if self.cut_from_bytes is None
                else [(TRUNCATED, str(self.cut_from_bytes).encode())]
            ),
            ("anabranch-topic", self.at.topic.encode()),
            ("anabranch-partition", str(self.at.partition).encode()),
            ("anabranch-offset", str(self.offset).encode()),
            ("anabranch-reason", self.why.reason.value.encode()),
            ("anabranch-error", str(self.why)[:ERROR_CHARACTERS_MAX].encode(errors="replace")),
        ]

    def cut(self) -> _DeadLetter:
        """Return a truncated copy that fits the limit of any topic."""
        only = self._replace(value=None, key=None)
        return self._replace(
            value=None if self.value is None else self.value[:DEAD_LETTER_CUT_BYTES],
            key=None if self.key is None else self.key[:DEAD_LETTER_CUT_MORE_BYTES],
            headers=self.headers if only.size_bytes <= DEAD_LETTER_CUT_MORE_BYTES else (),
            cut_from_bytes=self.size_bytes,
        )


def _sent_name(name: str) -> bytes:
    """Return the name of a header in UTF-8. A byte that is not, which a reader gives as a
    surrogate, is written in hexadecimal, with a backslash and an x before it.
    """
    raw = name.encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "backslashreplace").encode()


class DeadLetters:
    """Writer to one dead-letter topic. Not thread-safe."""

    def __init__(self, log: EventLog, topic: str, partitions: int) -> None:
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._writer: LogWriter | None = None
        self._queued: list[_DeadLetter] = []

    def add(self, chunk: Chunk, index: int, why: RecordRejected) -> None:
        """Queue record ``index`` of ``chunk`` for the next ``flush``. Records of one input
        partition stay in order.
        """
        self._queued.append(
            _DeadLetter(
                chunk.at,
                chunk.offsets[index],
                chunk.values[index],
                chunk.keys[index],
                chunk.headers[index],
                why,
            )
        )

    def flush(self) -> None:
        """Send the queued dead letters and wait until all are in the log. Sends all again after
        an unknown outcome, or if one is too large.

        Raises:
            Unavailable: the topic rejects one for good, or the outcomes of WRITE_TRIES_MAX attempts
                are unknown.
        """
        if self._queued:
            for letter in self._queued:
                self._put(letter)
            self._await_written(self._queued)
            self._queued.clear()

    def close(self) -> None:
        """Close the writer. Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _await_written(self, letters: Sequence[_DeadLetter], *, is_cut: bool = False) -> None:
        """Wait until ``letters``, which were sent, are in the log; resend or truncate them where
        needed.

        The client does not report which record was too large, and the broker rejects the whole
        request that holds it. So each large record is sent alone, and truncated if it is rejected
        alone.
        """
        for _ in range(WRITE_TRIES_MAX):
            try:
                self._open().flush()
            except OutcomeUnknown:
                # A writer that does not know an outcome takes no more records: open a new one.
                self.close()
                for letter in letters:
                    self._put(letter)
            except RecordTooLarge:
                if is_cut:
                    raise
                alone = len(letters) == 1
                for some in [[letters[0].cut()]] if alone else _isolate_large(letters):
                    for letter in some:
                        self._put(letter)
                    self._await_written(some, is_cut=alone)
                return
            else:
                return
        message = (
            f"{self._topic}: the outcome of {WRITE_TRIES_MAX} attempts to write dead letters is"
            " unknown"
        )
        raise Unavailable(message)

    def _put(self, letter: _DeadLetter) -> None:
        at = TopicPartition(self._topic, letter.at.partition % self._partitions)
        self._open().send(
            at, letter.value, key=letter.key, headers=[*letter.sent_headers(), *letter.reason]
        )

    def _open(self) -> LogWriter:
        if self._writer is None:
            self._writer = self._log.writer()
        return self._writer


def _isolate_large(letters: Sequence[_DeadLetter]) -> list[list[_DeadLetter]]:
    """Group ``letters``: the small ones together and each large one alone. If all are small, or
    all are large, each one alone.
    """
    small = [letter for letter in letters if letter.size_bytes <= DEAD_LETTER_CUT_BYTES]
    if len(small) in (0, len(letters)):
        return [[letter] for letter in letters]
    return [small, *([letter] for letter in letters if letter.size_bytes > DEAD_LETTER_CUT_BYTES)]
