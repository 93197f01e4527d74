"""The key ``max_record`` of sources and outputs, and the topics that are made for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.local.topic_creation import topics_of
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import MIB, RECORD_BYTES_MAX
from harness import pipeline_files

FILE = """\
pipeline: p
sources:
  readings:
    topics: [readings]
    record: car.avsc
    event_time: arrival
stages:
  a: {reads: readings, transform: stages:chain}
outputs:
  out:
    stage: a
    corrected: {topic: corrected}
    live: {topic: live, key: [a], upsert: true}
"""


def loaded(folder: Path, *changes: tuple[str, str]) -> Pipeline:
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return pipeline_files.loaded(folder, text, "def chain(readings): return readings\n")


def sizes(pipeline: Pipeline, *, embedded: bool) -> dict[str, int]:
    """Return the size of the largest record of each topic of a user, in bytes."""
    found = {
        each.settings.name: each.settings.config for each in topics_of(pipeline, embedded=embedded)
    }
    names = ("readings", "corrected", "live")
    return {name: int(found[name]["max.message.bytes"]) for name in names}


SOURCE = ("    event_time: arrival", "    event_time: arrival\n    max_record: 4m")


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], {"readings": 2 * MIB, "corrected": 2 * MIB, "live": 4 * MIB}),
        ([SOURCE], {"readings": 5 * MIB, "corrected": 2 * MIB, "live": 4 * MIB}),
        (
            [("{topic: corrected}", "{topic: corrected, max_record: 512k}")],
            {"readings": 2 * MIB, "corrected": MIB + MIB // 2, "live": 4 * MIB},
        ),
        (
            [("upsert: true}", "upsert: true, max_record: 4m}")],
            {"readings": 2 * MIB, "corrected": 2 * MIB, "live": 9 * MIB},
        ),
        (
            [("upsert: true}", "upsert: true, max_record: 15m}")],
            {"readings": 2 * MIB, "corrected": 2 * MIB, "live": 16 * MIB},
        ),
        (
            [("upsert: true}", "upsert: false, max_record: 15m}")],
            {"readings": 2 * MIB, "corrected": 2 * MIB, "live": 16 * MIB},
        ),
    ],
)
def test_topics_have_room_for_the_largest_record(
    tmp_path: Path, embedded: bool, changes: list[tuple[str, str]], expected: dict[str, int]
) -> None:
    assert sizes(loaded(tmp_path, *changes), embedded=embedded) == expected


def test_a_source_takes_values_up_to_its_size(tmp_path: Path) -> None:
    assert loaded(tmp_path).sources["readings"].max_record_bytes == RECORD_BYTES_MAX
    assert loaded(tmp_path, SOURCE).sources["readings"].max_record_bytes == 4 * MIB


@pytest.mark.parametrize("size", ["0m", "16m", "4", "4 MiB", "4g", "-1m", "[4m]", "99999999k"])
def test_what_is_no_size(tmp_path: Path, size: str) -> None:
    with pytest.raises(ConfigurationError, match=r"max_record: .* is no size up to 15m"):
        loaded(tmp_path, (SOURCE[0], SOURCE[1].replace("4m", size)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("{topic: corrected}", "{topic: live.v1}"), ""),
        (
            ("topics: [readings]", "topics: [readings.v1, readings_v1]"),
            "Kafka refuses topic readings_v1 beside readings.v1 (sources.readings.topics[0])",
        ),
        (
            ("{topic: corrected}", "{topic: readings_rejected}"),
            "Kafka refuses topic readings_rejected beside readings.rejected",
        ),
        (
            ("{topic: corrected}", "{topic: p_manager}"),
            "Kafka refuses topic p_manager beside p.manager, an internal topic of this pipeline",
        ),
    ],
)
def test_topics_that_kafka_refuses_beside_each_other_are_found(
    tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    if not says:
        loaded(tmp_path, change)
        return
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, change)
    assert says in str(caught.value)
