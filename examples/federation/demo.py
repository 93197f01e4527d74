"""Three participants, of whom one goes away and comes back: ``python -m examples.federation.demo``.

Everything is real: a broker, Redis and Spark for each of three pipelines, started by ``anabranch
up`` as a person would. Exit code 0: the corrected tolls are those of the oracle, each once, and
the live topic had tentative ones, made without north, while north was away.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from confluent_kafka import Producer
from rich.console import Console

from anabranch.client import LiveView, corrected, follow
from demo.progress import Shown

_FOLDER: Final = Path(__file__).parent
_ANABRANCH: Final = Path(sys.executable).with_name("anabranch")
FIRST_SEGMENT: Final = {"north": 100, "south": 200}
"""Number of each region's first segment."""
SEGMENTS, CARS = 4, 30
"""Number of segments of each region, and of cars that are seen on any of them."""
_WINDOW_MS: Final = 5_000
_FREE_CARS, _SLOW = 3, 40
"""As billing.yaml has them."""
_PACE_S: Final = 0.02
_READY_S: Final = 240
_AWAY_S: Final = 15

Toll = tuple[int, int, int, int]
"""(end of the window in ms, segment, cars, toll)."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Record of a region."""

    region: str
    car: int
    segment: int
    speed: int
    time_ms: int

    def value(self) -> bytes:
        """Return the record's value, as JSON."""
        fields = {"car": self.car, "segment": self.segment, "speed": self.speed}
        return json.dumps(fields | {"time": self.time_ms}).encode()


def oracle(sightings: Iterable[Sighting]) -> Counter[Toll]:
    """Compute the tolls of all windows."""
    found: dict[tuple[int, int], list[Sighting]] = defaultdict(list)
    for each in sightings:
        end_ms = each.time_ms // _WINDOW_MS * _WINDOW_MS + _WINDOW_MS
        found[end_ms, each.segment].append(each)
    tolls: Counter[Toll] = Counter()
    for (end_ms, segment), seen in found.items():
        cars = len({each.car for each in seen})
        is_slow = sum(each.speed for each in seen) < _SLOW * len(seen)
        over = max(cars - _FREE_CARS, 0)
        tolls[end_ms, segment, cars, 2 * over * over if is_slow else 0] += 1
    return tolls


def draw(choice: random.Random, region: str) -> Sighting:
    """Draw a sighting of the present. The segments of odd numbers are jammed."""
    segment = FIRST_SEGMENT[region] + choice.randrange(SEGMENTS)
    speed = choice.randrange(10, 45) if segment % 2 else choice.randrange(50, 90)
    return Sighting(region, choice.randrange(CARS), segment, speed, time.time_ns() // 1_000_000)


class Record(Protocol):
    """Record that ``Traffic`` can write."""

    def value(self) -> bytes:
        """Return the value."""
        ...


R = TypeVar("R", bound=Record)


class Traffic(threading.Thread, Generic[R]):
    """Thread that writes sightings of both regions, as ``draw`` draws them, until ``stop``."""

    def __init__(self, kafka: str, draw: Callable[[random.Random, str], R]) -> None:
        super().__init__(daemon=True)
        self._draw = draw
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 5})
        self._stopping = threading.Event()
        self.sent: list[R] = []
        self.times = dict.fromkeys(FIRST_SEGMENT, 1)
        """Number of sightings that each region writes at a time."""

    def run(self) -> None:
        """Write sightings until ``stop``."""
        choice = random.Random(7)
        while not self._stopping.wait(_PACE_S):
            regions = [region for region in FIRST_SEGMENT for _ in range(self.times[region])]
            for region in regions:
                each = self._draw(choice, region)
                self._producer.produce(f"{region}.sightings", each.value())
                self.sent.append(each)
            self._producer.poll(0)

    def stop(self) -> list[R]:
        """Stop writing. Return what was sent, all of it acknowledged."""
        self._stopping.set()
        self.join()
        if self._producer.flush(30):
            raise RuntimeError("the broker did not take all of the traffic")
        return self.sent


@dataclass
class Story:
    """Follower of a live topic that prints what changes."""

    kafka: str
    say: Callable[[str], None]
    topic: str = "tolls.live"
    what: str = "tolls"
    """Rows of the topic, in the words of the story."""
    of: str = "billing"
    stable_ms: int = 0
    in_failure: bool = False
    missing: set[str] = field(default_factory=set)
    """Streams that shown tolls lacked."""
    _shown_missing: tuple[str, ...] = ()
    _stopping: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Start following, in a thread of its own."""
        threading.Thread(target=self._follow, daemon=True).start()

    def end(self) -> None:
        """Stop printing."""
        self._stopping.set()

    def _follow(self) -> None:
        for view in follow(self.kafka, self.topic, stopping=self._stopping, buckets_kept=100):
            self._look(view)

    def _look(self, view: LiveView) -> None:
        self.stable_ms, missing = view.stable_ms, tuple(view.missing)
        if missing and missing != self._shown_missing:
            self.say(
                f"{self.of}: tentative {self.what}, made without {', '.join(missing)}, up to"
                f" {_ago(view.shown_ms)} ago; stable are those up to {_ago(view.stable_ms)} ago"
            )
            self._shown_missing = missing
        if self.in_failure and not view.in_failure:
            self.say(
                f"{self.of}: all is corrected; {view.undone} tentative {self.what} were taken back"
            )
            self._shown_missing = ()
        self.in_failure = view.in_failure
        self.missing |= set(missing)


def _ago(at_ms: int) -> str:
    return f"{time.time() - at_ms / 1_000:.1f} s"


class Demo:
    """Starter of the participants."""

    def __init__(self, folder: Path, shown: Shown) -> None:
        self._folder = folder
        self.shown = shown
        self._begun_s = time.monotonic()
        self._up: set[str] = set()

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.shown.print(f"{time.monotonic() - self._begun_s:6.1f} s  {text}")

    def up(self, name: str, kafka: str | None = None) -> None:
        """Start a participant and wait until all of it is ready."""
        if kafka is not None:
            self._run("topics", name, "--create", "--kafka", kafka)
        where = [] if kafka is None else ["--kafka", kafka]
        self._up.add(name)
        self._run("up", name, "-d", "--state-dir", str(self._folder / name), *where)

    def start(self, name: str, kafka: str) -> threading.Thread:
        """Start a participant in the background."""
        found = threading.Thread(target=self.up, args=(name, kafka))
        found.start()
        return found

    def down(self, name: str) -> None:
        """Stop all processes of a participant."""
        self._run("down", name, "--state-dir", str(self._folder / name))
        self._up.discard(name)

    def close(self) -> None:
        """Stop all running participants, billing, which has the broker, last."""
        for name in sorted(self._up, key=lambda each: each == "billing"):
            self.down(name)

    def kafka(self) -> str:
        """Return the address of billing's broker."""
        rows = json.loads(
            self._run("status", "billing", "--json", "--state-dir", str(self._folder / "billing"))
        )
        return next(str(row["address"]) for row in rows if row["service"] == "kafka")

    def _run(self, what: str, name: str, *arguments: str) -> str:
        command = [str(_ANABRANCH), what, "-f", str(_FOLDER / f"{name}.yaml"), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_READY_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}")
        return done.stdout


def run(demo: Demo) -> bool:
    """Run the story. Return whether all went as expected."""
    say, shown = demo.say, demo.shown
    demo.up("billing")
    kafka = demo.kafka()
    say("billing is up, alone: its stage waits for the regions")
    shown.now("starting north and south")
    starting = [demo.start(region, kafka) for region in FIRST_SEGMENT]
    for each in starting:
        each.join()
    say("north and south are up")
    story, traffic = Story(kafka, say), Traffic(kafka, draw)
    story.begin()
    traffic.start()
    begun_ms = time.time() * 1_000
    shown.until(
        lambda: story.stable_ms > begun_ms + 2 * _WINDOW_MS,
        "tolls of the first windows",
    )
    say(f"billing: tolls are stable up to {_ago(story.stable_ms)} ago")
    shown.now("stopping north")
    demo.down("north")
    say("north has stopped, with all of its services")
    shown.pause("north is away", _AWAY_S)
    shown.until(lambda: "north_speeds" in story.missing, "tentative tolls without north")
    shown.now("starting north")
    demo.up("north", kafka)
    say("north is up again")
    shown.until(lambda: not story.in_failure, "corrections")
    last_ms = round(time.time() * 1_000) // _WINDOW_MS * _WINDOW_MS
    shown.until(lambda: story.stable_ms >= last_ms, "the windows until now")
    shown.now("comparing with the oracle")
    story.end()
    sent = [each for each in traffic.stop() if each.time_ms < last_ms]
    return judge(demo, kafka, sent, last_ms, story)


def judge(demo: Demo, kafka: str, sent: Sequence[Sighting], last_ms: int, story: Story) -> bool:
    """Compare the windows up to ``last_ms`` in the corrected topic with the oracle."""
    with corrected(kafka, "tolls", start="earliest", follow=False) as rows:
        found = Counter(
            (
                round(row.event_time.timestamp() * 1_000),
                row.value["segment"],
                row.value["cars"],
                row.value["toll"],
            )
            for row in rows
            if row.event_time.timestamp() * 1_000 <= last_ms
        )
    wanted = oracle(sent)
    lost, more = (wanted - found).total(), (found - wanted).total()
    demo.say(
        f"sightings {len(sent):,}; tolls {found.total():,} (expected {wanted.total():,});"
        f" missing {lost}, wrong or double {more}"
    )
    return not lost and not more and "north_speeds" in story.missing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-federation-") as folder,
        Shown(Console(), "starting billing, with the broker") as shown,
    ):
        demo = Demo(Path(folder), shown)
        try:
            is_right = run(demo)
        finally:
            shown.now("stopping")
            demo.close()
    demo.say("as it should be" if is_right else "NOT as it should be")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
