"""The frame around every service: settings, loop, health, and how it ends.

Theory of operation. A service is a thing with ``start``, ``step`` and ``stop``. The main thread
alone calls them, so a service needs no locks; the health server's threads only read its ``status``.
A signal sets a flag that the loop sees after the current step. Everything a service does can be
repeated after a crash, so any doubt is answered by ending the process: an error ends it, a thread
that dies ends it, an end that takes too long is cut short.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from anabranch.pipeline.clusters import check_own
from anabranch.pipeline.file import load
from anabranch.ports import Clock, Entropy, Event, EventLog, Index, StartingEngine, Threads
from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    LocalProtocolError,
    StageFunctionError,
)
from anabranch.runtime import logs
from anabranch.runtime.crash_points import crash_point
from anabranch.runtime.health import HealthServer
from anabranch.runtime.metrics import Registry, ServiceMetrics
from anabranch.runtime.own_threads import OWN_THREADS
from anabranch.runtime.settings import ServiceSettings, read_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from anabranch.pipeline.model import Pipeline

STOP_SECONDS_MAX: Final = 10.0
"""An orderly end takes at most this; then the process ends as it is, which is safe at any point."""

STEP_SECONDS_MAX: Final = 300.0
"""A loop that has not come round for this long is not alive. Its process ends: nothing in it can be
trusted to bring the loop back, least of all where a call into a library never returns, and whoever
started it starts it again.
"""

_STOPPING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_SIGNALS_AT_ONCE: Final = 64

_WATCH_AGAIN_MS: Final = 5_000
"""So often the watch over the loop is set anew; each time costs a thread."""


class ExitCode(IntEnum):
    """How a service process ends; a supervisor decides by it."""

    STOPPED = 0
    ERROR = 1
    CONFIGURATION = 2
    FENCED = 3
    STAGE_FAILED = 4


# The mask of what processes make, and those that they start: checkpoints and logs hold users'
# data, for their owner alone.
OWN_FILES: Final = 0o077


@dataclass(slots=True)
class ServiceStatus:
    """What a service says about itself. Written by the loop, read by the health server.

    ``last_bucket_ms`` is the event time up to which it is done, ``lag_ms`` the wall clock minus
    that; ``age_ms`` is how old a bucket usually is when it is closed here. What stands in
    ``detail`` is replaced, never changed: its values are read by other threads.
    """

    state: str = "starting"
    last_bucket_ms: int | None = None
    lag_ms: int | None = None
    age_ms: int | None = None
    waiting_for: str | None = None
    error: str | None = None
    detail: dict[str, object] = field(default_factory=dict)

    def shown(self) -> dict[str, object]:
        """All of it, as it is now: keys may come and go while the caller looks at it."""
        fields: dict[str, object] = {
            each.name: getattr(self, each.name) for each in dataclasses.fields(self)
        }
        return fields | {"detail": self.detail.copy()}


class Service(Protocol):
    """What ``main`` runs."""

    status: ServiceStatus

    def start(self) -> None:
        """Connect, recover, fence the older process."""

    def step(self) -> None:
        """One short round: at most 200 ms when there is nothing to do."""

    def stop(self) -> None:
        """Give everything back. Idempotent; also called after ``start`` or ``step`` raised."""


OtherCluster = Callable[[str, str], EventLog]
"""(name, address) -> a cluster of another owner. Nothing is contacted yet."""


StartEngine = Callable[["ServiceContext", str, Collection[str]], StartingEngine]
"""(context, name, stages) -> an engine that begins to start, to run these stages for the process of
that name.
"""


def no_other_cluster(name: str, _: str) -> NoReturn:
    """Of a service that reads no stream of another owner."""
    raise LocalProtocolError(f"cluster {name} is not for this service")


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What a service is built from. ``stopping`` is set by a signal: long waits inside a step
    look at it.
    """

    log: EventLog
    index: Index | None
    clock: Clock
    entropy: Entropy
    registry: CollectorRegistry
    metrics: ServiceMetrics
    settings: ServiceSettings
    pipeline: Pipeline
    logger: FilteringBoundLogger
    stopping: Event
    other_cluster: OtherCluster = no_other_cluster
    threads: Threads = OWN_THREADS
    crash_point: Callable[[str], None] = crash_point
    """Called at each of ``crash_points.POINTS`` that stands in ``processing``."""

    def log_of(self, stream: str) -> EventLog:
        """Where the topics of ``stream`` are; whoever writes, writes to ``log``."""
        cluster = self.pipeline.cluster_of(stream)
        return self.other_cluster(cluster, self.pipeline.clusters[cluster]) if cluster else self.log


Connections = tuple[EventLog, Index | None, Clock, Entropy]
Connect = Callable[[str, str | None], Connections]
"""(Kafka address, Redis URL or None) -> ports. ``anabranch.adapters.connect.connect`` is the
one for real.
"""
Build = Callable[[ServiceSettings, ServiceContext], Service]


def main(
    service_name: str, build: Build, connect: Connect, arguments: Sequence[str] | None = None
) -> NoReturn:
    """Run one service until it must stop; ends the process with an ``ExitCode``.

    A service's ``__main__`` is ``main("ingestion", build, connect)`` with ``connect`` from
    ``anabranch.adapters.connect``.
    """
    given = sys.argv[1:] if arguments is None else arguments
    try:
        settings = read_settings(service_name, given)
    except ConfigurationError as error:
        sys.exit(_ended(logs.configure(service_name, "?"), error))
    sys.exit(run(service_name, build, connect, settings))


def run(service_name: str, build: Build, connect: Connect, settings: ServiceSettings) -> ExitCode:
    """``main`` without the command line. Installs signal handlers: main thread only."""
    os.umask(OWN_FILES)
    logger = logs.configure(service_name, settings.name, settings.log_level)
    stopping = threading.Event()
    faulthandler.enable()  # a library that breaks down says where it was called from
    _end_when_a_thread_dies(logger)
    _stop_on_signals(stopping, logger)
    try:
        pipeline = load(settings.pipeline, settings.offers)
        _check_name(service_name, settings.name, pipeline)
        check_own(pipeline, settings.kafka)
        if settings.check_config:
            logger.info("checked", pipeline=pipeline.name)
            return ExitCode.STOPPED
        log, index, clock, entropy = connect(settings.kafka, settings.redis)
        registry = Registry()
        metrics = ServiceMetrics(
            registry,
            pipeline=pipeline.name,
            service=service_name,
            name=settings.name,
            restarts=settings.restarts,
        )
        context = ServiceContext(
            log, index, clock, entropy, registry, metrics, settings, pipeline, logger, stopping
        )
        service = build(settings, context)
    except Exception as error:  # noqa: BLE001 - every error has an exit code
        return _ended(logger, error)
    return Loop(service_name, service, context, lambda code: _cut_short(logger, code)).run()


def _check_name(service_name: str, name: str, pipeline: Pipeline) -> None:
    """Raises ConfigurationError where the pipeline has no process of that name."""
    known = (*pipeline.own_processes(), *pipeline.partner_processes())
    there = [process for service, process in known if service == service_name]
    if name not in there:
        raise ConfigurationError(
            f"--name {name}: pipeline {pipeline.name} has no such {service_name}; there are"
            f" {', '.join(there)}"
        )


class Loop:
    """Drives one service: start, step until it must stop, stop. Calls ``on_ending`` before
    ``stop``.
    """

    def __init__(
        self,
        service_name: str,
        service: Service,
        context: ServiceContext,
        on_ending: Callable[[ExitCode], None] = lambda _code: None,
    ) -> None:
        self._on_ending = on_ending
        self._service_name = service_name
        self._service = service
        self._context = context
        self._begun_ms = context.clock.monotonic_ms()
        self._stepped_ms: int | None = None
        context.metrics.follow(lambda: service.status.last_bucket_ms, lambda: service.status.lag_ms)

    def report(self) -> dict[str, object]:
        """What ``/statusz`` shows."""
        now_ms = self._context.clock.monotonic_ms()
        stuck = (
            self._stepped_ms is not None and now_ms - self._stepped_ms > STEP_SECONDS_MAX * 1_000
        )
        return {
            "service": self._service_name,
            "name": self._context.settings.name,
            "pid": os.getpid(),
            "alive": not stuck,
            "uptime_ms": now_ms - self._begun_ms,
            "restarts": self._context.settings.restarts,
            **self._service.status.shown(),
        }

    def run(self) -> ExitCode:
        """Until it must stop, or an error. The error is logged once, with its traceback."""
        settings, logger = self._context.settings, self._context.logger
        code = ExitCode.STOPPED
        health: HealthServer | None = None
        try:
            health = HealthServer(
                settings.metrics_host,
                settings.metrics_port,
                self.report,
                self._context.registry,
                self._context.clock,
            )
            health.start()
            write_run_file(settings.state_dir, self._service_name, settings.name, health.port)
            logger.info("starting", metrics_port=health.port, pid=os.getpid())
            self._service.start()
            self._rounds()
        except Exception as error:  # noqa: BLE001 - every error has an exit code
            code = _ended(logger, error, self._service.status)
        self._context.stopping.set()
        self._on_ending(code)
        if self._service.status.state != "failed":
            self._service.status.state = "stopping"
        try:
            self._service.stop()
        except Exception as error:  # noqa: BLE001 - the end goes on, the code says that it was not clean
            code = _ended(logger, error) if code is ExitCode.STOPPED else code
        if health is not None:
            health.stop()
        if code is ExitCode.STOPPED:
            logger.info("stopped", exit_code=0)
        return code

    def _rounds(self) -> None:
        if self._service.status.state == "starting":
            self._service.status.state = "running"
        watched_ms: int | None = None
        try:
            while not self._context.stopping.is_set():
                now_ms = self._stepped_ms = self._context.clock.monotonic_ms()
                if watched_ms is None or now_ms - watched_ms >= _WATCH_AGAIN_MS:
                    # Works without the interpreter, which may be what hangs: writes the stacks of
                    # all threads to stderr and ends with code 1.
                    faulthandler.dump_traceback_later(STEP_SECONDS_MAX, exit=True)
                    watched_ms = now_ms
                self._service.step()
        finally:
            faulthandler.cancel_dump_traceback_later()


def run_file(state_dir: Path, service: str, name: str) -> Path:
    """Where a running service says its pid and metrics port."""
    return state_dir / "run" / f"{service}-{name}.json"


def write_run_file(state_dir: Path, service: str, name: str, metrics_port: int) -> None:
    """Tell a supervisor which port was taken. Replaced as a whole, so a reader never sees
    half of it.
    """
    path = run_file(state_dir, service, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.new")
    draft.write_text(
        json.dumps({"pid": os.getpid(), "metrics_port": metrics_port}), encoding="utf-8"
    )
    draft.replace(path)


def exit_code_of(error: Exception) -> ExitCode:
    """What the process ends with after ``error``."""
    if isinstance(error, ConfigurationError):
        return ExitCode.CONFIGURATION
    if isinstance(error, Fenced):
        return ExitCode.FENCED
    if isinstance(error, StageFunctionError):
        return ExitCode.STAGE_FAILED
    return ExitCode.ERROR


def _ended(
    logger: FilteringBoundLogger, error: Exception, status: ServiceStatus | None = None
) -> ExitCode:
    """Log ``error`` once; its field ``error`` in the last line of the log is what a
    supervisor shows.
    """
    code = exit_code_of(error)
    text = str(error) or type(error).__name__
    if status is not None:
        status.state, status.error = "failed", text
    if code is ExitCode.ERROR:
        text = f"{type(error).__name__}: {text}"
    # What a person is to mend is reported in words; only a surprise needs the traceback.
    expected = code in (ExitCode.CONFIGURATION, ExitCode.FENCED)
    logger.error("stopped", exit_code=int(code), error=text, exc_info=None if expected else error)
    return code


def _stop_on_signals(stopping: threading.Event, logger: FilteringBoundLogger) -> None:
    """A thread of its own waits for signals: handlers in Python wait for the main thread,
    which may be in a call that does not return.
    """
    wakes, tells = socket.socketpair()
    tells.setblocking(False)

    def listen() -> None:
        while not stopping.is_set():
            stops = [
                number for number in wakes.recv(_SIGNALS_AT_ONCE) if number in _STOPPING_SIGNALS
            ]
            if stops:
                stopping.set()
                # A start that takes long, or a step that hangs, must not outlive the time for an
                # orderly end.
                _cut_short(logger, ExitCode.STOPPED, reason=signal.Signals(stops[0]).name)

    threading.Thread(target=listen, name="signals", daemon=True).start()
    for number in _STOPPING_SIGNALS:
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(tells.detach(), warn_on_full_buffer=False)  # open as long as the process


def _cut_short(logger: FilteringBoundLogger, code: ExitCode, reason: str = "end") -> None:
    """End the process as it is if an orderly end takes too long."""

    def cut() -> None:
        logger.warning("stop_cut_short", after_seconds=STOP_SECONDS_MAX, reason=reason)
        os._exit(code)

    timer = threading.Timer(STOP_SECONDS_MAX, cut)
    timer.daemon = True
    timer.start()


def _end_when_a_thread_dies(logger: FilteringBoundLogger) -> None:
    def on_death(dead: threading.ExceptHookArgs) -> None:
        if dead.exc_type is SystemExit:
            return
        name = dead.thread.name if dead.thread is not None else "?"
        text = f"thread {name} died: {dead.exc_type.__name__}: {dead.exc_value}"
        logger.error("stopped", exit_code=int(ExitCode.ERROR), error=text, exc_info=dead.exc_value)
        os._exit(ExitCode.ERROR)

    threading.excepthook = on_death
