"""What stands in an output's live topics: read after every failover, since no outcome is believed
(rule 19).

A transaction of the live topic is wholly there or not at all. So the newest progress record that a
committed reader sees says all, and there are no ids to compare. An upsert view also keeps its state
in its topic: the newest record of every key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.codec import live_records
from anabranch.delivery.read_back import Strange, Waiting, committed, ends
from anabranch.delivery.rendering import Renderer
from anabranch.ports import EventLog
from anabranch.protocol.edge.live_delivery import LiveProgress
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.edge.views import UpsertView
from anabranch.protocol.errors import RemoteProtocolError

_NEWEST_RECORDS: Final = 1_000
"""Number of records at the end of a partition in which other outputs are looked for. Each
transaction of a live topic ends with a record in every partition.
"""


@dataclass(slots=True)
class Restored:
    """Content of a live topic beside the state of its view."""

    strange: Strange = field(default_factory=Strange)
    left_over: set[tuple[int, bytes]] = field(default_factory=set)
    """(partition, key) of the values that other origins have left."""


def last_progress(
    log: EventLog, topic: str, output: str, life: str, waiting: Waiting
) -> LiveProgress | None:
    """Return the newest committed progress record of ``output`` in this ``life`` of its stream
    (ON2); None: its live topic was never begun in it.
    """
    found: list[LiveProgress] = []

    def take(_partition: int, value: bytes | None, _key: bytes | None, _headers: object) -> None:
        try:
            entry = live_records.decode_progress(value)
        except RemoteProtocolError:
            return  # not ours, and only ours count
        if (entry.output, entry.life) == (output, life):
            found[:] = [entry]

    starts, stops = ends(log, topic, 1)
    committed(log, topic, starts, stops, take, waiting, headers=False)
    return found[0] if found else None


def newest_origins(log: EventLog, topic: str, partitions: int, waiting: Waiting) -> set[Origin]:
    """Return the origins of the newest records of ``topic``, whichever outputs wrote them."""
    strange = Strange()

    def take(
        _partition: int,
        _value: bytes | None,
        _key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        strange.count(headers)

    starts, stops = ends(log, topic, partitions)
    newest = [max(start, stop - _NEWEST_RECORDS) for start, stop in zip(starts, stops, strict=True)]
    committed(log, topic, newest, stops, take, waiting, headers=True)
    return strange.origins


def restore(
    log: EventLog, renderer: Renderer, view: UpsertView, origin: Origin, waiting: Waiting
) -> Restored:
    """Give ``view`` the state that records of ``origin`` left in the renderer's topic.

    Raises:
        ConfigurationError: there is more than memory should hold.
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
            found.strange.count(headers)
            return
        if key is None:
            return
        if (live_records.ORIGIN_HEADER, own) in headers:
            found.left_over.discard((partition, key))
            view.restore(key, state)
            return
        found.strange.count(headers)
        if value is None:
            found.left_over.discard((partition, key))
        else:
            found.left_over.add((partition, key))

    starts, stops = ends(log, renderer.topic, renderer.partitions)
    committed(log, renderer.topic, starts, stops, take, waiting, headers=True)
    view.apply(())
    return found
