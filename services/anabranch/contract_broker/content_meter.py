"""Meters the streams of content contracts: reads the boundary log of each, and writes into the
contract's ledger what came in time (``protocol.federation.arrivals``).

It reads what stands in the log, after it stands there, so nobody waits for it. It keeps nothing: a
new process reads the logs again and comes to the same figures. What the ledger has of a period it
does not write again, and what it writes twice counts once. Periods whose records are deleted by
then have no figure of this side: the other side's counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import ConfigurationError, DataMissing, Unavailable
from anabranch.protocol.federation.arrivals import Arrivals
from anabranch.protocol.federation.content_contracts import ContentContract
from anabranch.protocol.federation.content_ledger import ContentLedger, ContentMetered
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.stream_signers import OwnedStream
from anabranch.runtime.stream_logs import open_published

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.pipeline.topic_names import FederationTopics
    from anabranch.ports import EventLog
    from anabranch.protocol.federation.content_log import ContentLog
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry
    from anabranch.runtime.boundary_reader import BoundaryReader
    from anabranch.runtime.service import ServiceContext

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

Write = Callable[[ContentMetered], bool]
"""Whether it is in the ledger's topic now."""


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


class FollowedStream:
    """The stream of one contract. Not thread-safe."""

    def __init__(
        self, log: EventLog, topics: FederationTopics, text: ContentContract, writers: list[str]
    ) -> None:
        """Opens its log.

        Raises:
            Unavailable, ConfigurationError: as ``open_published``.
        """
        self.arrivals = Arrivals(text)
        owned = OwnedStream(text.sender, text.pipeline, text.entity)
        self._reader: BoundaryReader = open_published(log, topics, owned, writers, text.bucket_ms)
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
        else:
            rows = [
                (bucket, sum(part.rows for part in parts))
                for bucket, _, parts in log_state.stable(before + 1, self._upto)
            ]
            self.arrivals.came(before, self._upto, rows, appended_ms)
        log_state.forget(self._upto)


class ContentMeter:
    """Of all content contracts of one participant. Not thread-safe."""

    def __init__(
        self, context: ServiceContext, topics: FederationTopics, participant: str, write: Write
    ) -> None:
        """Nothing is contacted yet."""
        self._context, self._topics = context, topics
        self._participant, self._write = participant, write
        self._streams: dict[str, FollowedStream] = {}
        self._next: dict[str, int] = {}
        """Contract -> the period that is metered next."""
        self._sent: dict[tuple[str, int], int] = {}
        self._retry_ms: dict[str, int] = {}
        self.not_metered: dict[str, str] = {}
        """Contract -> why its stream is not read here."""

    def measure(self, contracts: Mapping[str, ContentLog]) -> None:
        """What is over and was not metered yet by this participant."""
        now_ms = self._context.clock.monotonic_ms()
        self._sent = {
            which: sent_ms for which, sent_ms in self._sent.items() if now_ms - sent_ms < _AGAIN_MS
        }
        for name, contract in contracts.items():
            ledger = contract.ledger
            side = None if ledger is None else ledger.contract.party(self._participant)
            if ledger is None or side is None or now_ms < self._retry_ms.get(name, 0):
                continue
            if max(ledger.next_period(side), self._next.get(name, 0)) > ledger.last_period():
                self._close(name)
                continue
            try:
                stream = self._streams.get(name) or self._opened(name, ledger.contract)
                if stream is not None:
                    stream.poll()
                    self._metered(name, ledger, side, stream)
            except (Unavailable, ConfigurationError, DataMissing) as error:
                self._failed(name, str(error))

    def close(self) -> None:
        """Idempotent."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _opened(self, name: str, text: ContentContract) -> FollowedStream | None:
        writers = writers_of(self._context.pipeline, text)
        if isinstance(writers, str):
            self._failed(name, writers)
            return None
        self._streams[name] = FollowedStream(self._context.log, self._topics, text, writers)
        self.not_metered.pop(name, None)
        return self._streams[name]

    def _failed(self, name: str, why: str) -> None:
        if self.not_metered.get(name) != why:
            self._context.logger.warning("stream_not_metered", contract=name, why=why)
        self.not_metered[name] = why
        self._retry_ms[name] = self._context.clock.monotonic_ms() + _AGAIN_MS
        self._close(name)

    def _close(self, name: str) -> None:
        stream = self._streams.pop(name, None)
        if stream is not None:
            stream.close()

    def _metered(
        self, name: str, ledger: ContentLedger, side: Side, stream: FollowedStream
    ) -> None:
        arrivals = stream.arrivals
        # What the ledger has is metered; what this process has sent is on its way there.
        arrivals.forget(ledger.next_period(side))
        period = max(arrivals.first_period, self._next.get(name, 0))
        for _ in range(_SKIPS_MAX):
            if ledger.terms(period) is not None or not self._is_past(ledger, period):
                break
            period += 1
        self._next[name] = period
        for each in range(period, period + _AT_ONCE):
            found = arrivals.of(each)
            if not self._is_over(ledger, stream, each):
                return
            if found is None or ledger.terms(each) is None or (name, each) in self._sent:
                continue
            entry = ContentMetered(name, self._participant, each, found.messages, found.buckets)
            if not self._write(entry):
                return
            self._sent[name, each] = self._context.clock.monotonic_ms()

    def _is_past(self, ledger: ContentLedger, period: int) -> bool:
        return self._context.clock.now_ms() > ledger.over_ms(period) + SEEN_MS

    def _is_over(self, ledger: ContentLedger, stream: FollowedStream, period: int) -> bool:
        """Whether all is read that could be in time, and the ledger takes the figure by now."""
        return self._is_past(ledger, period) and (
            stream.arrivals.is_over(period) or stream.is_at_end()
        )
