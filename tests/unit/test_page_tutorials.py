"""The tutorials on overload and scaling give pipelines that load, and that may do what they show
(``tests/spark/test_page_tutorials`` runs them).
"""

from __future__ import annotations

from pathlib import Path

from anabranch.operating.new_pipeline import write
from anabranch.pipeline.file import load
from anabranch.pipeline.waits import may_shed
from harness.page_tutorials import prepare_rush, prepare_split


def test_the_stage_of_the_rush_may_leave_out_rows(tmp_path: Path) -> None:
    write(tmp_path / "sensors", "sensors")
    prepare_rush(tmp_path / "sensors")
    pipeline = load(tmp_path / "sensors" / "pipeline.yaml")
    assert pipeline.stages["hottest"].shed.kind == "rows"
    assert may_shed(pipeline, "hottest")


def test_the_stage_that_is_too_much_for_its_node_has_it_for_itself_and_may_be_split(
    tmp_path: Path,
) -> None:
    write(tmp_path / "checks", "checks")
    prepare_split(tmp_path / "checks")
    pipeline = load(tmp_path / "checks" / "pipeline.yaml")
    assert pipeline.halves("checked") == ["checked.0", "checked.1"]
    running = {
        node: [label for label in labels if not pipeline.stages[label.rpartition(".")[0]].parent]
        for node, labels in pipeline.nodes().items()
    }
    assert running == {"local.0": ["checked.0"], "local.1": ["hottest.0"], "local.7": []}
