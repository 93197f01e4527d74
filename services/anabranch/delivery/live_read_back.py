"""Reads an output's live topic and its progress back after every failover, since no reported
outcome is trusted (rule 19).

A transaction of the live topic is in the log whole or not at all. So the newest committed progress
record states everything, and no ids need to be compared. An upsert view also keeps its state in its
topic: the newest record of every key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.codec import live_records
from anabranch.delivery.read_back import ForeignRecords, Waiting, committed, ends
from anabranch.delivery.rendering import Renderer
from anabranch.ports import EventLog
from anabranch.protocol.edge.live_delivery import LiveProgress
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.edge.views import UpsertView
from anabranch.protocol.errors import RemoteProtocolError

_NEWEST_RECORDS: Final = 1_000
"""Number of records at the end of each partition that are searched for other outputs. Few suffice:
every transaction of a live topic ends with a record in every partition.
"""


@dataclass(slots=True)
class Restored:
    """Records found in a live topic that are not part of its view's state."""

    foreign: ForeignRecords = field(default_factory=ForeignRecords)
    left_over: set[tuple[int, bytes]] = field(default_factory=set)
    """(partition, key) of values that other origins wrote and none has deleted."""


def last_live_progress(
    log: EventLog, topic: str, output: str, life: str, waiting: Waiting
) -> LiveProgress | None:
    """Return the newest committed progress record of ``output`` in this ``life`` of its stream
    (ON2), or None if its live topic was never begun in it.
    """
    found: list[LiveProgress] = []

    def take(_partition: int, value: bytes | None, _key: bytes | None, _headers: object) -> None:
        try:
            entry = live_records.decode_progress(value)
        except RemoteProtocolError:
            return  # another producer's record
        if (entry.output, entry.life) == (output, life):
            found[:] = [entry]

    starts, stops = ends(log, topic, 1)
    committed(log, topic, starts, stops, take, waiting, headers=False)
    return found[0] if found else None


def newest_origins(log: EventLog, topic: str, partitions: int, waiting: Waiting) -> set[Origin]:
    """Return the origins of the newest records of ``topic``, whichever outputs wrote them."""
    foreign = ForeignRecords()

    def take(
        _partition: int,
        _value: bytes | None,
        _key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        foreign.count(headers)

    starts, stops = ends(log, topic, partitions)
    newest = [max(start, stop - _NEWEST_RECORDS) for start, stop in zip(starts, stops, strict=True)]
    committed(log, topic, newest, stops, take, waiting, headers=True)
    return foreign.origins


def restore(
    log: EventLog, renderer: Renderer, view: UpsertView, origin: Origin, waiting: Waiting
) -> Restored:
    """Restore ``view`` from the newest records of ``origin`` in the renderer's topic. Return the
    records that are not of ``origin``.

    Raises:
        ConfigurationError: the view is larger than memory may hold.
    """
    found, own = Restored(), origin.header

    def take(
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        try:
            state = live_records.restored(headers, value)
        except RemoteProtocolError:
            found.foreign.count(headers)
            return
        if key is None:
            return
        if (live_records.ORIGIN_HEADER, own) in headers:
            found.left_over.discard((partition, key))
            view.restore(key, state)
            return
        found.foreign.count(headers)
        if value is None:
            found.left_over.discard((partition, key))
        else:
            found.left_over.add((partition, key))

    starts, stops = ends(log, renderer.topic, renderer.partitions)
    committed(log, renderer.topic, starts, stops, take, waiting, headers=True)
    view.apply(())
    return found
