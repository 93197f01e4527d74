"""Receiver of the example's outputs: an ordinary consumer, whose clock says when an answer came."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl
from confluent_kafka import Message

from anabranch.codec import live_records
from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.edge.views import LiveRecord
from benchmarks.linear_road.answers import KINDS, parse
from demo.consuming import TopicReaders

TOPICS: Final = ("linear_road.notifications", "linear_road.answers")

_FORMS: Final[dict[int, str]] = {
    0: "0,{vid},{time},{emit},{lav},{toll}",
    1: "1,{time},{emit},{vid},{seg}",
    2: "2,{time},{emit},{result_time},{qid},{amount}",
    3: "3,{time},{emit},{qid},{amount}",
}
"""Output line of each type of row; rows of other types are no answers."""


def live_topic(corrected: str) -> str:
    """Return the live topic beside a corrected one."""
    return f"{corrected}.live"


def line_of(row: Mapping[str, object], emit_ms: int) -> str | None:
    """Return the output line for a row of the example's outputs that was received ``emit_ms`` after
    the run's beginning; None: the row is no answer.
    """
    kind = row["type"]
    form = _FORMS.get(kind) if isinstance(kind, int) else None
    return None if form is None else form.format(emit=f"{emit_ms / 1_000:.3f}", **row)


@dataclass(slots=True)
class _Shown:
    """Record of a live topic. Times are in ms since 1970."""

    came_ms: int
    value: bytes
    is_tentative: bool
    corrected_ms: int | None = None


class LiveAnswers:
    """Records of the live topics, and when tentative ones were corrected.

    A tentative record is corrected by the first boundary of its partition that says that its bucket
    is stable: the transaction of this boundary, or one before it, has the right answers.
    """

    def __init__(self) -> None:
        self._shown: list[_Shown] = []
        self._open: dict[tuple[str, int], list[tuple[int, _Shown]]] = {}
        """Tentative records that are not corrected, with their buckets, by topic and partition."""

    @property
    def is_corrected(self) -> bool:
        """Whether no tentative record is left."""
        return not any(self._open.values())

    def take(self, place: tuple[str, int], record: LiveRecord, now_ms: int) -> None:
        """Take the next record of ``place``, a topic and partition, that came at ``now_ms``."""
        waiting = self._open.setdefault(place, [])
        if record.kind in (Kind.INSERTION, Kind.TENTATIVE):
            is_tentative = record.kind is Kind.TENTATIVE
            shown = _Shown(now_ms, record.value or b"", is_tentative)
            self._shown.append(shown)
            if is_tentative and record.id is not None:
                waiting.append((record.id.bucket, shown))
        elif record.kind is Kind.BOUNDARY:
            for bucket, shown in waiting:
                if bucket <= record.stable:
                    shown.corrected_ms = now_ms
            self._open[place] = [each for each in waiting if each[0] > record.stable]

    def tables(self, start_ms: int) -> dict[str, pl.DataFrame]:
        """Return the answers of each kind in the order of their arrival, with the columns of
        ``answers.COLUMNS``, ``is_tentative`` and ``corrected_ms``. Times are since ``start_ms``.
        """
        lines: list[str] = []
        marks: dict[str, list[tuple[bool, int | None]]] = {kind: [] for kind in KINDS}
        for each in self._shown:
            row = json.loads(each.value)
            line = line_of(row, each.came_ms - start_ms)
            if line is not None:
                lines.append(line)
                corrected_ms = None if each.corrected_ms is None else each.corrected_ms - start_ms
                marks[KINDS[row["type"]]].append((each.is_tentative, corrected_ms))
        answers = parse(lines)
        columns = {"is_tentative": pl.Boolean, "corrected_ms": pl.Int64}
        return {
            kind: pl.concat(
                [answers.table(kind), pl.DataFrame(marks[kind], schema=columns, orient="row")],
                how="horizontal",
            )
            for kind in KINDS
        }


class Received:
    """Records in the order of their arrival, and when they came: lines of a file, since in memory
    those of a long run would take room from the system under test.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")

    def add(self, received_ms: int, value: bytes) -> None:
        """Append a record: JSON in one line."""
        self._file.write(b"%d %b\n" % (received_ms, value))

    def rows(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Close the file, return each time and record, and delete the file at the end."""
        self._file.close()
        with self._path.open("rb") as file:
            for line in file:
                received_ms, _, value = line.partition(b" ")
                yield int(received_ms), json.loads(value)
        self._path.unlink()


class Receiver:
    """Reader of the output topics that keeps every record and when it came."""

    def __init__(self, kafka: str, received: Path, *, reads_live: bool = False) -> None:
        """``received``: path of a file to keep the records in. ``reads_live``: read the live topics
        beside the corrected ones, too.
        """
        self._received = Received(received)
        self._lock = threading.Lock()
        takers = dict.fromkeys(TOPICS, self._take)
        if reads_live:
            takers |= dict.fromkeys(map(live_topic, TOPICS), self._take_live)
        self._readers = TopicReaders(kafka, takers)
        self.live = LiveAnswers()
        """Content of the live topics so far; nothing unless they are read."""
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
            for received_ms, row in self._received.rows():
                line = line_of(row, received_ms - start_ms)
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
            self._received.add(now_ms, value)
            self.counts[row["type"]] += 1
            self.newest_s = max(self.newest_s, row["time"])

    def _take_live(self, message: Message) -> None:
        now_ms = time.time_ns() // 1_000_000
        record = live_records.decode(message.headers() or [], message.key(), message.value())
        with self._lock:
            self.live.take((message.topic() or "", message.partition() or 0), record, now_ms)
