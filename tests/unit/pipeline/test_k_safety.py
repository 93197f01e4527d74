"""The word ``k_safety`` of a pipeline file."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from anabranch.protocol.errors import ConfigurationError
from harness.pipeline_files import loaded, written

HORIZON = "state_horizon: 1s"


def text(first: str, second: str, more: str = "") -> str:
    return f"""\
pipeline: p
k_safety: 1
sources: {{a: {{topics: [a], record: car.avsc, event_time: arrival}}}}
stages:
  s: {{reads: [a], sql: SELECT * FROM a, {first}}}
  t: {{reads: [s], sql: SELECT * FROM s, {second}}}
outputs:
  o: {{stage: t, corrected: {{topic: o}}}}
{more}"""


def mistakes(tmp_path: Path, content: str) -> list[str]:
    path = written(tmp_path, content)
    try:
        assert load(path).k_safety == 1
    except ConfigurationError as error:
        return [line.removeprefix(f"{path}:") for line in str(error).splitlines()]
    return []


@pytest.mark.parametrize(
    ("first", "second", "more"),
    [
        ("replicas: 2", "replicas: 2, ha: passive", ""),
        ("replicas: 2", f"ha: upstream_backup, {HORIZON}", "scaling: {nodes: [local.7]}"),
        ("replicas: 1", "replicas: 1", "scaling: {nodes: [local.7]}"),
        ("replicas: 2", "replicas: 2", "nodes: {local.5: [s.0], local.6: [s.1]}"),
    ],
)
def test_a_file_that_survives_each_loss_is_right(
    tmp_path: Path, first: str, second: str, more: str
) -> None:
    assert not mistakes(tmp_path, text(first, second, more))


def test_a_stage_that_the_loss_of_its_node_stops_is_a_mistake(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, text("replicas: 2", "replicas: 1"))
    assert found == (
        "6: stages.t: k_safety is 1, but without node local.0 stage t stops; give it replicas: 2,"
        " or the pipeline a pool: scaling: {nodes: [local.7]}"
    )


def test_a_stage_that_leaves_a_gap_is_a_mistake_wherever_it_runs(tmp_path: Path) -> None:
    content = text("replicas: 2", f"ha: amnesia, {HORIZON}", "scaling: {nodes: [local.7]}")
    (found,) = mistakes(tmp_path, content)
    assert found.startswith("6: stages.t: k_safety is 1, but without its disk stage t leaves out")


def test_a_file_without_the_word_claims_nothing(tmp_path: Path) -> None:
    content = text("replicas: 1", "replicas: 1").replace("k_safety: 1\n", "")
    assert loaded(tmp_path, content).k_safety == 0


def test_two_losses_at_once_cannot_be_claimed(tmp_path: Path) -> None:
    content = text("replicas: 3", "replicas: 3").replace("k_safety: 1", "k_safety: 2")
    assert mistakes(tmp_path, content) == [
        "2: k_safety: an integer from 0 to 1 is wanted, not 2",
    ]
