"""Implementation of ``anabranch up``: starts, watches and stops a whole deployment on this
machine.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk import state_format
from anabranch.adapters.kafka import security as kafka_security
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.redis import security as redis_security
from anabranch.adapters.spark import class_archive
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.local import state_file, waiting_process
from anabranch.local.drill_links import Link
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.local.embedded_proxy import EmbeddedProxy
from anabranch.local.embedded_redis import EmbeddedRedis
from anabranch.local.kafka_jars import is_downloaded, kafka_classpath
from anabranch.local.processes import MARK, ManagedProcess, ProcessSpec, mark_of, sweep
from anabranch.local.supervisor import STOP_ORDER, Server, Supervisor, stop_servers
from anabranch.local.tcp_ports import LOOPBACK
from anabranch.local.topic_creation import prepare, topics_of
from anabranch.pipeline.file import load
from anabranch.process.frame import OWN_FILES
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.stage.scheduling import pace_ms

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline

PACE: Final = "ANABRANCH_SPARK_PACE_MS"
"""Environment variable: minimum interval between a node's batches, in ms."""
COMPILERS: Final = "ANABRANCH_SPARK_COMPILERS"
"""Environment variable: which JIT compilers a node's JVM uses."""

SPARK_NICENESS: Final = 5
"""Niceness of nodes. On busy cores they get a third of the share of ingestion and delivery. A batch
that starts late is only larger, but ingestion, delivery and heartbeats would be late. Applied once
a node is ready: until then everything waits for it, as it starts the slowest.
"""
OFF_PATH_NICENESS: Final = 10
"""Niceness of services that no result waits for. They get a third of the share of nodes: one may
start just when a node fails over, and its start takes seconds of processor time.
"""
NICENESS: Final[Mapping[str, int]] = {
    "processing": SPARK_NICENESS,
    "agent": OFF_PATH_NICENESS,
    "auditor": OFF_PATH_NICENESS,
    "contract_broker": OFF_PATH_NICENESS,
}
"""Niceness by service; 0 for the others."""


def selected(names: Sequence[tuple[str, str]], only: Sequence[str]) -> list[tuple[str, str]]:
    """Return the processes of ``names`` that ``only`` names, as ``service`` or ``service/name``;
    all if it is empty.

    Raises:
        ConfigurationError: an entry of ``only`` names no process.
    """
    if not only:
        return list(names)
    for wanted in only:
        if not any(wanted in (service, f"{service}/{name}") for service, name in names):
            there = ", ".join(f"{service}/{name}" for service, name in names)
            raise ConfigurationError(
                f"--only {wanted}: no such process; there are {', '.join(STOP_ORDER)}, or one of"
                f" {there}"
            )
    return [
        (service, name) for service, name in names if service in only or f"{service}/{name}" in only
    ]


def _offered(pipeline: Pipeline, only: Sequence[str]) -> list[tuple[str, str]]:
    """Return the processes that this user may start: its own, and those of partners that ``only``
    names in full.

    Raises:
        ConfigurationError: ``only`` names a node that the owner of an offer must run.
    """
    for node, owner in pipeline.offering_nodes.items():
        if f"processing/{node}" in only and pipeline.host != owner:
            raise ConfigurationError(
                f"--only processing/{node}: it runs what {owner} offers, with code that {owner}"
                f" has: there, anabranch up -f {pipeline.path.name} --offers FILE, its own pipeline"
                " file"
            )
    of_partners = (each for each in pipeline.partner_processes() if "/".join(each) in only)
    return [*pipeline.own_processes(), *of_partners]


def spark_settings(replicas: int) -> dict[str, str]:
    """Return environment variables for the nodes of this machine, which together run ``replicas``
    replicas of stages. Variables that this process was given take precedence.
    """
    return {
        PACE: os.environ.get(PACE) or str(pace_ms(replicas, os.cpu_count() or 1)),
        COMPILERS: os.environ.get(COMPILERS) or "quick",  # optimised code pays only later
    }


def specs_of(
    names: Sequence[tuple[str, str]],
    pipeline_file: Path,
    state_dir: Path,
    kafka: str,
    redis: str | None,
    links: Sequence[Link] = (),
    replicas: int = 0,
    offers: Path | None = None,
    *,
    has_live: bool = False,
) -> list[ProcessSpec]:
    """Return how to start each process of ``names``.

    A process with a link gets the link's address as Kafka's. ``replicas`` is the number of stage
    replicas on all nodes; ``offers`` the pipeline file of a participant that runs its offers.
    ``has_live``: readers wait for new results, so light services get a spare process.

    The Redis URL may hold a password. So it is passed in the environment, which other users cannot
    read, and only to the manager, which alone needs it.
    """
    index = {} if redis is None else {"ANABRANCH_REDIS": redis}
    spark = spark_settings(replicas)
    program = (sys.executable, "-m")
    where = ["--pipeline", str(pipeline_file), "--state-dir", str(state_dir)]
    where += [] if offers is None else ["--offers", str(offers.resolve())]
    linked = {link.label: f"{LOOPBACK}:{link.port}" for link in links}
    return [
        ProcessSpec(
            service,
            name,
            [
                *program,
                f"anabranch.{service}",
                *where,
                "--kafka",
                linked.get(f"{service}/{name}", kafka),
                "--name",
                name,
            ],
            {
                "consistency_manager": index,
                "processing": spark,
                "auditor": {COMPILERS: spark[COMPILERS]},
            }.get(service, {}),
            NICENESS.get(service, 0),
            starts_first=service == "processing",
            takes_spare=has_live and service in waiting_process.SERVICES,
        )
        for service, name in names
    ]


def _check_servers(
    kafka: str | None, redis: str | None, offers: Path | None, *, drills: bool
) -> None:
    """Check that no option is for another broker or Redis than the one used.

    Raises:
        ConfigurationError: one is.
    """
    if drills and kafka is not None:
        raise ConfigurationError(
            "--drills is for the embedded broker, which it gives a listener for each service; leave"
            " out --kafka"
        )
    if offers is not None and kafka is None:
        raise ConfigurationError("--offers: name the broker of the pipeline, --kafka HOST:PORT")
    if kafka is None:
        kafka_security.reject_security_for("the embedded broker has no security")
    if redis is None:
        redis_security.reject_security_for("the embedded Redis has no security")


def _replicas_on(pipeline: Pipeline, names: Sequence[tuple[str, str]]) -> int:
    """Return the number of stage replicas that the nodes among ``names`` run together."""
    return sum(
        len(labels) for node, labels in pipeline.nodes().items() if ("processing", node) in names
    )


def _download_kafka(say: Callable[[str], None], progress: Progress) -> None:
    """Download the broker's jars if they are missing."""
    if not is_downloaded():
        say("downloading Kafka, 44 MB, to start it")
        kafka_classpath(progress)
    say("starting Kafka")


def _stop_begun(servers: Mapping[str, Server]) -> None:
    """Stop the servers that had started before an error."""
    stop_servers({name: server for name, server in servers.items() if server.pid is not None}, 5.0)


def up(
    pipeline_file: Path,
    *,
    state_dir: Path,
    say: Callable[[str], None],
    stopping: threading.Event,
    stop_now: threading.Event,
    kafka: str | None = None,
    redis: str | None = None,
    only: Sequence[str] = (),
    kafka_port: int = 0,
    replication: int | None = None,
    drills: bool = False,
    offers: Path | None = None,
    progress: Progress = unwatched,
) -> None:
    """Run ``pipeline_file`` until ``stopping`` is set. Everything is stopped when this returns or
    raises.

    With ``drills`` every service reaches the embedded Kafka through a link of its own, which can be
    cut. ``offers`` is the pipeline file of a participant that runs its offers in this pipeline, and
    nothing else. ``stop_now`` makes the stop kill at once. ``progress`` counts jars downloaded, and
    processes started or stopped.

    Raises:
        ConfigurationError: the file, an option or a topic is wrong, the state directory is in use
            or of another version, or a service rejects its settings.
        Unavailable: Kafka cannot be reached or started.
    """
    _check_servers(kafka, redis, offers, drills=drills)
    pipeline = load(pipeline_file, offers)
    names = selected(_offered(pipeline, only), only)
    os.umask(OWN_FILES)
    state_dir.mkdir(parents=True, exist_ok=True)
    state_dir.chmod(0o700)  # mkdir leaves the mode of an existing directory
    state_dir = state_dir.resolve()
    lock = state_file.Lock(state_dir)
    lock.acquire()
    servers: dict[str, Server] = {}
    supervisor: Supervisor | None = None
    early = _EarlyProcesses(state_dir)
    # The embedded servers inherit the mark, so a sweep finds them too.
    os.environ[MARK] = mark_of(state_dir)
    try:
        state_format.claim(state_dir)
        if left := sweep(state_dir):
            say(f"killed {len(left)} processes left over by a supervisor that was killed")
        embedded = kafka is None
        replicas = _replicas_on(pipeline, names)
        specs = partial(
            specs_of,
            names,
            pipeline_file.resolve(),
            state_dir,
            replicas=replicas,
            offers=offers,
            has_live=any(output.live is not None for output in pipeline.outputs.values()),
        )
        links: tuple[Link, ...] = ()
        if kafka is None:
            _download_kafka(say, progress)
            labels = [f"{service}/{name}" for service, name in names] if drills else []
            servers["kafka"] = broker = EmbeddedKafka(
                state_dir / "kafka", kafka_port, linked=labels
            )
            early.start(specs(broker.reserve(), None, broker.links))
            kafka, links = broker.start(), broker.links
        else:
            early.start(specs(kafka, None))
        if drills and not stopping.is_set():
            servers["proxy"] = proxy = EmbeddedProxy(state_dir, links)
            proxy.start()
        audits = all(service == "auditor" for service, _ in names)
        is_guest = audits or pipeline.host != ""  # a guest uses the owner's topics and index
        if redis is None and not is_guest and not stopping.is_set():
            redis = start_redis(state_dir, servers, say)
        topics = [] if is_guest else topics_of(pipeline, replication=replication, embedded=embedded)
        if created := prepare(KafkaEventLog(kafka), topics, create_inputs=embedded, say=say):
            say(f"created {len(created)} topics")
        wanted = specs(kafka, redis, links)
        supervisor = Supervisor(
            state_dir,
            state_file.Deployment(
                os.getpid(), str(pipeline_file.resolve()), kafka, redis, drills=drills
            ),
            wanted,
            SystemClock(),
            say,
            servers,
        )
        supervisor.run(
            stopping,
            started=early.kept(wanted),
            when_ready=partial(early.keep_classes, say) if replicas else lambda: None,
            progress=progress,
        )
    finally:
        if supervisor is not None:
            say("stopping")
            supervisor.stop(stop_now, progress)
        else:
            _stop_begun(servers)
        early.end()
        os.environ.pop(MARK, None)
        lock.release()


class _EarlyProcesses:
    """Processes that the supervisor does not watch, or not yet: nodes that start while the broker
    does, and the maker of the class archive.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._running: dict[str, ManagedProcess] = {}

    def start(self, specs: Sequence[ProcessSpec]) -> None:
        """Start the nodes of ``specs``. Spark takes the longest to start, and needs no broker until
        its replicas start.
        """
        for spec in specs:
            if spec.service == "processing":
                self._running[spec.label] = ManagedProcess(spec, self._state_dir)

    def kept(self, specs: Sequence[ProcessSpec]) -> dict[str, ManagedProcess]:
        """Return the processes that run with the commands of ``specs``, by label, for the
        supervisor to watch. Kills the others: their broker had to take another port.
        """
        commands = {spec.label: list(spec.command) for spec in specs}
        kept = {
            label: process
            for label, process in self._running.items()
            if list(process.spec.command) == commands.get(label)
        }
        for label in kept:
            del self._running[label]
        self.end()
        return kept

    def keep_classes(self, say: Callable[[str], None]) -> None:
        """Start making the archive of Spark's classes if it is missing. Called when all services
        are ready and the cores are free.
        """
        if not class_archive.place().archive.exists():
            say(
                "keeping Spark's classes, once on this machine: nodes then start with half of the"
                " processor time"
            )
            program = "from anabranch.cli import app; app(['classes'])"
            spec = ProcessSpec(
                "classes", "spark", ["nice", "-n", "19", sys.executable, "-c", program]
            )
            self._running[spec.label] = ManagedProcess(spec, self._state_dir)

    def end(self) -> None:
        """Kill the processes that still run. Idempotent."""
        for process in self._running.values():
            process.kill()
        self._running.clear()


def start_redis(
    state_dir: Path, servers: dict[str, Server], say: Callable[[str], None]
) -> str | None:
    """Start an embedded Redis, add it to ``servers`` and return its URL. Returns None if there is
    no server program or it does not start: it holds only an index, and everything works without it.
    """
    server = EmbeddedRedis(state_dir / "redis")
    try:
        url = server.start()
    except (ConfigurationError, Unavailable) as error:
        server.stop()
        say(f"continuing without Redis: {error}")
        return None
    servers["redis"] = server
    return url
