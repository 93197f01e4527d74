"""``python -m benchmarks.chain``: starts the pipeline with ``anabranch up``, feeds it, follows its
live topic, and prints one line per run.

The delay of a window is from its end to the broker's time of its first result on the live topic.
Everything runs on this machine: the figures are those of the whole, traffic left out.
``--anabranch`` runs another installation, to compare two versions side by side.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from benchmarks.processes import exit_on_signals, memory_mib, tree

_HERE: Final = Path(__file__).parent
_WINDOW_MS: Final = 5_000
_SOURCES: Final = ("a", "b")
_KEYS: Final = (8, 6, 3)
_START_S_MAX: Final = 180
_DRAIN_S_MAX: Final = 60
_STEP_S: Final = 0.05
_HEARTBEAT: Final = "anabranch-heartbeat"

_Key = tuple[int, int, int, int]
"""Window end, shop, product, channel."""


@dataclass
class Figures:
    """Figures of one run."""

    ready_s: float
    idle_cores: float
    delays_ms: dict[int, int] = field(default_factory=dict)
    """Delay of the first result of each window, by window end."""
    load_cores: float = 0.0
    memory_gib: float = 0.0
    wrong: int = 0

    def in_words(self) -> str:
        """One line."""
        known = sorted(self.delays_ms.values())
        ages = f"{median(known) / 1_000:.2f} / {known[-1] / 1_000:.2f} s" if known else "none"
        return (
            f"ready {self.ready_s:.1f} s; idle {self.idle_cores:.2f} core; {len(known)} windows,"
            f" delay p50 / max {ages}; load {self.load_cores:.2f} core; {self.memory_gib:.2f} GiB;"
            f" wrong {self.wrong}"
        )


class Traffic(threading.Thread):
    """Writes sales of now to both sources until told to stop; a source may be paused."""

    def __init__(self, kafka: str, rate: int) -> None:
        super().__init__(name="traffic", daemon=True)
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5, "log_level": 2})
        self._rate, self._ending = rate, threading.Event()
        self.paused: set[str] = set()
        self.truth: Counter[_Key] = Counter()
        self.counts: Counter[_Key] = Counter()

    def run(self) -> None:
        """Write the traffic, as the body of the thread."""
        draw = random.Random(7)
        begun = time.time()
        written = 0
        unsent: dict[str, list[bytes]] = {source: [] for source in _SOURCES}
        while not self._ending.wait(_STEP_S):
            while written < (time.time() - begun) * self._rate:
                source, time_ms = _SOURCES[written % 2], int(time.time() * 1_000)
                shop, product, channel = (draw.randrange(count) for count in _KEYS)
                value = draw.randrange(-1, 50)
                if value > 0:
                    key = (time_ms // _WINDOW_MS * _WINDOW_MS + _WINDOW_MS, shop, product, channel)
                    self.truth[key] += value
                    self.counts[key] += 1
                sale = {
                    "shop": shop,
                    "product": product,
                    "channel": channel,
                    "value": value,
                    "time": time_ms,
                }
                unsent[source].append(json.dumps(sale).encode())
                written += 1
            self._send(unsent)
        self.paused.clear()
        self._send(unsent)
        for source in _SOURCES:
            for partition in range(2):
                end = str(int(time.time() * 1_000) + 2 * _WINDOW_MS).encode()
                self._producer.produce(
                    f"chain.in.{source}", partition=partition, headers=[(_HEARTBEAT, end)]
                )
        self._producer.flush(30)

    def _send(self, unsent: dict[str, list[bytes]]) -> None:
        for source, values in unsent.items():
            if source not in self.paused:
                for number, value in enumerate(values):
                    self._producer.produce(f"chain.in.{source}", value, partition=number % 2)
                values.clear()
        self._producer.poll(0)

    def end(self) -> None:
        """No more; what there is is closed."""
        self._ending.set()
        self.join()


def _messages(
    kafka: str, topic: str, partitions: int = 2
) -> Iterator[tuple[dict[str, str], bytes | None, int]]:
    """(headers, value, the broker's time in ms) of all that is there, and of what comes; a
    pause gives nothing for a moment.
    """
    reader = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "anabranch.unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    reader.assign([KafkaPartition(topic, partition, 0) for partition in range(partitions)])
    try:
        while True:
            message = reader.poll(0.5)
            if message is None:
                yield {}, None, 0
            elif message.error() is None:
                headers = {name: (value or b"").decode() for name, value in message.headers() or []}
                yield headers, message.value(), message.timestamp()[1]
    finally:
        reader.close()


def _cpu_s(pid: int) -> float:
    return sum(tree(pid).values())


@contextmanager
def _running(
    program: str, folder: Path, replicas: int
) -> Iterator[tuple[subprocess.Popen[bytes], str, float]]:
    """Start a program and yield (the supervisor, Kafka's address, seconds until ready)."""
    for name in ("functions.py", "sale.avsc", "pipeline.yaml"):
        shutil.copy(_HERE / name, folder)
    file = folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("replicas: 1", f"replicas: {replicas}"))
    log = folder / "up.log"
    begun = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "up", "-f", str(file), "--state-dir", str(folder / "state")],
            stdout=output,
            stderr=output,
        )
    try:
        while not (ready := re.search(r"^ready +kafka (\S+)", log.read_text(), re.MULTILINE)):
            if process.poll() is not None or time.monotonic() - begun > _START_S_MAX:
                raise RuntimeError(f"it is not ready: {log.read_text()[-2_000:]}")
            time.sleep(0.05)
        yield process, ready[1], time.monotonic() - begun
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def run(program: str, given: argparse.Namespace) -> Figures:
    """One run."""
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-chain-") as name,
        _running(program, Path(name), given.replicas) as (process, kafka, ready_s),
    ):
        before, idle_s = _cpu_s(process.pid), given.idle
        time.sleep(idle_s)
        found = Figures(ready_s, (_cpu_s(process.pid) - before) / idle_s if idle_s else 0.0)
        traffic = Traffic(kafka, given.rate)
        traffic.start()
        begun = time.time()
        time.sleep(given.warm)
        measured, used = time.time(), _cpu_s(process.pid)
        time.sleep(given.seconds / 2)
        if given.pause:
            traffic.paused.add("b")
            time.sleep(given.pause)
            traffic.paused.clear()
        time.sleep(given.seconds / 2)
        found.load_cores = (_cpu_s(process.pid) - used) / (time.time() - measured)
        found.memory_gib = sum(memory_mib(pid)[0] for pid in tree(process.pid)) / 1024
        until = time.time()
        traffic.end()
        _judge(kafka, traffic, found, (begun + given.skip, until))
    return found


def _judge(kafka: str, traffic: Traffic, found: Figures, span_s: tuple[float, float]) -> None:
    """Read both topics: delays of windows that end within ``span_s``, and whether each
    corrected result is right, once.
    """
    last = max(traffic.truth)[0]
    first_shown: dict[int, int] = {}
    deadline = time.monotonic() + _DRAIN_S_MAX
    corrected: Counter[tuple[_Key, int, int]] = Counter()
    wanted = Counter({(key, traffic.counts[key], total): 1 for key, total in traffic.truth.items()})
    for headers, value, _ in _messages(kafka, "chain.revenue"):
        if value is not None:
            row = json.loads(value)
            corrected[
                (int(headers["anabranch-event-time"]), row["shop"], row["product"], row["channel"]),
                row["sales"],
                row["revenue"],
            ] += 1
        elif corrected.total() >= wanted.total() or time.monotonic() > deadline:
            break
    found.wrong = ((corrected - wanted) + (wanted - corrected)).total()
    for headers, value, at_ms in _messages(kafka, "chain.live"):
        if value is not None and headers.get("anabranch-kind") in ("insertion", "tentative"):
            first_shown.setdefault(int(headers["anabranch-event-time"]), at_ms)
        elif value is None and not headers and (last in first_shown or time.monotonic() > deadline):
            break
    found.delays_ms = {
        end: at - end for end, at in first_shown.items() if span_s[0] <= end / 1_000 <= span_s[1]
    }


def main() -> int:
    """Run each program in turn. Return 1 if a result was wrong, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chain", description=__doc__)
    parser.add_argument(
        "--anabranch",
        action="append",
        metavar="PROGRAM",
        help="an installation to run; may be repeated (default: this one)",
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--rate", type=int, default=950, help="records per second (default 950)")
    parser.add_argument(
        "--idle",
        type=float,
        default=10.0,
        metavar="S",
        help="without input, before the traffic (default 10)",
    )
    parser.add_argument(
        "--skip",
        type=float,
        default=5.0,
        metavar="S",
        help="windows that end in the first seconds do not count (default 5)",
    )
    parser.add_argument(
        "--warm",
        type=float,
        default=20.0,
        metavar="S",
        help="processor time counts from then on (default 20)",
    )
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="of traffic after that (default 40)"
    )
    parser.add_argument(
        "--pause",
        type=float,
        default=0.0,
        metavar="S",
        help="so long one source is silent in the middle (default: not at all)",
    )
    given = parser.parse_args()
    exit_on_signals()
    wrong = 0
    for number in range(given.runs):
        for program in given.anabranch or [str(Path(sys.executable).parent / "anabranch")]:
            found = run(program, given)
            wrong += found.wrong
            print(f"{number + 1} {program}: {found.in_words()}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
