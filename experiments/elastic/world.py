"""Pipeline of few stages on a real broker and real Spark, whose nodes share no disk: a state of a
given size, a steady load, and a judgement of every result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import time
import zlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from ruamel.yaml import YAML

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.operating.move import MoveCommand
from anabranch.pipeline.file import load
from harness.moved_stages import Load
from harness.service_processes import detail_of
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_FOLDER: Final = Path(__file__).with_name("pipeline")
WIDTH_MS: Final = 250
FIRST: Final = 200
"""First bucket of the load; those of the fill come before its buckets."""
_FILL_BYTES: Final = 5_000_000
"""Size of the notes that a bucket of the fill has, in bytes."""
_READY_S: Final = 300.0
_FILLED_S: Final = 1_800.0
SETTLED_BUCKETS: Final = 20
"""Number of buckets, closed in time one after the other, after which the load counts as steady."""
IN_TIME_S: Final = 5.0
"""Delay of a bucket, in seconds, below which it was closed in time."""

Rows = list[tuple[int, int, int]]
"""Key, version and event time, in ms."""


def note(size: int, key: int, version: int) -> str:
    """Return a note of ``size`` bytes. Each is different, and RocksDB cannot compress it."""
    return hashlib.shake_128(f"{key}.{version}".encode()).hexdigest(size // 2)


def table(rows: Rows, note_of: Callable[[int, int], str]) -> pa.Table:
    """Return ``rows`` as a source's stream has them."""
    schema = pa.schema(
        [
            ("key", pa.int64()),
            ("version", pa.int64()),
            ("note", pa.string()),
            ("time", pa.int64()),
            ("event_time", pa.int64()),
        ]
    )
    keys, versions, times = zip(*rows, strict=True)
    notes = [note_of(key, version) for key, version, _ in rows]
    return pa.table([keys, versions, notes, times, times], schema=schema)


class Writes:
    """Load of one bucket after the other, and the answer to it."""

    def __init__(
        self,
        keys: int,
        rows_per_s: float,
        *,
        note_bytes: int,
        width_ms: int = WIDTH_MS,
        windows_ms: tuple[int, int] = (30_000, 5_000),
    ) -> None:
        """Begin before the first bucket.

        Args:
            keys: Number of keys.
            rows_per_s: Number of rows per second; it may be changed at any time.
            note_bytes: Size of a note, in bytes; 0: the stage keeps none, and counts in windows.
            width_ms: Width of a bucket.
            windows_ms: Length of a window, and the distance from one to the next.
        """
        self._keys, self.rows_per_s, self._width_ms = keys, rows_per_s, width_ms
        self._windows_ms = windows_ms
        self._note = partial(note, note_bytes)
        self._fill_rows = _FILL_BYTES // max(1, note_bytes)
        self.sizes: dict[int, int] = {}
        """Number of rows of each bucket."""
        self._random = random.Random(7)
        self._versions: dict[int, int] = {}
        self.replaced: Counter[tuple[int, ...]] = Counter()
        """Results of the stage that keeps notes: event time, key, version, checksum."""
        self.counted: Counter[tuple[int, int]] = Counter()
        """Writes of the windows that end at a time, by (end in ms, key)."""

    def fill(self) -> Iterator[pa.Table]:
        """Yield the first note of each key, by bucket from ``FIRST`` on."""
        for number, begin in enumerate(range(0, self._keys, self._fill_rows)):
            at_ms = (FIRST + number) * self._width_ms
            keys = range(begin, min(self._keys, begin + self._fill_rows))
            yield table([(key, 0, at_ms) for key in keys], self._note)

    def rows(self, bucket: int) -> pa.Table:
        """Return the writes of ``bucket``, to keys that are drawn, and add them to the answer."""
        width_ms = self._width_ms
        begin_ms, size = (bucket - 1) * width_ms, max(1, int(self.rows_per_s * width_ms / 1_000))
        self.sizes[bucket] = size
        keys = self._random.sample(range(self._keys), size)
        rows = [
            (key, bucket, begin_ms + 1 + number * width_ms // size)
            for number, key in enumerate(keys)
        ]
        for key, version, at_ms in rows:
            before = self._versions.get(key, 0)
            self._versions[key] = version
            self.replaced[at_ms, key, before, zlib.crc32(self._note(key, before).encode())] += 1
            length_ms, every_ms = self._windows_ms
            first_end_ms = at_ms // every_ms * every_ms + every_ms
            for end_ms in range(first_end_ms, first_end_ms + length_ms, every_ms):
                self.counted[end_ms, key] += 1
        return table(rows, self._note)


class World:
    """One deployment. Leaving the block ends all of it."""

    def __init__(
        self,
        kafka: str,
        folder: Path,
        file: str,
        writes: Writes,
        change: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """Copy the pipeline ``file`` into ``folder`` and create its topics. What its last stage
        makes is judged. ``change``: is applied to the document first.
        """
        shutil.copytree(_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
        path, yaml = folder / file, YAML()
        document = yaml.load(path)
        document["pipeline"] = f"elastic{time.time_ns() // 1_000_000}"
        change(document)
        *_, stage = document["stages"]
        yaml.dump(document, path)
        self.pipeline = load(path)
        create_topics(kafka, self.pipeline)
        self.kafka, self.stage, self.label, self.writes = kafka, stage, f"{stage}.0", writes
        self.state, self.store = folder / "state", folder / "store"
        self.store.mkdir()
        self._feed = Feed(kafka, self.pipeline, "writes")
        self.output = Output(kafka, self.pipeline, stage)
        self.load: Load | None = None
        self._filled = FIRST - 1
        self.nodes: dict[str, StageProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
        self._feed.close()
        self.output.close()

    # ---------------------------------------------------------------- nodes

    def start(self, node: str) -> StageProcess:
        """Start ``node``, with a state directory of its own."""
        self.nodes[node] = StageProcess(
            self.pipeline,
            node,
            self.kafka,
            self.state / node,
            more={"ANABRANCH_CHECKPOINT_STORE": f"file://{self.store}"},
        )
        return self.nodes[node]

    def kill(self, node: str, *, disk: bool = False) -> None:
        """Kill ``node`` (SIGKILL). ``disk``: and delete its state directory."""
        self.nodes.pop(node).kill()
        if disk:
            shutil.rmtree(self.state / node)

    def replica(self, node: str) -> dict[str, Any]:
        """Return what ``node`` says of its replica, its detail included; empty: it does not run
        there, or not yet.
        """
        process = self.nodes[node]
        process.check()
        detail = detail_of(self.state / node, "processing", node, process.process.pid)
        shown: dict[str, Any] = next(iter(detail.get("stages", [])), {})
        return {**shown, **shown.get("detail", {})}

    def await_state(self, node: str, *states: str) -> None:
        """Wait until the replica on ``node`` has one of ``states``."""
        wait_until(
            lambda: self.replica(node).get("state") in states,
            _READY_S,
            lambda: f"{node} is {states}: {self.replica(node)}",
            every_s=0.2,
        )

    def move(self, node: str) -> None:
        """Want the replica on ``node``."""
        log = KafkaEventLog(self.kafka)
        MoveCommand(log, self.pipeline, self.label, node, SystemClock()).do()

    # ---------------------------------------------------------------- load

    def fill(self, node: str) -> float:
        """Write the first note of each key. Return the seconds until ``node`` has taken all."""
        begun_s = time.monotonic()
        for rows in self.writes.fill():
            self._filled += 1
            self._feed.append(rows, self._filled)
        self.output.wait_closed(self._filled, self.nodes[node], _FILLED_S)
        return time.monotonic() - begun_s

    def begin_load(self, settled: int = SETTLED_BUCKETS) -> Load:
        """Begin the load, and wait until it is steady. ``settled``: as for ``await_steady``."""
        self.load = Load(
            self._feed,
            self.output,
            self.pipeline.bucket_ms / 1_000,
            rows=self.writes.rows,
            first=self._filled + 1,
        )
        self.load.start()
        self.await_steady(settled)
        return self.load

    @property
    def delays(self) -> list[tuple[float, float]]:
        """Time at which each bucket was due, and seconds from then until it was closed."""
        found = []
        assert self.load is not None, "begun"  # noqa: S101
        fed, last = self.load.fed, self._filled
        for at_s, upto, _ in list(self.load.closed):
            found += [(fed[bucket], at_s - fed[bucket]) for bucket in range(last + 1, upto + 1)]
            last = max(last, upto)
        return found

    @property
    def lag_s(self) -> float:
        """Time since the oldest bucket was due that is not closed, in seconds."""
        assert self.load is not None, "begun"  # noqa: S101
        closed = self.load.closed[-1][1] if self.load.closed else self._filled
        due_s = self.load.fed.get(closed + 1)
        return 0.0 if due_s is None else time.monotonic() - due_s

    def await_steady(self, settled: int = SETTLED_BUCKETS) -> None:
        """Wait until the newest ``settled`` buckets were closed in time."""

        def is_steady() -> bool:
            self.check()
            newest = self.delays[-settled:]
            return len(newest) == settled and max(s for _, s in newest) < IN_TIME_S

        wait_until(
            is_steady,
            _READY_S,
            lambda: f"a steady load: {self.delays[-settled:]}",
            every_s=0.2,
        )

    def check(self) -> None:
        """Raise what has ended the load or a node."""
        if self.load is not None and self.load.error is not None:
            raise self.load.error
        for node in self.nodes.values():
            node.check()

    def await_after(self, since_s: float) -> float:
        """Wait until a bucket is closed that was not due at ``since_s``. Return the seconds from
        then until it is closed.
        """

        def closed() -> float:
            self.check()
            return next(
                (
                    due_s + delay_s - since_s
                    for due_s, delay_s in self.delays
                    if due_s >= since_s and due_s + delay_s > since_s
                ),
                0.0,
            )

        return wait_until(closed, _READY_S, "results come again", every_s=0.05)

    # ---------------------------------------------------------------- store

    def stored(self) -> list[Path]:
        """Manifests of the stored checkpoints, the newest first."""
        return sorted(self.store.rglob("*.json"), key=lambda path: path.name, reverse=True)

    def await_stored(self, since: float) -> None:
        """Wait for a checkpoint that was begun after ``since``, by the clock of files."""

        def is_there() -> bool:
            self.check()
            with contextlib.suppress(FileNotFoundError):  # older ones are removed
                return sum(path.stat().st_mtime > since for path in self.stored()) >= 2
            return False

        wait_until(is_there, _READY_S, "two checkpoints are stored", every_s=0.2)

    def stored_bytes(self) -> int:
        """Size of the newest stored checkpoint."""
        files = json.loads(self.stored()[0].read_text())["files"].values()
        return sum(size for _, _, size, _ in files)

    # ---------------------------------------------------------------- judgement

    def judge(self) -> tuple[int, int]:
        """End the load. Return how many results are wrong, missing or there twice, and how many
        there must be.
        """
        assert self.load is not None, "begun"  # noqa: S101
        self.load.end()
        found: Counter[tuple[int, ...]] = Counter()
        for rows in self.output.buckets(self._filled + 1, self.load.given).values():
            found.update(self._result(row) for row in rows)
        answer = self._answer(self.load.given * self.pipeline.bucket_ms)
        return sum(((answer - found) + (found - answer)).values()), sum(answer.values())

    def _result(self, row: dict[str, Any]) -> tuple[int, ...]:
        if self.stage == "kept":
            return row["event_time"], row["key"], row["version"], row["checksum"]
        return row["event_time"], row["key"], row["writes"]

    def _answer(self, last_ms: int) -> Counter[tuple[int, ...]]:
        if self.stage == "kept":
            return self.writes.replaced
        return Counter(
            {(at, key, n): 1 for (at, key), n in self.writes.counted.items() if at <= last_ms}
        )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of ``values`` are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
