"""Reads an output's topics back after every failover, since no reported outcome is trusted (rule
19).

Once the older writer is fenced, each of this output's own transactions is committed or aborted. But
an open transaction of *another* producer in the same topic hides the records after it. So reading
goes up to the end of the log, not to the last stable offset, and waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.codec import control_records
from anabranch.codec.live_records import ID_HEADER, ORIGIN_HEADER
from anabranch.ports import EventLog, TopicPartition
from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.edge.origins import ORIGINS_MAX, Origin
from anabranch.protocol.errors import RemoteProtocolError, Unavailable
from anabranch.protocol.identifiers import RecordId

READ_BACK_SILENT_MS: Final = 240_000
"""Timeout for reading back without a new record, in ms. Longer than a transaction of this project
stays open, and as short as a writer's attempts (WRITE_TRIES_MAX).
"""

_FETCH_RECORDS: Final = 20_000
_WAIT_MS: Final = 100

Waiting = Callable[[str | None], None]
"""Callback that is told what reading back waits for, or None when records arrived. Raises to stop
waiting.
"""

Take = Callable[[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]], None]
"""Callback for one record: partition, value, key and headers."""


@dataclass(slots=True)
class ForeignRecords:
    """Records of a topic that other origins than the reader's own wrote."""

    records: int = 0
    origins: set[Origin] = field(default_factory=set)
    """Origins that their headers name, at most ORIGINS_MAX."""

    def count(self, headers: Sequence[tuple[str, bytes | None]]) -> Origin | None:
        """Count a record. Return the origin that its headers name, or None if they name none."""
        self.records += 1
        try:
            origin = Origin.parse(_text(headers, ORIGIN_HEADER))
        except RemoteProtocolError:
            return None
        if len(self.origins) < ORIGINS_MAX:
            self.origins.add(origin)
        return origin


def ends(
    log: EventLog, topic: str, partitions: int, *, committed: bool = False
) -> tuple[list[int], list[int]]:
    """Return the first and the end offsets of all partitions. The ends include open transactions;
    with ``committed`` they are those before the first open one.

    Raises:
        Unavailable: the broker does not answer.
    """
    reader = log.reader(committed=committed, headers=False)
    try:
        pairs = [reader.offsets(TopicPartition(topic, p)) for p in range(partitions)]
    finally:
        reader.close()
    return [start for start, _ in pairs], [end for _, end in pairs]


def last_progress(
    log: EventLog, topic: str, output: str, life: str, waiting: Waiting | None = None
) -> DeliveryProgress | None:
    """Return the newest progress record of ``output`` in this ``life`` of its stream (ON2), or None
    if it has none. Without ``waiting``, reads only up to the first open transaction.
    """
    found: list[DeliveryProgress] = []

    def take(_partition: int, value: bytes | None, _key: bytes | None, _headers: object) -> None:
        try:
            entry = control_records.decode(value)
        except RemoteProtocolError:
            return  # another producer's record
        if isinstance(entry, DeliveryProgress) and (entry.output, entry.life) == (output, life):
            found[:] = [entry]

    starts, stops = ends(log, topic, 1, committed=waiting is None)
    committed(log, topic, starts, stops, take, waiting or _never_waits, headers=False)
    return found[0] if found else None


def _never_waits(_text: str | None) -> None:
    """Do nothing: before the first open transaction every record is readable at once."""


def ids(
    log: EventLog,
    topic: str,
    read_from: Sequence[int],
    stops: Sequence[int],
    found: Callable[[RecordId], object],
    waiting: Waiting,
    *,
    origin: Origin,
    foreign: ForeignRecords,
) -> None:
    """Call ``found`` with every record id of ``origin`` in the topic's offset ranges (ON1), and
    count all other records in ``foreign``.
    """
    own = origin.header

    def take(
        _partition: int,
        _value: bytes | None,
        _key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        if (ORIGIN_HEADER, own) in headers:
            try:
                found(RecordId.parse(_text(headers, ID_HEADER)))
            except RemoteProtocolError:
                pass
            else:
                return
        foreign.count(headers)

    committed(log, topic, read_from, stops, take, waiting, headers=True)


def _text(headers: Sequence[tuple[str, bytes | None]], name: str) -> str:
    """Return the header ``name`` as text; empty if it is missing."""
    return (dict(headers).get(name) or b"").decode("ascii", "replace")


def committed(
    log: EventLog,
    topic: str,
    starts: Sequence[int],
    stops: Sequence[int],
    take: Take,
    waiting: Waiting,
    *,
    headers: bool,
) -> None:
    """Call ``take`` for every committed record in the offset ranges, and possibly for some after
    them.

    Raises:
        Unavailable: no record arrived for READ_BACK_SILENT_MS although the end is not reached.
    """
    todo = {TopicPartition(topic, p): stop for p, stop in enumerate(stops) if starts[p] < stop}
    if not todo:
        return
    reader = log.reader(committed=True, headers=headers)
    try:
        reader.assign({at: starts[at.partition] for at in todo})
        empty_fetches = 0
        while todo:
            chunks = reader.fetch(_FETCH_RECORDS, _WAIT_MS)
            for chunk in chunks:
                for value, key, head in zip(chunk.values, chunk.keys, chunk.headers, strict=True):
                    take(chunk.at.partition, value, key, head)
            todo = {at: stop for at, stop in todo.items() if reader.position(at) < stop}
            empty_fetches = 0 if chunks else empty_fetches + 1
            if chunks:
                waiting(None)
            elif todo:
                at = min(todo)
                text = (
                    f"{at.topic}[{at.partition}] is readable up to {reader.position(at)} of"
                    f" {todo[at]}: another producer's transaction is open, or the broker does not"
                    " answer"
                )
                if empty_fetches * _WAIT_MS > READ_BACK_SILENT_MS:
                    raise Unavailable(text)
                waiting(text)
    finally:
        reader.close()
