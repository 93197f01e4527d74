"""Bugs planted in the rules of contracts, prices, agents and the ledger: each is found by the judge
that is meant for it, which finds nothing without.

What the simulation's mutants are to the protocol of streams. A scenario is deterministic, and
returns what its judges say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from anabranch.protocol.federation import offers
from anabranch.protocol.federation.audit import Fault, Finding, commitment, sample
from anabranch.protocol.federation.contract_book import (
    Change,
    ContractBook,
    ContractChange,
    Verdict,
)
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.ledger import (
    AuditCommitted,
    Audited,
    Ledger,
    LedgerEntry,
    Metered,
    Settled,
)
from anabranch.protocol.federation.movements import Ended, Why, Withdrawn
from anabranch.protocol.federation.offers import AcceptedTask, OfferedTask
from checkers import market as judges
from experiments.market.exchange import Exchange, Faults, Habits
from experiments.market.figures import DESIRED, PRICE
from experiments.market.graph import chain, complete_graph, random_graph
from experiments.market.rounds import Market, Trade, varied_bounds
from harness.exchanges import MINUTE, exchange, rush
from harness.markets import CONTRACT, DAY_MS, answer, contract, offer, signature, started, verify
from simulation.planting import Mutant, planted

# ---------------------------------------------------------------- scenarios


def traded() -> Iterator[str]:
    """Uneven tasks, prices that differ, ranges and fixed prices: every trade is judged by the
    true loads.
    """
    for delta_ppm in (0, 150_000):
        chance = random.Random(4)
        tasks = [
            {f"{number}.{t}": chance.randrange(50, 400) for t in range(chance.randrange(60))}
            for number in range(10)
        ]
        of = varied_bounds(PRICE, delta_ppm, 100_000, 4)
        trades: list[Trade] = []
        made = Market(tasks, random_graph(10, 3, chance), of, DESIRED, seen=trades.append)
        made.run(chance, 200)
        yield from judges.trades([(trade, of(trade.buyer, trade.seller)) for trade in trades])
        if not trades:
            yield "nothing was traded"


def crowded() -> Iterator[str]:
    """Three who have too much offer to one who has a little room, all at once."""
    made = exchange(
        [[100] * 8, [100] * 8, [100] * 8, [100] * 5], complete_graph(4), min_hold_ms=2_000
    )
    made.run(4 * MINUTE)
    yield from judges.calm(made)


def disturbed() -> Iterator[str]:
    """Messages and copies are lost, participants die at any time; then those that run others'
    tasks die once more.
    """
    made = exchange(
        [[100] * 9, [70] * 9, [100] * 2, [100]],
        chain(4),
        faults=Faults(
            seed=3,
            lost=0.35,
            moves_fail=0.4,
            late_ms=1_500,
            read_late_ms=1_500,
            crashes_per_h=40,
            until_ms=4 * MINUTE,
        ),
        min_hold_ms=5_000,
    )
    made.run(7 * MINUTE)
    for name in ("p1", "p2", "p0"):
        made.crash(name)
        made.run(made.now_ms + MINUTE)
        yield from judges.runners(made)
    if not any(made.runner(task) != of.owner for task, of in made.tasks.items()):
        yield "nobody runs another's task"


def silent() -> Iterator[str]:
    """The seller dies for good after it has accepted, another buyer's answers are all lost."""
    made = exchange([[100] * 9, [100]], chain(2), habits={"p1": Habits(never_prepares=True)})
    made.run(2 * MINUTE)
    made.down_until["p0"] = 10**12
    made.run(4 * MINUTE)
    yield from judges.waits(made, 32_000)
    made = exchange([[100] * 9, [100]], chain(2))
    made.down_until["p1"] = 10**12
    made.run(2 * MINUTE)
    yield from judges.waits(made, 32_000)


def rushed() -> Exchange:
    """Load of p0 doubles, travels by way of p1, whose own tasks may not move, to p2, and goes
    home.
    """
    mobile = tuple(f"p0.t{number}" for number in range(10))
    made = exchange(
        [[50] * 10, [100] * 6, [100] * 2], chain(3), units=rush, min_hold_ms=20_000, tasks=mobile
    )
    made.run(12 * MINUTE)
    return made


def came_home() -> Iterator[str]:
    made = rushed()
    yield from judges.runners(made)
    if len(made.starts) < 4:
        yield f"only {len(made.starts)} movements"
    if made.level("p0") < 400:
        yield f"p0 runs {made.level('p0')} of its 500"
    if len({task for _, task in made.starts}) == len(made.starts):
        yield "nothing was sold on"


def kept_for_the_hold() -> Iterator[str]:
    chance = random.Random(5)
    drawn = [chance.randrange(60, 141) for _ in range(1_000)]

    def noisy(name: str, size: int) -> Callable[[int], int]:
        return lambda now: (
            size * drawn[(now // 5_000 + sum(map(ord, name)) * 37) % len(drawn)] // 100
        )

    made = exchange(
        [[100] * 8, [100] * 6, [100] * 6, [100] * 5],
        complete_graph(4),
        units=noisy,
        min_hold_ms=60_000,
    )
    made.run(8 * MINUTE)
    return judges.holds(made.starts, 60_000)


def paid(habits: dict[str, Habits] | None = None) -> Iterator[str]:
    made = exchange([[100] * 9, [100] * 2], chain(2), habits=habits)
    made.run(4 * MINUTE)
    yield from judges.payments(made)
    if not any(ledger.postings for ledger in made.ledgers.values()):
        yield "nothing was paid"


def cheated() -> Iterator[str]:
    """A seller claims three times its load; a buyer does not measure."""
    yield from paid({"p1": Habits(claims_times=3)})
    yield from paid({"p0": Habits(never_meters=True)})


def hostile_messages() -> Iterator[str]:
    """Answers that are to another offer, dearer than the reserve price, or of what was not
    offered.
    """
    given = offer(1, OfferedTask("north.a", 10, 900))
    wrong = [
        answer(2, AcceptedTask("north.a", 10, 900)),
        replace(answer(1, AcceptedTask("north.a", 10, 900)), seller="east"),
        answer(1, AcceptedTask("north.a", 10, 901)),
        answer(1, AcceptedTask("north.a", 10, 799)),
        answer(1, AcceptedTask("north.b", 10, 850)),
        answer(1, AcceptedTask("north.a", 11, 850)),
    ]
    yield from (f"believed: {each}" for each in wrong if offers.believed(each, given, CONTRACT))


def both_signed(text: Contract = CONTRACT) -> ContractBook:
    book = ContractBook(verify)
    for party in ("north", "south"):
        book.sign(text, signature(text, party), 0)
    return book


def hostile_contracts() -> Iterator[str]:
    """Texts and words that are forged, old, out of turn or by others; then the book is asked
    what may move.
    """
    dear, third = contract(fixed_price=9_000), contract(version=3)
    forged = replace(signature(CONTRACT, "north"), participant="south")
    book = ContractBook(verify)
    book.sign(CONTRACT, signature(CONTRACT, "north"), 0)
    if book.sign(CONTRACT, forged, 0) is Verdict.ACCEPTED:
        yield "a forged signature made a contract"
    book = both_signed()
    for text in (dear, third):
        for party in ("north", "south"):
            book.sign(text, signature(text, party), 0)
    if [each.contract for each in book] != [CONTRACT]:
        yield f"the book has {[each.contract for each in book]}"
    words = [
        ContractChange("north-south", 1, "north", change, number, 0)
        for number, change in ((1, Change.SUSPENDED), (2, Change.RESUMED))
    ]
    for word in (*words, words[0]):
        book.change(word, signature(word, "north"))
    if not next(iter(book)).may_move(0):
        yield "an old word counted again"
    book = both_signed()
    book.change(words[0], signature(words[0], "north"))
    if next(iter(book)).may_move(0):
        yield "load may move under a suspended contract"
    other = ContractChange("north-south", 1, "east", Change.SUSPENDED, 1, 0)
    book = both_signed()
    book.change(other, signature(other, "east"))
    if not next(iter(book)).may_move(0):
        yield "a stranger suspended a contract"
    if next(iter(both_signed())).may_move(31 * DAY_MS):
        yield "load may move under a contract that is over"


def hostile_ledger() -> Iterator[str]:
    """Entries that must not count, in a log where some do; then the sums are asked for."""
    name = "north-south:1/north.a"
    good = started(answer())
    forged = replace(good, signature=signature(answer(2), "south"))
    dear = started(answer(1, AcceptedTask("north.a", 10, 9_999)))
    own = started(answer(1), by="south")
    twice = started(answer(2))

    def metered(slot: int, by: str = "south") -> Metered:
        return Metered("north-south", name, by, slot, 10)

    second = 900 * 10 * 1_000
    number = bytes(16)
    first = 1_401
    last = 2_999
    drawn = sample(number, name, range(first, last), CONTRACT.audit.sample_ppm)
    early = sample(number, name, range(1, first), CONTRACT.audit.sample_ppm)[0]
    other = next(bucket for bucket in range(first, last) if bucket not in drawn)
    fixed = AuditCommitted("north-south", name, "broker", commitment(number), 100)
    audited = Audited(
        "north-south", name, "broker", number, (Finding(drawn[0], Fault.WRONG_RESULT),)
    )
    log: list[tuple[LedgerEntry, int, bool]] = [
        (forged, 0, False),
        (dear, 0, False),
        (own, 0, False),
        (good, 0, True),
        (twice, 0, False),
        (Withdrawn("north-south", name, "south", 0), 0, False),
        (metered(0), 500, False),
        (metered(0), 1_000, True),
        (metered(0), 1_000, False),
        (metered(1, "east"), 2_000, False),
        (Settled("north-south", "north", 0, second), 60_000, False),
        (Settled("north-south", "north", 0, second), 120_000, True),
        (metered(2), 120_000, False),
        (Settled("north-south", "south", 0, second), 130_000, False),
        (fixed, 140_000, True),
        (replace(fixed, by="north"), 140_000, False),
        (replace(audited, by="north"), 300_000, False),
        (replace(audited, nonce=bytes(17)), 300_000, False),
        (replace(audited, findings=(Finding(early, Fault.WRONG_RESULT),)), 300_000, False),
        (replace(audited, findings=(Finding(other, Fault.WRONG_RESULT),)), 300_000, False),
        (audited, 300_000, True),
    ]
    ledger = Ledger(CONTRACT, verify, "broker")
    for entry, at_ms, counts in log:
        if (ledger.add(entry, at_ms) == "") != counts:
            yield f"{'does not count' if counts else 'counts'}: {entry}"
    if sum(each.amount_nano for each in ledger.postings) != second:
        yield f"postings: {ledger.postings}"


def penalties() -> Iterator[str]:
    """How a movement ended, and who owes a violation for it."""
    name = "north-south:1/north.a"
    cases = [
        (Why.RECALLED, "north", 9_000, 0, ["north"]),
        (Why.RECALLED, "north", 10_000, 0, []),
        (Why.RETURNED, "south", 9_000, 0, ["south"]),
        (Why.SILENT, "north", 15_000, 3_000, ["south"]),
        (Why.SILENT, "north", 15_000, 14_000, []),
        (Why.WRONG, "north", 5_000, 0, ["north"]),
        (Why.CONTRACT_ENDS, "south", 5_000, 0, ["south"]),
    ]
    for why, by, at_ms, metered_ms, payers in cases:
        ledger = Ledger(CONTRACT, verify, "broker")
        ledger.add(started(answer()), 0)
        if metered_ms:
            ledger.add(
                Metered("north-south", name, "south", metered_ms // 1_000 - 1, 10), metered_ms
            )
        ledger.add(Ended("north-south", name, by, 0, why), at_ms)
        if [each.payer for each in ledger.postings] != payers:
            yield f"{why} by {by} after {at_ms}: {ledger.postings}"


SCENARIOS: dict[str, Callable[[], Iterator[str]]] = {
    "trades": traded,
    "calm": crowded,
    "runners": disturbed,
    "waits": silent,
    "home": came_home,
    "holds": kept_for_the_hold,
    "payments": paid,
    "cheats": cheated,
    "messages": hostile_messages,
    "contracts": hostile_contracts,
    "ledger": hostile_ledger,
    "penalties": penalties,
}

# ---------------------------------------------------------------- bugs

_F = "protocol.federation"
_LOG = f"{_F}.movements:MovementLog"
_LEDGER = f"{_F}.ledger:Ledger"
_BOOK = f"{_F}.contract_book:Book"
_BOOKED = f"{_F}.contract_book:Booked"
_SHEDDING = f"{_F}.shedding:Shedding"
_METERING = f"{_F}.metering"


def bug(by: str, name: str, where: str, old: str, new: str, breaks: str) -> Mutant:
    return Mutant(name, where, old, new, breaks, by=(by,))


MUTANTS = (
    bug(
        "trades",
        "price_above_the_bid",
        f"{_F}.pricing:settled",
        "(highest + lowest) // 2",
        "highest + 1",
        "FP1",
    ),
    bug(
        "trades",
        "ask_below_the_cost",
        f"{_F}.pricing:ask",
        "taken_micro // units + 1",
        "taken_micro // units - 99",
        "FP2",
    ),
    bug(
        "trades",
        "bid_above_the_cost",
        f"{_F}.pricing:bid",
        "(kept_micro - 1) // units",
        "kept_micro // units + 9_999",
        "FP2",
    ),
    bug(
        "trades",
        "one_price_and_no_question",
        f"{_F}.pricing:bid",
        "if kept_micro > bound.ceiling * units",
        "if True",
        "FT3",
    ),
    bug(
        "trades",
        "each_task_taken_by_itself",
        f"{_F}.trading:accept",
        "level += task.units",
        "pass",
        "FT2",
    ),
    bug(
        "trades",
        "each_task_offered_by_itself",
        f"{_F}.trading:choose",
        "level -= units",
        "pass",
        "FT1",
    ),
    bug(
        "calm",
        "promises_not_counted",
        f"{_F}.standing:Standing.most",
        "self.holdings.level()",
        "self.sure()",
        "FA2, FY1",
    ),
    bug(
        "waits",
        "promises_never_lapse",
        f"{_F}.agent:Agent._lapse",
        "now_ms - holding.since_ms < self._deadline_ms(term)",
        "True",
        "FA3",
    ),
    bug(
        "waits",
        "offers_never_lapse",
        f"{_SHEDDING}.tick",
        "now_ms >= self._outstanding.until_ms",
        "False",
        "FA3",
    ),
    bug(
        "home",
        "never_recalled",
        f"{_SHEDDING}._recalls",
        "self._is_cheaper_here(holding, went)",
        "False",
        "FA3",
    ),
    bug(
        "home",
        "sold_on_and_forgotten",
        f"{_F}.agent:Agent.recorded",
        "if event is Event.GONE and holding.went is not None:",
        "if False:",
        "FA6",
    ),
    bug(
        "holds",
        "hold_ignored",
        f"{_F}.holdings:Holdings.befell",
        "now_ms + (term.min_hold_ms if term else 0)",
        "0",
        "FH3, FA4",
    ),
    bug(
        "runners",
        "ledgers_not_read_again",
        f"{_F}.agent:Agent._relearn",
        "if partner is None or",
        "if True or",
        "agent",
    ),
    bug(
        "ledger",
        "last_word_counts",
        f"{_LOG}.add",
        "if after is None:",
        "if after is None and (before is None or not isinstance(entry, Withdrawn)):",
        "FM2",
    ),
    bug(
        "messages",
        "any_answer_believed",
        f"{_F}.offers:believed",
        "if named != ",
        "if False and named != ",
        "FO2",
    ),
    bug(
        "messages",
        "reserve_price_forgotten",
        f"{_F}.offers:_is_within",
        "<= offered.reserve_price",
        "<= contract.fixed_price",
        "FO2",
    ),
    bug(
        "contracts",
        "unsigned_contract",
        f"{_BOOK}.sign",
        "if not is_signed(contract, signature.participant, signature, self._verify):",
        "if False:",
        "FC1",
    ),
    bug(
        "contracts",
        "versions_left_out",
        f"{_BOOK}._out_of_order",
        "contract.version != there.contract.version + 1",
        "False",
        "FC3",
    ),
    bug(
        "contracts",
        "old_word_again",
        f"{_BOOK}.change",
        "word.number <= self._newest.get((word.contract_id, word.by), 0)",
        "False",
        "FC3",
    ),
    bug(
        "contracts",
        "stranger_heard",
        f"{_BOOK}.change",
        "booked.contract.party(word.by) is None or ",
        "",
        "FC4",
    ),
    bug(
        "contracts",
        "suspended_goes_on",
        f"{_BOOKED}.may_move",
        "is ContractState.ACTIVE",
        "is not ContractState.ENDED",
        "FC1",
    ),
    bug("contracts", "never_over", f"{_BOOKED}.state_at", "if now_ms >= end_ms", "if False", "FC1"),
    bug(
        "ledger",
        "answer_not_verified",
        f"{_LOG}._objection",
        "if not is_signed(answer, contract.seller, entry.signature, self._verify):",
        "if False:",
        "FM1",
    ),
    bug(
        "ledger",
        "price_not_checked",
        f"{_LOG}._objection",
        "not contract.floor <= tasks[0].price <= contract.fixed_price",
        "False",
        "FM1",
    ),
    bug(
        "ledger",
        "runs_twice",
        f"{_LOG}._objection",
        "if entry.task in self._runs",
        "if False",
        "FM3",
    ),
    bug(
        "ledger",
        "settled_at_once",
        f"{_LEDGER}._ripe_ms",
        "period_end_ms(period, clauses) + clauses.settle_ms",
        "0",
        "FL2",
    ),
    bug(
        "ledger",
        "settled_again_and_again",
        f"{_F}.ledger:PeriodLedger._settle",
        "self._settled = entry.period",
        "pass",
        "FL2",
    ),
    bug(
        "ledger",
        "measured_twice",
        f"{_LEDGER}._metered",
        'is not None:\n        return "measured already"',
        'is None and False:\n        return ""',
        "FL3",
    ),
    bug(
        "ledger",
        "audited_after_the_fact",
        f"{_F}.audit:Commitments.reveal",
        "max(committed_ms, ran_ms[0])",
        "ran_ms[0]",
        "FU4",
    ),
    bug(
        "ledger",
        "findings_at_choice",
        f"{_F}.audit:Commitments.reveal",
        "if not is_sampled(nonce, movement_id, bucket, sample_ppm):",
        "if bucket < 0:",
        "FU4",
    ),
    bug(
        "payments",
        "whole_slots_are_paid",
        f"{_METERING}:overlap_ms",
        "max(first, started_ms)",
        "first",
        "FB2",
    ),
    bug(
        "cheats",
        "claims_believed",
        f"{_METERING}:counted",
        "min(reading.seller, reading.buyer) if",
        "reading.seller if",
        "FB3",
    ),
    bug(
        "cheats",
        "who_does_not_measure_does_not_pay",
        f"{_METERING}:counted",
        "return min(reading.seller, agreed_units",
        "return 0 * min(reading.seller, agreed_units",
        "FB1",
    ),
    bug(
        "penalties",
        "silence_by_word_alone",
        f"{_F}.silence:Silence.is_silent",
        "return self.silent_ms(movement, at_ms) > patience_ms(contract)",
        "return at_ms > 0",
        "ledger",
    ),
    bug(
        "penalties",
        "early_end_is_free",
        f"{_LEDGER}._penalise",
        "< contract.min_hold_ms",
        "< 0",
        "ledger",
    ),
)


@pytest.mark.parametrize("name", SCENARIOS)
def test_without_a_bug_no_judge_complains(name: str) -> None:
    assert list(SCENARIOS[name]()) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_bug_is_found_by_the_judge_that_is_meant_for_it(mutant: Mutant) -> None:
    with planted(mutant):
        assert next(SCENARIOS[mutant.by[0]](), None) is not None


def test_a_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12
    assert {by for mutant in MUTANTS for by in mutant.by} == set(SCENARIOS)
