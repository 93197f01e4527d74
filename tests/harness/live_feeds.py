"""Sources that go on bucket by bucket in real time, and can be cut off and healed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Self

import pytest

from anabranch.adapters.system.clock import SystemClock
from anabranch.local.deployment import spark_settings
from harness.stages import Feed, readings
from harness.waiting import given_s

Rows = list[tuple[int, ...]]


def pace_batches(monkeypatch: pytest.MonkeyPatch, replicas: int = 1) -> None:
    """Let the batches of the stages that start in this process from now on be as far apart as
    ``anabranch up`` lets those of ``replicas`` be: under a load that goes on in real time, batches
    without a pause cost a core and show no more.
    """
    for name, value in spark_settings(replicas).items():
        monkeypatch.setenv(name, value)


class LiveFeed:
    """One of the sources; while cut it holds back what it has, as a network that lost its
    packets.
    """

    def __init__(self, feed: Feed, rows_of: Callable[[int], Rows]) -> None:
        """``rows_of(bucket)``: the rows (event time, key, value) of a bucket."""
        self._feed = feed
        self._rows_of = rows_of
        self._cut = threading.Event()
        self._sending = threading.Lock()
        self.sent = 0
        """The last bucket that the source has closed."""

    def cut(self) -> None:
        """Nothing of it arrives from now on; ``sent`` is what has arrived."""
        with self._sending:
            self._cut.set()

    def heal(self) -> None:
        """Write at once, with the next bucket, what was withheld."""
        self._cut.clear()

    def send(self, upto: int) -> None:
        """Close all up to this bucket, unless it is cut."""
        with self._sending:
            if self._cut.is_set():
                return
            due = [
                row for bucket in range(self.sent + 1, upto + 1) for row in self._rows_of(bucket)
            ]
            self._feed.append(readings(due) if due else None, upto)
            self.sent = upto


class LiveFeeds:
    """Closes one bucket of all sources every ``period_ms``, or as fast as it can. One thread does
    it, source by source: none gets ahead of the others, however slow the machine is.
    """

    def __init__(self, feeds: Sequence[LiveFeed], period_ms: int) -> None:
        self._feeds = feeds
        self._period_ms = period_ms
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self._counting = threading.Lock()
        self._last: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.bucket = 0
        """The last bucket whose time has come."""
        self.due_ms: dict[int, int] = {}
        """When each bucket's time had come, by the clock of ``waiting.given_s``."""
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(30)

    def end_after(self, buckets: int) -> int:
        """All sources end with the same bucket, so many later: none lacks it. Returns it."""
        with self._counting:
            self._last = self.bucket + buckets
            return self._last

    def _run(self) -> None:
        due = self._clock.monotonic_ms()
        try:
            while True:
                due += self._period_ms
                self._stopping.wait(max(0, due - self._clock.monotonic_ms()) / 1000)
                with self._counting:
                    if self.bucket == self._last or self._stopping.is_set():
                        return
                    self.bucket += 1
                    self.due_ms[self.bucket] = round(given_s() * 1_000)
                for feed in self._feeds:
                    feed.send(self.bucket)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error
