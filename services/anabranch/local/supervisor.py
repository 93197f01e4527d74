"""Supervisor of a local deployment: runs one process per service, restarts those that end, and
stops all in order.

Theory of operation. One thread checks every 100 ms which processes have ended, which restarts are
due, and which processes have become ready. A server (embedded Kafka, Redis) is watched like a
service, but restarted at the same address, since nothing works without it. All state that matters
is in Kafka and in the checkpoints. So the supervisor may be killed at any time: its children die
with it, and the next one continues.

A delivery or ingestion process that dies holds up results, and most of what its restart costs is
the start of Python. So one spare process, which has that behind it, becomes whichever of them dies
first, at once; then another one is started.

Exit codes of services (process.frame.ExitCode): 2 is a configuration error. While the deployment
starts it ends the supervisor with the error (``protocol.control.placement.ends_deployment``); later
it concerns that service alone, which is shown as failed and restarted after longer delays. 4 is
treated like a late 2. Any other code, 0 included (an operator stopped the service), leads to a
restart. A node that runs without a replica that can never start reports that in its status, which
counts like its exit with 2 during the start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.local import probe, state_file
from anabranch.local.processes import (
    ManagedProcess,
    ProcessSpec,
    SpareProcess,
    bound_logs,
    logs_in,
    sweep,
)
from anabranch.local.state_file import Deployment, ProcessRow
from anabranch.pipeline.addresses import without_password
from anabranch.pipeline.durations import readable_ms
from anabranch.ports import Clock
from anabranch.process.frame import ExitCode
from anabranch.protocol.control.placement import SPARE_AGAIN_MS, Backoff, ends_deployment
from anabranch.protocol.errors import ConfigurationError, Unavailable, headline

STOP_ORDER: Final = (
    "ingestion",
    "processing",
    "delivery",
    "consistency_manager",
    "contract_broker",
    "agent",
    "auditor",
)
SERVER_STOP_ORDER: Final = ("redis", "proxy", "kafka")
READY: Final = "ready  kafka"
"""Prefix of the line that reports, once, that all services are ready."""

_ROUND_S: Final = 0.1
_LOGS_EVERY_MS: Final = 60_000
"""Interval between checks of the size of the logs, in ms."""
_LINE_MAX: Final = 500
"""Maximum length of an error in a line of the supervisor's output, in characters."""
_GROUP_PATIENCE_MS: Final = {
    "ingestion": 2_000,
    "processing": 5_000,
    "delivery": 2_000,
    "consistency_manager": 1_500,
    "contract_broker": 1_500,
    "agent": 1_500,
    "auditor": 5_000,
}
"""Time that a stop waits for each group before it stops the next, in ms. A process that is slower
may still use the time until _SERVICES_STOP_MS.
"""
_SERVICES_STOP_MS: Final = 9_000
"""Time after which services that have not stopped are killed, in ms."""
_SERVERS_STOP_S: Final = 3.0
"""Timeout for stopping the servers, in s. With the services' time it stays below 15 s, the limit of
an orderly stop.
"""


class Server(Protocol):
    """Interface of an embedded Kafka or Redis, or of the drills' proxy."""

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""

    @property
    def address(self) -> str:
        """Address for clients, ``host:port``."""

    @property
    def log_path(self) -> Path:
        """Path of the file to which the server appends its output."""

    def alive(self) -> bool:
        """Return whether the server runs."""

    def start(self) -> str:
        """Start the server at its last address, unless it runs; wait until it answers."""

    def stop(self, timeout_s: float) -> None:
        """Stop the server cleanly, or kill it after ``timeout_s``."""


@dataclass(slots=True)
class _Watched:
    """A service, its present process and its history. Times are monotonic, in ms."""

    spec: ProcessSpec
    process: ManagedProcess | None = None
    ready_ms: int = 0
    again_ms: int | None = None
    restarts: int = 0
    ready: bool = False
    metrics_port: int | None = None
    state: str = "starting"
    error: str | None = None
    backoff: Backoff = field(default_factory=Backoff)

    def has_ended(self) -> bool:
        """Return whether no process of the service runs."""
        return self.process is None or self.process.exit_code() is not None

    def row(self) -> ProcessRow:
        """Return the service's entry for ``supervisor.json``."""
        pid = (
            self.process.pid
            if self.process is not None and self.process.exit_code() is None
            else None
        )
        port = self.metrics_port if pid is not None else None
        return ProcessRow(
            self.spec.service, self.spec.name, pid, port, self.restarts, self.state, self.error
        )


@dataclass(slots=True)
class _WatchedServer:
    """A server and its history. Times are monotonic, in ms."""

    name: str
    server: Server
    again_ms: int | None = None
    starting: Future[str] | None = None
    started_ms: int = 0
    restarts: int = 0
    error: str | None = None
    backoff: Backoff = field(default_factory=Backoff)

    def row(self) -> ProcessRow:
        """Return the server's entry for ``supervisor.json``."""
        alive = self.starting is None and self.server.alive()
        state = "running" if alive else "restarting"
        pid = self.server.pid if alive else None
        return ProcessRow(
            self.name, self.name, pid, None, self.restarts, state, self.error, self.server.address
        )


class Supervisor:
    """Supervisor of the processes of ``specs`` in ``state_dir``, whose lock the caller holds.
    Passes ``say`` one line of text per event.
    """

    def __init__(
        self,
        state_dir: Path,
        deployment: Deployment,
        specs: Sequence[ProcessSpec],
        clock: Clock,
        say: Callable[[str], None],
        servers: Mapping[str, Server] | None = None,
    ) -> None:
        """Keep the arguments; start nothing. ``deployment`` is the first content of
        ``supervisor.json``; ``servers`` are running ones to watch, by name: kafka, redis or proxy.
        """
        self._keeps_spare = any(spec.takes_spare for spec in specs)
        self._spare: SpareProcess | None = None
        self._spare_ms = 0
        self._spare_backoff = Backoff()
        self._state_dir = state_dir
        self._clock = clock
        self._say = say
        index = None if deployment.redis is None else without_password(deployment.redis)
        self._deployed = replace(deployment, redis=index)
        self._services = [_Watched(spec) for spec in specs]
        now_ms = self._begun_ms = clock.monotonic_ms()
        self._servers = [
            _WatchedServer(name, server, started_ms=now_ms)
            for name, server in (servers or {}).items()
        ]
        self._starter = ThreadPoolExecutor(
            max(1, len(self._servers)), thread_name_prefix="start-servers"
        )
        self._announced_ready = False
        self._written: Deployment | None = None
        self._unwritable = False
        self._logs_next_ms = now_ms

    @property
    def ready(self) -> bool:
        """Whether all services have been ready at the same time."""
        return self._announced_ready

    def run(
        self,
        stopping: threading.Event,
        *,
        started: Mapping[str, ManagedProcess] | None = None,
        when_ready: Callable[[], None] = lambda: None,
        progress: Progress = unwatched,
    ) -> None:
        """Start and watch the services until ``stopping`` is set. The caller must call ``stop`` in
        any case.

        ``started`` are services that run already, by label. ``when_ready`` is called once, when all
        are ready; until then ``progress`` counts those that are.

        Raises:
            ConfigurationError: a service rejected its settings or the pipeline while the deployment
                started.
        """
        for service in self._services:
            if started is not None and service.spec.label in started:
                service.process = started[service.spec.label]
        for service in self._services:
            if service.process is None:
                self._start(service)
        while not stopping.is_set():
            was_ready = self._announced_ready
            self.step()
            if not was_ready:
                ready = len(self._services) if self.ready else sum(s.ready for s in self._services)
                progress("processes ready", ready, len(self._services))
            if self._announced_ready and not was_ready:
                when_ready()
            stopping.wait(_ROUND_S)

    def step(self) -> None:
        """Check every server and service once, and write ``supervisor.json``.

        Raises:
            ConfigurationError: as ``run``.
        """
        for server in self._servers:
            self._watch_server(server)
        for service in self._services:
            self._watch(service)
        self._keep_spare()
        self._bound_logs()
        became_ready = not self._announced_ready and all(
            service.ready for service in self._services
        )
        self._announced_ready |= became_ready
        self._publish()
        # After the file: a program that has read this line finds everything ready in the file.
        if became_ready:
            redis = self._deployed.redis
            index = f"  redis {redis}" if redis else "  without redis"
            self._say(f"{READY} {self._deployed.kafka}{index}  state {self._state_dir}")

    def stop(self, stop_now: threading.Event | None = None, progress: Progress = unwatched) -> None:
        """Stop all processes, group by group, within 15 s; then kill those that remain. Setting
        ``stop_now`` kills at once. ``progress`` counts the ended processes. Idempotent.
        """
        begun_ms = self._clock.monotonic_ms()
        limit_ms = begun_ms + _SERVICES_STOP_MS
        impatient = stop_now if stop_now is not None else threading.Event()
        if self._spare is not None:
            self._spare.kill()
        groups = dict.fromkeys((*STOP_ORDER, *(service.spec.service for service in self._services)))
        for name in groups:
            group = [service for service in self._services if service.spec.service == name]
            for service in group:
                if service.process is not None:
                    service.process.terminate()
            patience_ms = min(
                limit_ms, self._clock.monotonic_ms() + _GROUP_PATIENCE_MS.get(name, 2_000)
            )
            self._await_end(group, patience_ms, impatient, progress)
        self._await_end(self._services, limit_ms, impatient, progress)
        for service in self._services:
            if service.process is not None:
                if service.process.exit_code() is None:
                    self._say(f"{service.spec.label} did not stop in time: killed")
                service.process.kill()
            service.state, service.ready = "stopped", False
        self._starter.shutdown(wait=False, cancel_futures=True)
        up = {
            server.name: server.server
            for server in self._servers
            if server.starting is None or server.starting.done()
        }
        stop_servers(up, 0.0 if impatient.is_set() else _SERVERS_STOP_S)
        # Also kills a server that is being started now; the thread that starts it then ends.
        sweep(self._state_dir)
        rows = [service.row() for service in self._services]
        servers = [
            ProcessRow(
                s.name, s.name, restarts=s.restarts, state="stopped", address=s.server.address
            )
            for s in self._servers
        ]
        self._write(self._deployment((*servers, *rows)))

    def _await_end(
        self,
        group: Sequence[_Watched],
        until_ms: int,
        impatient: threading.Event,
        progress: Progress,
    ) -> None:
        """Wait until ``group`` has ended, ``until_ms``, or ``impatient`` is set."""
        total = len(self._services) + len(self._servers)  # servers end last
        while not impatient.is_set() and self._clock.monotonic_ms() < until_ms:
            progress("processes stopped", sum(s.has_ended() for s in self._services), total)
            if all(service.has_ended() for service in group):
                return
            self._clock.sleep_ms(20)

    def _start(self, service: _Watched) -> None:
        """Start the service's process; schedule a restart if that fails."""
        spare = self._take_spare() if service.spec.takes_spare else None
        try:
            service.process = ManagedProcess(service.spec, self._state_dir, service.restarts, spare)
        except OSError as error:  # no memory, no disk space, no program: as if it had ended at once
            delay_ms = service.backoff.after_end(0)
            service.again_ms = self._clock.monotonic_ms() + delay_ms
            service.state = "restarting"
            service.error = str(error)
            self._say(
                f"{service.spec.label} cannot be started: {error}; again in {readable_ms(delay_ms)}"
            )
            return
        service.again_ms = None
        service.ready = False
        service.metrics_port = None
        service.state = "starting"

    def _watch(self, service: _Watched) -> None:
        """Restart the service if that is due; notice its end or that it has become ready."""
        now_ms = self._clock.monotonic_ms()
        if service.process is None:
            if service.again_ms is not None and now_ms >= service.again_ms:
                service.restarts += 1
                self._start(service)
            return
        code = service.process.exit_code()
        if code is not None:
            self._ended(service, service.process, code, now_ms)
        elif not service.ready:
            self._check_ready(service, service.process)

    def _ended(self, service: _Watched, process: ManagedProcess, code: int, now_ms: int) -> None:
        """Handle the end of a service's process: report it, and schedule a restart or fail.

        Raises:
            ConfigurationError: as ``run``.
        """
        process.kill()  # a JVM or worker may have outlived it
        text = process.last_error()
        if code == ExitCode.CONFIGURATION:
            service.process = None
            self._fail_start(service, text, now_ms)
        failed = code in (ExitCode.STAGE_FAILED, ExitCode.CONFIGURATION)
        # Only time after it was ready counts as healthy. A node may take a minute to start, and a
        # function that fails at once would otherwise be restarted without delay.
        ran_ms = now_ms - service.ready_ms if service.ready else 0
        has_spare = service.spec.takes_spare and self._has_spare() and not failed
        delay_ms = service.backoff.after_end(ran_ms, of_function=failed, has_spare=has_spare)
        service.process = None
        service.ready = False
        service.again_ms = now_ms + delay_ms
        service.state = "failed" if failed else "restarting"
        service.error = text or _how_ended(code)
        self._say(
            f"{service.spec.label} {_how_ended(code)}; again in {readable_ms(delay_ms)}; log:"
            f" {process.log_path}"
        )
        if text and code > 0:
            self._say(f"  {headline(text)[:_LINE_MAX]}")
        if delay_ms == 0:  # results wait for it: not even a round is lost
            self._watch(service)

    def _has_spare(self) -> bool:
        return self._spare is not None and self._spare.alive()

    def _take_spare(self) -> SpareProcess | None:
        """Return the spare process, which becomes a service; None if none waits. Another one starts
        when that service has had the processors for its own start.
        """
        if not self._has_spare():
            return None
        spare, self._spare = self._spare, None
        self._spare_backoff = Backoff()
        self._spare_ms = self._clock.monotonic_ms() + SPARE_AGAIN_MS
        return spare

    def _keep_spare(self) -> None:
        """Start the spare process if it is due: once all services are ready, and a while after the
        last one was used, or has ended.
        """
        now_ms = self._clock.monotonic_ms()
        if self._spare is not None and not self._spare.alive():
            self._spare = None
            self._spare_ms = now_ms + self._spare_backoff.after_end(0)
        is_due = self._keeps_spare and self._announced_ready and now_ms >= self._spare_ms
        if not is_due or self._spare is not None:
            return
        try:
            self._spare = SpareProcess(self._state_dir)
        except OSError:  # no memory: services that end start as if there were none
            self._spare_ms = now_ms + self._spare_backoff.after_end(0)

    def _bound_logs(self) -> None:
        """Bound the logs of the running processes and servers, when that is due."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._logs_next_ms:
            self._logs_next_ms = now_ms + _LOGS_EVERY_MS
            servers = [each.server.log_path for each in self._servers]
            bound_logs([*logs_in(self._state_dir), *servers])

    def _fail_start(self, service: _Watched, mistake: str, now_ms: int) -> None:
        """End the deployment because of ``mistake``, if it is still starting.

        Raises:
            ConfigurationError: the deployment is still starting.
        """
        running_ms = now_ms - self._begun_ms
        if ends_deployment(was_ready=self._announced_ready, running_ms=running_ms):
            service.state, service.error = "failed", mistake
            raise ConfigurationError(f"{service.spec.label}: {mistake}")

    def _check_ready(self, service: _Watched, process: ManagedProcess) -> None:
        """Probe a process that was not ready before; report that it is, or why it is not.

        Raises:
            ConfigurationError: as ``run``.
        """
        if service.metrics_port is None:
            service.metrics_port = probe.metrics_port(
                self._state_dir, service.spec.service, service.spec.name, process.pid
            )
        if service.metrics_port is not None and probe.ready(service.metrics_port):
            service.ready = True
            service.state = "running"
            service.error = None
            service.ready_ms = self._clock.monotonic_ms()
            if service.spec.starts_first:
                process.yield_cores()
            self._say(f"{service.spec.label} is running (pid {process.pid})")
        elif service.metrics_port is not None:
            self._report_not_ready(service, service.metrics_port)

    def _report_not_ready(self, service: _Watched, port: int) -> None:
        """Report, once per error, why a process that runs is not ready, as a node whose function
        fails.

        Raises:
            ConfigurationError: a stage can never start, and the deployment is still starting.
        """
        answer = probe.status(port) or {}
        if mistake := _mistake_in(answer):
            self._fail_start(service, mistake, self._clock.monotonic_ms())
        error = answer.get("error")
        if error and error != service.error:
            self._say(f"{service.spec.label}: {headline(str(error))[:_LINE_MAX]}")
            service.error = str(error)

    def _watch_server(self, watched: _WatchedServer) -> None:
        """Restart the server, when that is due, if it has ended."""
        if watched.starting is not None:
            if watched.starting.done():
                self._server_started(watched, watched.starting)
            return
        if watched.server.alive():
            return
        now_ms = self._clock.monotonic_ms()
        if watched.again_ms is None:
            delay_ms = watched.backoff.after_end(now_ms - watched.started_ms)
            watched.again_ms = now_ms + delay_ms
            self._say(f"{watched.name} ended; again in {readable_ms(delay_ms)}")
        if now_ms < watched.again_ms:
            return
        # On a thread of its own: a broker takes seconds to start, and a stop must not wait for it.
        watched.restarts += 1
        watched.started_ms, watched.again_ms = now_ms, None
        watched.starting = self._starter.submit(watched.server.start)

    def _server_started(self, watched: _WatchedServer, starting: Future[str]) -> None:
        """Report the outcome of a server's restart. After a failure the next round schedules
        another.
        """
        watched.starting = None
        try:
            starting.result()
        except (Unavailable, ConfigurationError, OSError) as error:
            watched.error = str(error)
            self._say(f"{watched.name} does not start: {error}")
        else:
            watched.error = None
            self._say(f"{watched.name} is running (pid {watched.server.pid})")

    def _deployment(self, rows: Sequence[ProcessRow]) -> Deployment:
        return replace(self._deployed, ready=self._announced_ready, processes=tuple(rows))

    def _publish(self) -> None:
        """Write ``supervisor.json`` if it has changed."""
        rows = [
            *(server.row() for server in self._servers),
            *(service.row() for service in self._services),
        ]
        deployment = self._deployment(rows)
        if deployment != self._written and self._write(deployment):
            self._written = deployment

    def _write(self, deployment: Deployment) -> bool:
        """Write ``supervisor.json`` and return whether that succeeded. After a failure, as of a
        full disk, all processes continue, and the next round tries again.
        """
        try:
            state_file.write(self._state_dir, deployment)
        except OSError as error:
            if not self._unwritable:
                self._say(
                    f"the list of processes cannot be written to {self._state_dir}, so"
                    f" `anabranch status` shows an old one: {error}"
                )
            self._unwritable = True
            return False
        self._unwritable = False
        return True


def stop_servers(servers: Mapping[str, Server], timeout_s: float) -> None:
    """Stop embedded servers, all at the same time, each within ``timeout_s``. Kafka's stop is
    submitted last.
    """
    if not servers:
        return
    with ThreadPoolExecutor(len(servers)) as threads:
        ordered = sorted(
            servers,
            key=lambda name: SERVER_STOP_ORDER.index(name) if name in SERVER_STOP_ORDER else 0,
        )
        for done in [threads.submit(servers[name].stop, timeout_s) for name in ordered]:
            done.result()


def _mistake_in(answer: Mapping[str, Any]) -> str:
    """Return the error with which a replica on a node can never start, by the node's status; empty
    if there is none.
    """
    detail = answer.get("detail")
    stages = detail.get("stages", []) if isinstance(detail, dict) else []
    return next((str(each["mistake"]) for each in stages if each.get("mistake")), "")


def _how_ended(code: int) -> str:
    """Return how a process ended, in words."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
