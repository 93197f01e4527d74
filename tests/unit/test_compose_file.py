"""docker-compose.yml runs the toll road whole, and keeps apart and together what must be.
With an engine: `make compose-test`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from anabranch.pipeline.file import load
from deploy import compose_test

ROOT = Path(__file__).parents[2]
FILE = YAML(typ="safe").load(ROOT / "docker-compose.yml")
CONTAINERS: dict[str, dict[str, Any]] = FILE["services"]
PIPELINE = load(ROOT / "examples" / "toll_road" / "pipeline.yaml")
SERVERS = ("kafka", "redis")


def _service(container: dict[str, Any]) -> str | None:
    words = container.get("command", [])
    return str(words[2]).removeprefix("anabranch.") if words[:2] == ["python", "-m"] else None


PROCESSES = {
    (_service(found), found["environment"]["ANABRANCH_NAME"]): name
    for name, found in CONTAINERS.items()
    if _service(found)
}


def _state_volume(container: str) -> str:
    (volume,) = [
        str(each).partition(":")[0]
        for each in CONTAINERS[container]["volumes"]
        if str(each).endswith(":/var/lib/anabranch")
    ]
    return volume


def test_each_process_of_the_pipeline_has_a_container() -> None:
    assert sorted(PROCESSES) == sorted(PIPELINE.processes())
    assert set(CONTAINERS) == {*PROCESSES.values(), *SERVERS, "topics", "dashboard"}
    assert set(compose_test.KILLED) <= set(PROCESSES.values())


def test_nodes_of_a_participant_share_a_volume_and_nobody_else_does() -> None:
    """A replica that has lost its checkpoint copies that of a peer, which must be below the
    same state directory.
    """
    whose = {
        (service, name.rpartition(".")[0] if service == "processing" else name): _state_volume(
            container
        )
        for (service, name), container in PROCESSES.items()
    }
    assert len(set(whose.values())) == len(whose)
    assert all(
        volume == f"nodes-{owner.replace('_', '-')}-state"
        for (service, owner), volume in whose.items()
        if service == "processing"
    )
    assert set(FILE["volumes"]) == {*whose.values(), "kafka-data"}


def test_the_page_asks_every_process_and_is_reached_from_this_machine_only() -> None:
    dashboard = CONTAINERS["dashboard"]
    processes = {
        each.removeprefix("--process=").partition("=")[::2]
        for each in dashboard["command"]
        if each.startswith("--process=")
    }
    assert processes == {
        (f"{service}/{name}", f"{container}:9100")
        for (service, name), container in PROCESSES.items()
    }
    assert all(port.startswith("127.0.0.1:") for port in dashboard["ports"])
    assert not [
        name for name, each in CONTAINERS.items() if "dashboard" in each.get("depends_on", {})
    ]


@pytest.mark.parametrize("container", [*PROCESSES.values(), *SERVERS])
def test_what_ends_is_started_again_unless_somebody_stopped_it(container: str) -> None:
    assert CONTAINERS[container]["restart"] == "unless-stopped"


def test_only_the_manager_knows_redis_and_waits_for_it() -> None:
    for (service, _), container in PROCESSES.items():
        is_manager = service == "consistency_manager"
        assert (
            "redis" in CONTAINERS[container]["depends_on"],
            "ANABRANCH_REDIS" in CONTAINERS[container]["environment"],
        ) == (
            is_manager,
            is_manager,
        )
        assert CONTAINERS[container]["depends_on"]["topics"] == {
            "condition": "service_completed_successfully"
        }


def test_kubernetes_runs_the_same_processes() -> None:
    """The only check of deploy/kubernetes.yaml, which was not tried on a cluster."""
    objects = YAML(typ="safe").load_all(ROOT / "deploy" / "kubernetes.yaml")
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]
        for each in objects
        if each["kind"] in ("Deployment", "StatefulSet", "Job")
    }
    assert {
        name: (pod["image"], pod.get("command"))
        for name, pod in pods.items()
        if name not in SERVERS
    } == {
        name: (each["image"], each.get("command"))
        for name, each in CONTAINERS.items()
        if name not in SERVERS
    }
    assert set(pods) == set(CONTAINERS)
