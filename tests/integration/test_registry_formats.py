"""Records of Confluent's serializers on a real broker, read by an ingestion process of its own: in
each format of a registry, with the schema in front of the value and in a header.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.pipeline.file import load
from anabranch.ports import TopicPartition
from harness.confluent_serializers import sender
from harness.registries import RegistryServer
from harness.service_processes import service
from harness.sources import REPORT, StreamView, create_topics, shortened
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 120
REPORTED = {"time": 1_000, "speed": 61.25, "road": "I-95", "lane": 2, "seen": True}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as made:
        yield made


def pipeline_file(folder: Path, prefix: str, form: str, url: str) -> Path:
    (folder / "functions.py").write_text("def same(reports):\n    return reports\n")
    (folder / "report.avsc").write_text(json.dumps(REPORT.avro))
    file = folder / "pipeline.yaml"
    file.write_text(f"""
pipeline: {prefix}
bucket: 100ms
schema_registry: {url}
sources:
  reports:
    topics: [{prefix}.reports]
    record: report.avsc
    format: {form}
    event_time: {{field: time, unit: ms}}
    max_ahead: unlimited
    bounded: true
    idle_timeout: {{partition: never}}
stages:
  same: {{reads: reports, transform: functions:same}}
outputs:
  out: {{stage: same, corrected: {{topic: {prefix}.out}}}}
""")
    return file


@pytest.mark.parametrize("form", ["avro", "json_schema", "protobuf"])
def test_records_of_a_registry_become_rows(
    server: RegistryServer, kafka: str, topic_prefix: str, tmp_path: Path, form: str
) -> None:
    file = pipeline_file(tmp_path, topic_prefix, form, server.url)
    of, log = load(file), KafkaEventLog(kafka)
    create_topics(log, of, 1)
    at = TopicPartition(f"{topic_prefix}.reports", 0)
    writer = log.writer()
    in_front, in_header = (
        sender(form, server.url, at.topic, in_header=in_header) for in_header in (False, True)
    )
    for car, send in enumerate((in_front, in_header, in_front, in_header)):
        value, headers = send(**REPORTED, car=car)
        writer.send(at, value, key=b"key", headers=headers)
    value, headers = in_front(**REPORTED, car=9)
    writer.send(at, b"\0\0\0\0\x63" + value[5:], key=b"key")
    writer.send(at, value, key=b"key", headers=[("__value_schema_id", b"x")])
    writer.flush()
    view = StreamView(log, of, SystemClock())
    with service("ingestion", "reports", file, kafka, tmp_path) as running:
        wait_until(lambda: view.closed() >= 10, DEADLINE_S, "the bucket is not closed")
        running.process.terminate()
        running.process.wait(DEADLINE_S)
    expected = [b"schema id 99", b"the header of its schema"]
    became = view.cars(), shortened(log, f"{topic_prefix}.reports.rejected", expected)
    assert became == ([0, 1, 2, 3], expected), running.log()
    writer.close()
