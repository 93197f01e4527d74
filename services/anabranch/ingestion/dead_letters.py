"""Dead letters: records that cannot be used, as they came, with the reason.

At least once: a crash between the flush and the boundary record repeats them, so a reader
identifies one by (topic, partition, offset), which are in its headers. (One that was
``beyond_max_ahead`` may, after a crash, be taken as a row instead; one that was late, if the source
then has another number of shards.)

One that is too large for the topic, or for the client, goes there cut: the whole record is where
its headers say.
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
"""Characters of an explanation in a header of a dead letter: the value may have to fit the
topic's limit with it.
"""

TRUNCATED: Final = "anabranch-truncated"
"""Header of a dead letter that was cut: how many bytes key, value and headers of the original
have.
"""

_OURS: Final = "anabranch-"
_SENDERS: Final = "sender-"
"""Goes before the names of a sender's headers that look like ours: who reads the first one of a
name must not get a place or reason from senders.
"""


class _Letter(NamedTuple):
    """A record that cannot be used, and why."""

    at: TopicPartition
    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    why: RecordRejected
    cut_from_bytes: int | None = None
    """Size of the original; None: it is not cut."""

    @property
    def size_bytes(self) -> int:
        """Of key, value and headers."""
        return (
            len(self.value or b"")
            + len(self.key or b"")
            + sum(len(name.encode()) + len(text or b"") for name, text in self.headers)
        )

    def sent_headers(self) -> Iterator[tuple[str, bytes | None]]:
        """Those of the sender; none can be taken for ours."""
        for name, text in self.headers:
            yield (_SENDERS + name if name.lower().startswith(_OURS) else name), text

    @property
    def reason(self) -> list[tuple[str, bytes | None]]:
        """As headers: where the record stood, why it is here, and whether it was cut."""
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

    def cut(self) -> _Letter:
        """So small that the topic takes it."""
        only = self._replace(value=None, key=None)
        return self._replace(
            value=None if self.value is None else self.value[:DEAD_LETTER_CUT_BYTES],
            key=None if self.key is None else self.key[:DEAD_LETTER_CUT_MORE_BYTES],
            headers=self.headers if only.size_bytes <= DEAD_LETTER_CUT_MORE_BYTES else (),
            cut_from_bytes=self.size_bytes,
        )


class DeadLetters:
    """Writes to one dead-letter topic. Not thread-safe."""

    def __init__(self, log: EventLog, topic: str, partitions: int) -> None:
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._writer: LogWriter | None = None
        self._queued: list[_Letter] = []

    def add(self, chunk: Chunk, index: int, why: RecordRejected) -> None:
        """Record ``index`` of ``chunk`` goes with the next ``flush``; records of one input
        partition stay in order.
        """
        self._queued.append(
            _Letter(
                chunk.at,
                chunk.offsets[index],
                chunk.values[index],
                chunk.keys[index],
                chunk.headers[index],
                why,
            )
        )

    def flush(self) -> None:
        """Send what was added, and wait until all of it is in the log. After an unknown outcome, or
        where one is too large, all are sent again.

        Raises:
            Unavailable: the topic rejects one for good, or does not say what became of
                WRITE_TRIES_MAX attempts.
        """
        if self._queued:
            for letter in self._queued:
                self._put(letter)
            self._settle(self._queued)
            self._queued.clear()

    def close(self) -> None:
        """Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _settle(self, letters: Sequence[_Letter], *, is_cut: bool = False) -> None:
        """``letters`` were sent: wait until they are in the log.

        The client does not report which one was too large, and what is sent together with a large
        one is rejected with it. So the large ones go each alone, and one that is rejected alone
        goes cut.
        """
        for _ in range(WRITE_TRIES_MAX):
            try:
                self._open().flush()
            except OutcomeUnknown:
                self.close()
                for letter in letters:
                    self._put(letter)
            except RecordTooLarge:
                if is_cut:
                    raise
                alone = len(letters) == 1
                for some in [[letters[0].cut()]] if alone else _apart(letters):
                    for letter in some:
                        self._put(letter)
                    self._settle(some, is_cut=alone)
                return
            else:
                return
        message = (
            f"{self._topic}: the outcome of {WRITE_TRIES_MAX} attempts to write dead letters is"
            " unknown"
        )
        raise Unavailable(message)

    def _put(self, letter: _Letter) -> None:
        at = TopicPartition(self._topic, letter.at.partition % self._partitions)
        self._open().send(
            at, letter.value, key=letter.key, headers=[*letter.sent_headers(), *letter.reason]
        )

    def _open(self) -> LogWriter:
        if self._writer is None:
            self._writer = self._log.writer()
        return self._writer


def _apart(letters: Sequence[_Letter]) -> list[list[_Letter]]:
    """The small ones of ``letters`` together, and each other one alone; where all are small,
    each alone.
    """
    small = [letter for letter in letters if letter.size_bytes <= DEAD_LETTER_CUT_BYTES]
    if len(small) in (0, len(letters)):
        return [[letter] for letter in letters]
    return [small, *([letter] for letter in letters if letter.size_bytes > DEAD_LETTER_CUT_BYTES)]
