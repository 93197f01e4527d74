"""Log state of a content contract's ledger: the amounts that its parties owe for a stream.

Theory of operation. Both sides write what came of the stream in each period (``arrivals``), as they
read it in the stream's boundary log. What is due follows from these entries, and not from the
stream itself: its log is trimmed, a ledger is kept for ever. Which figures count, of one period:
    both measured the same             these
    both measured, not the same        the smaller of each, and it is a dispute
    one side measured                  its figures, up to what the contract allows
    nobody measured                    none
There is no tolerance, since honest sides read the same.

A period counts if it lies in the contract's time, begins after both have signed, and ends before a
notice has run out; and by the version that both had signed when it began. A suspension frees the
periods that lie in it from the first moment to the last. A party that suspends and resumes in each
period gets nothing by it, since only what came is paid.

A period is settled by an entry with the right sum, as in the ledger of load: once, and after both
had a period's time to measure it, or ten seconds.

Invariants:
    FF1  the sum of all balances is zero after every entry.
    FF2  a period is settled once, with what the table says; nothing is due out of the contract's
        time.
    FF3  each side measures a period once, after nothing can come in time any more, and before it is
        settled.
    FF4  an entry that does not count changes nothing, and what was posted stays.
    FF5  by a claim alone a sender gets no more than the contract's rate and highest price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from anabranch.protocol.federation.content_contracts import (
    ContentContract,
    Delivered,
    SuggestedContract,
    content_defects,
    content_due_nano,
)
from anabranch.protocol.federation.contract_book import Text
from anabranch.protocol.federation.contracts import TIME_MS_MAX, Side
from anabranch.protocol.federation.ledger import PeriodLedger, Settled

MEASURE_MS_MIN: Final = 10_000
"""Minimum time for both sides to measure a period, in ms: a side that settles at once must not be
ahead of the other.
"""

SUGGESTIONS_MAX: Final = 100
"""Maximum number of suggestions in one log: bounds what a sender can make its reader hold."""

VERSIONS_MAX: Final = 1_000
"""Maximum number of versions, and of changes of suspension, kept of one contract; older ones are
dropped.
"""


@dataclass(frozen=True, slots=True)
class ContentMetered:
    """A side read in the stream's log what came in time in a period."""

    SIGNED_AS: ClassVar[str] = "content metered"

    contract_id: str
    by: str
    period: int
    messages: int
    buckets: int


ContentEntry = ContentMetered | SuggestedContract | Settled


class StreamText(Text, Protocol):
    """One version of a contract under which streams are paid for."""

    @property
    def sender(self) -> str:
        """Is paid."""

    @property
    def receiver(self) -> str:
        """Pays."""

    @property
    def bucket_ms(self) -> int:
        """Width of the buckets of its streams."""

    @property
    def settle_ms(self) -> int:
        """Length of a period."""

    @property
    def delay_ms_max(self) -> int:
        """After the end of a bucket nothing of it comes in time any more."""

    @property
    def plan_count(self) -> int:
        """Return the number of the contract's plans."""

    def content(self, plan: int) -> ContentContract:
        """Return the terms for the stream that is paid for under a plan."""


StreamTextT = TypeVar("StreamTextT", bound=StreamText)


@dataclass(slots=True)
class _Reading:
    """Measurements of one period by both sides; None if a side has not measured."""

    sender: tuple[int, int] | None = None
    receiver: tuple[int, int] | None = None

    def counted(self) -> tuple[int, int]:
        """Messages and buckets: the table above."""
        one = self.sender or self.receiver or (0, 0)
        other = self.receiver or one
        return min(one[0], other[0]), min(one[1], other[1])

    @property
    def is_dispute(self) -> bool:
        return None not in (self.sender, self.receiver) and self.sender != self.receiver


class StreamLedger(PeriodLedger[_Reading], Generic[StreamTextT]):
    """Ledger of any contract under which streams are paid for. After a crash: replay."""

    def __init__(self, contract: StreamTextT, agreed_ms: int) -> None:
        """``agreed_ms``: the log's time at which both had signed the first version."""
        super().__init__(contract.receiver, contract.sender)
        self.disputes: list[int] = []
        """Periods that the two measured differently."""
        self.last: Delivered | None = None
        """Delivery of the last settled period."""
        self._versions = [(agreed_ms, contract)]
        self._suspended: list[tuple[int, int | None]] = []
        """Times of suspension as (from, to), in ms; ``to`` is None while it lasts."""
        self._ends_ms: int | None = None
        self._measured: dict[Side, int] = {}

    @property
    def contract(self) -> StreamTextT:
        """The newest version."""
        return self._versions[-1][1]

    def renewed(self, contract: StreamTextT, at_ms: int) -> None:
        """Take a further version that both have signed."""
        self._versions.append((at_ms, contract))
        del self._versions[:-VERSIONS_MAX]

    def suspended(self, at_ms: int) -> None:
        """One side, at least, has suspended the contract."""
        if not self._suspended or self._suspended[-1][1] is not None:
            self._suspended.append((at_ms, None))
            del self._suspended[:-VERSIONS_MAX]

    def resumed(self, at_ms: int) -> None:
        """No side has it suspended any more."""
        since_ms, _ = self._suspended[-1]
        self._suspended[-1] = since_ms, at_ms

    def ends(self, at_ms: int) -> None:
        """Note a notice."""
        self._ends_ms = at_ms

    # ---------------------------------------------------------------- periods

    def plan(self, period: int) -> int | None:
        """Which plan of the contract is charged for a period: there is only one; None: the period
        does not count.
        """
        del period
        return 0

    def is_anybodys(self, period: int) -> bool:
        """Whether what came in a period counts whoever made it."""
        del period
        return False

    def terms(self, period: int) -> ContentContract | None:
        """Return the terms by which a period is charged: those of its plan, in the version that
        counts for it; None if the period does not count.
        """
        found, plan = self._version(period), self.plan(period)
        return None if found is None or plan is None else found.content(plan)

    def _version(self, period: int) -> StreamTextT | None:
        settle_ms = self.contract.settle_ms
        begin_ms, end_ms = period * settle_ms, (period + 1) * settle_ms
        found = next((text for at_ms, text in reversed(self._versions) if at_ms <= begin_ms), None)
        if (
            found is None
            or not found.valid_from_ms <= begin_ms < end_ms <= found.valid_to_ms
            or (self._ends_ms is not None and end_ms > self._ends_ms)
            or any(
                since_ms <= begin_ms and (until_ms is None or end_ms <= until_ms)
                for since_ms, until_ms in self._suspended
            )
        ):
            return None
        return found

    def next_period(self, side: Side) -> int:
        """Return the first that this side may still have to measure."""
        text, settle_ms = self._versions[0][1], self.contract.settle_ms
        agreed_ms = max(self._versions[0][0], text.valid_from_ms)
        return max(-(-agreed_ms // settle_ms), self._measured.get(side, -1) + 1, self._settled + 1)

    def last_period(self) -> int:
        """Return the last period that may count, by what has been agreed until now."""
        end_ms = max(text.valid_to_ms for _, text in self._versions)
        if self._ends_ms is not None:
            end_ms = min(end_ms, self._ends_ms)
        return end_ms // self.contract.settle_ms - 1

    def over_ms(self, period: int) -> int:
        """After this time nothing of a period comes in time, and it may be measured (FF3)."""
        return (period + 1) * self.contract.settle_ms + self.contract.delay_ms_max

    # ---------------------------------------------------------------- entries

    def add(self, entry: ContentMetered | Settled, appended_ms: int) -> str:
        """Count an entry, whose signature was checked, in the order of the log. Return why it does
        not count, or an empty text (FF4).

        ``appended_ms`` is the log's time of it; it never goes back.
        """
        if isinstance(entry, Settled):
            return self._settle(entry, appended_ms)
        side = self.contract.party(entry.by)
        if side is None:
            return "not by a party of the contract"
        return self._metered(entry, side, appended_ms)

    def _metered(self, entry: ContentMetered, side: Side, appended_ms: int) -> str:
        terms = self.terms(entry.period)
        if terms is None:
            return "the contract was not in force in this period"
        if appended_ms < self.over_ms(entry.period):
            return "the period is not over"
        if entry.period <= self._settled:
            return "the period is settled"
        if not 0 <= entry.buckets <= _buckets(terms) or not 0 <= entry.messages <= TIME_MS_MAX:
            return "more than a period has"
        reading = self._readings.setdefault(entry.period, _Reading())
        found = entry.messages, entry.buckets
        if side is Side.SELLER:
            if reading.sender is not None:
                return "measured already"
            reading.sender = found
        else:
            if reading.receiver is not None:
                return "measured already"
            reading.receiver = found
        self._measured[side] = max(entry.period, self._measured.get(side, -1))
        if reading.is_dispute:
            self.disputes.append(entry.period)
        return ""

    def _closed(self, period: int) -> None:
        self.last = self._delivered(period) or self.last

    # ---------------------------------------------------------------- sums

    def due(self, period: int) -> int:
        """Return what the receiver owes for a period by its measurements, in thousandths of a
        micro-unit.
        """
        terms, delivered = self.terms(period), self._delivered(period)
        return 0 if terms is None or delivered is None else content_due_nano(terms, delivered)

    def _ripe_ms(self, period: int) -> int:
        return self.over_ms(period) + max(self.contract.settle_ms, MEASURE_MS_MIN)

    def _delivered(self, period: int) -> Delivered | None:
        reading = self._readings.get(period)
        if reading is None:
            return None
        settle_ms = self.contract.settle_ms
        messages, in_time = reading.counted()
        return Delivered(
            period * settle_ms, (period + 1) * settle_ms, messages, in_time, _buckets(self.contract)
        )


class ContentLedger(StreamLedger[ContentContract]):
    """Ledger of a contract for one stream."""

    def __init__(self, contract: ContentContract, agreed_ms: int) -> None:
        super().__init__(contract, agreed_ms)
        self.suggestions: list[SuggestedContract] = []

    def add(self, entry: ContentEntry, appended_ms: int) -> str:
        """Add an entry. A sender may also suggest another contract."""
        if isinstance(entry, SuggestedContract):
            return self._suggested(entry, appended_ms)
        return super().add(entry, appended_ms)

    def _suggested(self, entry: SuggestedContract, appended_ms: int) -> str:
        side = self.contract.party(entry.by)
        if side is None:
            return "not by a party of the contract"
        if side is not Side.SELLER or entry.receiver != self.contract.receiver:
            return "not by the sender, or not to the receiver"
        if entry.terms.receiver != entry.receiver or next(content_defects(entry.terms), None):
            return "not a valid contract"
        if appended_ms >= entry.open_until_ms:
            return "out of its time"
        if entry in self.suggestions:
            return "known already"
        if len(self.suggestions) >= SUGGESTIONS_MAX:
            return "more suggestions than a contract has"
        self.suggestions.append(entry)
        return ""


def _buckets(contract: StreamText) -> int:
    """Return the number of buckets of a period."""
    return contract.settle_ms // contract.bucket_ms
