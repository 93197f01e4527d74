"""Fault drills on a running local deployment: kill, pause, resume, cut, heal.

A drill finds a process by the mark that it and all processes below it carry
(``local.processes``). So it reaches a node's JVM and Python workers too, and never another process
that got the same id. For a cut, the drill writes a file and the proxy applies it
(``local.drill_links``). No drill depends on the supervisor, which may be slow or busy with the last
drill.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.local import drill_links, state_file
from anabranch.local.drill_links import Cut
from anabranch.local.processes import (
    MARK,
    MARK_OF_ONE,
    STOPPED,
    has_state,
    log_path,
    mark_of,
    marked,
    spare_log,
)
from anabranch.local.state_file import Deployment, ProcessRow
from anabranch.pipeline.durations import readable_ms
from anabranch.protocol.errors import ConfigurationError, Unavailable

SERVERS: Final = ("kafka", "redis", "proxy")

_DONE_MS: Final = 5_000
"""Timeout for a drill to take effect, in ms."""
_AGAIN_MS: Final = 10
_DEAD: Final = "ZX"
"""States of a process that has ended, for ``has_state``."""


class Drill:
    """Faults for the processes of the deployment that runs in ``state_dir``."""

    def __init__(self, state_dir: Path) -> None:
        """Read which deployment runs in ``state_dir``.

        Raises:
            ConfigurationError: none does.
        """
        found = state_file.read(state_dir)
        if found is None or state_file.Lock(state_dir).holder() is None:
            raise ConfigurationError(state_file.nothing_runs(state_dir))
        self._state_dir = state_dir
        self._found = found
        self._clock = SystemClock()

    @property
    def _deployment(self) -> Deployment:
        """Deployment as it is now: a restarted process has another id."""
        self._found = state_file.read(self._state_dir) or self._found
        return self._found

    @property
    def labels(self) -> list[str]:
        """Labels, SERVICE/NAME, of all processes."""
        return [f"{row.service}/{row.name}" for row in self._deployment.processes]

    def check(self, labels: Sequence[str]) -> None:
        """Check that all ``labels`` name processes, before a drill on the first of them begins.

        Raises:
            ConfigurationError: one does not.
        """
        for label in labels:
            self._row(label)

    def kill(self, label: str) -> list[int]:
        """Kill the process and all below it with SIGKILL, as a crash would, and return their ids.
        The supervisor restarts it.

        Raises:
            ConfigurationError: there is no such process.
            Unavailable: the process does not run now.
        """
        return self._signal(label, signal.SIGKILL, _DEAD)

    def pause(self, label: str) -> list[int]:
        """Stop the process and all below it with SIGSTOP, and return their ids. They stay alive but
        do nothing, not even answer.

        Raises:
            ConfigurationError: there is no such process.
            Unavailable: the process does not run now.
        """
        return self._signal(label, signal.SIGSTOP, STOPPED)

    def resume(self, label: str) -> list[int]:
        """Resume the process and all below it, and return their ids. Does nothing to those that are
        not paused.

        Raises:
            ConfigurationError: there is no such process.
            Unavailable: the process does not run now.
        """
        pids = self._processes(label)
        for pid in pids:
            _send(pid, signal.SIGCONT)
        return pids

    def cut(self, label: str, cut: Cut) -> None:
        """Apply ``cut`` to the service's link to Kafka, in place of an earlier cut, and wait until
        it is in effect.

        Raises:
            ConfigurationError: there is no such process, it has no link, or the deployment was
                started without drills.
            Unavailable: the proxy does not answer.
        """
        self._set_cut(label, cut)

    def heal(self, label: str) -> None:
        """Remove the cut of the service's link, if it has one, and wait until all passes.

        Raises:
            ConfigurationError: as ``cut``.
            Unavailable: as ``cut``.
        """
        self._set_cut(label, None)

    def cuts(self) -> dict[str, Cut]:
        """Return the requested cuts by label."""
        return (
            drill_links.wanted(drill_links.directory_of(self._state_dir))
            if self._deployment.drills
            else {}
        )

    def _row(self, label: str) -> ProcessRow:
        """Return the supervisor's entry of the process ``label``.

        Raises:
            ConfigurationError: there is no such process.
        """
        for row in self._deployment.processes:
            if f"{row.service}/{row.name}" == label:
                return row
        raise ConfigurationError(f"no process {label}; there are {', '.join(self.labels)}")

    def _processes(self, label: str) -> list[int]:
        """Return the ids of the process and all below it that run now.

        Raises:
            ConfigurationError: there is no such process.
            Unavailable: the process does not run now.
        """
        row = self._row(label)
        if row.service in SERVERS:
            # The entry holds the id of a dead server until the supervisor notices its end, and
            # another process may have been given that id. So the mark must agree.
            pids = [pid for pid in marked(MARK, mark_of(self._state_dir)) if pid == row.pid]
        else:
            folder = self._state_dir.resolve()
            pids = marked(MARK_OF_ONE, str(log_path(folder, row.service, row.name)))
            # A process that began as the spare one keeps that mark.
            pids += [pid for pid in marked(MARK_OF_ONE, str(spare_log(folder))) if pid == row.pid]
        if not pids:
            raise Unavailable(
                f"{label} does not run now ({row.state}): try again when `anabranch status` shows"
                " its process id"
            )
        return pids

    def _signal(self, label: str, number: signal.Signals, wanted_states: str) -> list[int]:
        """Send signal ``number`` to the process, to all below it, and to those that they start
        meanwhile, until all are in one of ``wanted_states``. Return their ids.
        """
        reached = self._processes(label)
        for pid in reached:
            _send(pid, number)

        def done() -> bool:
            more = [] if self._row(label).service in SERVERS else self._marked_again(label)
            # After a kill, a new process with the mark is the restarted service: leave it alone.
            if number is not signal.SIGKILL:
                for pid in more:
                    if pid not in reached:
                        _send(pid, number)
                        reached.append(pid)
            return all(has_state(pid, wanted_states) for pid in reached)

        self._await(
            done,
            f"{label} was sent {number.name}, but is not all"
            f" {'gone' if number is signal.SIGKILL else 'stopped'}",
        )
        return reached

    def _marked_again(self, label: str) -> Sequence[int]:
        """Return the ids of the process and all below it; empty if none runs."""
        with contextlib.suppress(Unavailable):
            return self._processes(label)
        return ()

    def _set_cut(self, label: str, cut: Cut | None) -> None:
        """Request ``cut``, or none, for the service's link, and wait until the proxy applies it."""
        self._row(label)
        if not self._deployment.drills:
            raise ConfigurationError(
                "cut and heal need a proxy between each service and the embedded Kafka, which costs"
                " CPU time: start the deployment with `anabranch up --drills`. pause and kill work"
                " without"
            )
        folder = drill_links.directory_of(self._state_dir)
        linked = [link.label for link in drill_links.read_links(folder)]
        if label not in linked:
            raise ConfigurationError(
                f"{label} has no link to Kafka that could be cut; these have: {', '.join(linked)}"
            )
        drill_links.want(folder, label, cut)
        self._await(
            lambda: drill_links.applied(folder).get(label) == cut,
            f"the proxy did not apply the change (its log: {folder / 'proxy.log'})",
        )

    def _await(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait until ``condition()`` is true.

        Raises:
            Unavailable: the condition was not true within _DONE_MS; the text begins with
                ``otherwise``.
        """
        deadline_ms = self._clock.monotonic_ms() + _DONE_MS
        while not condition():
            if self._clock.monotonic_ms() >= deadline_ms:
                raise Unavailable(f"{otherwise} after {readable_ms(_DONE_MS)}")
            self._clock.sleep_ms(_AGAIN_MS)


def _send(pid: int, number: signal.Signals) -> None:
    """Send a signal to ``pid``; do nothing if the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
