"""The example pipelines are files that anabranch takes, and the demo reads the same from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from examples.toll_road import oracle
from examples.toll_road.demo import parse, read_job
from examples.toll_road.deployment import copy_pipeline

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize(
    "name",
    [
        "toll_road/pipeline.yaml",
        "toll_road/with_notices.yaml",
        "stateless/pipeline.yaml",
        "windowed/pipeline.yaml",
        "market/billing.yaml",
    ],
)
def test_the_file_is_taken(name: str) -> None:
    assert load(EXAMPLES / name).outputs


@pytest.mark.parametrize("name", ["toll_road", "stateless", "windowed"])
def test_a_folder_that_is_copied_elsewhere_is_whole(name: str, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(EXAMPLES / name, tmp_path / "deep" / "mine"))
    assert load(copied / "pipeline.yaml").outputs
    assert (copied / "schemas" / "position_report.avsc").read_text() == (
        EXAMPLES / "toll_road" / "schemas" / "position_report.avsc"
    ).read_text(), "one record, wherever it is kept"


@pytest.mark.parametrize("name", ["pipeline.yaml", "with_notices.yaml"])
def test_the_demo_reads_what_anabranch_reads(name: str) -> None:
    pipeline = load(EXAMPLES / "toll_road" / name)
    job = read_job(EXAMPLES / "toll_road" / name)
    assert job.topics == [source.topics[0] for source in pipeline.sources.values()]
    assert job.dead_letters == [source.dead_letter for source in pipeline.sources.values()]
    assert job.outputs == {
        output.name: output.corrected.topic for output in pipeline.outputs.values()
    }
    assert {
        output.name: tuple(output.corrected.key) for output in pipeline.outputs.values()
    }.items() <= oracle.KEYS.items()
    assert (job.bucket_ms, job.partitions) == (pipeline.bucket_ms, pipeline.partitions)
    assert (job.window_ms, job.free_vehicles, job.free_speed) == (10_000, 20, 40)


def test_a_copy_has_as_many_replicas_as_asked_for_and_is_taken(tmp_path: Path) -> None:
    copied = load(copy_pipeline(EXAMPLES / "toll_road" / "pipeline.yaml", tmp_path / "copy", 2))
    assert copied.stages["segment_statistics"].replicas == 2
    assert copied.stages["tolls"].replicas == 1


def test_the_command_line_of_the_demo() -> None:
    options = parse(
        ["--replicas", "2", "--kill", "ingestion/reports_0", "--kill", "delivery/tolls"]
    )
    assert (options.replicas, options.kill, options.rate) == (
        2,
        ["ingestion/reports_0", "delivery/tolls"],
        400,
    )
    assert parse([]).pipeline == EXAMPLES / "toll_road" / "pipeline.yaml"
