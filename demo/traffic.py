"""Traffic on toll roads: position reports as JSON, written to Kafka by an ordinary client. No
project code.

Theory of operation. Every expressway has a fleet of vehicles that report in turn, so the rate is
steady. A vehicle enters on a ramp (lane 0), drives some miles at a speed that falls with the number
of vehicles around it, leaves (lane 4), and another takes its place. Reports are due on a fixed
schedule; ``time`` is the schedule's time less a small out-of-orderness, so what comes later in the
chain can be measured against the schedule and not against whenever this process got around to it.

A small share of records is bad on purpose. What becomes of each is known beforehand: ``Truth``
holds the reports that count and the records that must be rejected, with their reason. The same seed
and start make the same records.

    python -m demo.traffic --kafka $KAFKA --rate 1000 --duration 60 --truth truth
    python -m demo.traffic --kafka $KAFKA --rate 100000 --duration 10 --preload
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from confluent_kafka import KafkaError, KafkaException, Message, Producer

SEGMENTS: Final = 100
FEET_PER_SEGMENT: Final = 5280
FEET_PER_REPORT_AND_MPH: Final = 44
"""Distance between two reports at 1 mph, in feet: Linear Road's, whose reports are 30 s apart; here
they come every ``report_interval_s``.
"""
OUT_OF_ORDERNESS_MS: Final = 150
"""Maximum age of a report at its turn, in ms. Below the ``out_of_orderness`` of the sources, so
that it makes no report late.
"""
LATE_AFTER_MS: Final = 10_000
"""Time before which no record is late, in ms: a source that has closed no bucket yet finds nothing
late.
"""
DAY_MS: Final = 86_400_000
HEARTBEAT_HEADER: Final = "anabranch-heartbeat"
HEARTBEAT_EVERY_MS: Final = 250
COLUMNS: Final = ("time", "vehicle", "speed", "xway", "lane", "dir", "seg", "pos")
BAD: Final = (
    "not_json",
    "wrong_type",
    "missing_field",
    "extra_field",
    "out_of_range",
    "empty_value",
    "null_value",
    "late",
    "beyond_max_ahead",
)
"""Reasons for which records are rejected, as in the dead letters."""


class Report(NamedTuple):
    """Position report, in the order of ``COLUMNS``."""

    time: int
    vehicle: int
    speed: int
    xway: int
    lane: int
    dir: int
    seg: int
    pos: int


class Planned(NamedTuple):
    """Record to write. ``rejected`` is the reason why it must be rejected; empty if it counts."""

    due_ms: int
    xway: int
    vehicle: int
    value: bytes | None
    report: Report
    rejected: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """Parameters of the traffic. ``rate`` is in reports per second and expressway; times are ms
    since 1970.
    """

    start_ms: int
    end_ms: int
    rate: int = 1_000
    expressways: int = 3
    seed: int = 1
    bad_share: float = 0.005
    has_late: bool = True
    """Late records are only sure to be late where the clock passes between them and what went
    before: not when a topic is preloaded.
    """
    report_interval_s: int = 5

    def reports_total(self) -> int:
        """Return the number of good reports that will be generated; bad ones come on top."""
        return (self.end_ms - self.start_ms) * self.rate // 1_000 * self.expressways


@dataclass(slots=True)
class _Vehicle:
    number: int
    direction: int
    pos: int
    miles_left: float
    lane: int


class Expressway:
    """Road with its fleet. Each ``report`` is that of the vehicle whose turn it is."""

    def __init__(self, number: int, traffic: Traffic) -> None:
        self._number = number
        self._random = random.Random(traffic.seed * 1_000 + number)
        self._next_vehicle = number * 100_000_000
        self._counts = [[0] * SEGMENTS, [0] * SEGMENTS]
        fleet = max(1, traffic.rate * traffic.report_interval_s)
        self._usual = max(1.0, fleet / 2 / SEGMENTS)
        self._fleet = [self._enter(lane=1 + turn % 3) for turn in range(fleet)]
        self._turn = 0

    def report(self, time_ms: int) -> Report:
        """Return the next vehicle's report, then move the vehicle."""
        turn = self._turn
        self._turn = (turn + 1) % len(self._fleet)
        vehicle = self._fleet[turn]
        seg = vehicle.pos // FEET_PER_SEGMENT
        density = self._counts[vehicle.direction][seg] / self._usual
        speed = int(60 - 15 * max(0.0, density - 0.5) + self._random.gauss(0, 5))
        speed = min(100, max(5, speed))
        report = Report(
            time_ms,
            vehicle.number,
            speed,
            self._number,
            vehicle.lane,
            vehicle.direction,
            seg,
            vehicle.pos,
        )
        self._move(turn, vehicle, seg, speed)
        return report

    def _move(self, turn: int, vehicle: _Vehicle, seg: int, speed: int) -> None:
        if vehicle.lane == 4:
            self._counts[vehicle.direction][seg] -= 1
            self._fleet[turn] = self._enter(lane=0)
            return
        way = speed * FEET_PER_REPORT_AND_MPH
        pos = vehicle.pos + (way if vehicle.direction == 0 else -way)
        vehicle.miles_left -= way / FEET_PER_SEGMENT
        vehicle.pos = min(SEGMENTS * FEET_PER_SEGMENT - 1, max(0, pos))
        is_leaving = vehicle.miles_left <= 0 or vehicle.pos != pos
        vehicle.lane = 4 if is_leaving else 1 + (vehicle.number + speed) % 3
        self._counts[vehicle.direction][seg] -= 1
        self._counts[vehicle.direction][vehicle.pos // FEET_PER_SEGMENT] += 1

    def _enter(self, lane: int) -> _Vehicle:
        """Create a vehicle. Most enter near the middle, so that segments there are crowded and cost
        a toll.
        """
        choice = self._random
        pos = int(
            choice.triangular(0, SEGMENTS * FEET_PER_SEGMENT - 1, SEGMENTS * FEET_PER_SEGMENT / 2)
        )
        direction = choice.getrandbits(1)
        self._next_vehicle += 1
        self._counts[direction][pos // FEET_PER_SEGMENT] += 1
        return _Vehicle(self._next_vehicle, direction, pos, choice.uniform(0.0, 10.0), lane)


def encode(report: Report) -> bytes:
    """Return a report as JSON."""
    return (
        f'{{"time":{report.time},"vehicle":{report.vehicle},"speed":{report.speed},"xway":{report.xway},'
        f'"lane":{report.lane},"dir":{report.dir},"seg":{report.seg},"pos":{report.pos}}}'
    ).encode()


def spoil(report: Report, reason: str) -> bytes | None:
    """Return the value of a record that must be rejected for ``reason``.

    Raises:
        KeyError: the reason is not one of ``BAD``.
    """
    good = encode(report)
    makers: dict[str, Callable[[], bytes | None]] = {
        "not_json": lambda: good[:-7],
        "wrong_type": lambda: good.replace(b'"speed":%d' % report.speed, b'"speed":"fast"'),
        "missing_field": lambda: good.replace(b'"vehicle":%d,' % report.vehicle, b""),
        "extra_field": lambda: good[:-1] + b',"colour":"red"}',
        "out_of_range": lambda: encode(report._replace(vehicle=2**40)),
        "empty_value": lambda: b"",
        "null_value": lambda: None,
        "late": lambda: encode(report._replace(time=report.time - DAY_MS)),
        "beyond_max_ahead": lambda: encode(report._replace(time=report.time + 3650 * DAY_MS)),
    }
    return makers[reason]()


def plan(traffic: Traffic, per_turn: Sequence[int] = ()) -> Iterator[Planned]:
    """Yield all records in the order in which they are due.

    Args:
        traffic: Parameters.
        per_turn: Number of reports of each expressway in each turn, which may change meanwhile;
            empty: one of each.
    """
    roads = [Expressway(number, traffic) for number in range(traffic.expressways)]
    choice = random.Random(traffic.seed)
    late_from_ms = traffic.start_ms + LATE_AFTER_MS
    turns = (traffic.end_ms - traffic.start_ms) * traffic.rate // 1_000
    for turn in range(turns):
        due_ms = traffic.start_ms + turn * 1_000 // traffic.rate
        for road in range(traffic.expressways):
            for _ in range(per_turn[road] if per_turn else 1):
                older_ms = int(choice.random() * OUT_OF_ORDERNESS_MS)
                report = roads[road].report(max(traffic.start_ms, due_ms - older_ms))
                yield Planned(due_ms, road, report.vehicle, encode(report), report, "")
                if choice.random() >= traffic.bad_share:
                    continue
                reason = choice.choice(BAD)
                if reason == "late" and (due_ms < late_from_ms or not traffic.has_late):
                    reason = "not_json"
                yield Planned(due_ms, road, report.vehicle, spoil(report, reason), report, reason)


class Rejected(NamedTuple):
    """Record that must become a dead letter: its place in the input, the reason, and its
    content.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes | None
    """Value as it was written; records of the traffic have no key."""

    @property
    def place(self) -> tuple[str, int, int]:
        """Place in the input, which identifies the record."""
        return self.topic, self.partition, self.offset


@dataclass(slots=True)
class Truth:
    """Written records: the reports that count, column by column, and the records that do not."""

    columns: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("q") for name in COLUMNS}
    )
    rejected: list[Rejected] = field(default_factory=list)

    def add(self, report: Report) -> None:
        """Note one report that counts."""
        for name, value in zip(COLUMNS, report, strict=True):
            self.columns[name].append(value)

    def reports(self) -> pl.DataFrame:
        """Return the reports that count."""
        return pl.DataFrame(
            {
                name: np.frombuffer(values, dtype=np.int64) if values else []
                for name, values in self.columns.items()
            }
        )

    def write(self, folder: Path) -> None:
        """Write ``reports.parquet`` and ``rejected.parquet``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.reports().write_parquet(folder / "reports.parquet")
        schema = {
            "topic": pl.String,
            "partition": pl.Int32,
            "offset": pl.Int64,
            "reason": pl.String,
            "value": pl.Binary,
        }
        pl.DataFrame(self.rejected, schema=schema, orient="row").write_parquet(
            folder / "rejected.parquet"
        )


class TrafficWriter:
    """Writes planned records, paced or as fast as they go, then heartbeats that close what is still
    open.

    ``written`` counts the records handed to the client so far and may be read from another thread.
    """

    def __init__(self, kafka: str, topics: list[str]) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                # a retry must neither repeat nor reorder: the truth has each record once
                "enable.idempotence": True,
                "compression.type": "lz4",
                # some 200 records a second and partition: every request costs the broker more than
                # what it holds
                "linger.ms": 100,
                "queue.buffering.max.messages": 500_000,
                # a lost connection is retried; what stays undelivered is reported per record
                "log_level": 2,
            }
        )
        self._topics = topics
        self._partitions = {topic: self._partition_count(topic) for topic in topics}
        self._errors: list[KafkaError] = []
        self.written = 0
        self.per_turn = [1] * len(topics)
        """Number of reports of each expressway in each turn. Another thread may change it."""
        self.behind_ms_max = 0
        """How far the generator itself was behind its schedule at worst."""

    def run(
        self,
        traffic: Traffic,
        *,
        is_paced: bool,
        closing_ms: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> Truth:
        """Write everything; returns what was written, once all of it is acknowledged.

        Heartbeats go to every partition until their time has passed ``traffic.end_ms`` by
        ``closing_ms``; paced, they keep to the clock, so that the last results are not early.

        Raises:
            KafkaException: a record could not be written.
        """
        truth = Truth()
        for planned in plan(traffic, self.per_turn):
            if is_paced:
                self._wait_for(planned.due_ms)
            if stop():
                break
            self._write(planned, truth)
        until_ms = traffic.end_ms + closing_ms
        beat_ms = traffic.end_ms if is_paced else until_ms
        while beat_ms <= until_ms and not stop():
            if is_paced:
                self._wait_for(beat_ms)
            self._heartbeat(beat_ms)
            beat_ms += HEARTBEAT_EVERY_MS
        self._flush()
        return truth

    def _partition_count(self, topic: str) -> int:
        metadata = self._producer.list_topics(topic, timeout=10).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return len(metadata.partitions)

    def _wait_for(self, due_ms: int) -> None:
        while True:
            now_ms = time.time_ns() // 1_000_000
            if now_ms >= due_ms:
                self.behind_ms_max = max(self.behind_ms_max, now_ms - due_ms)
                return
            self._producer.poll(0)
            time.sleep(max(0.005, min(0.1, (due_ms - now_ms) / 1_000)))

    def _write(self, planned: Planned, truth: Truth) -> None:
        topic = self._topics[planned.xway]
        partition = planned.vehicle % self._partitions[topic]
        if planned.rejected:
            self._produce(
                topic, partition, planned.value, on_delivery=self._note_rejected(truth, planned)
            )
        else:
            truth.add(planned.report)
            self._produce(topic, partition, planned.value, on_delivery=self._note_error)
        self.written += 1

    def _produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        on_delivery: Callable[[KafkaError | None, Message], None],
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    partition=partition,
                    on_delivery=on_delivery,
                    headers=headers or [],
                )
            except BufferError:  # the queue is full: let some of it go out
                self._producer.poll(0.1)
            else:
                return

    def _heartbeat(self, time_ms: int) -> None:
        headers = [(HEARTBEAT_HEADER, str(time_ms).encode())]
        for topic, count in self._partitions.items():
            for partition in range(count):
                self._produce(topic, partition, None, on_delivery=self._note_error, headers=headers)

    def _note_error(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _note_rejected(
        self, truth: Truth, planned: Planned
    ) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._errors.append(error)
                return
            topic = message.topic()
            partition = message.partition()
            offset = message.offset()
            if topic is not None and partition is not None and offset is not None:
                truth.rejected.append(
                    Rejected(topic, partition, offset, planned.rejected, planned.value)
                )

        return note

    def _flush(self) -> None:
        left = self._producer.flush(60)
        if left and not self._errors:
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))  # noqa: SLF001 - the client's only name for it
        if self._errors:
            raise KafkaException(self._errors[0])


def span(now_ms: int, duration_s: float, align_ms: int, *, is_paced: bool) -> tuple[int, int]:
    """(start, end) of the traffic in ms: the end on a multiple of ``align_ms``, at least
    ``duration_s`` after the start.

    Paced traffic begins now; preloaded traffic ends in the past, for nothing may be in front of the
    clock.
    """
    duration_ms = int(duration_s * 1_000)
    if is_paced:
        return now_ms, -(-(now_ms + duration_ms) // align_ms) * align_ms
    end_ms = now_ms // align_ms * align_ms - align_ms
    return end_ms - duration_ms, end_ms


def main() -> int:
    """Write the traffic that the command line asks for. Return the exit code: 0 all written, 1 the
    broker rejected records or did not answer.
    """
    parser = argparse.ArgumentParser(
        description="Writes position reports of toll roads to the topics reports.0, reports.1 ..."
    )
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT", help="bootstrap address")
    parser.add_argument(
        "--rate", type=int, default=1_000, help="reports per second and expressway (default 1000)"
    )
    parser.add_argument(
        "--duration", type=float, default=40.0, help="seconds of traffic (default 40)"
    )
    parser.add_argument("--expressways", type=int, default=3)
    parser.add_argument(
        "--topics",
        help="comma-separated topics, one per expressway (default reports.0,reports.1,...)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--bad-share",
        type=float,
        default=0.005,
        help="share of records that are bad on purpose (default 0.005)",
    )
    parser.add_argument(
        "--preload",
        action="store_true",
        help="as fast as possible, with simulated time that ends in the past",
    )
    parser.add_argument(
        "--align",
        type=int,
        default=10_000,
        metavar="MS",
        help="end on a multiple of this (default 10000)",
    )
    parser.add_argument(
        "--truth", type=Path, metavar="DIR", help="write what was sent here, for the oracle"
    )
    options = parser.parse_args()
    is_paced = not options.preload
    start_ms, end_ms = span(
        time.time_ns() // 1_000_000, options.duration, options.align, is_paced=is_paced
    )
    traffic = Traffic(
        start_ms=start_ms,
        end_ms=end_ms,
        rate=options.rate,
        expressways=options.expressways,
        seed=options.seed,
        bad_share=options.bad_share,
        has_late=is_paced,
    )
    topics = (
        options.topics.split(",")
        if options.topics
        else [f"reports.{number}" for number in range(options.expressways)]
    )
    begin = time.monotonic()
    try:
        writer = TrafficWriter(options.kafka, topics)
        truth = writer.run(traffic, is_paced=is_paced, closing_ms=3_000)
    except KafkaException as error:
        print(f"traffic: {error}", file=sys.stderr)
        return 1
    if options.truth is not None:
        truth.write(options.truth)
    print(
        f"{writer.written} records in {time.monotonic() - begin:.1f} s, {len(truth.rejected)} of"
        " them bad on purpose"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
