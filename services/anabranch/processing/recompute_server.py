"""Recomputation of deleted blocks on request: a replica's side of ASK
(``protocol.stage.recomputation``).

If this replica's own version of a requested bucket still has its blocks, its record names them
again; a separate query recomputes the other buckets, beside the replica's own queries in the same
engine.

A crash at any point leaves only blocks that no record names, and a directory that the next process
removes. The reader repeats its request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.processing.disk_steps import on_disk
from anabranch.protocol.control.records import Ask, AskOutcome, AskReply, ControlRecord
from anabranch.protocol.errors import Fenced, Unavailable
from anabranch.protocol.limits import ASK_BUCKETS_MAX, RECOMPUTE_MS_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import Part
from anabranch.protocol.log.timeline import (
    Answer,
    DiskStep,
    FindMissing,
    Step,
    carry_out,
    timeline_name,
)
from anabranch.protocol.stage.planner import TakenBucket
from anabranch.protocol.stage.recomputation import (
    Recomputation,
    RecomputeReplies,
    recomputed_records,
)
from anabranch.protocol.stage.recovery import CleanPoints
from anabranch.streams.block_heads import BlockHeads
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.gone_blocks import GoneBlocks
from anabranch.streams.heartbeats import ControlWriter
from anabranch.streams.range_query import RangeQuery
from anabranch.streams.stream_logs import input_state, open_stream

if TYPE_CHECKING:
    from anabranch.ports import Checkpoints, LogReader, Thread
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.stage.planner import PlanTraits
    from anabranch.streams.boundary_writer import BoundaryWriter

_TIMELINE_NUMBER: Final = 999_999
"""Timeline number of the recomputing query's directory. No process forks that often, and the next
process removes the directory with the others of its epoch.
"""


class _UnableError(Exception):
    """Raised when this replica cannot recompute the requested range. The text is the reply's
    reason.
    """


@dataclass(frozen=True, slots=True)
class RecomputingReplica:
    """Replica whose buckets are recomputed, with what a query for that needs."""

    stage: str
    replica: str
    traits: PlanTraits
    fingerprint: str
    epoch: int
    disk: Checkpoints
    boundary: BoundaryWriter
    log_lock: AbstractContextManager[object]
    """Lock of ``boundary``."""
    run: Callable[[RangeQuery], None]
    """Function that runs a query in its directory until it is finished, at most RECOMPUTE_MS_MAX.
    It raises the error that ended the query.
    """


class RecomputeServer:
    """Server of recompute requests, one at a time, in a thread of its own. The replica's thread
    calls ``receive`` and ``step``.
    """

    def __init__(self, context: ServiceContext, own_replica: RecomputingReplica) -> None:
        """Prepare the server; no broker is contacted before a request."""
        pipeline = context.pipeline
        self._context = context
        self._own = own_replica
        self._pipeline = pipeline
        self._names = pipeline.topic_names
        self._writers = pipeline.stream_writers(own_replica.stage)
        self._replies = RecomputeReplies(own_replica.stage, own_replica.replica, self._writers)
        self._control = ControlWriter(
            context.log, self._names.control("processing", context.settings.name), context.clock
        )
        self._thread: Thread | None = None
        self._answers: list[AskReply] = []

    @property
    def busy(self) -> bool:
        """Whether a range is being recomputed."""
        return self._thread is not None

    def receive(self, entry: ControlRecord) -> None:
        """Process a record of a control topic."""
        if isinstance(entry, (Ask, AskReply)):
            self._replies.receive(entry, self._context.clock.monotonic_ms())

    def step(self, *, may_begin: bool) -> None:
        """Send pending replies, and start the next request that is due. ``may_begin``: whether the
        replica has room for another query.
        """
        if self._thread is not None:
            if self._thread.is_alive():
                self._repeat_taken()
                return
            self._thread = None
            self._replies.done()
        # A reply that the topic did not take stays queued: the next round sends it again.
        while self._answers and self._control.write([self._answers[0]]):
            del self._answers[0]
        if self._answers or not may_begin:
            return
        ask = self._replies.due(self._context.clock.monotonic_ms())
        if ask is not None:
            self._control.write([self._answer(ask, AskOutcome.TAKEN)])
            name = f"recompute {ask.bucket_first}..{ask.bucket_last}"
            self._thread = self._context.threads.begin(name, partial(self._work, ask))

    def close(self) -> None:
        """Wait for a running recomputation and close the control topic. Idempotent. The service's
        stop ends its query.
        """
        if self._thread is not None:
            self._thread.join(RECOMPUTE_MS_MAX / 1000)
        self._control.close()

    def _repeat_taken(self) -> None:
        """Repeat the reply that this replica works on the request, if that is due."""
        ask = self._replies.to_say_again(self._context.clock.monotonic_ms())
        if ask is not None:
            self._control.write([self._answer(ask, AskOutcome.TAKEN)])

    def _answer(self, ask: Ask, outcome: AskOutcome, reason: str = "") -> AskReply:
        """Build a reply to ``ask``."""
        now_ms = self._context.clock.now_ms()
        return AskReply(
            self._own.stage, self._own.replica, ask.reader, ask.number, outcome, reason, now_ms
        )

    def _work(self, ask: Ask) -> None:
        """Serve ``ask``, as the body of the thread."""
        log = self._context.logger
        what = {
            "stage": self._own.stage,
            "first": ask.bucket_first,
            "last": ask.bucket_last,
            "reader": ask.reader,
        }
        log.info("recomputing", **what)
        try:
            outcome, reason = self.recompute(ask)
        except _UnableError as error:
            outcome, reason = AskOutcome.UNABLE, str(error)
        except Fenced:
            return  # the replica's own thread finds out as well and ends the replica
        except Exception as error:  # noqa: BLE001 - an error here must not end the stable query
            outcome, reason = AskOutcome.UNABLE, f"{type(error).__name__}: {error}"
        (log.error if outcome is AskOutcome.DIFFERENT else log.info)(
            "recomputed", outcome=outcome.value, reason=reason, **what
        )
        self._answers.append(self._answer(ask, outcome, reason))

    def recompute(self, ask: Ask) -> tuple[AskOutcome, str]:
        """Restore the missing blocks of the requested range and name them in the boundary log.
        Return the outcome and, unless all is restored, the reason.

        Raises:
            _UnableError: this replica cannot recompute the range.
            Fenced: this process is not the writer any more.
        """
        own_replica, log = self._own, self._context.log
        reader = log.reader(committed=False, headers=False)
        heads = BlockHeads(log, self._context.clock)
        points = CleanPoints([own_replica.replica])
        own = self._follow(own_replica.stage, points)
        try:
            log_state = own.log_state
            if ask.bucket_first <= log_state.forgotten:
                raise _UnableError(
                    f"buckets of {own_replica.stage} up to {log_state.forgotten} are trimmed, and"
                    " its log no longer describes them"
                )
            topic_of = partial(self._names.blocks, own_replica.stage)
            gone_blocks = GoneBlocks(reader, topic_of, heads, unread_are_gone=True)
            retained = GoneBlocks(reader, topic_of, heads, unread_are_gone=False)
            stable = (
                log_state.stable(ask.bucket_first, min(ask.bucket_last, log_state.upto))
                if ask.bucket_first <= log_state.upto
                else []
            )
            wanted = self._gone(gone_blocks, stable)
            if not wanted:
                return AskOutcome.RECOMPUTED, "no blocks of the range are missing"
            parts, rest = self._split_retained(log_state, retained, wanted)
            if rest:
                recomputation = self._recompute_blocks(rest, points, log_state.upto)
                different = recomputation.different()
                if different is not None:
                    return (
                        AskOutcome.DIFFERENT,
                        f"bucket {different} has other rows now, so nothing of the range is used",
                    )
                parts += recomputation.parts()
            for record in recomputed_records(own_replica.replica, own_replica.epoch, parts):
                with own_replica.log_lock:
                    own_replica.boundary.append_other(record)
            return AskOutcome.RECOMPUTED, ""
        finally:
            own.close()
            heads.close()
            reader.close()

    def _follow(
        self,
        stream: str,
        points: CleanPoints | None = None,
        new_state: Callable[[Iterable[str]], LogState] = LogState,
    ) -> BoundaryReader:
        """Open a reader of a stream and read its whole log: the replica's own readers have
        forgotten the buckets that they have passed.
        """
        reader = open_stream(
            self._context.log_of(stream),
            self._pipeline,
            stream,
            listener=lambda _offset, entry, outcome: (
                None if points is None else points.seen(reader.log_state, entry, outcome)
            ),
            new_state=new_state,
        )
        try:
            reader.read_to_end()
        except BaseException:
            reader.close()
            raise
        return reader

    def _gone(self, gone_blocks: GoneBlocks, stable: list[TakenBucket]) -> list[TakenBucket]:
        """Return the buckets of ``stable`` whose blocks are missing, at most ASK_BUCKETS_MAX.
        Blocks that this replica may not read, of a peer or its own, count as missing, as the
        request says.
        """
        wanted, unseen = list[TakenBucket](), set[str]()
        for bucket, writer, parts in stable:
            try:
                is_gone = writer in unseen or gone_blocks.is_gone(writer, parts)
            except Unavailable:
                if writer == self._own.replica:
                    raise
                unseen.add(writer)
                is_gone = True
            if is_gone:
                wanted.append((bucket, writer, parts))
        return wanted[:ASK_BUCKETS_MAX]

    def _split_retained(
        self, log_state: LogState, retained: GoneBlocks, wanted: list[TakenBucket]
    ) -> tuple[tuple[Part, ...], list[TakenBucket]]:
        """Split the ``wanted`` buckets: return the parts of this replica's own equal version that
        still has its blocks, and the buckets without one.
        """
        parts: list[Part] = []
        rest: list[TakenBucket] = []
        for bucket, writer, theirs in wanted:
            own = dict(log_state.alike(bucket, writer, theirs)).get(self._own.replica)
            if own is None or retained.is_gone(self._own.replica, own):
                rest.append((bucket, writer, theirs))
            else:
                parts += own
        return tuple(parts), rest

    def _recompute_blocks(
        self, wanted: list[TakenBucket], points: CleanPoints, upto: int
    ) -> Recomputation:
        """Run the query that recomputes ``wanted``, a second time without skipping earlier input if
        the first run yields other rows.
        """
        own_replica = self._own
        inputs: dict[str, BoundaryReader] = {}
        asking: dict[str, LogReader] = {}
        try:
            for stream in self._pipeline.inputs(own_replica.stage):
                new_state = input_state(self._pipeline, stream, inputs)
                inputs[stream] = self._follow(stream, new_state=new_state)
                log = self._context.log_of(stream)
                asking[stream] = log.reader(committed=False, headers=False)
            gone_blocks = {
                stream: GoneBlocks(reader, partial(self._names.blocks, stream))
                for stream, reader in asking.items()
            }
            log_states = {stream: reader.log_state for stream, reader in inputs.items()}
            recomputation = Recomputation(wanted, log_states, own_replica.traits)
            self._run(recomputation, gone_blocks, points, upto)
            without_skipping = recomputation.without_skipping()
            if without_skipping is None:
                return recomputation
            try:
                self._run(without_skipping, gone_blocks, points, upto)
            except _UnableError as error:
                self._context.logger.info("not_recomputed_from_before", reason=str(error))
                return recomputation
            return without_skipping
        finally:
            for reader in inputs.values():
                reader.close()
            for asks in asking.values():
                asks.close()

    def _run(
        self,
        recomputation: Recomputation,
        gone_blocks: Mapping[str, GoneBlocks],
        points: CleanPoints,
        upto: int,
    ) -> None:
        """Run the query of ``recomputation`` to its end.

        Raises:
            _UnableError: the query cannot start, or did not finish in time.
        """
        own_replica = self._own
        name = timeline_name(own_replica.epoch, _TIMELINE_NUMBER)
        try:
            self._begin(name, recomputation, gone_blocks, points, upto)
            query = RangeQuery(
                name,
                recomputation,
                self._pipeline.bucket_ms,
                recomputation.wanted,
                threads=self._context.threads,
            )
            own_replica.run(query)
        finally:
            own_replica.disk.remove(name)
        if not query.finished.is_set():
            raise _UnableError(
                f"recomputing buckets {recomputation.first}..{recomputation.last} took too long, or"
                " was stopped"
            )

    def _begin(
        self,
        name: str,
        recomputation: Recomputation,
        gone_blocks: Mapping[str, GoneBlocks],
        points: CleanPoints,
        upto: int,
    ) -> None:
        """Create the directory ``name`` from which the query starts: empty, or a checkpoint's copy.

        Raises:
            _UnableError: no checkpoint, nor the log's beginning, can be started from.
        """
        own_replica = self._own

        def gone(stream: str, buckets: Iterable[TakenBucket]) -> int | None:
            """Return the first of ``buckets`` whose blocks are missing; None if none is."""
            return next(
                (
                    bucket
                    for bucket, writer, parts in buckets
                    if gone_blocks[stream].is_gone(writer, parts)
                ),
                None,
            )

        def perform(step: Step) -> Answer:
            """Perform a step of the query's start."""
            if isinstance(step, FindMissing):
                stands = own_replica.disk.bucket(name, step.batch) if step.batch >= 0 else None
                return recomputation.lacks(
                    recomputation.begins_after if stands is None else stands, gone
                )
            assert isinstance(step, DiskStep)  # noqa: S101 - a start has no other steps
            return on_disk(own_replica.disk, step)

        missing = carry_out(
            recomputation.beginning(
                name,
                lambda tip: points.base(own_replica.replica, tip, own_replica.fingerprint, upto),
            ),
            perform,
        )
        if missing:
            raise _UnableError(missing)
