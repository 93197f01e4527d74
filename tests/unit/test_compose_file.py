"""docker-compose.yml and deploy/kubernetes.yaml run the toll road whole, and keep apart and
together what must be. With an engine: `make compose-test`.
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


OBJECTS: list[dict[str, Any]] = list(YAML(typ="safe").load_all(ROOT / "deploy" / "kubernetes.yaml"))
PODS = {
    each["metadata"]["name"]: each["spec"]["template"]
    for each in OBJECTS
    if each["kind"] in ("Deployment", "StatefulSet", "Job")
}


def _named(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in OBJECTS if each["kind"] == kind}


def _container(pod: str) -> dict[str, Any]:
    (container,) = PODS[pod]["spec"]["containers"]
    return dict(container)


def _environment(pod: str) -> dict[str, str]:
    """Return the variables of a container, as Kubernetes puts them together."""
    found: dict[str, str] = {}
    for each in _container(pod).get("envFrom", []):
        found |= _named("ConfigMap")[each["configMapRef"]["name"]]["data"]
    return found | {each["name"]: each.get("value", "") for each in _container(pod).get("env", [])}


def test_kubernetes_runs_the_same_processes() -> None:
    def words(pod: str) -> list[str]:
        kafka = _environment(pod)["ANABRANCH_KAFKA"]
        return [word.replace("$(ANABRANCH_KAFKA)", kafka) for word in _container(pod)["command"]]

    assert {
        name: (_container(name)["image"], words(name)) for name in PODS if name not in SERVERS
    } == {
        name: (each["image"], each.get("command"))
        for name, each in CONTAINERS.items()
        if name not in SERVERS
    }
    assert set(PODS) == set(CONTAINERS)


def test_each_process_in_a_pod_has_the_settings_of_the_compose_file() -> None:
    for name in PROCESSES.values():
        composed = {key: str(value) for key, value in CONTAINERS[name]["environment"].items()}
        assert _environment(name) == composed, name


def test_what_a_pod_refers_to_is_there() -> None:
    """The ConfigMap ``pipeline`` and the Secret ``dashboard`` come from the commands in the file's
    first lines.
    """
    claims = set(_named("PersistentVolumeClaim"))
    for name, pod in PODS.items():
        volumes = {each["name"] for each in pod["spec"].get("volumes", [])}
        templates = next(each for each in OBJECTS if each.get("spec", {}).get("template") is pod)
        volumes |= {
            each["metadata"]["name"] for each in templates["spec"].get("volumeClaimTemplates", [])
        }
        mounted = {each["name"] for each in _container(name).get("volumeMounts", [])}
        assert mounted == volumes, name
        for volume in pod["spec"].get("volumes", []):
            assert volume.get("configMap", {"name": "pipeline"})["name"] == "pipeline"
            assert volume.get("persistentVolumeClaim", {"claimName": None})["claimName"] in {
                None,
                *claims,
            }
    for name, service in _named("Service").items():
        assert PODS[name]["metadata"]["labels"] == service["spec"]["selector"]
        assert {each["port"] for each in service["spec"]["ports"]} == {
            each["containerPort"] for each in _container(name)["ports"]
        }


def test_pods_keep_to_the_restricted_level_of_pod_security() -> None:
    for name, pod in PODS.items():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        rights = _container(name)["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False, name
        assert rights["capabilities"] == {"drop": ["ALL"]}, name


def test_the_files_of_the_config_map_are_the_whole_pipeline(tmp_path: Path) -> None:
    """In a volume of a ConfigMap each file is a link into a hidden folder."""
    folder = ROOT / "examples" / "toll_road"
    (volume,) = [
        each for each in PODS["node-north-0"]["spec"]["volumes"] if each["name"] == "pipeline"
    ]
    for item in volume["configMap"]["items"]:
        (source,) = folder.rglob(item["key"])
        target = tmp_path / "..data" / item["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        first = item["path"].partition("/")[0]
        (tmp_path / first).symlink_to(Path("..data") / first)
    assert sorted(load(tmp_path / "pipeline.yaml").processes()) == sorted(PIPELINE.processes())
