"""FR2 of any kind of contract: what is written again, and wherever, changes nothing that is not
changed without it, and reading from the beginning gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from harness.markets import signature

LogT = TypeVar("LogT", bound=Any)
Spoken = tuple[Any, str]
"""A statement, and whose."""


def says_the_same(
    once: LogT,
    again: LogT,
    records: Sequence[tuple[Spoken, int]],
    data: st.DataObject,
    state: Callable[[LogT, int], object],
    counted: Sequence[Spoken] = (),
) -> None:
    """Write ``records``, each so many ms after the one before, into ``once``, and into ``again``
    with repetitions, and compare both after each.

    ``state``: what a log says at a time. ``counted``: what both have by now.
    """
    now_ms, known = 0, list(counted)

    def add(to: LogT, spoken: Spoken) -> str:
        statement, by = spoken
        reason: str = to.add(statement, signature(statement, by), now_ms)
        return reason

    for spoken, pause_ms in records:
        now_ms += pause_ms
        if spoken in known:
            continue
        if not add(once, spoken):
            known.append(spoken)
            assert add(again, spoken) == ""
            assert add(again, data.draw(st.sampled_from(known))) != ""
        assert state(once, now_ms) == state(again, now_ms)
        if once.ledger is not None:
            assert sum(once.ledger.balances().values()) == 0
