"""The Compose file of a pipeline. That of the toll road is the one in the root, which
tests/unit/test_compose_file.py looks at.
"""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from anabranch.operating.compose import text
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Federation

ROOT = Path(__file__).parents[3]


def test_the_file_in_the_root_is_what_the_command_writes() -> None:
    pipeline = load(ROOT / "examples" / "toll_road" / "pipeline.yaml")
    written = text(
        pipeline,
        folder="./examples/toll_road",
        image="anabranch:0.1.0",
        build=".",
        name="anabranch",
    )
    assert written == (ROOT / "docker-compose.yml").read_text(), (
        "write it anew: anabranch compose (CONTRIBUTING.md)"
    )


def test_each_process_of_another_pipeline_has_a_container() -> None:
    pipeline = load(ROOT / "examples" / "first_pipeline" / "pipeline.yaml")
    found = YAML(typ="safe").load(text(pipeline, folder=".", image="mine:1"))
    assert found["name"] == pipeline.name
    names = [(service, f"{name}") for service, name in pipeline.processes()]
    containers = {
        (each["command"][2].removeprefix("anabranch."), each["environment"]["ANABRANCH_NAME"])
        for each in found["services"].values()
        if each.get("command", [""])[0] == "python"
    }
    assert containers == set(names)
    assert {
        each["image"] for name, each in found["services"].items() if name not in ("kafka", "redis")
    } == {"mine:1"}
    assert "build" not in found["x-service"]
    used = {
        volume.partition(":")[0]
        for each in found["services"].values()
        for volume in each.get("volumes", ())
        if volume[0] != "$"
    }
    assert used == set(found["volumes"])


def test_a_participant_of_a_federation_has_a_broker_with_its_key() -> None:
    pipeline = load(ROOT / "examples" / "first_pipeline" / "pipeline.yaml").model_copy(
        update={"federation": Federation(name="tolls", participant="north")}
    )
    found = YAML(typ="safe").load(text(pipeline, folder=".", image="mine:1"))
    broker = found["services"]["contract-broker-north"]
    assert broker["command"] == ["python", "-m", "anabranch.contract_broker"]
    assert broker["environment"]["ANABRANCH_NAME"] == "north"
    key = "${ANABRANCH_SIGNING_KEY_FILE:-}"
    assert broker["environment"]["ANABRANCH_SIGNING_KEY_FILE"] == key
    assert [name for name, each in found["services"].items() if key in str(each)] == [
        "contract-broker-north"
    ]
