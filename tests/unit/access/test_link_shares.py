"""Quotas by which streams share a link."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.access.link_shares import LinkShare, link_shares
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.cli import app
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.topic_names import TopicNames, block_reader_id, stream_of_blocks
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import RANGE_PARTITION_BYTES
from unit.pipeline.test_clusters import BILLING, loaded

MIB = 1024 * 1024
TWO = BILLING.replace(
    "participant: north}\n",
    """participant: north}
  north_cars: {pipeline: north, stream: cars, record: speed.avsc, cluster: north,
    participant: north}
""",
).replace("[tolls], transform: stages:later", "[tolls, north_cars], transform: stages:later")


def two(folder: Path) -> Pipeline:
    """Return a pipeline that reads two streams on north's cluster."""
    loaded(folder)
    (folder / "stages.py").write_text(
        "def tolls(north_speeds, south_speeds): ...\ndef later(tolls, north_cars): ...\n"
    )
    (folder / "billing.yaml").write_text(TWO)
    return load(folder / "billing.yaml")


def test_the_rate_of_a_link_is_divided_by_weights(tmp_path: Path) -> None:
    pipeline = two(tmp_path)
    assert link_shares(pipeline, "north", "8m", ["north_speeds=3"]) == [
        LinkShare("anabranch.north.speeds", 3, 6 * MIB),
        LinkShare("anabranch.north.cars", 1, 2 * MIB),
    ]
    own = link_shares(pipeline, "", "1g", [])
    assert [share.client_id for share in own] == [
        "anabranch.billing.tolls",
        "anabranch.billing.later",
        "anabranch.south.speeds",
    ]
    assert {share.bytes_per_s for share in own} == {1024 * MIB // 3}


def test_a_quota_names_the_client_that_reads_the_blocks() -> None:
    """All replicas of the stream, whatever it is called here; and no other reader."""
    names = TopicNames("billing", (("north_speeds", "north", "speeds"),))
    ids = {block_reader_id(stream_of_blocks(names.blocks("north_speeds", r))) for r in "01"}
    assert ids == {names.block_reader_id("north_speeds")} == {"anabranch.north.speeds"}
    settings = KafkaSettings("a:1")
    assert settings.consumer(committed=False)["client.id"] == "anabranch"
    of_stream = settings.of_stream("north.speeds").consumer(committed=False, ranges=True)
    assert of_stream["client.id"] == "anabranch.north.speeds"
    assert of_stream["max.partition.fetch.bytes"] == RANGE_PARTITION_BYTES


@pytest.mark.parametrize(
    ("rate", "weights", "message"),
    [
        ("fast", [], "no rate in bytes per second; write for example 800k, 40m or 1g"),
        ("0m", [], "no rate"),
        ("8m", ["north_speeds"], "write STREAM=N, N from 1 to 9999"),
        ("8m", ["north_speeds=0"], "write STREAM=N"),
        ("8m", ["north_speed=2"], "did you mean 'north_speeds'"),
        ("8m", ["tolls=2"], "there are north_speeds, north_cars"),
        ("8m", ["north_cars=2", "north_cars=3"], "north_cars has a weight already"),
        ("8m", ["north_speeds=8"], "anabranch.north.cars gets 932067 bytes per second"),
    ],
)
def test_what_is_rejected(tmp_path: Path, rate: str, weights: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        link_shares(two(tmp_path), "north", rate, weights)
    assert message in str(caught.value)


def run(folder: Path, *words: str) -> list[str]:
    file = str(folder / "billing.yaml")
    done = CliRunner().invoke(app, ["acls", "-f", file, *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout.splitlines()


def test_the_command_lists_quotas_after_the_rights(tmp_path: Path) -> None:
    two(tmp_path)
    north = ("--cluster", "north", "--link", "8m", "--weight", "north_speeds=3")
    rights = run(tmp_path, "--cluster", "north")
    table = run(tmp_path, *north)
    assert table[: len(rights)] == rights
    assert [line.split() for line in table[len(rights) + 1 :]] == [
        [
            "client",
            "anabranch.north.speeds",
            "consumer_byte_rate=6291456",
            "weight",
            "3",
            "of",
            "4",
        ],
        ["client", "anabranch.north.cars", "consumer_byte_rate=2097152", "weight", "1", "of", "4"],
    ]
    calls = [shlex.split(line) for line in run(tmp_path, *north, "--commands")]
    assert [call[-4:] for call in calls if call[0] == "kafka-configs.sh"] == [
        ["--entity-type", "clients", "--entity-name", f"anabranch.north.{stream}"]
        for stream in ("speeds", "cars")
    ]


@pytest.mark.parametrize(
    "words",
    [["--weight", "tolls=2"], ["--link", "8m", "--json"], ["--link", "8m", "--redis"]],
)
def test_options_that_do_not_go_together(tmp_path: Path, words: list[str]) -> None:
    two(tmp_path)
    with pytest.raises(ConfigurationError):
        run(tmp_path, *words)
