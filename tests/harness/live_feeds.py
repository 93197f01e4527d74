"""Sources that go on bucket by bucket in real time, and can be cut off and healed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from anabranch.adapters.system.clock import SystemClock
from harness.stages import Feed, readings
from harness.waiting import given_s

Rows = list[tuple[int, ...]]


class LiveFeed:
    """Closes one bucket of a source every ``period_ms``; while cut it holds back what it has,
    as a network that lost its packets.
    """

    def __init__(
        self, feed: Feed, rows_of: Callable[[int], Rows], period_ms: int, *, first: int = 1
    ) -> None:
        """``rows_of(bucket)``: the rows (event time, key, value) of a bucket."""
        self._feed = feed
        self._rows_of = rows_of
        self._period_ms = period_ms
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self._cut = threading.Event()
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.bucket = first - 1
        """The last bucket whose time has come."""
        self.sent = first - 1
        """The last bucket that the source has closed."""
        self.due_ms: dict[int, int] = {}
        """When each bucket's time had come, by the clock of ``waiting.given_s``."""
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)

    def cut(self) -> None:
        """Nothing of it arrives from now on; ``sent`` is what has arrived."""
        with self._sending:
            self._cut.set()

    def heal(self) -> None:
        """What was held back arrives at once."""
        self._cut.clear()

    def _run(self) -> None:
        begun = self._clock.monotonic_ms()
        try:
            count = 0
            while not self._stopping.is_set():
                count += 1
                due = begun + count * self._period_ms
                self._stopping.wait(max(0, due - self._clock.monotonic_ms()) / 1000)
                self.bucket += 1
                self.due_ms[self.bucket] = round(given_s() * 1_000)
                with self._sending:
                    if not self._cut.is_set() and not self._stopping.is_set():
                        self._send()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def _send(self) -> None:
        due = [
            row for bucket in range(self.sent + 1, self.bucket + 1) for row in self._rows_of(bucket)
        ]
        self._feed.append(readings(due) if due else None, self.bucket)
        self.sent = self.bucket
