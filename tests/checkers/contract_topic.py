"""Judge of a contract's topic: who ran what, where, at what price, and what was paid for it. It
reads the signed records in its own few lines: nothing here is code by which the services read them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.ledger import Metered, Posting, Settled
from anabranch.protocol.federation.movements import Ended, EndReason, Placed, Started, Withdrawn
from anabranch.protocol.federation.offers import OfferAnswer
from anabranch.protocol.federation.statements import Signature

SILENT_SLOTS: Final = 2
MEASURED_AFTER_MS: Final = 2_000
"""A seller that has measured nothing for so many slots, so long after one, and for the delay that
it has promised, is silent.
"""

IsSigned = Callable[[object, Signature, str], bool]
"""(statement, signature, participant): whether that is the participant's signature of it."""


@dataclass(frozen=True)
class Entry:
    """A record of the topic. ``at_ms``: the log's time."""

    at_ms: int
    statement: object
    signature: Signature


@dataclass
class Ran:
    """A movement that began."""

    name: str
    task: str
    units: int
    price: int
    started_ms: int
    ended_ms: int | None = None
    ended_by: str = ""
    ended_number: int = -1
    """Number of the ending entry, in the topic."""
    why: EndReason | None = None
    silent_ms: int = 0
    """For how long its seller had measured nothing when it ended."""
    words: list[str] = field(default_factory=list)
    """The nodes that its seller has named, one after the other."""

    def overlap_ms(self, first_ms: int, last_ms: int) -> int:
        """For how long of a time it ran."""
        end_ms = last_ms if self.ended_ms is None else min(last_ms, self.ended_ms)
        return max(0, end_ms - max(first_ms, self.started_ms))


@dataclass
class Book:
    """Content of the topic."""

    ran: dict[str, Ran] = field(default_factory=dict)
    metered: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    """(movement, slot) -> units by who measured them, the first of each."""
    paid: dict[int, int] = field(default_factory=dict)
    """Period -> the sum with which it is settled."""


def read(entries: Iterable[Entry], text: Contract, is_signed: IsSigned) -> Book:
    """Read the topic from its beginning."""
    book, now_ms = Book(), 0
    void: set[str] = set()
    for number, entry in enumerate(entries):
        now_ms = max(now_ms, entry.at_ms)
        statement = entry.statement
        if not isinstance(statement, Started | Withdrawn | Placed | Ended | Metered | Settled):
            continue
        if statement.by not in (text.buyer, text.seller):
            continue
        if not is_signed(statement, entry.signature, statement.by):
            continue
        match statement:
            case Started():
                _start(book, void, text, statement, now_ms, is_signed)
            case Withdrawn(movement_id=name) if name not in book.ran:
                void.add(name)
            case Ended(movement_id=name) if name in book.ran and book.ran[name].ended_ms is None:
                ran = book.ran[name]
                ran.ended_ms, ran.ended_number = now_ms, number
                ran.ended_by, ran.why = statement.by, statement.why
                ran.silent_ms = now_ms - max(ran.started_ms, _measured_ms(book, ran, text))
            case Placed(movement_id=name) if name in book.ran:
                _name(book.ran[name], text, statement)
            case Metered(movement_id=name) if name in book.ran:
                _measure(book, text, statement, now_ms)
            case Settled(period=period) if period > max(book.paid, default=-1):
                if now_ms >= (period + 2) * text.audit.settle_ms and statement.due_nano == _owed(
                    book, text, period
                ):
                    book.paid[period] = statement.due_nano
            case _:
                pass
    return book


def _start(
    book: Book,
    void: set[str],
    text: Contract,
    entry: Started,
    now_ms: int,
    is_signed: IsSigned,
) -> None:
    answer, name = entry.answer, entry.movement_id
    tasks = [each for each in answer.tasks if each.name == entry.task]
    is_taken = (
        entry.by == text.buyer
        and is_signed(answer, entry.signature, text.seller)
        and (answer.contract_id, answer.version) == (text.contract_id, text.version)
        and answer.seller == text.seller
        and name == f"{text.contract_id}:{answer.number}/{entry.task}"
        and entry.task in text.tasks
        and len(tasks) == 1
    )
    if not is_taken or name in void or name in book.ran:
        return
    (task,) = tasks
    is_free = all(
        each.ended_ms is not None for each in book.ran.values() if each.task == entry.task
    )
    if is_free and text.fixed_price - text.delta <= task.price <= text.fixed_price:
        book.ran[name] = Ran(name, entry.task, task.units, task.price, now_ms)


def _name(ran: Ran, text: Contract, entry: Placed) -> None:
    owner, _, number = entry.node.partition(".")
    is_next = entry.by == text.seller and entry.number == len(ran.words) + 1
    if is_next and ran.ended_ms is None and owner != text.buyer and owner and number.isdecimal():
        ran.words.append(entry.node)


def _measure(book: Book, text: Contract, entry: Metered, now_ms: int) -> None:
    meter_ms, ran = text.audit.meter_ms, book.ran[entry.movement_id]
    first_ms, last_ms = entry.slot * meter_ms, (entry.slot + 1) * meter_ms
    if now_ms < last_ms or not ran.overlap_ms(first_ms, last_ms) or entry.units < 0:
        return
    if first_ms // text.audit.settle_ms > max(book.paid, default=-1):
        book.metered.setdefault((ran.name, entry.slot), {}).setdefault(entry.by, entry.units)


def _measured_ms(book: Book, ran: Ran, text: Contract) -> int:
    """End of the last slot that its seller has measured."""
    slots = [
        slot
        for (name, slot), readings in book.metered.items()
        if name == ran.name and text.seller in readings
    ]
    return (max(slots, default=-1) + 1) * text.audit.meter_ms


def _owed(book: Book, text: Contract, period: int) -> int:
    """Price x units x time of all slots of a period, in thousandths of a micro-unit."""
    meter_ms = text.audit.meter_ms
    total = 0
    for (name, slot), readings in book.metered.items():
        if slot * meter_ms // text.audit.settle_ms == period:
            ran = book.ran[name]
            ran_ms = ran.overlap_ms(slot * meter_ms, (slot + 1) * meter_ms)
            total += ran.price * units_of(readings, ran, text) * ran_ms
    return total


def units_of(readings: Mapping[str, int], ran: Ran, text: Contract) -> int:
    """Return the units of a slot that count."""
    seller, buyer = readings.get(text.seller), readings.get(text.buyer)
    tolerance = text.audit.tolerance_ppm
    if seller is None:
        return buyer or 0
    if buyer is None:
        return min(seller, ran.units * (10**6 + tolerance) // 10**6)
    return seller if abs(seller - buyer) * 10**6 <= buyer * tolerance else min(seller, buyer)


# ---------------------------------------------------------------- what must hold


def paid_once(book: Book) -> Iterator[str]:
    """At no time is one task paid twice."""
    by_task: defaultdict[str, list[Ran]] = defaultdict(list)
    for ran in book.ran.values():
        by_task[ran.task].append(ran)
    for task, runs in by_task.items():
        runs.sort(key=lambda each: each.started_ms)
        for before, after in pairwise(runs):
            if before.ended_ms is None or after.started_ms < before.ended_ms:
                yield f"{task} is paid under {before.name} and {after.name} at {after.started_ms}"


def starts(entries: Sequence[Entry], text: Contract) -> Iterator[str]:
    """Nobody who is honest writes a start out of the contract's bound."""
    for entry in entries:
        statement = entry.statement
        if isinstance(statement, Started) and statement.by == text.buyer:
            for task in statement.answer.tasks:
                if not text.fixed_price - text.delta <= task.price <= text.fixed_price:
                    yield (
                        f"{statement.movement_id}: {text.buyer} starts it at {task.price}, the"
                        f" bound is {text.fixed_price - text.delta} to {text.fixed_price}"
                    )


def agrees(book: Book, postings: Sequence[Posting], balances: Mapping[str, int]) -> Iterator[str]:
    """Check that a reader's sums are what the topic says, and that no money comes from nowhere.
    Only settled periods count: early ends and failures are judged apart.
    """
    if sum(balances.values()):
        yield f"the balances are {dict(balances)}"
    posted: defaultdict[str, list[int]] = defaultdict(list)
    for posting in postings:
        if posting.reason.startswith("period "):
            posted[posting.reason].append(posting.amount_nano)
    readings = {f"period {period}": [paid] for period, paid in book.paid.items() if paid}
    if posted != readings:
        yield f"a reader has {dict(posted)}, the topic says {readings}"


def penalties(
    book: Book,
    postings: Sequence[Posting],
    text: Contract,
    convicted: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """Check that a party which ends a movement early pays for it; a seller pays only for a silence
    that the topic shows, or once for an auditor's finding, and no party for anything else.
    ``convicted``: movements with a finding that counts, and the number of the entry.
    """
    posted: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    idle = set()
    for posting in postings:
        kind, _, name = posting.reason.partition(": ")
        if kind == "made nothing":
            idle.add(name)  # who measured zeros is not judged here
        elif not posting.reason.startswith("period "):
            posted[name].append((posting.payer, posting.amount_nano))
    for ran in book.ran.values():
        found = None if ran.name in idle else (convicted or {}).get(ran.name)
        right = [] if ran.ended_ms is None else _due(ran, text, found)
        if posted[ran.name] != right:
            yield f"{ran} costs {posted[ran.name]}, not {right}"


def _due(ran: Ran, text: Contract, found: int | None) -> list[tuple[str, int]]:
    """Return what the end of a movement costs. ``found``: the number of the entry with an auditor's
    finding.
    """
    assert ran.ended_ms is not None
    violation = text.penalty.violation_micro * 1_000
    patience_ms = text.quality.delay_ms_max + SILENT_SLOTS * text.audit.meter_ms
    is_blamed = ran.why is EndReason.SILENT and ran.ended_by == text.buyer
    if is_blamed and ran.silent_ms > patience_ms + MEASURED_AFTER_MS:
        return [(text.seller, violation + text.penalty.silent_micro_per_s * ran.silent_ms)]
    if found is not None and found < ran.ended_number:
        return [(text.seller, violation)]
    early = ran.ended_ms - ran.started_ms < text.min_hold_ms
    return [(ran.ended_by, violation)] * early + [(text.seller, violation)] * (found is not None)


def sold_on(
    source: Book, book: Book, now_ms: int, quiet_from_ms: int, within_ms: int
) -> Iterator[str]:
    """Check that a seller has what it resells; and that a resale is over soon once it no longer has
    it. ``source``: of the contract under which it came; ``quiet_from_ms``: when all faults are
    over.
    """
    for ran in book.ran.values():
        came = [
            each
            for each in source.ran.values()
            if each.task == ran.task and each.started_ms <= ran.started_ms
        ]
        if not came:
            yield f"{ran.name} is sold on, and has not come"
            continue
        last = max(came, key=lambda each: each.started_ms)
        if last.ended_ms is None:
            continue
        late_ms = max(last.ended_ms, ran.started_ms, quiet_from_ms) + within_ms
        if (now_ms if ran.ended_ms is None else ran.ended_ms) > late_ms:
            yield (
                f"{ran.name} was sold on under {last.name}, which ended at {last.ended_ms}, and"
                f" ends at {ran.ended_ms}"
            )


@dataclass(frozen=True)
class Work:
    """Work of a movement's nodes in one slot, and the maximum time that is paid."""

    rows: int
    span_ms: int
    """The time of the buckets that it made."""


def payments(book: Book, text: Contract, work: Callable[[Ran, int], Work]) -> Iterator[str]:
    """Check that a seller is paid for no more than its node has done and the contract tolerates, if
    the buyer measured that; else it is believed, up to the agreed load. ``work``: of (movement,
    slot).
    """
    meter_ms = text.audit.meter_ms
    settled_ms = (max(book.paid, default=-1) + 1) * text.audit.settle_ms
    for (name, slot), readings in sorted(book.metered.items()):
        if (slot + 1) * meter_ms > settled_ms or text.buyer not in readings:
            continue
        ran = book.ran[name]
        ran_ms = ran.overlap_ms(slot * meter_ms, (slot + 1) * meter_ms)
        made, units = work(ran, slot), units_of(readings, ran, text)
        tolerated = made.rows * (1_000_000 + text.audit.tolerance_ppm) // 1_000
        if units * ran_ms > tolerated + ran_ms // 2 + 1:  # units are rounded
            yield (
                f"{name}, slot {slot}: {units} units are paid for {ran_ms} ms; its node made"
                f" {made.rows} rows ({dict(readings)})"
            )


def measurements(
    entries: Sequence[Entry],
    book: Book,
    text: Contract,
    work: Callable[[Ran, int], Work],
    honest: Iterable[str],
) -> Iterator[str]:
    """Check that an honest side's measurements are what the logs say: of the rows that the seller's
    node computed, over the time that it ran, or all that it computed.
    """
    meter_ms, believed = text.audit.meter_ms, set(honest)
    for entry in entries:
        each = entry.statement
        if (
            not isinstance(each, Metered)
            or each.by not in believed
            or each.movement_id not in book.ran
        ):
            continue
        ran = book.ran[each.movement_id]
        first_ms, last_ms = each.slot * meter_ms, (each.slot + 1) * meter_ms
        made = work(ran, each.slot)
        open_ms = max(0, last_ms - max(first_ms, ran.started_ms))  # its end may be unread
        right = {
            _rate(made.rows, max(made.span_ms, ran_ms))
            for ran_ms in (ran.overlap_ms(first_ms, last_ms), open_ms)
        }
        if each.units not in right:
            yield (
                f"{each.by} measures {each.units} in slot {each.slot} of {each.movement_id}; its"
                f" node made {made.rows} rows, of {made.span_ms} ms"
            )


def _rate(rows: int, over_ms: int) -> int:
    return over_ms and (rows * 1_000 + over_ms // 2) // over_ms


def takes(entry: Entry, task: str, text: Contract, is_signed: IsSigned) -> bool:
    """Whether a record of a topic of offers is an answer that takes a task, with the seller's
    signature.
    """
    answer = entry.statement
    return (
        isinstance(answer, OfferAnswer)
        and task in {each.name for each in answer.tasks}
        and is_signed(answer, entry.signature, text.seller)
    )
