"""Meter of the streams that are paid for: reads the boundary log of each, and writes into the
contract's ledger what came in time (``protocol.federation.arrivals``). A contract has a stream for
each plan, and the stream of a period's plan meters the period.

It only reads logs after the fact, so no process waits for it. It keeps nothing: a new process reads
the logs again and computes the same figures. It does not repeat a figure that the ledger has, and a
figure that it writes twice counts once. If the records of a period were deleted before, this side
has no figure for it, and the other side's counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.protocol.errors import ConfigurationError, DataMissing, Unavailable
from anabranch.protocol.federation.arrivals import Arrivals, Arrived
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.stage_moves import node_of
from anabranch.protocol.federation.stream_contracts import StreamContract, StreamTerms
from anabranch.protocol.federation.stream_ledger import StreamLedger, StreamMetered
from anabranch.protocol.federation.stream_signers import OwnedStream
from anabranch.streams.stream_logs import open_dated, open_published

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.pipeline.topic_names import FederationTopics
    from anabranch.ports import EventLog
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.federation.contract_log import StreamLog
    from anabranch.protocol.log.boundary_log import LogState, Outcome
    from anabranch.protocol.log.records import LogEntry
    from anabranch.streams.boundary_reader import BoundaryReader

SEEN_MS: Final = 2_000
"""Time, in ms, after which the last record of a period that could be in time has been read, if
there is one: longer than the difference between the clocks of this process and the log.
"""

_AGAIN_MS: Final = 10_000
"""Time, in ms, until a log that could not be read is tried again."""

_AT_ONCE: Final = 20
"""Maximum number of periods of one contract that one step meters, so that other contracts get their
turn.
"""

_SKIPS_MAX: Final = 100_000
"""Maximum number of uncharged periods that one step skips."""

Write = Callable[[StreamMetered], bool]
"""Function that writes an entry, unless it did a moment ago, and returns whether it wrote it."""


class Followed(NamedTuple):
    """Key of a followed stream: a plan of a contract."""

    contract: str
    plan: int = 0

    def __str__(self) -> str:
        return f"{self.contract}, plan {self.plan}" if self.plan else self.contract

    def counts_in(self, ledger: StreamLedger, period: int) -> bool:
        """Return whether a period is charged by this stream."""
        return ledger.terms(period) is not None and ledger.plan(period) == self.plan


def writers_of(pipeline: Pipeline, plan: StreamTerms) -> list[str] | str:
    """Return the replicas of a plan's stream by this pipeline file, its sender's or its
    receiver's; or the reason why it does not name them.
    """
    if pipeline.name == plan.pipeline:
        if plan.stream in pipeline.publish_ms:
            return pipeline.stream_writers(plan.stream)
        return f"{pipeline.name} does not publish {plan.stream}"
    for binding in pipeline.bindings.values():
        if (binding.pipeline, binding.stream) == (plan.pipeline, plan.stream):
            if binding.cluster:
                return f"stream {plan.stream} of pipeline {plan.pipeline} is on another cluster"
            return binding.replica_ids()
    return f"{pipeline.name} has no binding for stream {plan.stream} of pipeline {plan.pipeline}"


def owner_of_stage(
    pipelines: Mapping[str, Pipeline], text: StreamContract, plan: StreamTerms
) -> Pipeline | str:
    """Return the receiver's pipeline file whose stage at the sender computes a plan's stream, as
    this participant has it; or the reason why there is none.
    """
    pipeline = pipelines.get(plan.pipeline)
    if pipeline is None:
        return f"no file here has pipeline {plan.pipeline}"
    partners = {} if pipeline.federation is None else pipeline.federation.partners
    if plan.stream not in partners.get(text.sender, ()):
        return f"{pipeline.name}: {text.sender} may not run {plan.stream}"
    if pipeline.bucket_ms != text.bucket_ms:
        return f"{pipeline.name} has buckets of {pipeline.bucket_ms} ms, not {text.bucket_ms} ms"
    return pipeline


class FollowedStream:
    """Stream of one plan of a contract. Not thread-safe."""

    def __init__(
        self,
        reader: BoundaryReader,
        text: StreamContract,
        plan: StreamTerms,
        is_senders: Callable[[LogState], bool] = lambda _: True,
    ) -> None:
        """Follow ``reader``. ``is_senders``: returns whether the sender runs the stream's stage
        now.
        """
        self.arrivals = Arrivals(text.bucket_ms, text.settle_ms, plan.delay_ms_max)
        """Arrivals by whichever participant's node."""
        self.senders = Arrivals(text.bucket_ms, text.settle_ms, plan.delay_ms_max)
        """Arrivals computed by the sender's node."""
        self._reader, self._is_senders = reader, is_senders
        self._reader.listen(self._on_entry)
        self._upto = 0

    def poll(self) -> None:
        """Read the available records, without waiting.

        Raises:
            Unavailable: the broker does not answer.
            ConfigurationError: the stream's buckets have another width.
            DataMissing: unread records of the log were deleted.
        """
        self._reader.poll(0)

    def is_at_end(self) -> bool:
        """Return whether the log is read to its current end.

        Raises:
            Unavailable: the broker does not answer.
        """
        return self._reader.offset_next >= self._reader.end()

    def forget(self, period: int) -> None:
        """Forget the periods before ``period``, which are metered, or need not be."""
        self.arrivals.forget(period)
        self.senders.forget(period)

    def of(self, period: int, *, is_anybodys: bool) -> Arrived | None:
        """Return what counts for a period; None if it was not followed entirely."""
        return (self.arrivals if is_anybodys else self.senders).of(period)

    def close(self) -> None:
        """Close the reader. Idempotent."""
        self._reader.close()

    def _on_entry(self, _offset: int, _entry: LogEntry, _outcome: Outcome) -> None:
        """Note the rows of buckets that a record of the log has made stable."""
        log_state = self._reader.log_state
        before, self._upto = self._upto, log_state.upto
        if self._upto <= before:
            return
        appended_ms = self._reader.appended_ms
        if appended_ms is None:
            self.arrivals.begins_after(self._upto)
            self.senders.begins_after(self._upto)
        else:
            rows = [
                (bucket, sum(part.rows for part in parts))
                for bucket, _, parts in log_state.stable(before + 1, self._upto)
            ]
            self.arrivals.came(before, self._upto, rows, appended_ms)
            if self._is_senders(log_state):
                self.senders.came(before, self._upto, rows, appended_ms)
        log_state.forget(self._upto)


def published(
    log: EventLog,
    topics: FederationTopics,
    text: StreamContract,
    plan: StreamTerms,
    pipeline: Pipeline,
) -> FollowedStream | str:
    """Open a plan's stream that its sender publishes, or return why this pipeline file does not
    name it (``writers_of``).

    Raises:
        Unavailable, ConfigurationError: as for ``open_published``.
    """
    writers = writers_of(pipeline, plan)
    if isinstance(writers, str):
        return writers
    owned = OwnedStream(text.sender, plan.pipeline, plan.stream)
    return FollowedStream(open_published(log, topics, owned, writers, text.bucket_ms), text, plan)


class StreamMeter:
    """Meter of all contracts for streams of one participant. Not thread-safe."""

    def __init__(
        self,
        context: ServiceContext,
        topics: FederationTopics,
        participant: str,
        write: Write,
        hosted: Mapping[str, Pipeline],
    ) -> None:
        """Prepare the meter; no broker is contacted yet. ``hosted``: pipelines of other owners
        whose stages may run here.
        """
        self._context, self._topics = context, topics
        self._participant, self._write = participant, write
        self._pipelines = {**hosted, context.pipeline.name: context.pipeline}
        self._streams: dict[Followed, FollowedStream] = {}
        self._next: dict[Followed, int] = {}
        """Next period to meter, by stream."""
        self._retry_ms: dict[Followed, int] = {}
        self.not_metered: dict[str, str] = {}
        """Reason why a stream is not read here, by contract, or contract and plan."""

    def measure(self, contracts: Mapping[str, StreamLog]) -> None:
        """Write the figures of periods that are over and not metered by this participant yet."""
        now_ms = self._context.clock.monotonic_ms()
        for name, contract in contracts.items():
            ledger = contract.ledger
            side = None if ledger is None else ledger.contract.party(self._participant)
            if ledger is None or side is None:
                continue
            for plan in range(len(ledger.contract.plans)):
                which = Followed(name, plan)
                if now_ms >= self._retry_ms.get(which, 0):
                    self._follow(which, ledger, side)

    def _follow(self, which: Followed, ledger: StreamLedger, side: Side) -> None:
        """Read and meter one stream; close it after its last period."""
        if self._first(which, ledger, side) > ledger.last_period():
            self._close_stream(which)
            return
        try:
            stream = self._streams.get(which) or self._open_stream(which, ledger.contract)
            if stream is not None:
                stream.poll()
                self._meter_stream(which, ledger, side, stream)
        except (Unavailable, ConfigurationError, DataMissing) as error:
            self._note_failure(which, str(error))

    def close(self) -> None:
        """Close the streams. Idempotent."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _open_stream(self, which: Followed, text: StreamContract) -> FollowedStream | None:
        """Open the stream of a plan; None if it cannot be read here."""
        plan, context = text.plans[which.plan], self._context
        made = (
            self._at_sender(text, plan)
            if plan.at_sender
            else published(context.log, self._topics, text, plan, context.pipeline)
        )
        if isinstance(made, str):
            self._note_failure(which, made)
            return None
        self._streams[which] = made
        self.not_metered.pop(str(which), None)
        return made

    def _at_sender(self, text: StreamContract, plan: StreamTerms) -> FollowedStream | str:
        """Open the results of a receiver's stage that the sender runs, or return why not. Both
        sides read the same log, which states which node wrote each bucket.

        Raises:
            Unavailable, ConfigurationError: as for ``open_dated``.
        """
        owner = owner_of_stage(self._pipelines, text, plan)
        if isinstance(owner, str):
            return owner
        reader = open_dated(self._context.log, owner, plan.stream)
        (replica,), node = owner.stream_writers(plan.stream), node_of(text.sender)
        return FollowedStream(reader, text, plan, lambda state: state.node(replica) == node)

    def _note_failure(self, which: Followed, why: str) -> None:
        """Note why a stream is not metered; log it if it is new."""
        if self.not_metered.get(str(which)) != why:
            self._context.logger.warning("stream_not_metered", contract=str(which), why=why)
        self.not_metered[str(which)] = why
        self._retry_ms[which] = self._context.clock.monotonic_ms() + _AGAIN_MS
        self._close_stream(which)

    def _close_stream(self, which: Followed) -> None:
        """Close a stream, if it is open."""
        stream = self._streams.pop(which, None)
        if stream is not None:
            stream.close()

    def _meter_stream(
        self, which: Followed, ledger: StreamLedger, side: Side, stream: FollowedStream
    ) -> None:
        """Write the figures of a stream's periods that are over."""
        # The ledger has the earlier periods; entries that this process has sent will follow.
        stream.forget(self._first(which, ledger, side))
        period = stream.arrivals.first_period
        for _ in range(_SKIPS_MAX):
            if which.counts_in(ledger, period) or not self._is_past(ledger, period):
                break
            period += 1
        self._next[which] = period
        for each in range(period, period + _AT_ONCE):
            if not self._is_over(ledger, stream, each):
                return
            found = stream.of(each, is_anybodys=ledger.is_anybodys(each))
            if found is None or not which.counts_in(ledger, each):
                continue
            entry = StreamMetered(
                which.contract, self._participant, each, found.messages, found.buckets
            )
            if not self._write(entry):
                return

    def _first(self, which: Followed, ledger: StreamLedger, side: Side) -> int:
        """Return the first period that may still have to be metered by a stream."""
        return max(ledger.next_period(side, which.plan), self._next.get(which, 0))

    def _is_past(self, ledger: StreamLedger, period: int) -> bool:
        """Return whether every record of ``period`` that could be in time has been appended and
        read.
        """
        return self._context.clock.now_ms() > ledger.over_ms(period) + SEEN_MS

    def _is_over(self, ledger: StreamLedger, stream: FollowedStream, period: int) -> bool:
        """Return whether all records that could be in time are read, and the ledger accepts the
        figure by now.
        """
        return self._is_past(ledger, period) and (
            stream.arrivals.is_over(period) or stream.is_at_end()
        )
