"""What stands in an output's topics: read after every failover, since no outcome is believed (rule
19).

Records of our own transactions are visible or gone once the older writer is fenced, but a
transaction of *another* producer that is open in the same topic hides what stands behind it. So the
end to read up to is the end of the log, not the last stable offset, and the reader waits.
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
"""Without a record for so long reading back gives up, with what it waits for: longer than
transactions of ours are open, and as short as a writer's attempts
(WRITE_TRIES_MAX).
"""

_FETCH_RECORDS: Final = 20_000
_WAIT_MS: Final = 100

Waiting = Callable[[str | None], None]
"""Gets what the caller waits for, None: something came; raises to give up."""

Take = Callable[[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]], None]
"""Called with the partition, value, key and headers of a record."""


@dataclass(slots=True)
class Strange:
    """Records of a topic that are not of the origin that reads them back."""

    records: int = 0
    origins: set[Origin] = field(default_factory=set)
    """Origins that they name, ORIGINS_MAX at most."""

    def count(self, headers: Sequence[tuple[str, bytes | None]]) -> Origin | None:
        """Count a record; return the origin that its headers name, None: they name none."""
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
    """First and end offset of each partition, open transactions included; with ``committed`` up to
    the first of these.

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
    """Return the newest progress record of ``output`` in this ``life`` of its stream (ON2); None:
    nothing was ever delivered in it. Without ``waiting``: of those before the first transaction
    that is open.
    """
    found: list[DeliveryProgress] = []

    def take(_partition: int, value: bytes | None, _key: bytes | None, _headers: object) -> None:
        try:
            entry = control_records.decode(value)
        except RemoteProtocolError:
            return  # not ours, and only ours count
        if isinstance(entry, DeliveryProgress) and (entry.output, entry.life) == (output, life):
            found[:] = [entry]

    starts, stops = ends(log, topic, 1, committed=waiting is None)
    committed(log, topic, starts, stops, take, waiting or _go_on, headers=False)
    return found[0] if found else None


def _go_on(_text: str | None) -> None:
    """Nothing is waited for that may not come."""


def ids(
    log: EventLog,
    topic: str,
    read_from: Sequence[int],
    stops: Sequence[int],
    found: Callable[[RecordId], object],
    waiting: Waiting,
    *,
    origin: Origin,
    strange: Strange,
) -> None:
    """Call ``found`` with every id of ``origin`` in the topic's offset ranges (ON1), and count all
    other records in ``strange``.
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
        strange.count(headers)

    committed(log, topic, read_from, stops, take, waiting, headers=True)


def _text(headers: Sequence[tuple[str, bytes | None]], name: str) -> str:
    """Return the header ``name`` as text; empty: there is none."""
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
    """Call ``take`` for the committed records in the offset ranges, which some partitions may go
    beyond.

    Raises:
        Unavailable: nothing came for READ_BACK_SILENT_MS although there is more.
    """
    todo = {TopicPartition(topic, p): stop for p, stop in enumerate(stops) if starts[p] < stop}
    if not todo:
        return
    reader = log.reader(committed=True, headers=headers)
    try:
        reader.assign({at: starts[at.partition] for at in todo})
        silent = 0
        while todo:
            chunks = reader.fetch(_FETCH_RECORDS, _WAIT_MS)
            for chunk in chunks:
                for value, key, head in zip(chunk.values, chunk.keys, chunk.headers, strict=True):
                    take(chunk.at.partition, value, key, head)
            todo = {at: stop for at, stop in todo.items() if reader.position(at) < stop}
            silent = 0 if chunks else silent + 1
            if chunks:
                waiting(None)
            elif todo:
                at = min(todo)
                text = (
                    f"{at.topic}[{at.partition}] is readable up to {reader.position(at)} of"
                    f" {todo[at]}: an open transaction, or no broker"
                )
                if silent * _WAIT_MS > READ_BACK_SILENT_MS:
                    raise Unavailable(text)
                waiting(text)
    finally:
        reader.close()
