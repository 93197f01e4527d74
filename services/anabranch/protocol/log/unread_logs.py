"""Logs that one process follows side by side, of which some cannot be read now: the reasons, and
when each is opened anew.

Theory of operation. A log that gives no answer is asked again in the next round. A log that has
lost records which its reader needs must be opened anew: retention or a person has deleted them, the
log was truncated, a record is damaged, or trimming has overtaken the reader. The new reader begins
at the newest log snapshot (``protocol.log.log_snapshots``), and forgets what the one before had
read. If it fails, too, only a person can restore the log. Opening reads a log whole, so one that
fails again and again is opened with pauses. All other logs are read meanwhile.

Invariants:
    UR1 a log is known only if it was read without an error since it was last opened. Nothing is
        decided on the ground of a log that is not known. One that was read before and gives no
        answer stays known.
    UR2 after the first loss a log is opened anew at once, then at most once in OPEN_AGAIN_MS.
    UR3 each log that cannot be read is named with its newest reason until it is read again,
        whatever happens to the others.
    UR4 a log that has lost records and could not be opened anew is stuck until it is read again: a
        person must act.
"""

from __future__ import annotations

from typing import Final

OPEN_AGAIN_MS: Final = 10_000
"""Minimum interval between two openings of a log that has lost records, in ms."""


class UnreadLogs:
    """Reasons why logs cannot be read, and the times at which they are opened anew."""

    def __init__(self) -> None:
        self.why: dict[str, str] = {}
        """Reason why a log cannot be read, by name (UR3)."""
        self._known: set[str] = set()
        self._stuck: set[str] = set()
        self._opens_ms: dict[str, int] = {}
        """Time of the newest opening anew of each log that has lost records, in ms."""

    def is_due(self, name: str, now_ms: int) -> bool:
        """Return whether to read a log, or to open it, now (UR2). ``now_ms``: monotonic time."""
        return now_ms >= self._opens_ms.get(name, now_ms)

    def is_known(self, name: str) -> bool:
        """Return whether a log was read since it was last opened (UR1)."""
        return name in self._known

    @property
    def stuck(self) -> dict[str, str]:
        """Reasons of the logs that a person must restore, by name (UR4)."""
        return {name: self.why[name] for name in sorted(self._stuck)}

    def read(self, name: str) -> None:
        """Note that a log was read."""
        self._known.add(name)
        self._stuck.discard(name)
        self.why.pop(name, None)

    def delayed(self, name: str, why: str) -> None:
        """Note that a log cannot be read now, though it may have lost nothing."""
        self.why[name] = why

    def lost(self, name: str, why: str, now_ms: int) -> bool:
        """Note that a log has lost records, so that it must be opened anew. Return whether the
        reason is news.
        """
        if name not in self._known:
            self._stuck.add(name)
        self._known.discard(name)
        before_ms = self._opens_ms.get(name)
        self._opens_ms[name] = (
            now_ms if before_ms is None else max(now_ms, before_ms + OPEN_AGAIN_MS)
        )
        is_news = self.why.get(name) != why
        self.why[name] = why
        return is_news

    def dropped(self, name: str) -> None:
        """Forget a log that is not followed any more."""
        self._known.discard(name)
        self._stuck.discard(name)
        self.why.pop(name, None)
        self._opens_ms.pop(name, None)
