"""Topics that other systems fill, through a whole deployment: change events of a database, records
whose fields have names that no column can have, and what stands in keys, headers and timestamps.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from harness import debezium
from spark.test_new_pipeline import Shell

pytestmark = pytest.mark.integration

FILES = {
    "customer.avsc": {
        "type": "record",
        "name": "customer",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "city", "type": ["null", "string"], "default": None},
        ],
    },
    "order.avsc": {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "number", "type": "long", "alias": "order-number"},
            {
                "name": "meta",
                "type": {
                    "type": "record",
                    "name": "meta",
                    "fields": [{"name": "at", "type": "string", "alias": "@timestamp"}],
                },
            },
            {"name": "weight", "type": "float", "alias": "größe"},
        ],
    },
}
PIPELINE = """
pipeline: foreign
partitions: 1
sources:
  customers:
    topics: [inventory.public.customers]
    record: customer.avsc
    cdc: debezium
    columns: {place: offset}
    idle_timeout: {source: 2s}
  orders:
    topics: [orders]
    record: order.avsc
    event_time: {field: meta.at}
    columns: {region: key, trace: headers.trace-id, sent: timestamp}
    idle_timeout: {source: 2s}
stages:
  changes:
    reads: [customers]
    sql: SELECT place, id, name, city, op, event_time FROM customers
  placed:
    reads: [orders]
    sql: >-
      SELECT number, weight, region, trace, unix_millis(sent) AS sent_ms, event_time FROM orders
outputs:
  changes: {stage: changes, corrected: {topic: changes, key: [id]}}
  placed: {stage: placed, corrected: {topic: placed, key: [region]}}
"""
T_MS = 1_777_644_000_000


def _order(number: int, at_ms: int) -> bytes:
    """Return an order whose time is a text with an offset and nine digits."""
    at = datetime.fromtimestamp(at_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return json.dumps(
        {
            "order-number": number,
            "meta": {"@timestamp": f"{at},{at_ms % 1_000:03d}999999+00"},
            "größe": 0.1,
            "not named": {"skipped": True},
        },
        ensure_ascii=False,
    ).encode()


def test_topics_of_other_systems_come_out_right(tmp_path: Path) -> None:
    for name, schema in FILES.items():
        (tmp_path / name).write_text(json.dumps(schema))
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    anabranch = Shell(tmp_path)
    anabranch("up", "--detach")

    def rows(output: str, count: int) -> list[dict[str, Any]]:
        shown = anabranch("tail", output, "--from-beginning", "--count", str(count))
        return [json.loads(line) for line in shown.splitlines()]

    try:
        services = json.loads(anabranch("status", "--json"))
        kafka = next(row["address"] for row in services if row["service"] == "kafka")
        producer = Producer({"bootstrap.servers": kafka})
        for at, (number, payload, has_tombstone) in enumerate(debezium.history(T_MS)):
            key = json.dumps({"id": number}).encode()
            value = (debezium.with_schema if at % 2 else debezium.bare)(payload)
            producer.produce("inventory.public.customers", value, key)
            if has_tombstone:
                producer.produce("inventory.public.customers", None, key)
        sent_ms = int(time.time() * 1_000)
        for number in range(3):
            producer.produce(
                "orders",
                _order(number, T_MS + number * 1_000),
                b"north" if number else None,
                headers=[("trace-id", b"old"), ("trace-id", f"t{number}".encode())],
                timestamp=sent_ms + number,
            )
        producer.produce("orders", b'{"order-number": 9}', b"north")  # it has no time
        assert producer.flush(60) == 0
        changes = sorted(rows("changes", 6), key=lambda row: row["place"])
        assert [(row["id"], row["name"], row["city"], row["op"]) for row in changes] == [
            (1, "Ada", "London", "r"),
            (2, "Grace", None, "r"),
            (1, "Ada", "Turin", "u"),
            (2, "Grace", None, "d"),
            (3, "Alan", "Wilmslow", "c"),
            (3, "A. Turing", "Wilmslow", "u"),
        ]
        placed = sorted(rows("placed", 3), key=lambda row: row["number"])
        assert placed == [
            {
                "number": number,
                "weight": 0.1,
                "region": "north" if number else None,
                "trace": f"t{number}",
                "sent_ms": sent_ms + number,
            }
            for number in range(3)
        ]
        dead = anabranch("tail", "orders", "--rejected", "--from-beginning", "--count", "1")
        assert "order-number" in dead
    finally:
        anabranch("down")
