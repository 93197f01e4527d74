"""Recomputation of deleted blocks on request: a replica's side of ASK
(``protocol.stage.recomputation``).

If this replica's own version of a requested bucket still has its blocks, its record names them
again; a separate query recomputes the other buckets, beside the replica's own queries in the same
engine. If blocks of its input are gone too, as after the loss of a disk that had both, the replica
cannot serve the request, and requests those of its input in turn: the reader repeats its request,
which can be served once they exist.

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
from anabranch.protocol.errors import DataMissing, Fenced, Unavailable
from anabranch.protocol.limits import ASK_BUCKETS_MAX, RECOMPUTE_MS_MAX
from anabranch.protocol.log.boundary_log import LogState
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
    split_retained,
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
        self._answers: list[AskReply | Ask] = []
        """Records to write: replies, and requests for blocks of inputs."""
        self._gone_inputs: dict[str, tuple[int, int]] = {}
        """Range of buckets to request of each input for lack of whose blocks the reader's request
        cannot be served: from the first bucket whose blocks are gone.
        """

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
        # A record that the topic did not take stays queued: the next round sends it again.
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
        self._gone_inputs = {}
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
        self._answers += [self._answer(ask, outcome, reason), *self._requests()]

    def _requests(self) -> list[Ask]:
        """Return the requests for the blocks of inputs for lack of which this replica could not
        serve its reader's request. They are not repeated here: the reader repeats its own.
        """
        own_streams = {*self._pipeline.stages, *self._pipeline.source_streams()}
        reader, now_ms = f"processing.{self._context.settings.name}", self._context.clock.now_ms()
        return [
            Ask(stream, reader, now_ms, first, last, now_ms)
            for stream, (first, last) in self._gone_inputs.items()
            if stream in own_streams  # requests do not cross pipelines
        ]

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
            parts, rest = split_retained(log_state, own_replica.replica, wanted, retained.is_gone)
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

    def _recompute_blocks(
        self, wanted: list[TakenBucket], points: CleanPoints, upto: int
    ) -> Recomputation:
        """Run the query that recomputes ``wanted``, a second time without skipping earlier input if
        the first run yields other rows.
        """
        own_replica = self._own
        inputs: dict[str, BoundaryReader] = {}
        asking: dict[str, LogReader] = {}
        heads: dict[str, BlockHeads] = {}
        try:
            for stream in self._pipeline.inputs(own_replica.stage):
                new_state = input_state(self._pipeline, stream, inputs)
                inputs[stream] = self._follow(stream, new_state=new_state)
                log = self._context.log_of(stream)
                asking[stream] = log.reader(committed=False, headers=False)
                heads[stream] = BlockHeads(log, self._context.clock)
            gone_blocks = {
                stream: _InputBlocks(reader, partial(self._names.blocks, stream), heads[stream])
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
                if self._requests():  # what comes before may tell that no row differs
                    raise
                return recomputation
            return without_skipping
        finally:
            for reader in inputs.values():
                reader.close()
            for asks in asking.values():
                asks.close()
            for held in heads.values():
                held.close()

    def _run(
        self,
        recomputation: Recomputation,
        gone_blocks: Mapping[str, _InputBlocks],
        points: CleanPoints,
        upto: int,
    ) -> None:
        """Run the query of ``recomputation`` to its end.

        Raises:
            _UnableError: the query cannot start, lacks blocks of an input, or did not finish in
                time.
        """
        own_replica = self._own
        name = timeline_name(own_replica.epoch, _TIMELINE_NUMBER)
        try:
            after = self._begin(name, recomputation, gone_blocks, points, upto)
            query = RangeQuery(
                name,
                recomputation,
                self._pipeline.bucket_ms,
                recomputation.wanted,
                threads=self._context.threads,
            )
            try:
                own_replica.run(query)
            except DataMissing as error:
                # Bounds do not show blocks that were lost from a partition that has grown since.
                missing = recomputation.lacks(after, self._finder(gone_blocks, proves=True))
                if missing:
                    raise _UnableError(missing) from error
                raise
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
        gone_blocks: Mapping[str, _InputBlocks],
        points: CleanPoints,
        upto: int,
    ) -> int:
        """Create the directory ``name`` from which the query starts: empty, or a checkpoint's copy.
        Return the bucket after which it starts.

        Raises:
            _UnableError: no checkpoint, nor the log's beginning, can be started from.
        """
        own_replica, after = self._own, recomputation.begins_after
        gone = self._finder(gone_blocks)

        def perform(step: Step) -> Answer:
            """Perform a step of the query's start."""
            nonlocal after
            if isinstance(step, FindMissing):
                stands = own_replica.disk.bucket(name, step.batch) if step.batch >= 0 else None
                after = recomputation.begins_after if stands is None else stands
                return recomputation.lacks(after, gone)
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
        return after

    def _finder(
        self, gone_blocks: Mapping[str, _InputBlocks], *, proves: bool = False
    ) -> Callable[[str, Iterable[TakenBucket]], int | None]:
        """Return the function from an input and buckets of it to the first of them whose blocks are
        gone, None if none is. It notes the range from there on to request. ``proves``: it reads the
        blocks, besides comparing their offsets with the bounds of their partitions.
        """

        def find(stream: str, buckets: Iterable[TakenBucket]) -> int | None:
            blocks, buckets = gone_blocks[stream], [*buckets]
            finder = blocks.proven if proves else blocks.within_bounds
            for number, (bucket, writer, parts) in enumerate(buckets):
                if finder.is_gone(writer, parts):
                    last, _, _ = buckets[number:][:ASK_BUCKETS_MAX][-1]
                    self._gone_inputs[stream] = bucket, last
                    return bucket
            return None

        return find


class _InputBlocks:
    """Finders of an input's blocks that are gone."""

    def __init__(
        self, reader: LogReader, topic_of: Callable[[str], str], heads: BlockHeads
    ) -> None:
        self.within_bounds = GoneBlocks(reader, topic_of)
        """Finder by the bounds of partitions alone: costs nothing for each bucket."""
        self.proven = GoneBlocks(reader, topic_of, heads)
        """Finder that also reads one block of each part."""
