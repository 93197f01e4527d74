"""Entries that a participant writes into its contracts' logs, and when it writes them again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec import federation_records
from anabranch.federation import ledger_writer
from anabranch.federation.ledger_writer import LedgerWriter
from anabranch.protocol.errors import OutcomeUnknown
from anabranch.protocol.federation.contract_book import Change, ContractChange
from anabranch.protocol.federation.ledger import AuditCommitted, Audited, Metered, Settled
from anabranch.protocol.federation.movements import Placed, Withdrawn
from anabranch.protocol.federation.plan_switching import PlanWord, Word
from anabranch.protocol.federation.stream_ledger import StreamMetered
from harness import outputs
from harness.contents import stream_metered
from harness.federations import FederationWorld
from harness.sold_streams import CONTRACT_ID, SoldStream
from harness.sources import everything

NAME = "north-south:1/north.a"
METERED = Metered("north-south", NAME, "north", 1, 7)
FIGURE = StreamMetered("north-south", "north", 1, 7, 7)
SETTLED = Settled("north-south", "north", 1, 7)
PLACED = Placed("north-south", NAME, "north", 0, 1, "south.0")
WORD = PlanWord("north-south", "north", Word.PROPOSED, 1, 1)
CHANGE = ContractChange("north-south", 1, "north", Change.SUSPENDED, 5, 5)
WITHDRAWN = Withdrawn("north-south", NAME, "north", 0)


class Written:
    """A writer of north's, and what it has written into the logs of contracts."""

    def __init__(self, world: FederationWorld, clock: VirtualClock) -> None:
        self.world, self.clock = world, clock
        context = outputs.context(
            world.log,
            outputs.pipeline("north"),
            clock,
            SeededEntropy(1),
            "contract_broker",
            "north",
        )
        self.writer = LedgerWriter(context, world.topics, world.keys["north"])

    def of(self, contract: str = "north-south") -> list[Any]:
        return [
            federation_records.decode(value).statement
            for chunk in everything(self.world.log, self.world.topics.contract(contract))
            for value in chunk.values
        ]


@pytest.fixture
def written() -> Written:
    clock = VirtualClock(10**9)
    return Written(FederationWorld(LocalEventLog(clock), "tolls"), clock)


@pytest.mark.parametrize(
    ("entry", "same", "other"),
    [
        (METERED, replace(METERED, units=8), replace(METERED, slot=2)),
        (METERED, METERED, replace(METERED, movement_id="m")),
        (FIGURE, replace(FIGURE, messages=8), replace(FIGURE, period=2)),
        (SETTLED, replace(SETTLED, due_nano=8), replace(SETTLED, period=2)),
        (SETTLED, SETTLED, FIGURE),
        (PLACED, replace(PLACED, at_ms=9), replace(PLACED, number=2)),
        (WORD, WORD, replace(WORD, number=2)),
        (WORD, WORD, replace(WORD, word=Word.AGREED)),
        (CHANGE, replace(CHANGE, number=9, at_ms=9), SETTLED),
        (WITHDRAWN, replace(WITHDRAWN, at_ms=9), replace(WITHDRAWN, movement_id="m")),
        (
            AuditCommitted("north-south", NAME, "north", bytes(32), 100),
            AuditCommitted("north-south", NAME, "north", bytes(32), 100),
            AuditCommitted("north-south", NAME, "north", b"1" * 32, 100),
        ),
        (
            Audited("north-south", NAME, "north", bytes(16), ()),
            Audited("north-south", NAME, "north", bytes(16), ()),
            Audited("north-south", NAME, "north", b"1" * 16, ()),
        ),
    ],
)
def test_an_entry_waits_before_it_is_repeated_and_holds_no_other_up(
    written: Written, entry: Any, same: Any, other: Any
) -> None:
    writer = written.writer
    assert [writer.write(each) for each in (entry, same, other)] == [True, False, True]
    assert written.of() == [entry, other]
    written.clock.advance(ledger_writer._AGAIN_MS)
    assert writer.write(same)
    assert written.of() == [entry, other, same]


def test_an_entry_of_unknown_outcome_waits_too_and_is_written_again(written: Written) -> None:
    assert isinstance(written.world.log, LocalEventLog)
    written.world.log.fail_next(FailingOperation.FLUSH, applied=0, error=OutcomeUnknown)
    assert not written.writer.write(METERED)
    assert not written.writer.write(METERED)
    written.clock.advance(ledger_writer._AGAIN_MS)
    assert written.writer.write(METERED)
    written.writer.close()
    written.writer.close()
    assert METERED in written.of()


def test_an_entry_that_never_counts_is_repeated_ever_less_often(written: Written) -> None:
    """Each record stays in the log for ever."""
    day = 24 * 3_600
    times = []
    for second in range(day // 12):
        if written.writer.write(CHANGE):
            times.append(second)
        written.clock.advance(1_000)
    assert times[:7] == [0, 3, 9, 21, 45, 93, 153]
    assert len(times) < day // 12 // 60 + 6
    written.clock.advance(2 * ledger_writer._AGAIN_MS_MAX)
    assert [written.writer.write(CHANGE), written.writer.write(CHANGE)] == [True, False]
    written.clock.advance(ledger_writer._AGAIN_MS)
    assert written.writer.write(CHANGE), "what nobody wanted meanwhile begins anew"


def test_a_broker_that_does_not_answer_makes_no_pause_longer(written: Written) -> None:
    assert isinstance(written.world.log, LocalEventLog)
    for _ in range(5):
        written.world.log.fail_next(FailingOperation.FLUSH, applied=0, error=OutcomeUnknown)
        assert not written.writer.write(METERED)
        written.clock.advance(ledger_writer._AGAIN_MS)
    assert written.writer.write(METERED)


def test_a_contract_is_suspended_for_what_its_log_shows_and_not_at_each_look() -> None:
    clock = VirtualClock(10**9)
    world = SoldStream(LocalEventLog(clock), clock, SeededEntropy(1))
    world.agree()
    written = Written(world, clock)
    written.writer.suspend(world.found())
    begin = clock.now_ms() // 1_000 + 1
    clock.advance(20_000)
    for period in range(begin, begin + 5):
        for by, messages in (("north", 10), ("billing", 9)):
            world.say(by, stream_metered(period, by, messages, 10))
    disputed = world.found()
    for _ in range(2):
        written.writer.suspend(disputed)
    words = [each for each in written.of(CONTRACT_ID) if isinstance(each, ContractChange)]
    assert [(each.change, each.by) for each in words] == [(Change.SUSPENDED, "north")]
    written.writer.suspend(world.found())
    booked = world.found().booked
    assert booked is not None
    assert booked.suspended_by == ("north",)
