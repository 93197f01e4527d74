"""A real Kafka broker of one node, from its jars, for a machine without one.

The same state folder gives the same broker: its data, its cluster id and, if it is free, its port.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Final

from anabranch.adapters.kafka.admin import broker_answers
from anabranch.adapters.kafka.settings import RECORD_BYTES_ON_BROKER_MAX
from anabranch.adapters.system.clock import SystemClock
from anabranch.local.child_process import ChildProcess
from anabranch.local.java import find_java
from anabranch.local.kafka_jars import kafka_classpath
from anabranch.local.tcp_ports import LOOPBACK, free_port, port_is_free
from anabranch.protocol.errors import ConfigurationError, Unavailable

HEAP_MIB: Final = 512
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 15.0

_FORMAT_TIMEOUT_S: Final = 60.0
_ANSWER_S: Final = 1.0
_PAUSE_MS: Final = 100
_ATTEMPTS: Final = 3
_PORT_TAKEN: Final = ("Address already in use", "Failed to bind")

_LOG4J: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders><Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="%d{ISO8601} %p %m (%c)%n"/></Console></Appenders>
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
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
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
    # Retention goes by the records' own times, and simulated or historical data may be years old: nothing is dropped for its age.
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "5000",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),  # the default takes a quarter of the heap
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    # A broker that was killed may come back only when its old session has ended; the default is 9 s.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


class EmbeddedKafka:
    """One broker and its state folder. Not thread-safe."""

    def __init__(self, state_dir: Path, port: int = 0, heap_mib: int = HEAP_MIB) -> None:
        """Nothing is started. ``port`` 0: the port of last time if there was one and it is free, else any free one."""
        self._dir = state_dir
        self._port_wanted = port
        self._port = port
        self._heap_mib = heap_mib
        self._process: ChildProcess | None = None

    @property
    def address(self) -> str:
        """``host:port`` for clients.

        Raises:
            Unavailable: it was never started.
        """
        if self._port == 0:
            message = "the embedded Kafka has no address before its first start"
            raise Unavailable(message)
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the broker; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def log_path(self) -> Path:
        """Where the broker writes what it has to say."""
        return self._dir / "kafka.log"

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.alive()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start the broker and wait until it answers; its address. Does nothing when it runs already.

        Raises:
            ConfigurationError: no Java, no jars, or the wanted port is taken.
            Unavailable: the broker ended or did not answer within ``timeout_s``; the text has the end of its log.
        """
        if self.alive():
            return self.address
        java = find_java()
        classpath = ":".join(str(jar) for jar in kafka_classpath())
        self._dir.mkdir(parents=True, exist_ok=True)
        (self._dir / "log4j2.xml").write_text(_LOG4J)
        process: ChildProcess | None = None
        for attempt in range(_ATTEMPTS):
            self._port, controller_port = self._choose_ports(afresh=attempt > 0)
            properties = self._write_properties(self._port, controller_port)
            command = [str(java.executable), *self._jvm_options(), "-cp", classpath]
            if not (self._dir / "formatted").exists():
                self._format(command, properties)
            self._process = process = ChildProcess([*command, "kafka.Kafka", str(properties)], self.log_path)
            if self._await_answer(process, timeout_s):
                return self.address
            if self._port_wanted or not any(sign in process.said() for sign in _PORT_TAKEN):
                break
        ended = f"code {process.exit_code}; its log ends: {process.said()[-2_000:]}" if process is not None else "no attempt"
        message = f"the embedded Kafka ended with {ended}"
        raise Unavailable(message)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the broker cleanly, or by force after ``timeout_s``. Idempotent; the data stays."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def kill(self) -> None:
        """End the broker as a crash would."""
        if self._process is not None:
            self._process.kill()

    def _choose_ports(self, *, afresh: bool) -> tuple[int, int]:
        """(broker's, controller's) port, those of last time where possible, and remember them."""
        remembered = self._dir / "ports.json"
        last = json.loads(remembered.read_text()) if remembered.exists() and not afresh else {}

        def choose(name: str) -> int:
            port = int(last.get(name, 0))
            return port if port and port_is_free(port) else free_port()

        if self._port_wanted and not port_is_free(self._port_wanted):
            message = f"port {self._port_wanted} for the embedded Kafka is taken: end what uses it, or let anabranch choose one"
            raise ConfigurationError(message)
        ports = {"broker": self._port_wanted or choose("broker"), "controller": choose("controller")}
        _write_whole(remembered, json.dumps(ports))
        return ports["broker"], ports["controller"]

    def _write_properties(self, port: int, controller_port: int) -> Path:
        settings = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
            "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller_port}",
            "log.dir": str(self._dir / "data"),
        }
        path = self._dir / "server.properties"
        _write_whole(path, "".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _jvm_options(self) -> list[str]:
        return [
            f"-Xms{min(self._heap_mib, 256)}m",
            f"-Xmx{self._heap_mib}m",
            "-XX:+UseSerialGC",  # few threads and little memory beside Spark on the same machine
            "-XX:TieredStopAtLevel=1",  # a short life does not repay the optimising compiler
            "-XX:+ExitOnOutOfMemoryError",
            "-Xshare:auto",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._dir / 'log4j2.xml'}",
        ]

    def _format(self, command: list[str], properties: Path) -> None:
        """Make the data folder. The mark ``formatted`` comes last, so an interrupted attempt is begun again."""
        shutil.rmtree(self._dir / "data", ignore_errors=True)
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]  # may not start with a dash
        arguments = [*command, "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(properties)]
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            message = f"making the data folder of the embedded Kafka took longer than {_FORMAT_TIMEOUT_S:g} s"
            raise Unavailable(message) from error
        if done.returncode != 0:
            message = f"the data folder of the embedded Kafka could not be made: {(done.stdout + done.stderr).strip()[-1_000:]}"
            raise Unavailable(message)
        _write_whole(self._dir / "formatted", cluster)

    def _await_answer(self, process: ChildProcess, timeout_s: float) -> bool:
        """Whether the broker answered before it ended. An open port is not enough: it opens before the broker can serve."""
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + int(timeout_s * 1000)
        while process.alive():
            if not port_is_free(self._port) and broker_answers(self.address, _ANSWER_S) and process.alive():
                return True
            if clock.monotonic_ms() >= deadline_ms:
                process.kill()
                message = f"the embedded Kafka did not answer within {timeout_s:g} s; its log ends: {process.said()[-2_000:]}"
                raise Unavailable(message)
            clock.sleep_ms(_PAUSE_MS)
        return False


def _write_whole(path: Path, text: str) -> None:
    """Write ``path`` so that it never holds half of ``text``."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)
