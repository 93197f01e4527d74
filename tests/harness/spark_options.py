"""Options of a stage's source for the tests of its halves, planning and reading."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.codec.blocks import schema_text
from anabranch.protocol.stage.kept_rows import salt_of

SALT = salt_of("a")
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("event_time", pa.int64()),
    ]
)


def options(**changes: Any) -> SourceOptions:
    fields: dict[str, Any] = {
        "blocks": {"a": "p.a.blocks"},
        "query": "000000000007-000001",
        "stream": "a",
        "kafka": "k",
        "cluster": "",
        "socket": "/none",
        "schema": schema_text(SCHEMA),
        "columns": ("n", "text"),
        "optional": (),
        "width_ms": 100,
        "splits_max": 2,
        "is_own": True,
        "ordered": False,
        "kept_salt": SALT,
        "kept_by": (),
        "kept_schema": schema_text(SCHEMA),
    }
    return SourceOptions(**(fields | changes))
