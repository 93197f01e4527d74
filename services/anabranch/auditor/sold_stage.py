"""Logs of one sold stage, and the query that recomputes its buckets.

It writes only temporary files, which end with the process: after a crash a new process begins where
the logs are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.codec.blocks import stream_schema
from anabranch.pipeline.source_columns import source_schema
from anabranch.ports import QueryOutput
from anabranch.protocol.errors import DataMissing, RemoteProtocolError, StageFunctionError
from anabranch.protocol.federation.recheck import Recheck
from anabranch.protocol.log.boundary_log import contents
from anabranch.streams.gone_blocks import GoneBlocks
from anabranch.streams.range_query import RangeQuery
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.ports import Engine, LogReader, PreparedStage
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.federation.audit import Contents
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.protocol.stage.planner import TakenBucket
    from anabranch.streams.boundary_reader import BoundaryReader

RECHECK_MS_MAX: Final = 100_000
"""Timeout of one computation, in ms. Two of them and a start of Spark take less time than a process
may be busy before it counts as stuck (``process.frame``).
"""

_LABEL: Final = "audit"
"""Name used in place of a replica's id: nothing is written under it."""
_LOOK_MS: Final = 100
"""Timeout for checking the query, in ms."""


GONE: Final = "its input is gone"
"""Reason of an UnableError: input of the first bucket was deleted."""


class UnableError(Exception):
    """Raised when buckets cannot be recomputed. ``reason`` is one of few, so that it can be
    counted; GONE concerns only the first bucket.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class _Opened(NamedTuple):
    """Readers of the opened logs."""

    own: BoundaryReader
    inputs: dict[str, BoundaryReader]
    asking: LogReader
    """Reader by which it is found out which blocks were deleted."""


class SoldStageLogs:
    """Logs of one stage. Not thread-safe."""

    def __init__(self, context: ServiceContext, stage: str, engine: Callable[[], Engine]) -> None:
        """Prepare the logs of the stage and of what it reads; no broker is contacted yet.
        ``engine``: called when there is something to compute.
        """
        self._context = context
        self._pipeline = context.pipeline
        self._stage = stage
        self._engine = engine
        self._prepared: PreparedStage | None = None
        self._numbers = count()
        self._closing = ExitStack()
        self._opened: _Opened | None = None

    def _open(self) -> _Opened:
        """Return the logs of the stage and of what it reads. The first call opens them and reads
        them to their ends.
        """
        if self._opened is None:
            try:
                own = self._open_log(self._stage)
                inputs = {name: self._open_log(name) for name in self._pipeline.inputs(self._stage)}
                asking = self._context.log.reader(committed=False, headers=False)
                self._closing.callback(asking.close)
            except BaseException:
                self._closing.close()
                raise
            self._opened = _Opened(own, inputs, asking)
        return self._opened

    def _open_log(self, stream: str) -> BoundaryReader:
        """Open the log of a stream and read it to its end."""
        reader = open_stream(self._context.log, self._pipeline, stream, needs_start=True)
        self._closing.callback(reader.close)
        reader.read_to_end()
        return reader

    @property
    def log_state(self) -> LogState:
        """State of the stage's own log."""
        return self._open().own.log_state

    def poll(self) -> None:
        """Read the available records, without waiting. The inputs come last, so that they cover
        what the stage has closed.

        Raises:
            Unavailable: a log does not exist, or the broker does not answer.
            DataMissing: records of a log are lost. New logs of the stage start afresh.
        """
        opened = self._open()
        for reader in (opened.own, *opened.inputs.values()):
            reader.poll(0)

    def forget(self, upto: int, horizon: int) -> None:
        """Forget the stage's buckets up to ``upto``, which will not be recomputed, and
        their input.
        """
        opened = self._open()
        opened.own.log_state.forget(upto)
        for reader in opened.inputs.values():
            reader.log_state.forget(max(0, upto - 2 * horizon - 1))

    def claimed(self, buckets: Sequence[int]) -> dict[int, Contents]:
        """Return the contents that the log states for those of ``buckets`` that are not empty."""
        stable = self.log_state.stable(buckets[0], buckets[-1])
        return {bucket: contents(parts) for bucket, _, parts in stable if bucket in buckets}

    def computed(self, buckets: Sequence[int], before: int) -> dict[int, Contents] | None:
        """Recompute the contents of ``buckets`` by a query that begins ``before`` buckets earlier.
        Return None if the inputs are not read far enough yet, or the process is stopping.

        Raises:
            UnableError: the buckets cannot be recomputed.
            Unavailable: the broker does not answer.
            EngineEnded: the engine has ended.
        """
        log_states = {name: reader.log_state for name, reader in self._open().inputs.items()}
        prepared = self._prepared = self._prepared or self._build()
        if prepared is None:
            return None
        engine = self._engine()
        recheck = Recheck(buckets, before, log_states, prepared.traits, rows_max=engine.rows_max)
        if not recheck.is_known:
            return None
        lacks = recheck.lacks(self._first_gone())
        if lacks:
            raise UnableError(GONE, lacks)
        try:
            return recheck.computed() if self._run(prepared, recheck) else None
        except DataMissing as error:
            raise UnableError(GONE, str(error)) from error
        except StageFunctionError as error:
            self._drop_prepared()
            raise UnableError("its function failed", str(error)) from error
        finally:
            engine.check()

    def _build(self) -> PreparedStage | None:
        """Build the stage's query; None if an input has no columns yet."""
        schemas: dict[str, pa.Schema] = {}
        for name in self._pipeline.stages[self._stage].reads:
            stream = self._pipeline.input_streams(name)[0]
            if stream not in self._pipeline.stages:
                schemas[name] = source_schema(self._pipeline, name)
                continue
            text = self._open().inputs[stream].log_state.schema()
            if not text:
                return None
            try:
                schemas[name] = stream_schema(text)
            except RemoteProtocolError as error:
                raise UnableError("its input's columns cannot be used", str(error)) from error
        return self._engine().prepare(f"{self._stage}.{_LABEL}", self._stage, schemas)

    def _first_gone(self) -> Callable[[str, Iterable[TakenBucket]], int | None]:
        """Return a function that finds the first bucket of a stream whose blocks were deleted."""
        names, opened = self._pipeline.topic_names, self._open()
        gone_blocks = {
            stream: GoneBlocks(opened.asking, partial(names.blocks, stream))
            for stream in opened.inputs
        }

        def first(stream: str, buckets: Iterable[TakenBucket]) -> int | None:
            """Return the first of ``buckets`` whose blocks were deleted; None if none."""
            gone = gone_blocks[stream]
            return next(
                (bucket for bucket, writer, parts in buckets if gone.is_gone(writer, parts)), None
            )

        return first

    def _run(self, prepared: PreparedStage, recheck: Recheck) -> bool:
        """Run the query to its end. Return False if the process is stopping.

        Raises:
            UnableError: the query took too long.
        """
        clock, stopping = self._context.clock, self._context.stopping
        name = f"recheck-{next(self._numbers)}"
        query = RangeQuery(name, recheck, self._pipeline.bucket_ms, recheck.wanted)
        output = QueryOutput(_LABEL, -1, recheck.wanted, is_written=False)
        running = prepared.start(name, query, output, None, lambda _: None)
        try:
            deadline_ms = clock.monotonic_ms() + RECHECK_MS_MAX
            while not query.finished.is_set() and not stopping.is_set():
                running.ended(_LOOK_MS)
                if clock.monotonic_ms() > deadline_ms:
                    text = f"not computed within {RECHECK_MS_MAX} ms"
                    raise UnableError("it took too long", text)
        finally:
            running.stop()
        return query.finished.is_set()

    def _drop_prepared(self) -> None:
        """Close the prepared query. The next one is built anew, since the columns of an input may
        have changed.
        """
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None

    def close(self) -> None:
        """Close the query and the logs. Idempotent."""
        self._drop_prepared()
        self._closing.close()
