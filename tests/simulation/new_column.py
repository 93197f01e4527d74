"""A column that a stage gets while it runs, and that the stage after it needs (scenario ``new
column``): who may use it when, and what must be refused.

The second version of the first stage adds the column, and changes nothing else. The second version
of the second stage reads it. Its operator waits until all replicas there have read what was made
without the column, as docs/operators.md says, or does not wait: then the process ends, and the
version before is put back until it may be used.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import boundary_records
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError, StageFunctionError
from anabranch.protocol.log.boundary_log import LogState
from simulation.workload import BASE_MS

if TYPE_CHECKING:
    from simulation.ends import Life
    from simulation.faults import Fault
    from simulation.history import History
    from simulation.options import Options, StageOptions
    from simulation.scheduler import Scheduler
    from simulation.striking import Runs
    from simulation.workload import Row

EXTRA: Final = "extra"
FIELD: Final = pa.field(EXTRA, pa.int64())
KIND: Final = "column used"
VERSION: Final = 2
"""Version of either stage that has to do with the column."""
_EXTRA_EACH: Final = 3
_LOOK_MS: Final = 200
_BUCKET: Final = re.compile(r"bucket (\d+) of \S+ has no column")


def adds(stage: StageOptions, version: int) -> bool:
    """Return whether that version of the stage's function makes the column."""
    return stage.adds_column and version >= VERSION


def uses(stage: StageOptions, version: int) -> bool:
    """Return whether that version of the stage's function reads the column."""
    return stage.uses_column and version >= VERSION


def array(rows: Sequence[Row]) -> pa.Array:
    """Return the column of ``rows``."""
    return pa.array([_due(row) for row in rows], FIELD.type)


def _due(row: Row) -> int:
    return row[1] * _EXTRA_EACH


def check_columns(schemas: Mapping[str, pa.Schema]) -> None:
    """Fail as Spark does where a function names a column that its input has not.

    Raises:
        StageFunctionError: an input has no such column.
    """
    for name, schema in schemas.items():
        if EXTRA not in schema.names:
            raise StageFunctionError(f"{name} has no column {EXTRA}")


def read(stream: str, bucket: int, table: pa.Table, rows: list[Row]) -> list[Row]:
    """Return ``rows`` of ``table`` as a function computes with them that uses the column: wrong
    ones where the column is wrong.

    Raises:
        StageFunctionError: the table was made without it.
    """
    if EXTRA not in table.column_names:
        message = f"bucket {bucket} of {stream} has no column {EXTRA}, which is used here"
        raise StageFunctionError(message)
    found = table.column(EXTRA).to_pylist()
    return [(*row[:3], row[3] + extra - _due(row)) for row, extra in zip(rows, found, strict=True)]


def is_refusal(error: Exception) -> bool:
    """Return whether a process ends because the column is missing."""
    is_of_kind = isinstance(error, ConfigurationError | StageFunctionError)
    return is_of_kind and f"has no column {EXTRA}" in str(error)


class Rollout:
    """Operator who gives the second version of its function to each replica of the second stage."""

    def __init__(
        self,
        options: Options,
        pipeline: Pipeline,
        log: LocalEventLog,
        scheduler: Scheduler,
        history: History,
        runs: Mapping[str, Runs],
        closed: Mapping[tuple[str, str], int],
        restart: Callable[[str], None],
    ) -> None:
        """Keep the arguments. ``closed``: last bucket that each writer of a stream has closed;
        ``restart``: ends the current process of a service, which begins again.
        """
        self._options, self._pipeline, self._log = options, pipeline, log
        self._scheduler, self._history, self._runs = scheduler, history, runs
        self._closed, self._restart = closed, restart
        self._using: set[str] = set()

    def use(self, fault: Fault) -> None:
        """Let a replica use the column: at once, or once that is right."""
        self._try(fault.target, is_early=bool(fault.value))

    def _try(self, key: str, *, is_early: bool) -> None:
        if not is_early and not self._is_right():
            self._scheduler.at(
                self._scheduler.now_ms + _LOOK_MS, lambda: self._try(key, is_early=False)
            )
            return
        self._using.add(key)
        self._runs[key].link.version = VERSION
        self._restart(key)

    @property
    def is_over(self) -> bool:
        """Return whether every replica of the second stage has its second version."""
        (stage,) = (each for each in self._options.stages if each.uses_column)
        return len(self._using) == stage.replicas

    def _is_right(self) -> bool:
        """Return whether all replicas of the second stage have gone on behind what was made without
        the column.
        """
        (stage,) = (each for each in self._options.stages if each.uses_column)
        since = self._since(stage.reads[0])
        if since is None:
            return False
        return all(
            self._closed.get((stage.name, str(replica)), 0) > since[1]
            for replica in range(stage.replicas)
        )

    def _since(self, stream: str) -> tuple[int, int] | None:
        """Return (virtual time, last bucket without the column) from which on only the second
        version of ``stream`` counts; None until then.
        """
        log_state = LogState(self._pipeline.stream_writers(stream))
        partition = self._log.partition(
            TopicPartition(self._pipeline.topic_names.boundaries(stream), 0)
        )
        for offset in range(partition.start, partition.end):
            record = partition.at(offset)
            with contextlib.suppress(RemoteProtocolError):  # nobody's, and read by nobody
                log_state.apply(offset, boundary_records.decode(record.value, record.headers))
            if log_state.version[0] >= VERSION:
                (maker,) = (each for each in self._options.stages if each.adds_column)
                # What the version before made for later buckets is without the column, too.
                return record.timestamp_ms - BASE_MS, log_state.version[1] + maker.horizon_buckets
        return None

    def refused(self, error: Exception, key: str, life: Life) -> str:
        """Put the version before back, of a process that has ended because the column is missing.
        Return what is wrong with that end; empty: it is due.
        """
        self._history.reached("missing column refused")
        self._using.discard(key)
        self._runs[key].link.version = VERSION - 1
        self._scheduler.at(
            self._scheduler.now_ms + _LOOK_MS, lambda: self._try(key, is_early=False)
        )
        (stage,) = (each for each in self._options.stages if each.uses_column)
        since = self._since(stage.reads[0])
        bucket = _BUCKET.search(str(error))
        if since is None:
            return ""
        if bucket is None:
            return (
                ""
                if life.begun_ms < since[0]
                else f"begun at {life.begun_ms} ms, the column is there since {since[0]} ms"
            )
        return "" if int(bucket[1]) <= since[1] else f"the column is there since bucket {since[1]}"
