"""Facts of the pipeline file that the demo needs, and the records that it collects from the
topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from confluent_kafka import Message
from ruamel.yaml import YAML

from demo import consuming
from demo.comparing import Delivered
from demo.story import LiveTopic
from demo.tentative import Kept, Road
from demo.traffic import Rejected

T = TypeVar("T")
CLOSING_MS = 3_000
"""Duration of heartbeats after the last report, in ms: longer than out-of-orderness and a few
buckets, shorter than ``max_ahead``.
"""
_UNITS_MS = {"second": 1_000, "seconds": 1_000, "minute": 60_000, "minutes": 60_000}
_DELAY_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000}


@dataclass(frozen=True, slots=True)
class Job:
    """Facts of the pipeline file that the demo needs."""

    topics: list[str]
    dead_letters: list[str]
    outputs: dict[str, str]
    """Corrected topic of each output."""
    live: dict[str, str]
    """Live topic of each output that has one."""
    sources: list[str]
    max_delay_ms: int
    bucket_ms: int
    partitions: int
    """Number of partitions of each topic that the pipeline creates."""
    window_ms: int
    free_vehicles: int
    free_speed: int

    def road(self, reports: pl.DataFrame, kept: Kept | None = None) -> Road:
        """Return the road of this job with ``reports``. ``kept``: as in ``Road``."""
        return Road(
            reports,
            self.sources,
            self.bucket_ms,
            self.window_ms,
            self.free_vehicles,
            self.free_speed,
            self.partitions,
            kept,
        )


def read_job(pipeline: Path) -> Job:
    """Read the job from a pipeline file of the toll road."""
    document = YAML(typ="safe").load(pipeline)
    parameters: dict[str, Any] = {}
    for stage in document["stages"].values():
        parameters |= stage.get("parameters", {})
    sources = list(document["sources"].values())
    number, unit = str(parameters.get("window", "1 minute")).split()
    return Job(
        topics=[source["topics"][0] for source in sources],
        dead_letters=[
            source.get("dead_letter", f"{source['topics'][0]}.rejected") for source in sources
        ],
        outputs={
            name: output["corrected"]["topic"] for name, output in document["outputs"].items()
        },
        live={
            name: output["live"]["topic"]
            for name, output in document["outputs"].items()
            if "live" in output
        },
        sources=list(document["sources"]),
        max_delay_ms=_delay_ms(document["max_delay"]),
        bucket_ms=_delay_ms(document["bucket"]),
        partitions=int(document["partitions"]),
        window_ms=int(number) * _UNITS_MS[unit],
        free_vehicles=int(parameters.get("free_vehicles", 50)),
        free_speed=int(parameters.get("free_speed", 40)),
    )


def _delay_ms(text: str) -> int:
    """Parse a duration."""
    number = text.rstrip("ms")
    return int(float(number) * _DELAY_UNITS_MS[text[len(number) :]])


@dataclass(slots=True)
class Collected:
    """Records collected so far. Reader threads write them, each to lists of its own."""

    results: dict[str, list[Delivered]]
    live: LiveTopic
    rejected: list[Rejected] = field(default_factory=list)

    @classmethod
    def nothing(cls, job: Job) -> Collected:
        """Return an empty collection."""
        return cls({name: [] for name in job.outputs}, LiveTopic(job.partitions))

    def takers(self, job: Job) -> dict[str, Callable[[Message], None]]:
        """Return the function that handles a record of each topic."""
        found: dict[str, Callable[[Message], None]] = {}
        for name, topic in job.outputs.items():
            found[topic] = partial(_take, self.results[name].append, consuming.delivered)
        for topic in job.dead_letters:
            found[topic] = partial(_take, self.rejected.append, consuming.rejected)
        for topic in [*job.live.values()][:1]:
            found[topic] = self.live.take
        return found

    def results_total(self) -> int:
        """Return the number of results of all outputs."""
        return sum(len(records) for records in self.results.values())

    def lag_ms(self) -> int | None:
        """Return the age of the newest result when it was received; None without results."""
        newest = [records[-1] for records in self.results.values() if records]
        return (
            max(record.received_ms - record.result.event_time_ms for record in newest)
            if newest
            else None
        )


def _take(add: Callable[[T], object], decoded: Callable[[Message], T], message: Message) -> None:
    add(decoded(message))
