"""Change events as Debezium's connector for PostgreSQL documents them: JSON with and without its
schema, Avro, tombstones. ``python -m harness.debezium`` writes the sample of
``examples/change_data``.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import fastavro

TOPIC: Final = "inventory.public.customers"
Row = dict[str, Any]

_COLUMNS: Final = (("id", "int64", False), ("name", "string", False), ("city", "string", True))
_SOURCE: Final = (
    ("version", "string", False),
    ("connector", "string", False),
    ("name", "string", False),
    ("ts_ms", "int64", False),
    ("snapshot", "string", True),
    ("db", "string", False),
    ("sequence", "string", True),
    ("schema", "string", False),
    ("table", "string", False),
    ("txId", "int64", True),
    ("lsn", "int64", True),
    ("xmin", "int64", True),
)


def envelope(
    op: str, ts_ms: int, before: Row | None, after: Row | None, lsn: int = 24_023_128
) -> Row:
    """Return the payload of one change of ``customers``, which the database made at ``ts_ms``."""
    source = {
        "version": "2.7.3.Final",
        "connector": "postgresql",
        "name": "inventory",
        "ts_ms": ts_ms,
        "snapshot": "true" if op == "r" else "false",
        "db": "inventory",
        "sequence": f'["{lsn - 8}","{lsn}"]',
        "schema": "public",
        "table": "customers",
        "txId": 556,
        "lsn": lsn,
        "xmin": None,
    }
    return {
        "before": before,
        "after": after,
        "source": source,
        "transaction": None,
        "op": op,
        "ts_ms": ts_ms + 337,
    }


def bare(payload: Row) -> bytes:
    """Return the value with ``value.converter.schemas.enable=false``."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()


def with_schema(payload: Row) -> bytes:
    """Return the value as Connect's JSON converter writes it by default."""
    value = {"schema": _connect_schema(), "payload": payload}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _struct(full: str, fields: tuple[tuple[str, str, bool], ...], **more: object) -> Row:
    return {
        "type": "struct",
        "fields": [
            {"type": kind, "optional": null, "field": field} for field, kind, null in fields
        ],
        **more,
        "name": full,
    }


def _connect_schema() -> Row:
    value = f"{TOPIC}.Value"
    source = "io.debezium.connector.postgresql.Source"
    block = (("id", "string", False), ("total_order", "int64", False))
    return {
        "type": "struct",
        "fields": [
            _struct(value, _COLUMNS, optional=True, field="before"),
            _struct(value, _COLUMNS, optional=True, field="after"),
            _struct(source, _SOURCE, optional=False, field="source"),
            _struct("event.block", block, optional=True, version=1, field="transaction"),
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
        "optional": False,
        "name": f"{TOPIC}.Envelope",
        "version": 2,
    }


def avro_schema() -> Row:
    """Return the schema of the values as Confluent's Avro converter registers it."""
    types = {"int64": "long", "string": "string"}

    def fields(of: tuple[tuple[str, str, bool], ...]) -> list[Row]:
        return [
            {"name": name, "type": ["null", types[kind]], "default": None}
            if null
            else {"name": name, "type": types[kind]}
            for name, kind, null in of
        ]

    def named(name: str) -> Row:
        return {"connect.version": 1, "connect.name": name}

    row = {"type": "record", "name": "Value", "fields": fields(_COLUMNS)}
    source = fields(_SOURCE)
    source[4] = {
        "name": "snapshot",
        "type": [
            {
                "type": "string",
                "connect.version": 1,
                "connect.parameters": {"allowed": "true,first,last,false,incremental"},
                "connect.default": "false",
                "connect.name": "io.debezium.data.Enum",
            },
            "null",
        ],
        "default": "false",
    }
    block = fields((("id", "string", False), ("total_order", "int64", False)))
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": TOPIC,
        "fields": [
            {
                "name": "before",
                "type": ["null", {**row, "connect.name": f"{TOPIC}.Value"}],
                "default": None,
            },
            {"name": "after", "type": ["null", "Value"], "default": None},
            {
                "name": "source",
                "type": {
                    "type": "record",
                    "name": "Source",
                    "namespace": "io.debezium.connector.postgresql",
                    "fields": source,
                    "connect.name": "io.debezium.connector.postgresql.Source",
                },
            },
            {
                "name": "transaction",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "block",
                        "namespace": "event",
                        "fields": block,
                        **named("event.block"),
                    },
                ],
                "default": None,
            },
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
        "connect.version": 2,
        "connect.name": f"{TOPIC}.Envelope",
    }


def avro(payload: Row, schema_id: int = 1) -> bytes:
    """Return the value in Avro, in Confluent framing."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(avro_schema()), payload)
    return b"\0" + schema_id.to_bytes(4, "big") + file.getvalue()


def history(start_ms: int) -> Iterator[tuple[int, Row, bool]]:
    """Give the changes of a small table, as (id of the row, payload, whether a tombstone follows):
    two rows of the snapshot, an update, a delete, and two changes in one transaction.
    """
    ada = {"id": 1, "name": "Ada", "city": "London"}
    grace = {"id": 2, "name": "Grace", "city": None}
    moved = {**ada, "city": "Turin"}
    alan, renamed = ({"id": 3, "name": name, "city": "Wilmslow"} for name in ("Alan", "A. Turing"))
    yield 1, envelope("r", start_ms, None, ada), False
    yield 2, envelope("r", start_ms, None, grace), False
    yield 1, envelope("u", start_ms + 10_000, ada, moved, 24_023_500), False
    yield 2, envelope("d", start_ms + 20_000, grace, None, 24_024_000), True
    yield 3, envelope("c", start_ms + 30_000, None, alan, 24_025_000), False
    yield 3, envelope("u", start_ms + 30_000, alan, renamed, 24_025_100), False


def sample() -> str:
    """Return the customers of ``examples/change_data``: each second event with its schema."""
    events = [payload for _, payload, _ in history(1_777_644_000_000)]
    lines = [(with_schema if i % 2 else bare)(payload) for i, payload in enumerate(events)]
    return "".join(f"{line.decode()}\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(sample())
