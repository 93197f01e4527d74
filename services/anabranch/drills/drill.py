"""Fault drills on a running local deployment: kill, pause, resume, cut, heal.

A process is found by the mark that it and everything below it carry (``up.processes``), so a drill
reaches a node's JVM and its Python workers too, and never a process that was given the same id
since. The drill writes a cut into a file, and the proxy makes it (``drills.links``). No drill needs
the supervisor to do anything: it may be slow, or be busy with the last drill.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.drills import links
from anabranch.drills.links import Cut
from anabranch.pipeline.durations import readable_ms
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.up import state_file
from anabranch.up.processes import MARK, MARK_OF_ONE, STOPPED, has_state, log_path, mark_of, marked
from anabranch.up.state_file import Deployment, ProcessRow

SERVERS: Final = ("kafka", "redis", "proxy")

_DONE_MS: Final = 5_000
_AGAIN_MS: Final = 10
_DEAD: Final = "ZX"


class Drill:
    """What may be done to the processes of the deployment that runs in ``state_dir``."""

    def __init__(self, state_dir: Path) -> None:
        """Look what runs there.

        Raises:
            ConfigurationError: nothing does.
        """
        found = state_file.read(state_dir)
        if found is None or state_file.Lock(state_dir).holder() is None:
            raise ConfigurationError(state_file.nothing_runs(state_dir))
        self._state_dir = state_dir
        self._found = found
        self._clock = SystemClock()

    @property
    def _deployment(self) -> Deployment:
        """As it is now: what was killed has another process id when it is back."""
        self._found = state_file.read(self._state_dir) or self._found
        return self._found

    @property
    def labels(self) -> list[str]:
        """SERVICE/NAME of every process."""
        return [f"{row.service}/{row.name}" for row in self._deployment.processes]

    def check(self, labels: Sequence[str]) -> None:
        """Before anything is done to the first of several: whether all are there.

        Raises:
            ConfigurationError: one is not.
        """
        for label in labels:
            self._row(label)

    def kill(self, label: str) -> list[int]:
        """End the process and all below it with SIGKILL, as a crash would. The supervisor starts it
        again. Their ids.

        Raises:
            ConfigurationError: there is no such process.
            Unavailable: it does not run now.
        """
        return self._signal(label, signal.SIGKILL, _DEAD)

    def pause(self, label: str) -> list[int]:
        """Stop the process and all below it with SIGSTOP: it is there, and does nothing, not even
        answer. Their ids.

        Raises:
            ConfigurationError: there is no such process.
            Unavailable: it does not run now.
        """
        return self._signal(label, signal.SIGSTOP, STOPPED)

    def resume(self, label: str) -> list[int]:
        """Let go on what ``pause`` stopped; nothing happens where nothing is paused. Their ids.

        Raises:
            ConfigurationError: there is no such process.
            Unavailable: it does not run now.
        """
        pids = self._processes(label)
        for pid in pids:
            _send(pid, signal.SIGCONT)
        return pids

    def cut(self, label: str, cut: Cut) -> None:
        """Cut the service off from Kafka, and wait until nothing passes any more. A cut that it has
        already is replaced.

        Raises:
            ConfigurationError: there is no such process, it has no link, or the deployment was
                started without drills.
            Unavailable: the proxy does not answer.
        """
        self._set_cut(label, cut)

    def heal(self, label: str) -> None:
        """Let its traffic pass again; nothing happens where nothing is cut.

        Raises:
            ConfigurationError: as ``cut``.
            Unavailable: as ``cut``.
        """
        self._set_cut(label, None)

    def cuts(self) -> dict[str, Cut]:
        """The cuts that there are, by label."""
        return links.wanted(links.directory_of(self._state_dir)) if self._deployment.drills else {}

    def _row(self, label: str) -> ProcessRow:
        for row in self._deployment.processes:
            if f"{row.service}/{row.name}" == label:
                return row
        raise ConfigurationError(f"no process {label}; there are {', '.join(self.labels)}")

    def _processes(self, label: str) -> list[int]:
        """The process and all below it that run now."""
        row = self._row(label)
        if row.service in SERVERS:
            # Until the supervisor has seen its end, the id of one that is gone stands there, and
            # another process may have it.
            pids = [pid for pid in marked(MARK, mark_of(self._state_dir)) if pid == row.pid]
        else:
            pids = marked(
                MARK_OF_ONE, str(log_path(self._state_dir.resolve(), row.service, row.name))
            )
        if not pids:
            raise Unavailable(
                f"{label} does not run now ({row.state}): try again when `anabranch status` shows"
                " its process id"
            )
        return pids

    def _signal(self, label: str, number: signal.Signals, wanted_states: str) -> list[int]:
        """Send it to all, and to those that they start meanwhile, until all are in one of
        ``wanted_states``.
        """
        reached = self._processes(label)
        for pid in reached:
            _send(pid, number)

        def done() -> bool:
            more = [] if self._row(label).service in SERVERS else self._marked_again(label)
            if number is not signal.SIGKILL:  # after a kill, what carries the mark is the next run
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
        with contextlib.suppress(Unavailable):
            return self._processes(label)
        return ()

    def _set_cut(self, label: str, cut: Cut | None) -> None:
        self._row(label)
        if not self._deployment.drills:
            raise ConfigurationError(
                "cut and heal need a proxy between each service and the embedded Kafka, which costs"
                " CPU time: start the deployment with `anabranch up --drills`. pause and kill work"
                " without"
            )
        folder = links.directory_of(self._state_dir)
        linked = [link.label for link in links.read_links(folder)]
        if label not in linked:
            raise ConfigurationError(
                f"{label} has no link to Kafka that could be cut; these have: {', '.join(linked)}"
            )
        links.want(folder, label, cut)
        self._await(
            lambda: links.applied(folder).get(label) == cut,
            f"the proxy did not do it; its log: {folder / 'proxy.log'}",
        )

    def _await(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline_ms = self._clock.monotonic_ms() + _DONE_MS
        while not condition():
            if self._clock.monotonic_ms() >= deadline_ms:
                raise Unavailable(f"{otherwise} after {readable_ms(_DONE_MS)}")
            self._clock.sleep_ms(_AGAIN_MS)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended since
        os.kill(pid, number)
