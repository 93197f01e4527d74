"""Meters the streams of content contracts: reads the boundary log of each, and writes into the
contract's ledger what came in time (``protocol.federation.arrivals``). A movement contract has a
stream for each plan, and a period is metered by that of its plan.

It reads what stands in the log, after it stands there, so nobody waits for it. It keeps nothing: a
new process reads the logs again and comes to the same figures. What the ledger has of a period it
does not write again, and what it writes twice counts once. Periods whose records are deleted by
then have no figure of this side: the other side's counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.protocol.errors import ConfigurationError, DataMissing, Unavailable
from anabranch.protocol.federation.arrivals import Arrivals, Arrived
from anabranch.protocol.federation.content_contracts import ContentContract
from anabranch.protocol.federation.content_ledger import ContentLedger, ContentMetered
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.plan_ledger import PlanLedger
from anabranch.protocol.federation.stage_moves import node_of
from anabranch.protocol.federation.stream_signers import OwnedStream
from anabranch.streams.stream_logs import open_dated, open_published

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.pipeline.topic_names import FederationTopics
    from anabranch.ports import EventLog
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.federation.content_log import ContentLog
    from anabranch.protocol.federation.plan_ledger import PlanLog
    from anabranch.protocol.log.boundary_log import LogState, Outcome
    from anabranch.protocol.log.records import LogEntry
    from anabranch.streams.boundary_reader import BoundaryReader

SEEN_MS: Final = 2_000
"""So long after the last record of a period could have been in time it has been read, or there is
none: longer than the clocks of this process and the log differ.
"""

_AGAIN_MS: Final = 10_000
"""After a figure that did not count yet, or a log that could not be read: until the next try."""

_AT_ONCE: Final = 20
"""Periods of one contract in a step: others wait no longer for theirs."""

_SKIPS_MAX: Final = 100_000
"""Periods that do not count, passed in a step."""

AnyLedger = ContentLedger | PlanLedger

Write = Callable[[ContentMetered], bool]
"""Whether it is in the ledger's topic now."""


class Followed(NamedTuple):
    """The stream of a contract, or of one of its plans."""

    contract: str
    plan: int = 0

    def __str__(self) -> str:
        return f"{self.contract}, plan {self.plan}" if self.plan else self.contract

    def counts_in(self, ledger: AnyLedger, period: int) -> bool:
        """Whether a period is charged, and by this stream."""
        return ledger.terms(period) is not None and ledger.plan(period) == self.plan


def writers_of(pipeline: Pipeline, text: ContentContract) -> list[str] | str:
    """The replicas of a contract's stream by this pipeline file, which may be its sender's or its
    receiver's; or why it does not say.
    """
    if pipeline.name == text.pipeline:
        if text.entity in pipeline.publish_ms:
            return pipeline.stream_writers(text.entity)
        return f"{pipeline.name} does not publish {text.entity}"
    for binding in pipeline.bindings.values():
        if (binding.pipeline, binding.stream) == (text.pipeline, text.entity):
            if binding.cluster:
                return f"{text.stream} is on another cluster"
            return binding.replica_ids()
    return f"{pipeline.name} has no binding for stream {text.entity} of pipeline {text.pipeline}"


def owner_of_stage(pipelines: Mapping[str, Pipeline], text: ContentContract) -> Pipeline | str:
    """The file of the receiver's pipeline in which a stage at the sender makes a contract's stream,
    as this participant has it; or why there is none.
    """
    pipeline = pipelines.get(text.pipeline)
    if pipeline is None:
        return f"no file here has pipeline {text.pipeline}"
    partners = {} if pipeline.federation is None else pipeline.federation.partners
    if text.entity not in partners.get(text.sender, ()):
        return f"{pipeline.name}: {text.sender} may not run {text.entity}"
    if pipeline.bucket_ms != text.bucket_ms:
        return f"{pipeline.name} has buckets of {pipeline.bucket_ms} ms, not {text.bucket_ms} ms"
    return pipeline


class FollowedStream:
    """The stream of one contract, or of one of its plans. Not thread-safe."""

    def __init__(
        self,
        reader: BoundaryReader,
        text: ContentContract,
        is_senders: Callable[[LogState], bool] = lambda _: True,
    ) -> None:
        """``is_senders``: whether the sender makes it now."""
        self.arrivals = Arrivals(text)
        """Whoever made it."""
        self.senders = Arrivals(text)
        """What the sender has made."""
        self._reader, self._is_senders = reader, is_senders
        self._reader.listen(self._seen)
        self._upto = 0

    def poll(self) -> None:
        """Take what is there, without waiting.

        Raises:
            Unavailable: no answer.
            ConfigurationError: its buckets have another width.
            DataMissing: the log was cut under it.
        """
        self._reader.poll(0)

    def is_at_end(self) -> bool:
        """Whether all is read that the log has now.

        Raises:
            Unavailable: no answer.
        """
        return self._reader.offset_next >= self._reader.end()

    def forget(self, period: int) -> None:
        """Those before ``period`` are metered, or need not be."""
        self.arrivals.forget(period)
        self.senders.forget(period)

    def of(self, period: int, *, is_anybodys: bool) -> Arrived | None:
        """What counts for a period; None: it was not followed whole."""
        return (self.arrivals if is_anybodys else self.senders).of(period)

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()

    def _seen(self, _offset: int, _entry: LogEntry, _outcome: Outcome) -> None:
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
    log: EventLog, topics: FederationTopics, text: ContentContract, pipeline: Pipeline
) -> FollowedStream | str:
    """A contract's stream that its sender publishes, by this pipeline file, as of ``writers_of``.

    Raises:
        Unavailable, ConfigurationError: as ``open_published``.
    """
    writers = writers_of(pipeline, text)
    if isinstance(writers, str):
        return writers
    owned = OwnedStream(text.sender, text.pipeline, text.entity)
    return FollowedStream(open_published(log, topics, owned, writers, text.bucket_ms), text)


class ContentMeter:
    """Of all content contracts and movement contracts of one participant. Not thread-safe."""

    def __init__(
        self,
        context: ServiceContext,
        topics: FederationTopics,
        participant: str,
        write: Write,
        hosted: Mapping[str, Pipeline],
    ) -> None:
        """Nothing is contacted yet. ``hosted``: pipelines of others whose stages may run here."""
        self._context, self._topics = context, topics
        self._participant, self._write = participant, write
        self._pipelines = {**hosted, context.pipeline.name: context.pipeline}
        self._streams: dict[Followed, FollowedStream] = {}
        self._next: dict[Followed, int] = {}
        """The period that is metered next."""
        self._sent: dict[tuple[str, int], int] = {}
        self._retry_ms: dict[Followed, int] = {}
        self.not_metered: dict[str, str] = {}
        """Contract, or contract and plan -> why its stream is not read here."""

    def measure(self, contracts: Mapping[str, ContentLog | PlanLog]) -> None:
        """What is over and was not metered yet by this participant."""
        now_ms = self._context.clock.monotonic_ms()
        self._sent = {
            which: sent_ms for which, sent_ms in self._sent.items() if now_ms - sent_ms < _AGAIN_MS
        }
        for name, contract in contracts.items():
            ledger = contract.ledger
            side = None if ledger is None else ledger.contract.party(self._participant)
            if ledger is None or side is None:
                continue
            for plan in range(ledger.contract.plan_count):
                which = Followed(name, plan)
                if now_ms >= self._retry_ms.get(which, 0):
                    self._follow(which, ledger, side)

    def _follow(self, which: Followed, ledger: AnyLedger, side: Side) -> None:
        if max(ledger.next_period(side), self._next.get(which, 0)) > ledger.last_period():
            self._close(which)
            return
        try:
            stream = self._streams.get(which) or self._opened(
                which, ledger.contract.content(which.plan)
            )
            if stream is not None:
                stream.poll()
                self._metered(which, ledger, side, stream)
        except (Unavailable, ConfigurationError, DataMissing) as error:
            self._failed(which, str(error))

    def close(self) -> None:
        """Idempotent."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _opened(self, which: Followed, text: ContentContract) -> FollowedStream | None:
        made = (
            self._at_sender(text)
            if which.plan
            else published(self._context.log, self._topics, text, self._context.pipeline)
        )
        if isinstance(made, str):
            self._failed(which, made)
            return None
        self._streams[which] = made
        self.not_metered.pop(str(which), None)
        return made

    def _at_sender(self, text: ContentContract) -> FollowedStream | str:
        """The results of a stage of the receiver's that the sender runs, or why not. Both sides
        read the same log, and who wrote which bucket stands in it.

        Raises:
            Unavailable, ConfigurationError: as ``open_dated``.
        """
        owner = owner_of_stage(self._pipelines, text)
        if isinstance(owner, str):
            return owner
        reader = open_dated(self._context.log, owner, text.entity)
        (replica,), node = owner.stream_writers(text.entity), node_of(text.sender)
        return FollowedStream(reader, text, lambda log_state: log_state.node(replica) == node)

    def _failed(self, which: Followed, why: str) -> None:
        if self.not_metered.get(str(which)) != why:
            self._context.logger.warning("stream_not_metered", contract=str(which), why=why)
        self.not_metered[str(which)] = why
        self._retry_ms[which] = self._context.clock.monotonic_ms() + _AGAIN_MS
        self._close(which)

    def _close(self, which: Followed) -> None:
        stream = self._streams.pop(which, None)
        if stream is not None:
            stream.close()

    def _metered(
        self, which: Followed, ledger: AnyLedger, side: Side, stream: FollowedStream
    ) -> None:
        # What the ledger has is metered; what this process has sent is on its way there.
        stream.forget(ledger.next_period(side))
        period = max(stream.arrivals.first_period, self._next.get(which, 0))
        for _ in range(_SKIPS_MAX):
            if which.counts_in(ledger, period) or not self._is_past(ledger, period):
                break
            period += 1
        self._next[which] = period
        for each in range(period, period + _AT_ONCE):
            if not self._is_over(ledger, stream, each):
                return
            found = stream.of(each, is_anybodys=ledger.is_anybodys(each))
            is_sent = (which.contract, each) in self._sent
            if found is None or is_sent or not which.counts_in(ledger, each):
                continue
            entry = ContentMetered(
                which.contract, self._participant, each, found.messages, found.buckets
            )
            if not self._write(entry):
                return
            self._sent[which.contract, each] = self._context.clock.monotonic_ms()

    def _is_past(self, ledger: AnyLedger, period: int) -> bool:
        return self._context.clock.now_ms() > ledger.over_ms(period) + SEEN_MS

    def _is_over(self, ledger: AnyLedger, stream: FollowedStream, period: int) -> bool:
        """Whether all is read that could be in time, and the ledger takes the figure by now."""
        return self._is_past(ledger, period) and (
            stream.arrivals.is_over(period) or stream.is_at_end()
        )
