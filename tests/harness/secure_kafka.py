"""The embedded broker with everything shut: two listeners, one by SCRAM over TLS and one by client
certificates, and an authorizer.

Nobody may do anything that no ACL allows. ``ROOT`` is the super user, by SCRAM; the broker itself
is one by its certificate.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from typing_extensions import override

from anabranch.access.pipeline_acls import Operation, Resource, Right
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.local.owned_server import write_whole
from anabranch.local.tcp_ports import LOOPBACK, free_port, port_is_free
from anabranch.local.topic_creation import topics_of
from anabranch.pipeline.model import Pipeline
from harness.certificates import Authority, Certificate

ROOT = "root"
BROKER = "broker"
_ANSWER_S = 20.0

_RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    Operation.READ: AclOperation.READ,
    Operation.WRITE: AclOperation.WRITE,
    Operation.CREATE: AclOperation.CREATE,
    Operation.DELETE: AclOperation.DELETE,
    Operation.DESCRIBE: AclOperation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
    Operation.ALTER: AclOperation.ALTER,
}


class SecureKafka(EmbeddedKafka):
    """``passwords``: of SCRAM users; ``ROOT`` must be one."""

    def __init__(
        self,
        state_dir: Path,
        authority: Authority,
        passwords: Mapping[str, str],
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(state_dir)
        self.authority, self._passwords = authority, dict(passwords)
        self._certificate = certificate or authority.issue(BROKER)
        self._mtls_port = free_port()

    @property
    def mtls_address(self) -> str:
        """For clients with certificates; ``address`` is for those with passwords."""
        return f"{LOOPBACK}:{self._mtls_port}"

    def by_password(self, user: str, password: str | None = None) -> dict[str, str]:
        """Client options of ``user``; ``password`` None: the right one."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.username": user,
            "sasl.password": self._passwords[user] if password is None else password,
        }

    def by_certificate(self, certificate: Certificate) -> dict[str, str]:
        """Client options of whoever ``certificate`` names."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "ssl.certificate.location": str(certificate.certificate),
            "ssl.key.location": str(certificate.key),
        }

    def log(self, user: str) -> KafkaEventLog:
        """Return the log of ``user``, by password."""
        return KafkaEventLog(
            self.address,
            security=self.by_password(user),
            request_timeout_ms=10_000,
            delivery_timeout_ms=10_000,
        )

    def administrator(self, user: str = ROOT) -> AdminClient:
        """Return the library's own client."""
        return AdminClient(
            KafkaSettings(self.address, security=self.by_password(user)).administrator()
        )

    def allow(self, rights: Sequence[Right]) -> None:
        """Set the ACLs."""
        wanted = [
            AclBinding(
                _RESOURCES[right.resource],
                right.name,
                ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL,
                f"User:{right.principal}",
                "*",
                _OPERATIONS[right.operation],
                AclPermissionType.ALLOW,
            )
            for right in rights
        ]
        administrator = self.administrator()  # held: its end would fail what it was asked
        for future in administrator.create_acls(wanted, request_timeout=_ANSWER_S).values():
            future.result(timeout=_ANSWER_S)

    @override
    def _write_properties(self, port: int, controller_port: int) -> Path:
        path = super()._write_properties(port, controller_port)
        at = {"SASL": port, "MTLS": self._mtls_port, "CONTROLLER": controller_port}
        addresses = ",".join(f"{name}://{LOOPBACK}:{number}" for name, number in at.items())
        more = {
            "listeners": addresses,
            "advertised.listeners": addresses,
            "listener.security.protocol.map": "SASL:SASL_SSL,MTLS:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "MTLS",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate.together()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{ROOT};User:{BROKER}",
        }
        with path.open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in more.items())
        return path

    @override
    def _format(self, command: list[str], properties: Path) -> None:
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        users = [
            word
            for name, password in self._passwords.items()
            for word in ("--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]")
        ]
        arguments = [
            *command,
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            "-t",
            cluster,
            "-c",
            str(properties),
            *users,
        ]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        write_whole(self._dir / "formatted", cluster)

    @override
    def _answers(self) -> bool:
        if port_is_free(self._port):
            return False
        try:
            return bool(self.administrator().list_topics(timeout=1).brokers)
        except KafkaException:
            return False


@dataclass(frozen=True)
class Secured:
    """The broker with the topics and ACLs of ``pipeline``. ``passwords``: planted, each to be
    found nowhere.
    """

    broker: SecureKafka
    pipeline: Pipeline
    authority: Authority
    passwords: dict[str, str] = field(repr=False)

    @property
    def principals(self) -> list[str]:
        return [user for user in self.passwords if user != ROOT]

    @property
    def topics(self) -> list[str]:
        return [topic.settings.name for topic in topics_of(self.pipeline)]
