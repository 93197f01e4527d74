"""The example pipelines are files that anabranch takes, and the demo reads the same from them."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from anabranch.operating.new_pipeline import files
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from demo import oracle
from demo.job import read_job

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FOLDERS = sorted(file.parent.name for file in EXAMPLES.glob("*/pipeline.yaml"))


def load_of(name: str) -> Pipeline:
    return load(EXAMPLES / name / "pipeline.yaml")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_copied_elsewhere_is_whole(name: str, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(EXAMPLES / name, tmp_path / "deep" / "mine"))
    assert load(copied / "pipeline.yaml").outputs


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_says_what_it_shows_and_has_sample_records(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    assert "anabranch test" in text
    sample = EXAMPLES / name / "tests" / "sample"
    assert list(sample.glob("*.expected.jsonl"))
    assert all((sample / f"{source}.jsonl").exists() for source in load_of(name).sources)


def test_each_folder_has_its_words_its_data_and_what_is_expected_of_them() -> None:
    folders = {file.relative_to(EXAMPLES).parts[0] for file in EXAMPLES.rglob("*.yaml")}
    assert {"first_pipeline", "federation", "market", "remote_definition"} <= folders
    for folder in (EXAMPLES / name for name in folders):
        records = {file.name.endswith(".expected.jsonl") for file in folder.rglob("*.jsonl")}
        assert (folder / "README.md").exists(), folder
        assert records == {False, True}, folder


def test_the_first_pipeline_is_the_one_that_init_writes_and_the_readme_shows() -> None:
    text = (EXAMPLES.parent / "README.md").read_text()
    for name, content in files("sensors").items():
        if name != ".gitignore":
            assert (EXAMPLES / "first_pipeline" / name).read_text() == content, name
        if "/" not in name and name != ".gitignore":
            assert content in text, name


def test_each_schema_has_one_copy() -> None:
    files = [*EXAMPLES.rglob("*.avsc"), *EXAMPLES.parent.glob("schemas/records/**/*.avsc")]
    fields = defaultdict(list)
    for file in files:
        schema = json.loads(file.read_text())
        fields[schema["name"], str(schema["fields"])].append(file.relative_to(EXAMPLES.parent))
    assert [copies for copies in fields.values() if len(copies) > 1] == []


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
