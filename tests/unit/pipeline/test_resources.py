"""Resources of nodes and stages in a pipeline file."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.model import Resources
from anabranch.pipeline.resources import of_node
from harness.pipeline_files import loaded, mistakes

ONE = """\
pipeline: p
sources: {a: {topics: [a], record: car.avsc, event_time: arrival}}
stages:
  s: {reads: [a], sql: SELECT * FROM a}
outputs:
  o: {stage: s, corrected: {topic: o}}
"""


def test_a_node_may_have_resources_of_its_own(tmp_path: Path) -> None:
    found = loaded(tmp_path, ONE + "resources: {local.0: {memory: 2g, cores: 3}}\n")
    assert (found.resources["local.0"].memory, found.resources["local.0"].cores) == ("2g", 3)
    found = loaded(tmp_path, ONE + "resources: {local.0: {master: 'spark://a:7077', cores: 3}}\n")
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
        assert says in mistakes(tmp_path, f"{ONE}resources: {wrong}\n")[0]


STAGES_OF_A_NODE = """\
pipeline: p
sources:
  a: {topics: [a], record: car.avsc, event_time: arrival}
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
    tmp_path: Path, third: str, node: str, memory: str, cores: int | None
) -> None:
    text = STAGES_OF_A_NODE % third + (f"resources: {{local.0: {node}}}\n" if node else "")
    found = of_node(loaded(tmp_path, text), "local.0")
    assert (found.memory, found.cores) == (memory, cores)
    assert of_node(loaded(tmp_path, text), "auditor") == Resources()


def test_where_no_stage_says_what_it_needs_the_environment_does(tmp_path: Path) -> None:
    assert of_node(loaded(tmp_path, ONE), "local.0") == Resources()


def test_a_stage_does_not_say_where_its_tasks_run(tmp_path: Path) -> None:
    text = STAGES_OF_A_NODE % ", resources: {master: 'local[2]'}"
    assert "stages.three.resources.master: unknown key" in mistakes(tmp_path, text)[0]
