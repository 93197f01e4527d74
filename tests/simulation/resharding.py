"""An operator gives the sources, or the output, another number of shards while a run goes on: the
file changes, and every process gets the new one at a time of its own.

The processes of the old number are stopped, or forgotten, sooner or later. Those that are forgotten
run on until the log tells them; those that die before that begin again with the old file. Other
processes are restarted, or go on with the old file until they end by themselves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from anabranch.protocol.errors import ConfigurationError
from simulation.pipeline_file import pipeline

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from simulation.history import History
    from simulation.options import Options
    from simulation.scheduler import Process, Scheduler
    from simulation.striking import Runs

_OVER_MS = 1_500
"""Within so long most processes have the new file."""
_AGAIN_MS = 300


class Resharding:
    """The files of a run, and who has which."""

    def __init__(
        self,
        options: Options,
        runs: Mapping[str, Runs],
        epochs: Mapping[tuple[str, str], int],
        scheduler: Scheduler,
        history: History,
        start: Callable[[str], None],
    ) -> None:
        """``epochs``: of each writer the newest, as they begin."""
        self.files = [pipeline(options, changes) for changes in range(options.files)]
        self._options = options
        self._runs = runs
        self._epochs = epochs
        self._scheduler = scheduler
        self._history = history
        self._start = start
        self._rng = random.Random(f"{options.seed}/files")
        self._file: dict[str, int] = {}
        self._begun: dict[Process, int] = {}
        self._changes = 0

    @property
    def is_over(self) -> bool:
        """Whether all changes have begun."""
        return self._changes == self._options.files - 1

    def runs_now(self, key: str) -> bool:
        """Whether the file that is there names the process ``key``."""
        service, name = key.split("/")
        file = self.files[self._changes]
        named = {"ingestion": file.source_processes(), "delivery": list(file.deliveries())}
        return name in named.get(service, [name])

    def file_of(self, process: Process) -> Pipeline:
        """Return the file that ``process`` reads when it begins."""
        self._begun[process] = self._file.get(process.key, 0)
        return self.files[self._begun[process]]

    def last_file_of(self, key: str) -> Pipeline:
        """Return the file that the last process of ``key`` has read; the first one if none has."""
        begun = [number for process, number in self._begun.items() if process.key == key]
        return self.files[begun[-1] if begun else 0]

    def may_end(self, error: Exception, process: Process) -> bool:
        """Whether it may end since its file is not the newest any more."""
        has_changed = self._changes > self._begun.get(process, 0)
        may = isinstance(error, ConfigurationError) and has_changed
        if may:
            self._history.reached("end because of another file")
        return may

    def change(self) -> None:
        """Make the next change, once every shard of the previous number has begun."""
        source = self._options.sources
        first = [stream for name in source for stream in self.files[0].sources[name].streams()]
        if any((stream, "0") not in self._epochs for stream in first):
            self._scheduler.at(self._scheduler.now_ms + _AGAIN_MS, self.change)
            return
        before = [key for key in self._runs if self.runs_now(key)]
        self._changes += 1
        self._history.reached("another number of shards")
        for key in self._runs:
            if not self.runs_now(key) and key in before:
                self._later(lambda key=key: self._retire(key))  # type: ignore[misc]
            elif self.runs_now(key):
                self._later(lambda key=key, number=self._changes: self._renew(key, number))  # type: ignore[misc]

    def _later(self, what: Callable[[], None]) -> None:
        late_ms = self._rng.choice((0, 0, 2 * _OVER_MS))
        at_ms = self._scheduler.now_ms + self._rng.randrange(_OVER_MS) + late_ms
        self._scheduler.at(at_ms, what)

    def _retire(self, key: str) -> None:
        """Nobody starts ``key`` again."""
        runs = self._runs[key]
        runs.is_dead = True
        if self._rng.random() < 0.6:
            self._kill(runs)
        elif runs.alive:
            self._history.reached("an old shard runs on")

    def _renew(self, key: str, number: int) -> None:
        """``key`` gets file ``number`` when it begins next, which is now or when it ends."""
        runs = self._runs[key]
        self._file[key] = max(number, self._file.get(key, 0))
        if runs.current is None:
            if not runs.lives:
                self._start(key)
        elif self._rng.random() < 0.6:
            self._kill(runs)

    def _kill(self, runs: Runs) -> None:
        for process in list(runs.alive):
            self._scheduler.kill(process)
