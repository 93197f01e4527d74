"""Tests of the settings of a node whose Spark runs its tasks on a cluster."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import SecretStr

from anabranch.adapters.kafka.security import KafkaSecurity
from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.spark import cluster
from anabranch.protocol.control.executors import EXECUTORS_AWAY_MS
from anabranch.protocol.errors import ConfigurationError, EngineEnded, Unavailable
from harness.waiting import wait_until

_KAFKA = {
    "ANABRANCH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "ANABRANCH_KAFKA_SASL_USERNAME": "north",
    "ANABRANCH_KAFKA_SASL_PASSWORD_FILE": "/secret",
    "ANABRANCH_KAFKA_SSL_CA": "/ca",
}
_SECRETS = [
    name
    for name, field in KafkaSecurity.model_fields.items()
    if SecretStr in get_args(field.annotation)
]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**_KAFKA, "OTHER": "x"})


@pytest.fixture
def master() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"spark://127.0.0.1:{server.getsockname()[1]}"


def settings(master: str, folder: Path = Path("/none"), **changes: Any) -> dict[str, str]:
    fields: dict[str, Any] = {"memory": "2g", "cores": None, "secret": None, "paths": ["/a", "/b"]}
    return cluster.settings(master, java_options="-Xss4m", folder=folder, **(fields | changes))


def test_only_a_standalone_master_is_a_cluster() -> None:
    assert cluster.is_cluster("spark://a:1,b:2")
    assert not cluster.is_cluster("local[2]")


def test_executors_have_what_the_node_has(master: str) -> None:
    found = settings(master, cores=3)
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert (found["spark.executor.memory"], found["spark.cores.max"]) == ("2g", "3")
    assert found["spark.executorEnv.PYTHONPATH"] == "/a:/b"
    handed_on = {name.removeprefix("spark.executorEnv."): value for name, value in found.items()}
    assert {name: handed_on[name] for name in _KAFKA} == _KAFKA
    assert "OTHER" not in handed_on
    assert "spark.cores.max" not in settings(master)


def test_executors_know_who_reads_on_other_owners_clusters(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {
        "ANABRANCH_CLUSTER_EAST_2_SECURITY_PROTOCOL": "SSL",
        "ANABRANCH_CLUSTER_EAST_2_SSL_CA": "/east",
    }
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    found = settings(master, kafka_clusters=["east-2", "west"])
    handed_on = {name.removeprefix("spark.executorEnv."): value for name, value in found.items()}
    assert {name: handed_on[name] for name in (*_KAFKA, *there)} == _KAFKA | there
    monkeypatch.setenv("ANABRANCH_CLUSTER_EAST_2_SSL_KEY", "/k")
    monkeypatch.setenv("ANABRANCH_CLUSTER_EAST_2_SSL_CERTIFICATE", "/c")
    monkeypatch.setenv("ANABRANCH_CLUSTER_EAST_2_SSL_KEY_PASSWORD", "hush")
    with pytest.raises(ConfigurationError, match="_CLUSTER_EAST_2_SSL_KEY_PASSWORD_FILE") as caught:
        settings(master, kafka_clusters=["east-2"])
    assert "hush" not in str(caught.value)


def test_the_secret_is_no_argument_of_java(master: str, tmp_path: Path) -> None:
    found = settings(master, tmp_path, secret="a\\b")
    assert found["spark.authenticate"] == found["spark.network.crypto.enabled"] == "true"
    assert not any("a\\b" in value for value in found.values())
    file = tmp_path / "spark-defaults.conf"
    assert file.read_text() == "spark.authenticate.secret=a\\\\b\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.environ["SPARK_CONF_DIR"] == str(tmp_path)


@pytest.mark.parametrize("name", _SECRETS)
@pytest.mark.parametrize("spelled", [str.upper, str.lower])
def test_a_secret_of_kafka_reaches_executors_by_its_file_alone(
    master: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    spelled: Callable[[str], str],
) -> None:
    variable = f"ANABRANCH_KAFKA_{name.upper()}"
    changed = {**_KAFKA, spelled(variable): "of nobody else"}
    monkeypatch.setattr(os, "environ", changed)
    with pytest.raises(ConfigurationError, match=f"{variable}_FILE") as found:
        settings(master, tmp_path, secret="abc")
    assert "of nobody else" not in str(found.value)
    assert not list(tmp_path.iterdir())


def test_kafka_has_secrets() -> None:
    assert sorted(_SECRETS) == ["sasl_password", "ssl_key_password"]


def test_without_a_secret_a_cluster_is_on_this_machine(
    master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert settings(master)["spark.authenticate"] == "false"
    monkeypatch.setattr(cluster, "reach_master", lambda _: "10.0.0.7")
    with pytest.raises(ConfigurationError, match="ANABRANCH_SPARK_SECRET_FILE"):
        settings(master)
    assert settings(master, tmp_path, secret="abc")["spark.driver.host"] == "10.0.0.7"


def test_a_standby_master_will_do(master: str) -> None:
    several = master.replace("spark://", "spark://127.0.0.1:1,")
    assert cluster.reach_master(several) == "127.0.0.1"


def test_no_master_is_reported_in_one_line() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1: .*resources\.NODE\.master") as found:
        cluster.reach_master("spark://127.0.0.1:1")
    assert "\n" not in str(found.value)


class Masters:
    """Two that only take connections, of which one can be started again."""

    def __init__(self) -> None:
        self.servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in self.servers)
        self.address = f"spark://{ports},127.0.0.1:1"
        self.taken: list[socket.socket] = []

    def take(self) -> None:
        self.taken = [each.accept()[0] for each in self.servers]

    def close(self) -> None:
        for each in (*self.servers, *self.taken):
            each.close()


@pytest.fixture
def masters() -> Iterator[Masters]:
    made = Masters()
    yield made
    made.close()


def test_a_node_says_that_it_has_no_executor_and_ends_if_its_master_has_gone(
    masters: Masters,
) -> None:
    clock, executors = VirtualClock(), [1]
    had = cluster.ExecutorMonitor(masters.address, "2g", clock, lambda: executors[0])
    masters.take()
    assert had.poll() is None
    executors[0] = 0
    clock.advance(EXECUTORS_AWAY_MS)
    waits = had.poll() or ""
    assert masters.address in waits
    assert "start a worker that has a core and 2g of memory" in waits
    assert had.poll() == waits, "Spark is not asked every time"
    executors[0] = 1
    clock.advance(1_000)
    assert had.poll() is None
    masters.taken[1].close()  # started again: it still takes connections
    clock.advance(EXECUTORS_AWAY_MS)
    assert had.poll() is None, "whoever has executors needs no master"
    executors[0] = 0
    clock.advance(EXECUTORS_AWAY_MS)
    with pytest.raises(EngineEnded, match="has gone, and with it the node's executors") as found:
        wait_until(had.poll, 30, "the end of the connection is seen")
    assert found.value.during == ()
    had.close()
    had.close()


def test_a_master_that_has_gone_before_it_could_be_watched_has_gone() -> None:
    clock = VirtualClock()
    had = cluster.ExecutorMonitor("spark://127.0.0.1:1", "1g", clock, lambda: 0)
    assert had.poll() is None
    clock.advance(EXECUTORS_AWAY_MS)
    with pytest.raises(EngineEnded):
        had.poll()


def _operator(checkpoint: Path, operator: int, metadata: str, stores: dict[str, Any]) -> Path:
    """Write an operator's state as Spark does on the node's machine."""
    folder = checkpoint / "state" / str(operator)
    for path, text in (
        (folder / "_metadata" / metadata, f"v2\n{json.dumps(stores)}"),
        (folder / "_metadata" / f".{Path(metadata).name}.crc", "x"),
        (folder / "0" / "_metadata" / "schema", "v2\n{}"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("metadata", ["metadata", "v2/0"])
def test_state_that_the_node_does_not_see(tmp_path: Path, metadata: str) -> None:
    cluster.check_shared(tmp_path)  # a stage without state
    stores = [{"storeName": name, "numPartitions": 3} for name in ("left", "right")]
    seen = _operator(tmp_path, 0, metadata, {"stateStoreInfo": stores})
    for partition in (0, 2):
        (seen / str(partition) / "left").mkdir(parents=True)
        (seen / str(partition) / "left" / "1_a.changelog").touch()
    with pytest.raises(ConfigurationError, match="nothing of partitions 1: put --state-dir"):
        cluster.check_shared(tmp_path)
    (seen / "1").mkdir()
    (seen / "1" / "1_b.zip").touch()
    cluster.check_shared(tmp_path)
    _operator(tmp_path, 1, metadata, {"stateStoreInfo": stores})
    with pytest.raises(ConfigurationError, match="/1 has nothing of partitions 0, 1, 2"):
        cluster.check_shared(tmp_path)
