"""The records of the control, alarm and progress topics, as values. ``codec.control_records`` turns them into bytes and back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A service process is alive."""

    service: str
    name: str
    """Of the source, stage or output."""
    replica: str
    epoch: int
    """-1: it has none."""
    state: str
    bucket: int
    """Last bucket that it closed or delivered."""
    written_ms: int


@dataclass(frozen=True, slots=True)
class DeliveryProgress:
    """One transaction of an output's delivery, visible to read_committed readers together with what it wrote.

    Written are the tuples from (``first_bucket``, ``first_position``) up to, not including, (``last_bucket`` + 1, ``next_position``).
    """

    output: str
    first_bucket: int
    last_bucket: int
    """Written whole; one less than ``first_bucket`` where a large bucket is written in several transactions."""
    positions: tuple[tuple[int, int], ...]
    """(partition, offset) of every partition of the output topic: whatever is written from the first tuple on stands there or after."""
    written_ms: int
    first_position: int = 0
    next_position: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """What a person should look at."""

    kind: str
    stream: str
    bucket: int
    """-1: none in particular."""
    text: str
    written_ms: int


ControlRecord = Heartbeat | DeliveryProgress | Alarm
