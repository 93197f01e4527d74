"""A pipeline file, its topics on a real broker, and its services as processes that kill themselves
at a crash point.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec.catalog import TopicSettings, topic_settings
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from harness.service_processes import ModuleProcess, service
from harness.sources import REPORT
from harness.waiting import wait_until

DEADLINE_S = 90

FILE = """
pipeline: {name}
bucket: 100ms
max_delay: 1s
partitions: 2
sources:
  reports:
    topics: [{name}.reports]
    record: report.avsc
    format: json
    event_time: {{field: time, unit: ms}}
    out_of_orderness: 5s
    max_ahead: unlimited
    bounded: true
    idle_timeout: {{partition: never}}
stages:
  totals: {{participant: north, reads: [reports], transform: "functions:same", replicas: 2}}
outputs:
  out:
    stage: totals
    corrected: {{topic: {name}.out, format: json, key: [car], partitions: {partitions}}}
    shards: {shards}
    {live}
"""


class World:
    """A pipeline file, its topics, and one service of it as processes."""

    def __init__(
        self,
        kafka: str,
        name: str,
        folder: Path,
        *,
        live: bool = False,
        shards: str = "1",
        partitions: int = 2,
    ) -> None:
        """``shards`` and ``partitions``: of the output, as the file has them."""
        folder.mkdir(exist_ok=True)
        (folder / "functions.py").write_text("def same(reports):\n    return reports\n")
        (folder / "report.avsc").write_text(json.dumps(REPORT.avro))
        path = folder / "pipeline.yaml"
        path.write_text(
            FILE.format(
                name=name,
                shards=shards,
                partitions=partitions,
                live=f"live: {{topic: {name}.out.live, format: json, key: [car]}}" if live else "",
            )
        )
        self.kafka = kafka
        self.folder = folder
        self.log = KafkaEventLog(kafka)
        self.name = name
        self.clock, self.entropy = SystemClock(), SystemEntropy()
        self.pipeline: Pipeline = load(path)
        names = self.pipeline.topic_names
        specs = [
            topic_settings("alarms", names.alarms()),
            *(
                topic_settings("fences" if speaker.fences else "control", topic)
                for topic, speaker in control_topics(self.pipeline).items()
            ),
        ]
        specs += [
            topic_settings("boundaries", names.boundaries(s)) for s in self.pipeline.streams()
        ]
        specs += [
            topic_settings("blocks", names.blocks(s, r), 2)
            for s in self.pipeline.streams()
            for r in self.pipeline.stream_writers(s)
        ]
        admin = self.log.admin()
        admin.create(specs)
        admin.create([TopicSettings(f"{name}.reports", 2)])
        admin.close()

    def run(
        self, what: str, which: str, crash_point: str = "", redis: str | None = None
    ) -> ModuleProcess:
        return service(
            what,
            which,
            self.pipeline.path,
            self.kafka,
            self.folder / "state",
            redis=redis,
            crash_point=crash_point,
        )

    def killed(self, what: str, which: str, crash_point: str, redis: str | None = None) -> None:
        with self.run(what, which, crash_point, redis) as process:
            process.wait_killed()

    def until(
        self, what: str, which: str, condition: Callable[[], object], redis: str | None = None
    ) -> None:
        with self.run(what, which, redis=redis) as process:
            wait_until(
                lambda: process.alive() and condition(),
                DEADLINE_S,
                lambda: f"{what} goes on:\n{process.log()}",
            )
