"""deploy/kubernetes.yaml runs what docker-compose.yml runs. It says so of itself, and no cluster is
here to try it on.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
CONTAINERS: dict[str, dict[str, Any]] = YAML(typ="safe").load(ROOT / "docker-compose.yml")[
    "services"
]
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    (each["kind"], each["metadata"]["name"]): each
    for each in YAML(typ="safe").load_all(ROOT / "deploy" / "kubernetes.yaml")
}
PODS: dict[str, dict[str, Any]] = {
    name: each["spec"]["template"]["spec"]
    for (kind, name), each in OBJECTS.items()
    if kind in ("Deployment", "StatefulSet", "Job")
}
SERVICES = {name: each["spec"] for (kind, name), each in OBJECTS.items() if kind == "Service"}
COMMON: dict[str, str] = OBJECTS["ConfigMap", "anabranch"]["data"]
OURS = sorted(set(PODS) - {"kafka", "redis"})
ON_THE_MACHINE = re.compile(r",HOST:(//:9092|//localhost:.*|PLAINTEXT)$")
"""Of the broker's settings: the listener for clients on the machine of docker compose."""


def only(name: str) -> dict[str, Any]:
    """The container of a pod."""
    (container,) = PODS[name]["containers"]
    assert isinstance(container, dict)
    return container


def environment(name: str) -> dict[str, str]:
    container = only(name)
    common = COMMON if "envFrom" in container else {}
    return common | {
        each["name"]: each["value"] for each in container.get("env", []) if "value" in each
    }


def ports(container: dict[str, Any]) -> list[int]:
    return [each["containerPort"] for each in container.get("ports", [])]


def test_the_same_processes() -> None:
    assert set(PODS) == set(CONTAINERS)
    assert {name: only(name)["image"] for name in PODS} == {
        name: each["image"] for name, each in CONTAINERS.items()
    }
    assert {name: only(name)["command"] for name in PODS if name != "kafka"} == {
        name: each["command"] for name, each in CONTAINERS.items() if name != "kafka"
    }
    assert all(
        each["spec"]["replicas"] == 1
        for (kind, _), each in OBJECTS.items()
        if kind in ("Deployment", "StatefulSet")
    )


@pytest.mark.parametrize("name", sorted(PODS))
def test_the_same_settings(name: str) -> None:
    expected = {
        key: ON_THE_MACHINE.sub("", str(value))
        for key, value in CONTAINERS[name].get("environment", {}).items()
    }
    if name == "kafka":
        expected["KAFKA_LOG_DIRS"] += "/log"  # a volume of its own has a folder of its own
    if name == "dashboard":
        del expected["ANABRANCH_UI_TOKEN"]
        (token,) = [each for each in only(name)["env"] if each["name"] == "ANABRANCH_UI_TOKEN"]
        assert token["valueFrom"] == {"secretKeyRef": {"name": "dashboard", "key": "token"}}
    if name == "topics":
        del expected["ANABRANCH_METRICS_PORT"]  # it serves none
    assert environment(name) == expected
    limit = CONTAINERS[name]["mem_limit"]
    assert only(name)["resources"]["limits"]["memory"] == limit[:-1] + limit[-1].upper() + "i"


@pytest.mark.parametrize("name", sorted(set(PODS) - {"topics"}))
def test_the_same_ports_and_a_name_for_each(name: str) -> None:
    known = {"kafka": 29_092, "redis": 6_379}
    port = known.get(name) or int(CONTAINERS[name]["environment"]["ANABRANCH_METRICS_PORT"])
    assert ports(only(name)) == [port]
    assert SERVICES[name]["selector"] == {"app": name}
    assert [each["port"] for each in SERVICES[name]["ports"]] == [port]
    for (kind, named), each in OBJECTS.items():
        if named == name and kind in ("Deployment", "StatefulSet"):
            assert each["spec"]["selector"]["matchLabels"] == {"app": name}
            assert each["spec"]["template"]["metadata"]["labels"] == {"app": name}


@pytest.mark.parametrize("name", OURS)
def test_the_same_rights(name: str) -> None:
    assert (CONTAINERS[name]["read_only"], CONTAINERS[name]["cap_drop"]) == (True, ["ALL"])
    assert only(name)["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert PODS[name]["securityContext"]["runAsUser"] == 10_001
    assert "USER 10001\n" in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("name", OURS)
def test_each_file_of_the_pipeline_is_where_the_pipeline_file_names_it(name: str) -> None:
    (volume,) = [each for each in PODS[name]["volumes"] if each["name"] == "pipeline"]
    files = {item["key"]: item["path"] for item in volume["configMap"]["items"]}
    given = re.findall(r"--from-file=(\S+)", (ROOT / "deploy" / "kubernetes.yaml").read_text())
    assert {Path(path).name: path.removeprefix("examples/toll_road/") for path in given} == files
    assert all((ROOT / path).is_file() for path in given)


@pytest.mark.parametrize("name", sorted(PODS))
def test_the_names_of_services_are_no_settings(name: str) -> None:
    """Kubernetes would set KAFKA_PORT where a service is called kafka, which the broker's image
    takes for a setting.
    """
    assert PODS[name]["enableServiceLinks"] is False


def test_nodes_keep_their_checkpoints() -> None:
    claims = {
        name: each["persistentVolumeClaim"]["claimName"]
        for name, pod in PODS.items()
        for each in pod.get("volumes", [])
        if "persistentVolumeClaim" in each
    }
    assert claims == {name: "nodes-north-state" for name in PODS if name.startswith("node-")}
    assert ("PersistentVolumeClaim", "nodes-north-state") in OBJECTS
