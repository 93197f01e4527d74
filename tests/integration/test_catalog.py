"""The catalog on a real broker: north's contract broker lists its stream, billing looks it up by
command and reads it, south tries to list it too, north goes away.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.codec import boundary_records
from anabranch.codec.signed_records import signed
from anabranch.pipeline.file import load
from anabranch.ports import TopicPartition
from anabranch.protocol.federation.lookup import CatalogEntry
from anabranch.protocol.log.records import EpochStarted
from anabranch.streams.stream_logs import open_stream
from harness import catalogs
from harness.federations import FederationWorld
from harness.service_processes import service
from harness.sources import REPORT
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60
ANABRANCH = Path(sys.executable).with_name("anabranch")
NORTH = """\
pipeline: {name}-north
sources:
  reports:
    topics: ["{name}.reports"]
    record: report.avsc
    event_time: {{field: time, unit: ms}}
stages:
  totals: {{participant: north, reads: [reports], transform: "functions:same"}}
publish:
  totals: {{record: report.avsc}}
federation: {{name: {name}, participant: north}}
"""
BILLING = """\
pipeline: {name}-billing
bindings:
  theirs: {{participant: north, stream: totals}}
stages:
  bills: {{participant: billing, reads: [theirs], transform: "functions:bills"}}
outputs:
  out: {{stage: bills, corrected: {{topic: {name}.out}}}}
federation: {{name: {name}, participant: billing}}
"""


class World(FederationWorld):
    def __init__(
        self, kafka: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(KafkaEventLog(kafka), name)
        for who in ("north", "south"):
            self.make("catalog", self.topics.catalog(who))
        (folder / "functions.py").write_text(
            "def same(reports):\n    return reports\n\ndef bills(theirs):\n    return theirs\n"
        )
        (folder / "report.avsc").write_text(json.dumps(REPORT.avro))
        self.name, self.kafka = name, kafka
        self.folder = folder
        self.north, self.billing = folder / "north.yaml", folder / "billing.yaml"
        self.north.write_text(NORTH.format(name=name))
        self.billing.write_text(BILLING.format(name=name))
        write_key(self.keys["north"], folder / "north.key")
        monkeypatch.setenv(f"{VARIABLE}_FILE", str(folder / "north.key"))

    def do(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command at billing."""
        options = ["-f", str(self.billing), "--kafka", self.kafka]
        command = [str(ANABRANCH), words[0], *options, *words[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def check(self) -> tuple[int, str]:
        done = self.do("check", "--no-plan")
        return done.returncode, done.stdout + done.stderr

    def shown(self) -> Any:
        return json.loads(self.do("catalog", "--json").stdout)

    def entry(self, who: str, pipeline: str, **fields: Any) -> CatalogEntry:
        now_ms = int(time.time() * 1_000)
        fields = {"at_ms": now_ms, "public": self.keys[who].public, "streams": ()} | fields
        return catalogs.entry(who, pipeline, **fields)


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(kafka, topic_prefix, tmp_path, monkeypatch)


def test_a_stream_that_its_owner_lists_is_looked_up_and_read(world: World) -> None:
    assert world.check() == (2, world.check()[1])
    assert "north lists nothing" in world.check()[1]
    with service(
        "contract_broker", "north", world.north, world.kafka, world.folder / "state"
    ) as process:
        wait_until(
            lambda: process.alive() and world.shown()["entries"] != [],
            DEADLINE_S,
            lambda: f"north is listed:\n{process.log()}",
        )
    code, output = world.check()
    assert code == 0, output
    (entry,) = world.shown()["entries"]
    assert entry["key"] == world.keys["north"].public.hex()
    assert entry["streams"][0]["boundaries"] == f"{world.name}-north.totals.boundaries"

    pipeline = load(world.billing)
    topic = f"{world.name}-north.totals.boundaries"
    world.make("boundaries", topic)
    value, headers = boundary_records.encode(EpochStarted("0", "plan", "token"))
    signatures = signed(topic, value, world.keys["north"].sign_message)
    with closing(world.log.writer()) as writer:
        writer.send(TopicPartition(topic, 0), value, headers=[*headers, *signatures])
        writer.flush()
    with closing(open_stream(world.log, pipeline, "theirs")) as reader:
        reader.read_to_end()
        assert reader.log_state.epoch("0") == 0


def test_what_is_rejected_is_shown_with_its_reason_and_exit_code(world: World) -> None:
    pipeline = f"{world.name}-north"
    stream = replace(catalogs.SPEEDS, stream="totals", formats=())
    genuine = world.entry("north", pipeline, streams=(stream,), lease_ms=3_600_000)
    world.list_pipeline("north", genuine)
    assert world.check()[0] == 0

    old = world.entry("north", pipeline, at_ms=genuine.at_ms - 30_000, lease_ms=3_600_000)
    world.list_pipeline("north", old)
    forged = world.entry("north", pipeline, at_ms=genuine.at_ms + 1)
    world.list_pipeline("north", forged, key=world.keys["south"])
    world.write(world.topics.catalog("north"), b"nonsense", bytes(600_000), key=b"p")
    rejected = {each["why"]: each["records"] for each in world.shown()["rejected"]}
    assert rejected == {
        "not newer than the last": 1,
        "not signed with a key of its participant that counted then": 1,
        "not a record of this log": 2,
    }
    assert world.check()[0] == 0, "north's own entry holds"

    world.list_pipeline("south", world.entry("south", pipeline))
    code, output = world.check()
    assert code == 2
    assert f"north and south both list pipeline {pipeline} as their own" in output
    key = world.keys["north"].public.hex()
    world.billing.write_text(
        world.billing.read_text().replace("totals}", f"totals, keys: [{key}]}}")
    )
    assert world.check()[0] == 0, "a pinned key decides"


def test_what_is_not_refreshed_is_unknown_and_what_was_kept_goes_on(world: World) -> None:
    pipeline = f"{world.name}-north"
    stream = replace(catalogs.SPEEDS, stream="totals", formats=())
    kept = world.entry("north", pipeline, streams=(stream,), lease_ms=3_600_000)
    world.list_pipeline("north", kept)
    assert world.do("catalog", "--keep").returncode == 0
    later = world.entry("north", pipeline, streams=(stream,), lease_ms=1)
    world.list_pipeline("north", later)
    wait_until(
        lambda: not world.shown()["entries"][0]["is_current"], DEADLINE_S, "the lease is over"
    )
    assert "unknown since" in world.do("catalog").stdout
    code, output = world.check()
    assert code == 2
    assert "what north lists is not refreshed, and unknown since" in output
    assert load(world.billing).bindings["theirs"].pipeline == pipeline
