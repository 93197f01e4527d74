"""Reads one partition up to an end that was asked for: all that stood there then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.protocol.errors import Unavailable

_POLL_MS: Final = 100


def read_to(
    end: int,
    topic: str,
    position: Callable[[], int],
    poll: Callable[[int], object],
    *,
    silent_polls_max: int,
) -> None:
    """Poll until ``position`` has come to ``end``.

    Args:
        end: The end offset.
        topic: For the message.
        position: The next offset that is read.
        poll: Reads on; waits up to so many ms for the first record.
        silent_polls_max: So many polls in a row may bring nothing.

    Raises:
        Unavailable: more than that bring nothing although there is more.
        Whatever ``poll`` raises.
    """
    silent = 0
    while (before := position()) < end:
        poll(_POLL_MS)
        silent = silent + 1 if position() == before else 0
        if silent > silent_polls_max:
            raise Unavailable(
                f"{topic}: nothing came after offset {before}, but it goes on to {end}"
            )
