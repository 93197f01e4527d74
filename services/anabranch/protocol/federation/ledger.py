"""Log state of a contract's ledger: the amounts that its parties owe each other.

Theory of operation. The ledger of a contract is a log that both sides, and the federation's
auditor, append signed entries to. Besides movements it has what each side measured, what an audit
found, and settlements. Nothing in it is corrected: what is due follows from the entries that count,
so every reader of the log gets the same sums, also from its beginning after a crash. Time is the
log's own, which no author can choose: an entry's own time is for people.

A period is settled by an entry that states the sum; it counts only if the sum is right. One more
period must have passed since, so that both had time to write what they measured. A measurement of a
settled period does not count. No consent is needed: a side that is silent is settled with.

Penalties follow from how a movement ended:
    before the minimum hold is over                            the side ending it owes one violation
    because the seller was silent, and it measured nothing
    for longer than it may make nothing (``silence``)          the seller owes one violation, and
                                                               the rate for the time of silence
    because the seller was silent, and both measured zeros
    for longer than it may make nothing (``silence``)          the seller owes one violation
    for whatever reason, and an audit found something          the seller owes one violation
    because the contract ends, and it does                     neither side owes anything
An end with a reason that does not hold is judged as one without. If an audit finds something after
the end, the seller owes its violation then, unless it owes one for that movement already.

Invariants:
    FL1  the sum of all balances is zero after every entry.
    FL2  a period is settled once, with the sum of price x units x time over its slots.
    FL3  a slot of a movement is measured once by each side, after it is over and before its period
        is settled, and only if the movement ran in it.
    FL4  what was posted stays: an entry adds postings and changes none. Of all but the newest
        POSTINGS_MAX the sums alone are kept.
    FL5  an entry that does not count changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, TypeVar

from anabranch.protocol.federation.audit import Commitment, Commitments, Finding
from anabranch.protocol.federation.contracts import AuditClauses, Contract, Side
from anabranch.protocol.federation.metering import (
    NANO_PER_MICRO,
    Reading,
    counted,
    due_nano,
    is_dispute,
    overlap_ms,
    period_end_ms,
    period_of,
)
from anabranch.protocol.federation.movements import (
    Ended,
    EndReason,
    Movement,
    MovementEntry,
    MovementLog,
    MovementState,
    Placed,
    Started,
    Withdrawn,
)
from anabranch.protocol.federation.offers import UNITS_MAX
from anabranch.protocol.federation.silence import SellerSilence
from anabranch.protocol.federation.statements import Verify

DISPUTES_MAX: Final = 5
"""Number of slots in dispute from which a stage comes home and its contract is suspended. One may
be due to a process that began in the middle of a slot.
"""

POSTINGS_MAX: Final = 10_000
"""Maximum number of postings that a ledger lists, a week of periods of a minute. A stream that is
paid by time is settled for as long as its contract is in force, whether anything comes or not.
"""

FINDINGS_MAX: Final = 1_000
"""Maximum number of findings in one entry: bounds what a reader holds of it."""


@dataclass(frozen=True, slots=True)
class Metered:
    """Mean load of a movement in a slot, as one side measured it."""

    SIGNED_AS: ClassVar[str] = "metered"

    contract_id: str
    movement_id: str
    by: str
    slot: int
    units: int


@dataclass(frozen=True, slots=True)
class AuditCommitted:
    """Commitment of the auditor to the number that determines the next sample: ``digest`` is the
    number's ``commitment``. ``bucket_ms``: width of the stream's buckets.
    """

    SIGNED_AS: ClassVar[str] = "audit committed"

    contract_id: str
    movement_id: str
    by: str
    digest: bytes
    bucket_ms: int


@dataclass(frozen=True, slots=True)
class Audited:
    """Result of a sample that the auditor recomputed. ``nonce`` determines the sample."""

    SIGNED_AS: ClassVar[str] = "audited"

    contract_id: str
    movement_id: str
    by: str
    nonce: bytes
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """The sum of a period."""

    SIGNED_AS: ClassVar[str] = "settled"

    contract_id: str
    by: str
    period: int
    due_nano: int


LedgerEntry = MovementEntry | Placed | Metered | AuditCommitted | Audited | Settled


@dataclass(frozen=True, slots=True)
class Posting:
    """An amount that one owes the other, for good (FL4)."""

    payer: str
    payee: str
    amount_nano: int
    reason: str
    """The period or the movement, in words."""


ReadingT = TypeVar("ReadingT")
"""Measurements of one period."""


class PeriodLedger(ABC, Generic[ReadingT]):
    """Common part of the ledgers of all kinds of contracts: settles periods in order, each once,
    and adds up what was posted. Not thread-safe.
    """

    ENTRIES: ClassVar[tuple[type[Any], ...]]
    """Kinds of entries that belong in it."""
    DISPUTED: ClassVar[str]
    """Name of what the two sides measure, for messages."""

    def __init__(self, payer: str, payee: str, auditor: str) -> None:
        """Start an empty ledger. ``payer`` owes ``payee`` the amount due for each period; both, and
        ``auditor``, may settle.
        """
        self.postings: list[Posting] = []
        """Newest postings, oldest first."""
        self.postings_before = 0
        """Number of postings that are no longer listed."""
        self._balances = {payer: 0, payee: 0}
        self.breaches: list[str] = []
        """Movements for whose end the payee owed a violation: it was silent, or wrong."""
        self.disputes: list[Any] = []
        """Identities of what the two sides measured differently."""
        self._payer, self._payee, self._auditor = payer, payee, auditor
        self._readings: dict[int, ReadingT] = {}
        """Period -> what was measured; of settled periods nothing."""
        self._settled = -1
        """Periods up to it are settled."""

    @abstractmethod
    def add(self, entry: Any, appended_ms: int) -> str:
        """Count an entry of a known kind, whose signature was checked, in the order of the log.
        Return why it does not count, or an empty text.

        ``appended_ms`` is the log's time of it; it never goes back.
        """

    @abstractmethod
    def renewed(self, contract: Any, at_ms: int) -> None:
        """Note a further version of the contract that both have signed."""

    @abstractmethod
    def noticed(self, at_ms: int, by: str, ends_ms: int) -> None:
        """Note a notice by a party, with which the contract ends at ``ends_ms``."""

    def suspended(self, at_ms: int, by: str) -> None:
        """Note that a party has suspended the contract."""

    def resumed(self, at_ms: int) -> None:
        """Note that no party suspends the contract any more."""

    @abstractmethod
    def due(self, period: int) -> int:
        """Return the amount owed for a period by its measurements, in nano-units."""

    @abstractmethod
    def _ripe_ms(self, period: int) -> int:
        """Return the time from which a period may be settled, in ms: all had the time to measure
        it.
        """

    def _closed(self, period: int) -> None:
        """Note that a period is settled. Its measurements are forgotten after this."""

    @property
    def settled(self) -> int:
        """Last settled period; -1 before the first."""
        return self._settled

    def may_settle(self, participant: str) -> bool:
        """Return whether ``participant`` may settle periods: a party of the contract, or its
        auditor.
        """
        return participant in {self._payer, self._payee, self._auditor}

    def ripe(self, now_ms: int) -> tuple[int, int] | None:
        """Return the period that is to be settled next and may be by now, and its sum; None if
        there is none. A period in which nothing was measured needs no settlement.
        """
        period = min(self._readings, default=None)
        if period is None or now_ms < self._ripe_ms(period):
            return None
        return period, self.due(period)

    def unsettled(self) -> int:
        """Return the amount due by now for all periods that are not settled."""
        return sum(map(self.due, self._readings))

    def balances(self) -> dict[str, int]:
        """Return what each participant has received; negative if it has paid (FL1, FF1)."""
        return dict(self._balances)

    def _settle(self, entry: Settled, appended_ms: int) -> str:
        """Settle the period that ``entry`` names, if time and sum are right (FL2, FF2). Return why
        it does not count, or an empty text.
        """
        if not self.may_settle(entry.by):
            return "not by a party of the contract"
        if entry.period <= self._settled:
            return "settled already"
        if appended_ms < self._ripe_ms(entry.period):
            return "too early"
        if any(period < entry.period for period in self._readings):
            return "an earlier period is not settled"
        due = self.due(entry.period)
        if entry.due_nano != due:
            return f"the sum is {due}"
        self._settled = entry.period
        self._closed(entry.period)
        self._readings.pop(entry.period, None)
        self._post(self._payer, due, f"period {entry.period}")
        return ""

    def _post(self, payer: str, amount_nano: int, reason: str) -> None:
        payee = self._payee if payer == self._payer else self._payer
        if not amount_nano:
            return
        self._balances[payer] -= amount_nano
        self._balances[payee] += amount_nano
        self.postings.append(Posting(payer, payee, amount_nano, reason))
        if len(self.postings) > POSTINGS_MAX:
            del self.postings[0]
            self.postings_before += 1


class Ledger(PeriodLedger[dict[tuple[str, int], Reading]]):
    """Log state of the ledger of one contract for load; after a crash a replay restores it. The
    measurements of a period are kept by movement and slot.
    """

    ENTRIES = (Started, Withdrawn, Placed, Ended, Metered, AuditCommitted, Audited, Settled)
    DISPUTED = "slots"

    def __init__(self, contract: Contract, verify: Verify, auditor: str) -> None:
        """``auditor``: whose findings count."""
        super().__init__(contract.buyer, contract.seller, auditor)
        self.movements = MovementLog(contract, verify)
        self._contract = contract
        self.disputes: list[tuple[str, int]] = []
        """Movement and slot where the two measured different loads."""
        self._silence = SellerSilence()
        self._wrong: set[str] = set()
        self._commitments = Commitments()
        self._noticed_ms: int | None = None

    def renewed(self, contract: Contract, at_ms: int) -> None:
        """Note a further version that both have signed. Metering intervals and periods stay as they
        began: movements get the further version with those of the first one, so that all
        callers count the same slots of a movement.
        """
        del at_ms
        first = self._contract.audit
        audit = replace(contract.audit, meter_ms=first.meter_ms, settle_ms=first.settle_ms)
        self.movements.renewed(replace(contract, audit=audit))

    @property
    def clauses(self) -> AuditClauses:
        """Clauses of the first version, whose slots and periods count for all versions."""
        return self._contract.audit

    def noticed(self, at_ms: int, by: str, ends_ms: int) -> None:
        """Note that the contract is ending from this time on."""
        del by, ends_ms
        self._noticed_ms = at_ms if self._noticed_ms is None else min(self._noticed_ms, at_ms)

    # ---------------------------------------------------------------- entries

    def add(self, entry: LedgerEntry, appended_ms: int) -> str:
        """Count an entry, whose signature was checked, in the order of the log. Return why it does
        not count, or an empty text (FL5).

        ``appended_ms`` is the log's time of it; it never goes back.
        """
        if entry.contract_id != self._contract.contract_id:
            return "not of this contract"
        if isinstance(entry, Metered):
            return self._metered(entry, appended_ms)
        if isinstance(entry, (AuditCommitted, Audited)):
            return self._audited(entry, appended_ms)
        if isinstance(entry, Settled):
            return self._settle(entry, appended_ms)
        rejection = self.movements.add(entry, appended_ms)
        if not rejection and isinstance(entry, Ended):
            self._penalise(self.movements[entry.movement_id], entry)
        return rejection

    def _metered(self, entry: Metered, appended_ms: int) -> str:
        """Count a measurement of one side (FL3). Return why it does not count, or an empty text."""
        side, movement = self._contract.party(entry.by), self.movements.find(entry.movement_id)
        if side is None:
            return "not by a party of the contract"
        if (
            movement is None
            or not 0 <= entry.units <= UNITS_MAX
            or not self._ran_ms(movement, entry.slot)
        ):
            return "the movement did not run in this slot"
        clauses = self._contract.audit
        if appended_ms < (entry.slot + 1) * clauses.meter_ms:
            return "the slot is not over"
        if period_of(entry.slot, clauses) <= self._settled:
            return "the period is settled"
        readings = self._readings.setdefault(period_of(entry.slot, clauses), {})
        reading = readings.get((entry.movement_id, entry.slot), Reading())
        if (reading.seller if side is Side.SELLER else reading.buyer) is not None:
            return "measured already"
        if side is Side.SELLER:
            reading = reading._replace(seller=entry.units)
        else:
            reading = reading._replace(buyer=entry.units)
        readings[entry.movement_id, entry.slot] = reading
        self._silence.measured(entry.movement_id, (entry.slot + 1) * clauses.meter_ms, reading)
        if is_dispute(reading, self.movements.contract(movement.version).audit.tolerance_ppm):
            self.disputes.append((entry.movement_id, entry.slot))
        return ""

    def _audited(self, entry: AuditCommitted | Audited, appended_ms: int) -> str:
        movement = self.movements.find(entry.movement_id)
        if entry.by != self._auditor:
            return "not by the auditor"
        if movement is None or movement.state is MovementState.VOID:
            return "no such movement"
        if isinstance(entry, AuditCommitted):
            return self._commitments.add(
                entry.movement_id, entry.digest, entry.bucket_ms, appended_ms
            )
        if len(entry.findings) > FINDINGS_MAX:
            return "too many findings"
        is_over = movement.state is MovementState.OVER
        reason = self._commitments.reveal(
            entry.movement_id,
            entry.nonce,
            [finding.bucket for finding in entry.findings],
            self.movements.contract(movement.version).audit.sample_ppm,
            (movement.started_ms, movement.ended_ms if is_over else appended_ms),
        )
        if not reason and entry.findings:
            self._wrong.add(entry.movement_id)
            if is_over and entry.movement_id not in self.breaches:
                self._convicted(movement)
        return reason

    def _ripe_ms(self, period: int) -> int:
        clauses = self._contract.audit
        return period_end_ms(period, clauses) + clauses.settle_ms

    def _closed(self, period: int) -> None:
        self._silence.settled(period_end_ms(period, self._contract.audit))

    # ---------------------------------------------------------------- sums

    def due(self, period: int) -> int:
        """Return what the buyer owes for a period by its measurements, in thousandths of a
        micro-unit (FL2).
        """
        total = 0
        for (name, slot), reading in self._readings.get(period, {}).items():
            movement = self.movements[name]
            units = counted(
                reading,
                movement.units,
                self.movements.contract(movement.version).audit.tolerance_ppm,
            )
            total += due_nano(movement.price, units, self._ran_ms(movement, slot))
        return total

    def _ran_ms(self, movement: Movement, slot: int) -> int:
        if movement.state is MovementState.VOID:
            return 0
        ended_ms = movement.ended_ms if movement.state is MovementState.OVER else None
        return overlap_ms(slot, self._contract.audit.meter_ms, movement.started_ms, ended_ms)

    # ---------------------------------------------------------------- penalties

    def _penalise(self, movement: Movement, entry: Ended) -> None:
        contract = self.movements.contract(movement.version)
        violation = contract.penalty.violation_micro * NANO_PER_MICRO
        by_buyer = entry.by == contract.buyer
        if (
            entry.why is EndReason.SILENT
            and by_buyer
            and self.is_silent(movement, movement.ended_ms)
        ):
            self._breached(movement, violation, contract)
        elif self.is_wrong(entry.movement_id):
            self._convicted(movement)
        elif entry.why is EndReason.CONTRACT_ENDS and self._ends(contract, movement.ended_ms):
            return
        elif movement.ended_ms - movement.started_ms < contract.min_hold_ms:
            self._post(entry.by, violation, f"ended before its time: {entry.movement_id}")

    def _breached(self, movement: Movement, violation: int, contract: Contract) -> None:
        """Charge the seller of a movement that was silent or idle, at most the violation."""
        at_ms, name = movement.ended_ms, movement.movement_id
        self.breaches.append(name)
        silent_ms = self._silence.silent_ms(movement, at_ms)
        if self._silence.is_silent(movement, contract, at_ms):
            due = violation + contract.penalty.silent_micro_per_s * silent_ms
            self._post(contract.seller, due, f"silent {silent_ms} ms: {name}")
        else:
            self._post(contract.seller, violation, f"made nothing: {name}")

    def _convicted(self, movement: Movement) -> None:
        """Post the penalty for an audit's finding about a movement that is over, whoever ended it
        and why: a seller must not escape because its stage is recalled before the buyer knows.
        """
        contract, name = self.movements.contract(movement.version), movement.movement_id
        self.breaches.append(name)
        violation = contract.penalty.violation_micro * NANO_PER_MICRO
        self._post(contract.seller, violation, f"wrong results: {name}")

    def is_silent(self, movement: Movement, at_ms: int) -> bool:
        """Return whether the seller of the movement was silent or idle long enough to owe a
        penalty.
        """
        contract, silence = self.movements.contract(movement.version), self._silence
        return silence.is_silent(movement, contract, at_ms) or silence.is_idle(
            movement, contract, at_ms
        )

    def is_wrong(self, movement_id: str) -> bool:
        """Return whether an audit of the movement found wrong results."""
        return movement_id in self._wrong

    def commitment(self, movement_id: str, digest: bytes) -> Commitment | None:
        """Return the auditor's commitment with this hash; None if there is none."""
        return self._commitments.find(movement_id, digest)

    def disputed(self, movement_id: str) -> int:
        """Return the slots of a movement that are in dispute."""
        return sum(name == movement_id for name, _ in self.disputes)

    def _ends(self, contract: Contract, at_ms: int) -> bool:
        return at_ms >= contract.valid_to_ms or (
            self._noticed_ms is not None and at_ms >= self._noticed_ms
        )
