"""Receiver of the example's outputs: ordinary consumers, whose clock says when a result came."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from benchmarks.smart_grid.oracle import Prediction, Share
from benchmarks.smart_grid.validator import prediction_of, share_of
from demo.consuming import TopicReaders

PREDICTIONS: Final = "smart_grid.predictions"
OUTLIERS: Final = "smart_grid.outliers"
LIVE: Final = "smart_grid.predictions.live"

_RESULTS: Final = (b"insertion", b"tentative")


@dataclass(frozen=True, slots=True)
class Shown:
    """Result on the live topic."""

    load_mw: int
    received_s: float
    is_tentative: bool
    shed_permille: int


class Receiver:
    """Reader of both corrected topics and of the live predictions. Keeps every corrected record,
    and of each live prediction what was shown first.
    """

    def __init__(self, kafka: str, *, live: bool) -> None:
        self._lock = threading.Lock()
        self._corrected: dict[str, list[tuple[int, bytes]]] = {PREDICTIONS: [], OUTLIERS: []}
        self.first: dict[Prediction, Shown] = {}
        """First record of each prediction on the live topic."""
        topics = [PREDICTIONS, OUTLIERS, *([LIVE] if live else [])]
        self._readers = TopicReaders(kafka, dict.fromkeys(topics, self._take))
        self.newest_s = 0.0
        """Wall clock at which the last corrected result came."""
        self.came_s: dict[int, float] = {}
        """Wall clock at which the last corrected prediction came of those due at each second of the
        input.
        """

    def start(self) -> None:
        """Begin to read."""
        self._readers.start()

    def stop(self) -> None:
        """End reading.

        Raises:
            Exception: reading failed.
        """
        self._readers.stop()

    def received(self) -> tuple[int, int]:
        """Return the number of corrected predictions and shares so far."""
        with self._lock:
            return len(self._corrected[PREDICTIONS]), len(self._corrected[OUTLIERS])

    def predictions(self) -> list[tuple[Prediction, int]]:
        """Return the corrected predictions."""
        found = self._corrected[PREDICTIONS]
        return [prediction_of(json.loads(value), due) for due, value in found]

    def shares(self) -> list[tuple[Share, tuple[int, int]]]:
        """Return the corrected shares."""
        return [share_of(json.loads(value)) for _, value in self._corrected[OUTLIERS]]

    def _take(self, message: Message) -> None:
        now_s = time.time()
        headers = dict(message.headers() or [])
        value = message.value() or b""
        topic = message.topic() or ""
        if topic == LIVE:
            self._show(headers, value, now_s)
            return
        with self._lock:
            self._corrected[topic].append((_due(headers), value))
            self.newest_s = now_s
            if topic == PREDICTIONS:
                self.came_s[_due(headers)] = now_s

    def _show(self, headers: dict[str, bytes], value: bytes, now_s: float) -> None:
        kind = headers.get("anabranch-kind")
        if kind not in _RESULTS:
            return
        name, load_mw = prediction_of(json.loads(value), _due(headers))
        shed = int(headers.get("anabranch-shed", b"0"))
        self.first.setdefault(name, Shown(load_mw, now_s, kind == b"tentative", shed))


def _due(headers: dict[str, bytes]) -> int:
    """Return the second at whose end a result was due."""
    return int(headers["anabranch-event-time"]) // 1_000
