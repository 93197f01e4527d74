"""Embedded Kafka: a real broker of one node, run from its jars, for a machine without one.

The same state folder gives the same broker: data, cluster id and, if it is free, port. Restarted
within one deployment it takes its old port or fails, since its clients know that port.

For each ``linked`` service the broker has a further listener, which advertises the address of a
proxy (``local.drill_links``). A client that connects through the proxy learns only that address, so
it never bypasses the proxy.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.kafka.admin import broker_answers
from anabranch.adapters.system.java import find_java
from anabranch.local import kafka_classes
from anabranch.local.drill_links import Link
from anabranch.local.kafka_jars import kafka_classpath
from anabranch.local.owned_server import OwnedServer, port_of_last_time, write_whole
from anabranch.local.tcp_ports import LOOPBACK, port_is_free
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import RECORD_BYTES_ON_BROKER_MAX

HEAP_MIB: Final = 512
"""Maximum heap of the broker's JVM, in MiB."""
START_TIMEOUT_S: Final = 180.0
"""Timeout for the broker's start, in s. A start takes some 7 s of processor time, which on a busy
machine was seen to last more than a minute; a restart would only begin anew. A start that fails
ends the process, and is noticed at once.
"""
STOP_TIMEOUT_S: Final = 15.0

_FORMAT_TIMEOUT_S: Final = 60.0
_ANSWER_S: Final = 1.0
_PAUSE_MS: Final = 100
_ATTEMPTS: Final = 3
_PORT_TAKEN: Final = ("Address already in use", "Failed to bind")

_LOG4J: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{ISO8601} %p %m (%c)%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
    <Logger name="kafka.server.KafkaRaftServer" level="INFO"/>
    <Logger name="org.apache.kafka.storage.internals.log.LogLoader" level="ERROR"/>
  </Loggers>
</Configuration>
"""

_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    # One node: every internal topic has one copy and, to save memory and start time, one partition.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",  # a mistyped topic name is an error, not an empty stream
    "num.partitions": "1",
    "message.max.bytes": str(RECORD_BYTES_ON_BROKER_MAX),
    "replica.fetch.max.bytes": str(RECORD_BYTES_ON_BROKER_MAX),
    "socket.request.max.bytes": str(2 * RECORD_BYTES_ON_BROKER_MAX + 1024 * 1024),
    # Retention uses the records' own timestamps, and simulated or historical data may be years old:
    # delete nothing for its age.
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "5000",
    "log.cleaner.dedupe.buffer.size": str(
        16 * 1024 * 1024
    ),  # the default takes a quarter of the heap
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    # A killed broker can register again only after its old session has expired, by default in 9 s.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


class EmbeddedKafka(OwnedServer):
    """One broker and its state folder. Not thread-safe. The data outlives the process."""

    def __init__(
        self,
        state_dir: Path,
        port: int = 0,
        heap_mib: int = HEAP_MIB,
        *,
        linked: Sequence[str] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        """Keep the arguments; start nothing.

        With ``port`` 0, the broker takes its last port if there is one and it is free, else any
        free one. ``linked`` holds the labels of services that connect through a proxy,
        ``java_options`` further options of the broker's JVM.
        """
        super().__init__("embedded Kafka", state_dir, "kafka.log", port=port, pause_ms=_PAUSE_MS)
        self._heap_mib = heap_mib
        self._java_options = tuple(java_options)
        self._linked = tuple(linked)
        self._links: tuple[Link, ...] = ()
        self._reserved: tuple[int, int] | None = None

    @property
    def links(self) -> tuple[Link, ...]:
        """Links of the ``linked`` services, in the same order; empty before the first start. Their
        ports stay the same for the life of this object.
        """
        return self._links

    def reserve(self) -> str:
        """Choose the ports of the first start and return the broker's address. ``links`` is set
        too. The start chooses others if one is taken until then.

        Raises:
            ConfigurationError: the wanted port is taken.
        """
        self._dir.mkdir(parents=True, exist_ok=True)
        self._reserved = self._choose_ports(afresh=False, relink=True)
        self._port = self._reserved[0]
        return self.address

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start the broker, unless it runs, wait until it answers, and return its address.

        Raises:
            ConfigurationError: no Java, no jars, or the wanted port is taken.
            Unavailable: the broker ended or did not answer within ``timeout_s``, and the text has
                the end of its log; or another process has taken its port since it last ran.
        """
        if self.alive():
            return self.address
        java = find_java()
        jars = kafka_classpath()
        options = [*self._jvm_options(), *kafka_classes.options(java, jars)]
        classpath = ":".join(str(jar) for jar in jars)
        self._dir.mkdir(parents=True, exist_ok=True)
        (self._dir / "log4j2.xml").write_text(_LOG4J)
        # A killed broker leaves behind the native libraries that it unpacked there.
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir(exist_ok=True)
        is_first = not self._links or self._reserved is not None
        for attempt in range(_ATTEMPTS):
            self._port, controller_port = self._reserved or self._choose_ports(
                afresh=attempt > 0, relink=is_first
            )
            self._reserved = None
            properties = self._write_properties(self._port, controller_port)
            if not (self._dir / "formatted").exists():
                self._format([str(java.executable), *options, "-cp", classpath], properties)
            command = [str(java.executable), *options, *self._java_options]
            if self._run(
                [*command, "-cp", classpath, "kafka.Kafka", str(properties)],
                self._answers,
                timeout_s,
            ):
                return self.address
            if self._port_wanted or not any(sign in self._log_tail() for sign in _PORT_TAKEN):
                break
        raise self._ended()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the broker cleanly, or kill it after ``timeout_s``. Idempotent; the data stays."""
        super().stop(timeout_s)

    def _choose_ports(self, *, afresh: bool, relink: bool) -> tuple[int, int]:
        """Choose and store the ports, and return (the broker's, the controller's). ``afresh``:
        whether to choose others than the last ones, which are kept where possible. ``relink``:
        whether to choose the ports of the links, too.
        """
        remembered = self._dir / "ports.json"
        last = json.loads(remembered.read_text()) if remembered.exists() and not afresh else {}
        ports = {
            "broker": self._needed_port() or port_of_last_time(int(last.get("broker", 0))),
            "controller": port_of_last_time(int(last.get("controller", 0))),
        }
        known = last.get("links", {})
        # Only at the first start: later the proxy listens on the links' ports and knows the
        # broker's.
        if relink:
            self._links = tuple(
                Link(label, *map(port_of_last_time, known.get(label, (0, 0))))
                for label in self._linked
            )
        links = {**known, **{link.label: (link.port, link.broker_port) for link in self._links}}
        write_whole(remembered, json.dumps({**ports, "links": links}))
        return ports["broker"], ports["controller"]

    def _write_properties(self, port: int, controller_port: int) -> Path:
        """Write the broker's settings, with a listener for each link, and return their file."""
        at = {"PLAINTEXT": port, "CONTROLLER": controller_port}
        names = [f"LINK{number}" for number in range(len(self._links))]
        listening = {
            **at,
            **dict(zip(names, (link.broker_port for link in self._links), strict=True)),
        }
        advertised = {**at, **dict(zip(names, (link.port for link in self._links), strict=True))}
        settings = {
            **_SETTINGS,
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listening),
            "listeners": _addresses(listening),
            "advertised.listeners": _addresses(advertised),
            **{f"listener.name.{name.lower()}.num.network.threads": "1" for name in names},
            "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller_port}",
            "log.dir": str(self._dir / "data"),
        }
        path = self._dir / "server.properties"
        write_whole(path, "".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    @property
    def _temporary(self) -> Path:
        return self._dir / "tmp"

    def _jvm_options(self) -> list[str]:
        return [
            f"-Xms{min(self._heap_mib, 256)}m",
            f"-Xmx{self._heap_mib}m",
            "-XX:+UseSerialGC",  # few threads and little memory beside Spark on the same machine
            "-XX:TieredStopAtLevel=1",  # a short life does not repay the optimising compiler
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._dir / 'log4j2.xml'}",
            f"-Djava.io.tmpdir={self._temporary}",
        ]

    def _format(self, command: list[str], properties: Path) -> None:
        """Format the data folder. The file ``formatted`` is written last, so that an interrupted
        attempt is repeated.
        """
        shutil.rmtree(self._dir / "data", ignore_errors=True)
        # A cluster id must not start with a dash.
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        arguments = [
            *command,
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            "-t",
            cluster,
            "-c",
            str(properties),
        ]
        try:
            done = subprocess.run(
                arguments, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            message = (
                "formatting the data folder of the embedded Kafka took longer than"
                f" {_FORMAT_TIMEOUT_S:g} s: try again when the machine is less busy"
            )
            raise Unavailable(message) from error
        if done.returncode != 0:
            message = (
                "the data folder of the embedded Kafka could not be formatted:"
                f" {(done.stdout + done.stderr).strip()[-1_000:]}"
            )
            raise Unavailable(message)
        write_whole(self._dir / "formatted", cluster)

    def _answers(self) -> bool:
        """Return whether the broker answers requests: it opens its port before it can serve."""
        return not port_is_free(self._port) and broker_answers(self.address, _ANSWER_S)


def _addresses(ports: Mapping[str, int]) -> str:
    """Return ``NAME://host:port,...``, the form of the broker's settings."""
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())
