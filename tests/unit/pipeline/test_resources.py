"""Resources of nodes and stages in a pipeline file."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline, Resources
from anabranch.pipeline.resources import of_node
from anabranch.protocol.errors import ConfigurationError

RECORD = '{"type": "record", "name": "r", "fields": [{"name": "vid", "type": "int"}]}'
ONE = """\
pipeline: p
sources: {a: {topics: [a], record: r.avsc, event_time: arrival}}
stages:
  s: {reads: [a], sql: SELECT * FROM a}
outputs:
  o: {stage: s, corrected: {topic: o}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r.avsc").write_text(RECORD)
    return tmp_path


def loaded(folder: Path, text: str) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return load(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, text)
    return str(caught.value).splitlines()


def test_a_node_may_have_resources_of_its_own(folder: Path) -> None:
    found = loaded(folder, ONE + "resources: {local.0: {memory: 2g, cores: 3}}\n")
    assert (found.resources["local.0"].memory, found.resources["local.0"].cores) == ("2g", 3)
    found = loaded(folder, ONE + "resources: {local.0: {master: 'spark://a:7077', cores: 3}}\n")
    assert (found.resources["local.0"].master, found.resources["local.0"].cores) == (
        "spark://a:7077",
        3,
    )
    for wrong, says in (
        (
            "{local.0: {memory: 2}}",
            "7: resources.local.0.memory: 2 is no size; write for example 512m or 2g",
        ),
        ("{local.0: {cores: 0}}", "7: resources.local.0.cores: an integer from 1 to "),
        (
            "{local.0: {master: yarn}}",
            (
                "7: resources.local.0.master: 'yarn' is not a master that a node can use; write"
                " local[2], or"
            ),
        ),
        ("{local.0: {master: 7}}", "7: resources.local.0.master: 7 is not a master"),
        (
            "{local.0: {master: 'local[3]', cores: 2}}",
            "7: resources.local.0.cores: master local[3] sets the cores already",
        ),
        ("{local.0: {disk: 2}}", "7: resources.local.0.disk: unknown key"),
        ("{loca.0: {}}", "7: resources.loca.0: there is no node loca.0; did you mean 'local.0'?"),
    ):
        assert says in mistakes(folder, f"{ONE}resources: {wrong}\n")[0]


STAGES_OF_A_NODE = """\
pipeline: p
sources:
  a: {topics: [a], record: r.avsc, event_time: arrival}
stages:
  one: {reads: [a], sql: SELECT * FROM a, resources: {memory: 3g, cores: 4}}
  two: {reads: [a], sql: SELECT * FROM a, resources: {memory: 512m}}
  three: {reads: [a], sql: SELECT * FROM a%s}
outputs:
  o: {stage: one, corrected: {topic: o}}
"""


@pytest.mark.parametrize(
    ("third", "node", "memory", "cores"),
    [
        (", resources: {memory: 1m, cores: 1}", "", "3585m", 4),
        ("", "", "4608m", 4),
        ("", "{memory: 2g}", "2g", 4),
        ("", "{cores: 8}", "4608m", 8),
        ("", "{master: 'local[3]'}", "4608m", None),
    ],
)
def test_a_node_takes_what_its_stages_need_unless_it_says_more(
    folder: Path, third: str, node: str, memory: str, cores: int | None
) -> None:
    text = STAGES_OF_A_NODE % third + (f"resources: {{local.0: {node}}}\n" if node else "")
    found = of_node(loaded(folder, text), "local.0")
    assert (found.memory, found.cores) == (memory, cores)
    assert of_node(loaded(folder, text), "auditor") == Resources()


def test_where_no_stage_says_what_it_needs_the_environment_does(folder: Path) -> None:
    assert of_node(loaded(folder, ONE), "local.0") == Resources()


def test_a_stage_does_not_say_where_its_tasks_run(folder: Path) -> None:
    text = STAGES_OF_A_NODE % ", resources: {master: 'local[2]'}"
    assert "stages.three.resources.master: unknown key" in mistakes(folder, text)[0]
