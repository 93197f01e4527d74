"""Names of the subjects under which outputs register their schemas, as Confluent's serializers name
them: by the topic, by the record, or by both.
"""

from __future__ import annotations

import re
from typing import Final, Literal

Strategy = Literal["topic", "record", "topic_record"]
STRATEGIES: Final = ("topic", "record", "topic_record")
"""Names of the strategies: TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy."""


def record_name(output: str, part: Literal["key", "value"] = "value") -> str:
    """Return the name of the record schema of an output's values, or of its keys."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", output)
    return name if part == "value" else f"{name}_key"


def subject_of(
    strategy: Strategy, topic: str, output: str, part: Literal["key", "value"] = "value"
) -> str:
    """Return the subject of the values, or keys, of ``output`` on ``topic``."""
    record = record_name(output, part)
    if strategy == "record":
        return record
    return f"{topic}-{record}" if strategy == "topic_record" else f"{topic}-{part}"
