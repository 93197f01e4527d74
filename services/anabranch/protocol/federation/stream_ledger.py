"""Log state of the ledger of a contract for streams: the amounts that its parties owe.

Theory of operation. Each side writes, for every period, how much of the stream came (``arrivals``),
as it read that in the stream's boundary log. The amount due follows from these entries and not from
the stream itself, whose log is trimmed while a ledger is kept for ever. The figures that count for
a period:
    both measured the same             these
    both measured, not the same        the smaller of each, and it is a dispute
    one side measured                  its figures, up to what the contract allows
    neither side measured              none
There is no tolerance, since honest sides read the same.

A period counts if it lies in the contract's time, begins after both have signed, and ends before a
notice has run out. The version that counts for it is the one that both had signed when it began. A
suspension frees the periods that lie wholly within it. A party that suspends and resumes in each
period gains nothing, since only what came is paid.

The terms of a period are those of the plan that was active when it began, by the log's times. So
the amount due follows from the log alone. Under a plan in which a stage at the sender makes the
stream, only what the sender's node has made counts. The exception is a period in which the plan was
being left: by a switch that both had agreed to, a cancellation, a suspension or a notice. A sender
that stopped the stage then, as agreed, is paid for the rest of the period, in which it sends the
stream that the query reads.

A period is settled once, by an entry with the right sum, as in the ledger of load. The entry counts
only after both sides had time to measure the period: as long as a period, and at least ten seconds.

Invariants:
    FF1  the sum of all balances is zero after every entry.
    FF2  a period is settled once, with the figures of the table; outside the contract's time
        nothing is due.
    FF3  each side measures a period once: after nothing can come in time any more, and before the
        period is settled.
    FF4  an entry that does not count changes nothing, and what was posted stays.
    FF5  by a claim alone a sender gets no more than the contract's rate and highest price.
    FF6  of each suggested text the suggestion counts that is open longest, and only a closed one
         leaves for another: what is open stays, and what is closed leaves room for ever.
    MP1  a period is charged under exactly one plan, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from anabranch.protocol.federation.contracts import TIME_MS_MAX, Side
from anabranch.protocol.federation.ledger import PeriodLedger, Settled
from anabranch.protocol.federation.plan_switching import PlanSwitch, PlanWord
from anabranch.protocol.federation.stream_contracts import (
    PeriodDelivery,
    StreamContract,
    StreamTerms,
    SuggestedContract,
    stream_defects,
)

MEASURE_MS_MIN: Final = 10_000
"""Minimum time for both sides to measure a period, in ms: a side that settles at once must not be
ahead of the other.
"""

SUGGESTIONS_MAX: Final = 100
"""Maximum number of suggestions of one contract at a time: bounds what a sender can make its reader
hold.
"""

VERSIONS_MAX: Final = 1_000
"""Maximum number of versions, and of changes of suspension, kept of one contract; older ones are
dropped.
"""


@dataclass(frozen=True, slots=True)
class StreamMetered:
    """Entry of one side: the rows and buckets of a period that came in time, as it read them in the
    stream's log.
    """

    SIGNED_AS: ClassVar[str] = "stream metered"

    contract_id: str
    by: str
    period: int
    messages: int
    buckets: int


StreamEntry = PlanWord | StreamMetered | SuggestedContract | Settled


@dataclass(slots=True)
class _Reading:
    """Measurements of one period by both sides; None if a side has not measured."""

    sender: tuple[int, int] | None = None
    receiver: tuple[int, int] | None = None

    def counted(self) -> tuple[int, int]:
        """Return the messages and buckets that count: the table above."""
        one = self.sender or self.receiver or (0, 0)
        other = self.receiver or one
        return min(one[0], other[0]), min(one[1], other[1])

    @property
    def is_dispute(self) -> bool:
        return None not in (self.sender, self.receiver) and self.sender != self.receiver


class StreamLedger(PeriodLedger[_Reading]):
    """Ledger of one contract for streams. After a crash: replay."""

    ENTRIES = (PlanWord, StreamMetered, SuggestedContract, Settled)
    DISPUTED = "periods"

    def __init__(self, contract: StreamContract, agreed_ms: int, auditor: str) -> None:
        """``agreed_ms``: the log's time at which both had signed the first version."""
        super().__init__(contract.receiver, contract.sender, auditor)
        self.switch = PlanSwitch(contract, agreed_ms)
        self.suggestions: list[SuggestedContract] = []
        self.disputes: list[int] = []
        """Periods that the two measured differently."""
        self.last: PeriodDelivery | None = None
        """Delivery of the last settled period."""
        self._versions = [(agreed_ms, contract)]
        self._suspended: list[tuple[int, int | None]] = []
        """Times of suspension as (from, to), in ms; ``to`` is None while it lasts."""
        self._ends_ms: int | None = None
        self._measured: dict[tuple[Side, int], int] = {}
        """Last period that a side has measured of a plan's stream."""

    @property
    def contract(self) -> StreamContract:
        """The newest version."""
        return self._versions[-1][1]

    def renewed(self, contract: StreamContract, at_ms: int) -> None:
        """Note a further version of the contract that both have signed."""
        self._versions.append((at_ms, contract))
        del self._versions[:-VERSIONS_MAX]
        self.switch.contract = contract

    def suspended(self, at_ms: int, by: str) -> None:
        """Note that one side, at least, has suspended the contract: the plain plan applies."""
        if not self._suspended or self._suspended[-1][1] is not None:
            self._suspended.append((at_ms, None))
            del self._suspended[:-VERSIONS_MAX]
        self.switch.plain(at_ms, "suspended", by)

    def resumed(self, at_ms: int) -> None:
        """Note that no side suspends the contract any more."""
        since_ms, _ = self._suspended[-1]
        self._suspended[-1] = since_ms, at_ms

    def noticed(self, at_ms: int, by: str, ends_ms: int) -> None:
        """Note a notice, with which the contract ends at ``ends_ms``: the plain plan applies."""
        # A notice may be dated back a little; what has been delivered by now has been.
        self._ends_ms = max(ends_ms, at_ms)
        self.switch.plain(at_ms, "notice", by)

    def is_in_force(self, now_ms: int) -> bool:
        """Return whether another plan than the plain one may be active."""
        text = self.contract
        is_suspended = bool(self._suspended) and self._suspended[-1][1] is None
        is_in_time = text.valid_from_ms <= now_ms < text.valid_to_ms
        return is_in_time and not is_suspended and self._ends_ms is None

    # ---------------------------------------------------------------- periods

    def plan(self, period: int) -> int | None:
        """Return the number of the plan that was active when a period began (MP1); None: it is no
        longer kept.
        """
        return self.switch.plan_at(period * self.contract.settle_ms)

    def is_anybodys(self, period: int) -> bool:
        """Return whether results of ``period`` count whichever node computed them: its plan was
        being left then.
        """
        settle_ms = self.contract.settle_ms
        return self.switch.was_left(period * settle_ms, (period + 1) * settle_ms)

    def terms(self, period: int) -> StreamTerms | None:
        """Return the terms by which a period is charged: its plan, in the version that counts for
        it; None if the period does not count.
        """
        found, plan = self._version(period), self.plan(period)
        return None if found is None or plan is None else found.plans[plan]

    def _version(self, period: int) -> StreamContract | None:
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

    def next_period(self, side: Side, plan: int = 0) -> int:
        """Return the first period that this side may still have to measure by the stream of a plan.
        Each plan has a stream, and one may be read later than another.
        """
        text, settle_ms = self._versions[0][1], self.contract.settle_ms
        agreed_ms = max(self._versions[0][0], text.valid_from_ms)
        measured = self._measured.get((side, plan), -1)
        return max(-(-agreed_ms // settle_ms), measured + 1, self._settled + 1)

    def last_period(self) -> int:
        """Return the last period that may count, by what has been agreed until now."""
        end_ms = max(text.valid_to_ms for _, text in self._versions)
        if self._ends_ms is not None:
            end_ms = min(end_ms, self._ends_ms)
        return end_ms // self.contract.settle_ms - 1

    def over_ms(self, period: int) -> int:
        """Return the time after which nothing of a period comes in time, and it may be measured
        (FF3).
        """
        return (period + 1) * self.contract.settle_ms + self.contract.delay_ms_max

    # ---------------------------------------------------------------- entries

    def add(self, entry: StreamEntry, appended_ms: int) -> str:
        """Count an entry (FF4). Return why it does not count, or an empty text."""
        if isinstance(entry, PlanWord):
            may_switch = self.is_in_force(appended_ms)
            return self.switch.add(entry, appended_ms, may_switch=may_switch)
        if isinstance(entry, Settled):
            return self._settle(entry, appended_ms)
        side = self.contract.party(entry.by)
        if side is None:
            return "not by a party of the contract"
        if isinstance(entry, SuggestedContract):
            return self._suggested(entry, side, appended_ms)
        return self._metered(entry, side, appended_ms)

    def _metered(self, entry: StreamMetered, side: Side, appended_ms: int) -> str:
        plan = self.plan(entry.period)
        if plan is None or self.terms(entry.period) is None:
            return "the contract was not in force in this period"
        if appended_ms < self.over_ms(entry.period):
            return "the period is not over"
        if entry.period <= self._settled:
            return "the period is settled"
        if not 0 <= entry.buckets <= self._buckets or not 0 <= entry.messages <= TIME_MS_MAX:
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
        self._measured[side, plan] = max(entry.period, self._measured.get((side, plan), -1))
        if reading.is_dispute:
            self.disputes.append(entry.period)
        return ""

    def _suggested(self, entry: SuggestedContract, side: Side, appended_ms: int) -> str:
        if self.contract.has_switches:
            return "not to a contract for one stream"
        if side is not Side.SELLER or entry.receiver != self.contract.receiver:
            return "not by the sender, or not to the receiver"
        terms = entry.terms
        if (
            terms.receiver != entry.receiver
            or terms.has_switches
            or next(stream_defects(terms), None)
        ):
            return "not a valid contract"
        if appended_ms >= entry.open_until_ms:
            return "out of its time"
        known = self.suggestions
        before = next((each for each in known if each.terms == terms), None)
        if before is not None and before.open_until_ms >= entry.open_until_ms:
            return "known already"
        if before is None and len(known) >= SUGGESTIONS_MAX:
            before = next((each for each in known if appended_ms >= each.open_until_ms), None)
            if before is None:
                return "more suggestions than a contract has at a time"
        self.suggestions = [*(each for each in known if each is not before), entry]
        return ""

    def _closed(self, period: int) -> None:
        self.last = self._delivered(period) or self.last

    # ---------------------------------------------------------------- sums

    def due(self, period: int) -> int:
        """Return what the receiver owes for a period by its measurements, in thousandths of a
        micro-unit.
        """
        terms, delivered = self.terms(period), self._delivered(period)
        return 0 if terms is None or delivered is None else terms.due_nano(delivered)

    def _ripe_ms(self, period: int) -> int:
        return self.over_ms(period) + max(self.contract.settle_ms, MEASURE_MS_MIN)

    def _delivered(self, period: int) -> PeriodDelivery | None:
        reading = self._readings.get(period)
        if reading is None:
            return None
        return PeriodDelivery(self.contract.settle_ms, *reading.counted(), self._buckets)

    @property
    def _buckets(self) -> int:
        """Number of buckets of a period."""
        return self.contract.settle_ms // self.contract.bucket_ms
