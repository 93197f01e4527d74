"""What stands in an output's live topics: read after every failover, since no outcome is believed
(rule 19).

A transaction of the live topic is wholly there or not at all. So the newest progress record that a
committed reader sees says all, and there are no ids to compare. An upsert view also keeps its state
in its topic: the newest record of every key.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.codec import live_records
from anabranch.delivery.read_back import Waiting, committed, ends
from anabranch.ports import EventLog
from anabranch.protocol.edge.live_delivery import LiveProgress
from anabranch.protocol.edge.views import UpsertView
from anabranch.protocol.errors import RemoteProtocolError


def last_progress(log: EventLog, topic: str, output: str, waiting: Waiting) -> LiveProgress | None:
    """The newest committed progress record of ``output``; None: its live topic was never begun."""
    found: list[LiveProgress] = []

    def take(value: bytes | None, _key: bytes | None, _headers: object) -> None:
        try:
            entry = live_records.decode_progress(value)
        except RemoteProtocolError:
            return  # not ours, and only ours count
        if entry.output == output:
            found[:] = [entry]

    starts, stops = ends(log, topic, 1)
    committed(log, topic, starts, stops, take, waiting, headers=False)
    return found[0] if found else None


def restore(log: EventLog, topic: str, partitions: int, view: UpsertView, waiting: Waiting) -> int:
    """Give ``view`` the state that stands in its topic. Returns how many records are not
    delivery's.

    Raises:
        ConfigurationError: there is more than memory should hold.
    """
    foreign = 0

    def take(
        value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> None:
        nonlocal foreign
        try:
            state = live_records.restored(headers, value)
        except RemoteProtocolError:
            foreign += 1
            return
        if key is not None:
            view.restore(key, state)

    starts, stops = ends(log, topic, partitions)
    committed(log, topic, starts, stops, take, waiting, headers=True)
    view.apply(())
    return foreign
