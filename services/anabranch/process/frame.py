"""Frame of every service process: settings, loop, health, exit.

Theory of operation. A service has ``start``, ``step`` and ``stop``. Only the main thread calls
them, so a service needs no locks; the health server's threads only read its ``status``. A signal
sets a flag that the loop checks after the current step. All that a service does can be repeated
after a crash, so every uncertainty ends the process: an error, a thread that dies, a stop that
takes too long.
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
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from anabranch.pipeline.clusters import check_own
from anabranch.pipeline.file import load
from anabranch.ports import Clock, Entropy, EventLog, Flag, Index, StartingEngine, Threads
from anabranch.process import logging_setup
from anabranch.process.crash_points import crash_point
from anabranch.process.health import HealthServer
from anabranch.process.metrics import Registry, ServiceMetrics
from anabranch.process.settings import ServiceSettings, read_settings
from anabranch.process.threads import OWN_THREADS
from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    LocalProtocolError,
    StageFunctionError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from anabranch.pipeline.model import Pipeline

STOP_SECONDS_MAX: Final = 10.0
"""Timeout of an orderly stop, in s; then the process exits at once, which is safe at any point."""

STEP_SECONDS_MAX: Final = 300.0
"""Time for one step, in s, after which the loop counts as dead and the process exits, to be
restarted. Nothing within the process could revive it, least of all if a library call never returns.
"""

_STOPPING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_SIGNALS_AT_ONCE: Final = 64
"""Maximum number of signals read at once."""

_WATCH_AGAIN_MS: Final = 5_000
"""Interval at which the watchdog of the loop is reset, in ms; each reset costs a thread."""


class ExitCode(IntEnum):
    """Exit codes of a service process, by which a supervisor decides what to do."""

    STOPPED = 0
    ERROR = 1
    CONFIGURATION = 2
    FENCED = 3
    STAGE_FAILED = 4


OWN_FILES: Final = 0o077
"""File mode mask of every process and its children: checkpoints and logs contain users' data, which
only their owner may read.
"""


@dataclass(slots=True)
class ServiceStatus:
    """Status of a service. The loop writes it, the health server reads it.

    ``last_bucket_ms`` is the event time up to which the service is done, ``lag_ms`` the wall clock
    minus that, ``age_ms`` the typical age of a bucket when it is closed here. Values in ``detail``
    are replaced, never modified: other threads read them.
    """

    state: str = "starting"
    last_bucket_ms: int | None = None
    lag_ms: int | None = None
    age_ms: int | None = None
    waiting_for: str | None = None
    error: str | None = None
    detail: dict[str, object] = field(default_factory=dict)

    def shown(self) -> dict[str, object]:
        """Return a copy of the status: the loop may change keys while the caller reads it."""
        fields: dict[str, object] = {
            each.name: getattr(self, each.name) for each in dataclasses.fields(self)
        }
        return fields | {"detail": self.detail.copy()}


class Service(Protocol):
    """Interface of a service, as ``main`` runs it."""

    status: ServiceStatus

    def start(self) -> None:
        """Connect, recover, and fence the older process."""

    def step(self) -> None:
        """Run one short round: at most 200 ms if there is nothing to do."""

    def stop(self) -> None:
        """Release everything. Idempotent; also called after ``start`` or ``step`` has raised."""


OtherCluster = Callable[[str, str], EventLog]
"""Function from (name, address) to another owner's cluster; it contacts nothing."""


StartEngine = Callable[["ServiceContext", str, Collection[str]], StartingEngine]
"""Function from (context, name, stages) to an engine that starts in the background, to run these
stages for the process ``name``.
"""


def no_other_cluster(name: str, _: str) -> NoReturn:
    """Fail: cluster lookup of services without streams of other owners."""
    raise LocalProtocolError(f"cluster {name} is not for this service")


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """Dependencies of a service. A signal sets ``stopping``; long waits inside a step must check
    it.
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
    stopping: Flag
    other_cluster: OtherCluster = no_other_cluster
    threads: Threads = OWN_THREADS
    crash_point: Callable[[str], None] = crash_point
    """Function called at each of ``crash_points.POINTS`` in ``processing``."""

    def log_of(self, stream: str) -> EventLog:
        """Return the cluster of the topics of ``stream``. Writers always use ``log``."""
        cluster = self.pipeline.cluster_of(stream)
        return self.other_cluster(cluster, self.pipeline.clusters[cluster]) if cluster else self.log


Connections = tuple[EventLog, Index | None, Clock, Entropy]
Connect = Callable[[str, str | None], Connections]
"""Function from (Kafka address, Redis URL or None) to ports; in production
``anabranch.adapters.connect.connect``.
"""
Build = Callable[[ServiceSettings, ServiceContext], Service]
"""Function from (settings, context) to the service."""


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
        sys.exit(_log_end(logging_setup.configure(service_name, "?"), error))
    sys.exit(run(service_name, build, connect, settings))


def run(service_name: str, build: Build, connect: Connect, settings: ServiceSettings) -> ExitCode:
    """Run one service as ``main`` does, but with given settings, and return its exit code. Installs
    signal handlers, so only the main thread may call it.
    """
    os.umask(OWN_FILES)
    logger = logging_setup.configure(service_name, settings.name, settings.log_level)
    stopping = threading.Event()
    faulthandler.enable()  # a crash in a library prints where it was called from
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
        return _log_end(logger, error)
    return Loop(service_name, service, context, lambda code: _cut_short(logger, code)).run()


def _check_name(service_name: str, name: str, pipeline: Pipeline) -> None:
    """Check that the pipeline has a process of that name.

    Raises:
        ConfigurationError: the pipeline has none.
    """
    known = (*pipeline.own_processes(), *pipeline.partner_processes())
    there = [process for service, process in known if service == service_name]
    if name not in there:
        raise ConfigurationError(
            f"--name {name}: pipeline {pipeline.name} has no such {service_name}; there are"
            f" {', '.join(there)}"
        )


class Loop:
    """Main loop of one service: start, steps until it must stop, stop. Calls ``on_ending`` before
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
        self._announce: Callable[[], None] | None = None
        """Writes the run file; None: it is written, or there is no port yet."""
        self._is_unannounced = False
        """Whether a failure to write it was logged."""
        context.metrics.follow(lambda: service.status.last_bucket_ms, lambda: service.status.lag_ms)

    def report(self) -> dict[str, object]:
        """Return the content of ``/statusz``."""
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
        """Run the service until it must stop or an error occurs, which is logged once, with its
        traceback. Return the exit code.
        """
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
            self._announce = partial(
                write_run_file, settings.state_dir, self._service_name, settings.name, health.port
            )
            self._announce_port()
            logger.info("starting", metrics_port=health.port, pid=os.getpid())
            self._service.start()
            self._rounds()
        except Exception as error:  # noqa: BLE001 - every error has an exit code
            code = _log_end(logger, error, self._service.status)
        self._context.stopping.set()
        self._on_ending(code)
        if self._service.status.state != "failed":
            self._service.status.state = "stopping"
        try:
            self._service.stop()
        except Exception as error:  # noqa: BLE001 - the stop continues; the exit code shows the error
            code = _log_end(logger, error) if code is ExitCode.STOPPED else code
        if health is not None:
            health.stop()
        if code is ExitCode.STOPPED:
            logger.info("stopped", exit_code=0)
        return code

    def _announce_port(self) -> None:
        """Write the run file, unless it is written. A disk that is full or read-only ends nothing:
        only a supervisor needs the file, and most services nothing else of the disk. The next
        round of watching tries again.
        """
        if self._announce is None:
            return
        try:
            self._announce()
        except OSError as error:
            if not self._is_unannounced:
                self._context.logger.warning("run_file_not_written", error=str(error))
            self._is_unannounced = True
        else:
            self._announce = None

    def _rounds(self) -> None:
        """Run steps until the service must stop."""
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
                    self._announce_port()
                self._service.step()
        finally:
            faulthandler.cancel_dump_traceback_later()


def run_file(state_dir: Path, service: str, name: str) -> Path:
    """Return the path of the file with a running service's pid and metrics port."""
    return state_dir / "run" / f"{service}-{name}.json"


def write_run_file(state_dir: Path, service: str, name: str, metrics_port: int) -> None:
    """Write pid and metrics port for a supervisor. The file is replaced atomically.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    path = run_file(state_dir, service, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.new")
    try:
        draft.write_text(
            json.dumps({"pid": os.getpid(), "metrics_port": metrics_port}), encoding="utf-8"
        )
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code of a process that ``error`` ends."""
    if isinstance(error, ConfigurationError):
        return ExitCode.CONFIGURATION
    if isinstance(error, Fenced):
        return ExitCode.FENCED
    if isinstance(error, StageFunctionError):
        return ExitCode.STAGE_FAILED
    return ExitCode.ERROR


def _log_end(
    logger: FilteringBoundLogger, error: Exception, status: ServiceStatus | None = None
) -> ExitCode:
    """Log ``error`` and return its exit code. A supervisor shows the field ``error`` of the log's
    last line.
    """
    code = exit_code_of(error)
    text = str(error) or type(error).__name__
    if status is not None:
        status.state, status.error = "failed", text
    if code is ExitCode.ERROR:
        text = f"{type(error).__name__}: {text}"
    # The text of an error that a person must correct is enough; others need the traceback.
    expected = code in (ExitCode.CONFIGURATION, ExitCode.FENCED)
    logger.error("stopped", exit_code=int(code), error=text, exc_info=None if expected else error)
    return code


def _stop_on_signals(stopping: threading.Event, logger: FilteringBoundLogger) -> None:
    """Set ``stopping`` on SIGTERM or SIGINT, by a thread that waits for signals. Python's own
    handlers run only in the main thread, which may be in a call that does not return.
    """
    wakes, tells = socket.socketpair()
    tells.setblocking(False)

    def listen() -> None:
        """Wait for signals until one of them stops the process."""
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
    """Exit the process at once if an orderly stop takes longer than STOP_SECONDS_MAX."""

    def cut() -> None:
        """Exit at once."""
        logger.warning("stop_cut_short", after_seconds=STOP_SECONDS_MAX, reason=reason)
        os._exit(code)

    timer = threading.Timer(STOP_SECONDS_MAX, cut)
    timer.daemon = True
    timer.start()


def _end_when_a_thread_dies(logger: FilteringBoundLogger) -> None:
    """Exit the process when an error ends any of its threads."""

    def on_death(dead: threading.ExceptHookArgs) -> None:
        if dead.exc_type is SystemExit:
            return
        name = dead.thread.name if dead.thread is not None else "?"
        text = f"thread {name} died: {dead.exc_type.__name__}: {dead.exc_value}"
        logger.error("stopped", exit_code=int(ExitCode.ERROR), error=text, exc_info=dead.exc_value)
        os._exit(ExitCode.ERROR)

    threading.excepthook = on_death
