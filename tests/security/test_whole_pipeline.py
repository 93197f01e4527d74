"""A whole pipeline with Spark on a broker that lets nobody do anything, with the rights that
``anabranch acls`` prints and no others.

Ingestion, one replica and the manager come by SCRAM over TLS, the other replica and delivery by
client certificates; the manager's Redis has ACL users and TLS. Every secret is planted, and is then
looked for in all that others can see.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from anabranch.access.pipeline_acls import rights
from anabranch.cli.acls import redis_user
from anabranch.local.embedded_redis import EmbeddedRedis
from anabranch.local.probe import get, metrics_port
from anabranch.local.topic_creation import prepare, topics_of
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from harness import sources
from harness.certificates import Authority
from harness.secure_kafka import ROOT, SecureKafka
from harness.stages import write_pipeline
from harness.tls_relay import in_tls
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

DEADLINE_S = 120
COUNT, WINDOW_MS = 400, 200
FUNCTIONS = """
from pyspark.sql import functions as F

def counts(a):
    windows = a.groupBy(F.window("event_time", "200 milliseconds"), "key").agg(
        F.count("*").alias("n")
    )
    return windows.select("key", "n", F.col("window.end").alias("event_time"))
"""
STAGES = "s:\n  reads: [a]\n  participant: north\n  replicas: 2\n  transform: MODULE:counts\n"


@dataclass
class Vault:
    """The broker with topics and rights of ``pipeline``, and how each principal proves who it
    is.
    """

    folder: Path
    pipeline: Pipeline
    broker: SecureKafka
    authority: Authority
    passwords: dict[str, str] = field(repr=False)
    redis_secret: str = field(repr=False)

    def environment(self, who: str, *, by_certificate: bool = False) -> dict[str, str]:
        """Return the environment that docs/security.md recommends: secrets in files."""
        ours = {
            name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")
        }
        ours["ANABRANCH_KAFKA_SSL_CA"] = str(self.authority.certificate)
        if by_certificate:
            made = self.authority.issue(who)
            return ours | {
                "ANABRANCH_KAFKA": self.broker.mtls_address,
                "ANABRANCH_KAFKA_SECURITY_PROTOCOL": "SSL",
                "ANABRANCH_KAFKA_SSL_CERTIFICATE": str(made.certificate),
                "ANABRANCH_KAFKA_SSL_KEY": str(made.key),
            }
        path = self.folder / "secrets" / who
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.passwords[who] + "\n")
        path.chmod(0o600)
        return ours | {
            "ANABRANCH_KAFKA": self.broker.address,
            "ANABRANCH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "ANABRANCH_KAFKA_SASL_USERNAME": who,
            "ANABRANCH_KAFKA_SASL_PASSWORD_FILE": str(path),
        }

    @contextmanager
    def service(
        self, service: str, name: str, variables: Mapping[str, str], state: Path | None = None
    ) -> Iterator[Service]:
        """Start a service process of this pipeline."""
        made = Service(self, service, name, variables, state or self.state)
        try:
            yield made
        finally:
            made.stop()

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def hidden(self) -> list[bytes]:
        """Return what must stay hidden: every password, and every line of every private key."""
        keys = [
            line
            for path in self.authority.certificate.parent.glob("*.key")
            for line in path.read_bytes().split(b"\n")
        ]
        keys = [line for line in keys if line and not line.startswith(b"-----")]
        return [
            *(secret.encode() for secret in self.passwords.values()),
            self.redis_secret.encode(),
            *keys,
        ]


class Service:
    """One process, with all that it starts."""

    def __init__(
        self, vault: Vault, service: str, name: str, variables: Mapping[str, str], state: Path
    ) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self._state = state
        self._service = service
        self._name = name
        self.log = state / f"{service}-{name}.log"
        command = [
            sys.executable,
            "-m",
            f"anabranch.{service}",
            "--pipeline",
            str(vault.pipeline.path),
            "--name",
            name,
        ]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--state-dir", str(state), "--log-level", "debug"],
                stdout=output,
                stderr=output,
                env=dict(variables),
                start_new_session=True,
            )

    def pages(self) -> bytes:
        """All that its port shows."""
        port = metrics_port(self._state, self._service, self._name, self.process.pid)
        assert port is not None, self.log.read_text()[-2_000:]
        return b"".join(
            (get(port, path, 10) or (0, b""))[1]
            for path in ("/statusz", "/metrics", "/readyz", "/healthz")
        )

    def status(self) -> dict[str, Any]:
        assert self.process.poll() is None, self.log.read_text()[-3_000:]
        port = metrics_port(self._state, self._service, self._name, self.process.pid)
        answer = None if port is None else get(port, "/statusz", 10)
        return {} if answer is None else dict(json.loads(answer[1]))

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    folder = tmp_path_factory.mktemp("vault")
    pipeline = write_pipeline(folder, "vault", FUNCTIONS, stages=STAGES, replicas=2)
    needed = rights(pipeline)
    passwords = {
        user: f"planted-{secrets.token_hex(12)}"
        for user in [ROOT, *dict.fromkeys(right.principal for right in needed)]
    }
    authority = Authority(folder / "authority", "trusted")
    broker = SecureKafka(folder / "kafka", authority, passwords)
    try:
        broker.start()
        broker.allow(needed)
        prepare(
            broker.log("vault.operator"),
            topics_of(pipeline, embedded=True),
            create_inputs=True,
            say=pytest.fail,
        )
        yield Vault(
            folder, pipeline, broker, authority, passwords, f"planted-{secrets.token_hex(12)}"
        )
    finally:
        broker.stop()


@contextmanager
def index(vault: Vault) -> Iterator[dict[str, str]]:
    """Start a Redis with one user for the manager, behind TLS; yield the manager's settings
    of it.
    """
    server = EmbeddedRedis(vault.folder / "redis")
    try:
        client: Any = redis.Redis.from_url(server.start())
        with closing(client):
            words = redis_user("vault", "vault.consistency_manager").split()
            client.execute_command("ACL", "SETUSER", *words[1:], f">{vault.redis_secret}")
            client.execute_command("ACL", "SETUSER", "default", "off")
        secret = vault.folder / "redis-secret"
        secret.write_text(vault.redis_secret)
        secret.chmod(0o600)
        with in_tls(server.address, vault.authority.issue("redis")) as address:
            yield {
                "ANABRANCH_REDIS": f"rediss://{address}/0",
                "ANABRANCH_REDIS_USERNAME": "vault.consistency_manager",
                "ANABRANCH_REDIS_PASSWORD_FILE": str(secret),
                "ANABRANCH_REDIS_TLS_CA": str(vault.authority.certificate),
            }
    finally:
        server.stop()


def command_lines() -> bytes:
    """Return what ``ps`` shows of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return b"\n".join(found)


def produce(vault: Vault) -> dict[tuple[int, int], int]:
    """Write readings, and a heartbeat that closes their windows. Return (window's end, key) ->
    count.
    """
    writer, expected = vault.broker.log("vault.producer.a").writer(), dict[tuple[int, int], int]()
    partitions = vault.pipeline.partitions
    for number in range(COUNT):
        event_time, key = 10_000 + 10 * number, number % 3
        value = json.dumps({"key": key, "value": number, "time": event_time}).encode()
        writer.send(TopicPartition("vault.in.a", number % partitions), value)
        window = (event_time // WINDOW_MS * WINDOW_MS + WINDOW_MS, key)
        expected[window] = expected.get(window, 0) + 1
    for partition in range(partitions):
        writer.send(
            TopicPartition("vault.in.a", partition),
            None,
            headers=[("anabranch-heartbeat", b"60000")],
        )
    writer.flush()
    writer.close()
    return expected


def results(vault: Vault) -> list[tuple[tuple[int, int], int]]:
    """Return what the consumer of the output receives."""
    found = []
    for chunk in sources.everything(
        vault.broker.log("vault.consumer.out"), "vault.out", vault.pipeline.partitions
    ):
        for value, headers in zip(chunk.values, chunk.headers, strict=True):
            row = json.loads(value or b"")
            found.append(
                ((int(dict(headers)["anabranch-event-time"] or b""), row["key"]), row["n"])
            )
    return sorted(found)


def test_a_pipeline_with_the_rights_that_acls_prints(vault: Vault) -> None:
    with ExitStack() as stack:
        at_index = stack.enter_context(index(vault))
        names = {
            ("ingestion", "a"): vault.environment("vault.ingestion.a"),
            ("processing", "s.0"): vault.environment("vault.processing.s.0"),
            ("processing", "s.1"): vault.environment("vault.processing.s.1", by_certificate=True),
            ("delivery", "out"): vault.environment("vault.delivery.out", by_certificate=True),
            ("consistency_manager", "vault"): (
                vault.environment("vault.consistency_manager") | at_index
            ),
        }
        running = {
            key: stack.enter_context(vault.service(*key, variables))
            for key, variables in names.items()
        }
        expected = sorted(produce(vault).items())
        last_ms = expected[-1][0][0]

        def everybody_is_done() -> bool:
            return all(
                (service.status().get("last_bucket_ms") or 0) >= last_ms
                for service in running.values()
            )

        wait_until(
            everybody_is_done,
            DEADLINE_S,
            "all of them, both replicas included, have passed the last window",
            every_s=0.3,
        )
        # A commit is answered a moment before committed readers see it.
        wait_until(lambda: len(results(vault)) >= len(expected), DEADLINE_S, "all is visible")
        assert results(vault) == expected
        manager = running["consistency_manager", "vault"]

        def knows_all() -> bool:
            detail = manager.status().get("detail", {})
            heard = {name.split(":")[0] for name in detail.get("processes", ())}
            return bool(
                detail.get("compared", {}).get("s")
                and detail["index"] == "written"
                and heard == {service for service, _ in names}
            )

        wait_until(knows_all, DEADLINE_S, "the manager compares, writes the index, hears all")
        seen = [command_lines(), *(service.pages() for service in running.values())]
    seen += [path.read_bytes() for path in vault.state.rglob("*") if path.is_file()]
    written = b"".join(seen)
    assert [secret for secret in vault.hidden() if secret in written] == []
    for service in running.values():
        assert b"Traceback" not in service.log.read_bytes(), service.log.read_text()[-3_000:]


def test_a_missing_right_is_reported(vault: Vault, tmp_path: Path) -> None:
    """One that Spark's workers need. What is said comes out of the stage's process, with the
    topic's name.
    """
    topic = vault.pipeline.topic_names.blocks("a", "0")
    taken = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:vault.processing.s.0",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    administrator = vault.broker.administrator()
    (future,) = administrator.delete_acls([taken], request_timeout=20).values()
    assert len(future.result(timeout=20)) == 1
    try:
        with vault.service(
            "processing", "s.0", vault.environment("vault.processing.s.0"), tmp_path
        ) as stage:

            def ends() -> list[str]:
                return [
                    line
                    for line in stage.log.read_text().splitlines(keepends=True)
                    if '"event": "replica_ended"' in line and line.endswith("\n")
                ]

            last = json.loads(wait_until(ends, DEADLINE_S, "the replica ends")[-1])
        logged = stage.log.read_text()
        assert topic in last["error"]
        assert "may not see it" in last["error"]
        assert [secret for secret in vault.hidden() if secret in logged.encode()] == []
    finally:
        vault.broker.allow(rights(vault.pipeline))
