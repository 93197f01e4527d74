"""Receiver of the example's outputs: an ordinary consumer, whose clock says when an answer came."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Message

from demo.consuming import TopicReaders

TOPICS: Final = ("linear_road.notifications", "linear_road.answers")

_FORMS: Final[dict[int, str]] = {
    0: "0,{vid},{time},{emit},{lav},{toll}",
    1: "1,{time},{emit},{vid},{seg}",
    2: "2,{time},{emit},{result_time},{qid},{amount}",
    3: "3,{time},{emit},{qid},{amount}",
}
"""Output line of each type of row; rows of other types are no answers."""


def line_of(row: Mapping[str, object], emit_ms: int) -> str | None:
    """Return the output line for a row of the example's outputs that was received ``emit_ms`` after
    the run's beginning; None: the row is no answer.
    """
    kind = row["type"]
    form = _FORMS.get(kind) if isinstance(kind, int) else None
    return None if form is None else form.format(emit=f"{emit_ms / 1_000:.3f}", **row)


class Receiver:
    """Reader of the output topics that keeps every record and when it came."""

    def __init__(self, kafka: str) -> None:
        self._received: list[tuple[int, bytes]] = []
        self._lock = threading.Lock()
        self._readers = TopicReaders(kafka, dict.fromkeys(TOPICS, self._take))
        self.counts = dict.fromkeys(range(6), 0)
        """Records received so far, by type."""
        self.newest_s = -1
        """Latest second of the run of which an answer was received."""

    def start(self) -> None:
        """Begin to read."""
        self._readers.start()

    def stop(self) -> None:
        """End reading.

        Raises:
            Exception: reading failed.
        """
        self._readers.stop()

    def write(self, path: Path, start_ms: int) -> None:
        """Write the output lines, with times since ``start_ms``, in the order of arrival."""
        with path.open("w") as file:
            for received_ms, value in self._received:
                line = line_of(json.loads(value), received_ms - start_ms)
                if line is not None:
                    file.write(line + "\n")

    def has_answered(self, kinds: Sequence[tuple[int, int]]) -> bool:
        """Return whether there are at least as many records of each (type, number)."""
        return all(self.counts[kind] >= count for kind, count in kinds)

    def _take(self, message: Message) -> None:
        now_ms = time.time_ns() // 1_000_000
        value = message.value() or b""
        row = json.loads(value)
        with self._lock:
            self._received.append((now_ms, value))
            self.counts[row["type"]] += 1
            self.newest_s = max(self.newest_s, row["time"])
