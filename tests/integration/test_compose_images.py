"""The images and settings of docker-compose.yml serve our adapters: each started alone by
testcontainers.

Skipped, with the reason and a count in pytest's summary, where there is no docker engine or the
images cannot be had. The whole deployment is tried by ``make compose-test``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.redis.index import RedisIndex
from anabranch.codec.catalog import TopicSettings
from anabranch.local.tcp_ports import free_port
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable
from harness.redis import stored
from harness.waiting import wait_until

os.environ.setdefault(
    "TESTCONTAINERS_RYUK_DISABLED", "true"
)  # the reaper is one more image; each container is stopped here

COMPOSE = YAML(typ="safe").load(Path(__file__).parents[2] / "docker-compose.yml")["services"]
PORT_SETTING = re.compile(r"\$\{ANABRANCH_KAFKA_PORT:-\d+\}")
READY_S = 60.0

pytestmark = [pytest.mark.integration, pytest.mark.docker]


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """Open a client of the docker engine."""
    import docker

    try:
        client = docker.from_env(timeout=30)
        client.ping()
    except docker.errors.DockerException as error:
        pytest.skip(f"no docker engine: {str(error)[:120]}")
    yield client
    client.close()


def start(engine: Any, service: str, ports: dict[int, int], environment: dict[str, str]) -> Any:
    """Start the container of ``service`` as docker-compose.yml describes it, with these ports on
    the machine.
    """
    import docker
    from testcontainers.core.container import DockerContainer

    described = COMPOSE[service]
    try:
        engine.images.get(described["image"])
    except docker.errors.ImageNotFound:
        try:
            engine.images.pull(described["image"])
        except docker.errors.APIError as error:
            pytest.skip(
                f"a docker engine, but not the image {described['image']}: {str(error)[:120]}"
            )
    container = DockerContainer(described["image"]).with_kwargs(
        hostname=service, mem_limit=described["mem_limit"]
    )
    for name, value in environment.items():
        container = container.with_env(name, value)
    for inside, outside in ports.items():
        container = container.with_bind_ports(inside, outside)
    if "command" in described:
        container = container.with_command(described["command"])
    return container


def test_kafka_image_keeps_records_apart_by_transaction(engine: Any) -> None:
    """The broker as configured for compose: topics, a committed and an aborted transaction,
    read back by our adapter.
    """
    port = free_port()
    environment = {
        name: PORT_SETTING.sub(str(port), str(value))
        for name, value in COMPOSE["kafka"]["environment"].items()
    }
    with start(engine, "kafka", {9092: port}, environment):
        log = KafkaEventLog(f"localhost:{port}")
        admin = log.admin()

        def answers() -> bool:
            try:
                admin.create([TopicSettings("checked", 1)])
            except Unavailable:
                return False
            return True

        wait_until(answers, READY_S, "the broker creates a topic")
        at = TopicPartition("checked", 0)
        writer = log.transactional_writer("compose-images")
        for value, is_kept in ((b"kept", True), (b"dropped", False), (b"also kept", True)):
            writer.begin()
            writer.send(at, value)
            writer.commit() if is_kept else writer.abort()
        reader = log.reader(committed=True)
        reader.assign({at: 0})
        seen: list[bytes | None] = []

        def both() -> bool:
            seen.extend(value for chunk in reader.fetch(100, 200) for value in chunk.values)
            return len(seen) >= 2

        wait_until(both, READY_S, "two records come back")
        assert seen == [b"kept", b"also kept"]
        assert admin.settings("checked")["min.insync.replicas"] == "1"
        for each in (reader, writer, admin):
            each.close()


def test_redis_image_serves_the_index(engine: Any) -> None:
    """The server as configured for compose, without persistence, answers the index."""
    port = free_port()
    with start(engine, "redis", {6379: port}, {}):
        index = RedisIndex(f"redis://localhost:{port}/0")

        def answers() -> bool:
            try:
                index.put("anabranch:checked", {"bucket": "7"})
            except Unavailable:
                return False
            return True

        wait_until(answers, READY_S, "the server answers")
        assert stored(f"redis://localhost:{port}/0", "anabranch:checked") == {"bucket": "7"}
        index.close()
