"""A replica's side of ASK (``protocol.stage.recomputation``): serves readers whose blocks
are gone.

What is still there of a wanted bucket, in the own version of it, is named again; the rest is made
again by a query of its own, which the engine runs beside the others.

What holds after a crash at any point: blocks that nobody names, and a directory that the next
process removes. The reader asks again.
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
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.gone_blocks import GoneBlocks
from anabranch.runtime.heartbeats import ControlWriter
from anabranch.runtime.range_query import RangeQuery
from anabranch.runtime.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.ports import Checkpoints, LogReader, Thread
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.protocol.stage.planner import PlanTraits
    from anabranch.runtime.boundary_writer import BoundaryWriter
    from anabranch.runtime.service import ServiceContext

# Of the directory in which buckets are made again: no fork comes to it, and the next process
# removes it with its epoch's.
_TIMELINE_NUMBER: Final = 999_999


class _UnableError(Exception):
    """Why the range cannot be made again."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a replica is, for making its buckets again."""

    stage: str
    replica: str
    traits: PlanTraits
    fingerprint: str
    epoch: int
    disk: Checkpoints
    boundary: BoundaryWriter
    log_lock: AbstractContextManager[object]
    """Guards ``boundary``."""
    run: Callable[[RangeQuery], None]
    """Runs a query in its directory until it is finished, RECOMPUTE_MS_MAX at most; raises what
    it died of.
    """


class Recomputing:
    """Serves requests, one at a time, in a thread of its own. ``heard`` and ``step`` belong
    to the service's thread.
    """

    def __init__(self, context: ServiceContext, made: Made) -> None:
        """Nothing is contacted before there is a request."""
        pipeline = context.pipeline
        self._context = context
        self._made = made
        self._pipeline = pipeline
        self._names = pipeline.topic_names
        self._writers = pipeline.stream_writers(made.stage)
        self._replies = RecomputeReplies(made.stage, made.replica, self._writers)
        self._control = ControlWriter(
            context.log, self._names.control("processing", context.settings.name), context.clock
        )
        self._thread: Thread | None = None
        self._answers: list[AskReply] = []

    @property
    def busy(self) -> bool:
        """Whether buckets are being made again."""
        return self._thread is not None

    def heard(self, entry: ControlRecord) -> None:
        """A record of the control topic."""
        if isinstance(entry, (Ask, AskReply)):
            self._replies.heard(entry, self._context.clock.monotonic_ms())

    def step(self, *, may_begin: bool) -> None:
        """Take a request whose turn it is, send answers. ``may_begin``: the replica has room
        for another query.
        """
        if self._thread is not None:
            if self._thread.is_alive():
                self._say_again()
                return
            self._thread = None
            self._replies.done()
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
        """Idempotent. The engine ends by itself when the service stops."""
        if self._thread is not None:
            self._thread.join(RECOMPUTE_MS_MAX / 1000)
        self._control.close()

    def _say_again(self) -> None:
        ask = self._replies.to_say_again(self._context.clock.monotonic_ms())
        if ask is not None:
            self._control.write([self._answer(ask, AskOutcome.TAKEN)])

    def _answer(self, ask: Ask, outcome: AskOutcome, reason: str = "") -> AskReply:
        now_ms = self._context.clock.now_ms()
        return AskReply(
            self._made.stage, self._made.replica, ask.reader, ask.number, outcome, reason, now_ms
        )

    def _work(self, ask: Ask) -> None:
        log = self._context.logger
        what = {
            "stage": self._made.stage,
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
            return  # the service's own thread comes to know it too
        except Exception as error:  # noqa: BLE001 - whatever the query died of: the stable one must not die of it
            outcome, reason = AskOutcome.UNABLE, f"{type(error).__name__}: {error}"
        (log.error if outcome is AskOutcome.DIFFERENT else log.info)(
            "recomputed", outcome=outcome.value, reason=reason, **what
        )
        self._answers.append(self._answer(ask, outcome, reason))

    def recompute(self, ask: Ask) -> tuple[AskOutcome, str]:
        """See to it that what is gone of the range is named in the boundary log.

        Raises:
            _UnableError: this replica cannot make it again.
            Fenced: this process is not the writer any more.
        """
        made, reader = self._made, self._context.log.reader(committed=False, headers=False)
        points = CleanPoints([made.replica])
        own = self._follow(made.stage, points)
        try:
            log_state = own.log_state
            if ask.bucket_first <= log_state.forgotten:
                raise _UnableError(
                    f"buckets of {made.stage} up to {log_state.forgotten} are trimmed, and its log"
                    " describes them no more"
                )
            gone_blocks = GoneBlocks(reader, partial(self._names.blocks, made.stage))
            stable = (
                log_state.stable(ask.bucket_first, min(ask.bucket_last, log_state.upto))
                if ask.bucket_first <= log_state.upto
                else []
            )
            wanted = self._gone(gone_blocks, stable)
            if not wanted:
                return AskOutcome.RECOMPUTED, "nothing of it is gone"
            parts, rest = self._still_there(log_state, gone_blocks, wanted)
            if rest:
                recomputation = self._make_again(rest, points, log_state.upto)
                different = recomputation.different()
                if different is not None:
                    return (
                        AskOutcome.DIFFERENT,
                        f"bucket {different} has other rows now, so nothing of the range is used",
                    )
                parts += recomputation.parts()
            for record in recomputed_records(made.replica, made.epoch, parts):
                with made.log_lock:
                    made.boundary.append_other(record)
            return AskOutcome.RECOMPUTED, ""
        finally:
            own.close()
            reader.close()

    def _follow(self, stream: str, points: CleanPoints | None = None) -> BoundaryReader:
        """All of a stream's log: what the replica follows has forgotten the buckets that it
        has passed.
        """
        reader = open_stream(
            self._context.log_of(stream),
            self._pipeline,
            stream,
            listener=lambda _offset, entry, outcome: (
                None if points is None else points.seen(reader.log_state, entry, outcome)
            ),
        )
        try:
            reader.read_to_end()
        except BaseException:
            reader.close()
            raise
        return reader

    def _gone(self, gone_blocks: GoneBlocks, stable: list[TakenBucket]) -> list[TakenBucket]:
        """Those of ``stable`` whose blocks are gone. Where this replica may not look at a
        peer's topic, the request is believed.
        """
        wanted, unseen = list[TakenBucket](), set[str]()
        for bucket, writer, parts in stable:
            try:
                is_gone = writer in unseen or gone_blocks.is_gone(writer, parts)
            except Unavailable:
                if writer == self._made.replica:
                    raise
                unseen.add(writer)
                is_gone = True
            if is_gone:
                wanted.append((bucket, writer, parts))
        return wanted[:ASK_BUCKETS_MAX]

    def _still_there(
        self, log_state: LogState, gone_blocks: GoneBlocks, wanted: list[TakenBucket]
    ) -> tuple[tuple[Part, ...], list[TakenBucket]]:
        """(parts of the own version of wanted buckets that still is there, the other buckets)."""
        parts: list[Part] = []
        rest: list[TakenBucket] = []
        for bucket, writer, theirs in wanted:
            own = dict(log_state.alike(bucket, writer, theirs)).get(self._made.replica)
            if own is None or gone_blocks.is_gone(self._made.replica, own):
                rest.append((bucket, writer, theirs))
            else:
                parts += own
        return tuple(parts), rest

    def _make_again(
        self, wanted: list[TakenBucket], points: CleanPoints, upto: int
    ) -> Recomputation:
        """Run the query that makes ``wanted`` again."""
        made = self._made
        inputs: dict[str, BoundaryReader] = {}
        asking: dict[str, LogReader] = {}
        try:
            for stream in self._pipeline.inputs(made.stage):
                inputs[stream] = self._follow(stream)
                log = self._context.log_of(stream)
                asking[stream] = log.reader(committed=False, headers=False)
            gone_blocks = {
                stream: GoneBlocks(reader, partial(self._names.blocks, stream))
                for stream, reader in asking.items()
            }
            log_states = {stream: reader.log_state for stream, reader in inputs.items()}
            recomputation = Recomputation(wanted, log_states, made.traits)
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
        """Run a query to its end.

        Raises:
            _UnableError: it cannot begin, or does not come to its end.
        """
        made = self._made
        name = timeline_name(made.epoch, _TIMELINE_NUMBER)
        try:
            self._begin(name, recomputation, gone_blocks, points, upto)
            query = RangeQuery(
                name,
                recomputation,
                self._pipeline.bucket_ms,
                recomputation.wanted,
                threads=self._context.threads,
            )
            made.run(query)
        finally:
            made.disk.remove(name)
        if not query.finished.is_set():
            raise _UnableError(
                f"making buckets {recomputation.first}..{recomputation.last} again took too"
                " long, or was stopped"
            )

    def _begin(
        self,
        name: str,
        recomputation: Recomputation,
        gone_blocks: Mapping[str, GoneBlocks],
        points: CleanPoints,
        upto: int,
    ) -> None:
        """Make the directory ``name`` in which the query begins.

        Raises:
            _UnableError: there is none from which it could.
        """
        made = self._made

        def gone(stream: str, buckets: Iterable[TakenBucket]) -> int | None:
            return next(
                (
                    bucket
                    for bucket, writer, parts in buckets
                    if gone_blocks[stream].is_gone(writer, parts)
                ),
                None,
            )

        def perform(step: Step) -> Answer:
            if isinstance(step, FindMissing):
                stands = made.disk.bucket(name, step.batch) if step.batch >= 0 else None
                return recomputation.lacks(
                    recomputation.begins_after if stands is None else stands, gone
                )
            assert isinstance(step, DiskStep)  # noqa: S101 - all others of a beginning are
            return on_disk(made.disk, step)

        missing = carry_out(
            recomputation.beginning(
                name, lambda tip: points.base(made.replica, tip, made.fingerprint, upto)
            ),
            perform,
        )
        if missing:
            raise _UnableError(missing)
