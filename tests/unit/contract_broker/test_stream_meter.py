"""Streams that are paid for, metered by the brokers of both sides on a log in memory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.contract_broker import stream_meter
from anabranch.contract_broker.service import ContractBroker, build
from anabranch.contract_broker.stream_meter import writers_of
from anabranch.protocol.federation.contract_book import Change, ContractChange, ContractState
from anabranch.protocol.federation.ledger import DISPUTES_MAX, Posting
from anabranch.protocol.federation.stream_ledger import StreamLedger, StreamMetered
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord
from harness import outputs
from harness.contents import stream_metered
from harness.sold_streams import CONTRACT_ID, ENTITY, SoldStream
from harness.sources import everything

BEGIN_MS = 1_000_000
"""The beginning of period 1 000: buckets 10 001 to 10 010."""
FULL = 50 * 10 * 7 * 1_000
"""Due for a period of ten buckets of seven rows, all in time."""


class World(SoldStream):
    """Both have signed before ``BEGIN_MS``; it is that time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **terms: Any) -> None:
        self.virtual = VirtualClock(BEGIN_MS - 10)
        self.local = LocalEventLog(self.virtual)
        super().__init__(self.local, self.virtual, SeededEntropy(3), **terms)
        self.folder, self.monkeypatch = folder, monkeypatch
        self.agree()
        self.make_stream()
        self.virtual.advance(10)
        self.begin()

    def at(self, after_ms: int, upto: int, **rows: int) -> None:
        """Close the stream's buckets up to ``upto`` at ``after_ms`` after ``BEGIN_MS``. ``b3=7``:
        seven rows in the third of them.
        """
        self.virtual.advance(BEGIN_MS + after_ms - self.virtual.now_ms())
        first = BEGIN_MS // 100
        parts = {first + int(name[1:]): count for name, count in rows.items()}
        self.close_up_to(first + upto, parts)

    def periods(self, first: int, count: int = 1, rows: int = 7) -> None:
        """Each bucket of these, counted from ``BEGIN_MS``, comes when it ends."""
        for number in range(10 * first + 1, 10 * (first + count) + 1):
            self.at(100 * number, number, **{f"b{number}": rows})

    def broker(self, participant: str) -> ContractBroker:
        """Start a new process."""
        path = self.folder / f"{participant}.key"
        if not path.exists():
            write_key(self.keys[participant], path)
        self.monkeypatch.setenv(f"{VARIABLE}_FILE", str(path))
        of = self.pipeline_of(participant)
        made = outputs.context(
            self.log, of, self.virtual, SeededEntropy(1), "contract_broker", participant
        )
        broker = build(made.settings, made)
        broker.start()
        return broker

    def run(self, *brokers: ContractBroker, ms: int = 0) -> None:
        """For so long, and until all is said."""
        until_ms = self.virtual.now_ms() + ms
        while True:
            for _ in range(4):
                for broker in brokers:
                    broker.step()
            if self.virtual.now_ms() >= until_ms:
                return
            self.virtual.advance(1_000)

    def ledger(self) -> StreamLedger:
        found = self.found().ledger
        assert found is not None
        return found

    def metered(self) -> list[StreamMetered]:
        """All that were written, whether or not they count."""
        statements = [
            federation_records.decode(value).statement
            for chunk in everything(self.local, self.topics.contract(CONTRACT_ID))
            for value in chunk.values
        ]
        return [each for each in statements if isinstance(each, StreamMetered)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_both_meter_what_came_in_time_and_it_is_settled_once(world: World) -> None:
    brokers = [world.broker(name) for name in ("north", "billing")]
    world.periods(0)
    # The second period: bucket 12 comes 301 ms after its end, all others within 300.
    world.at(1_400, 11, b11=7)
    world.at(1_501, 12, b12=7)
    world.at(1_600, 16, b14=5, b16=2)
    world.at(2_000, 20, b18=1)
    world.run(*brokers, ms=30_000)
    for by in ("north", "billing"):
        assert [each for each in world.metered() if each.by == by][:2] == [
            stream_metered(1_000, by, 70, 10),
            stream_metered(1_001, by, 15, 9),
        ]
    ledger = world.ledger()
    assert ledger.postings == [
        Posting("billing", "north", FULL, "period 1000"),
        Posting("billing", "north", 30 * 15 * 1_000, "period 1001"),
    ]
    assert ledger.balances() == {"north": FULL + 450_000, "billing": -FULL - 450_000}
    assert ledger.disputes == []
    assert len(world.metered()) == len({(each.by, each.period) for each in world.metered()})
    assert world.found().ignored.total() <= len(world.metered()), "settlements of the other side"


def test_a_stream_that_stands_still_is_not_paid_for(world: World) -> None:
    """Also where nothing comes any more that would show how late it is."""
    brokers = [world.broker(name) for name in ("north", "billing")]
    world.periods(0)
    world.run(*brokers, ms=20_000)
    for by in ("north", "billing"):
        assert stream_metered(1_001, by, 0, 0) in world.metered()
    world.at(60_000, 200, b12=10_000)
    world.run(*brokers, ms=20_000)
    assert {each.messages for each in world.metered() if each.period > 1_000} == {0}
    assert world.ledger().balances() == {"north": FULL, "billing": -FULL}


def test_a_receiver_that_never_pays_is_settled_with(world: World) -> None:
    """The settlement takes the sender's figures, which no one contradicts."""
    world.periods(0, 2)
    world.run(world.broker("north"), ms=20_000)
    assert world.ledger().balances() == {"north": 2 * FULL, "billing": -2 * FULL}


def test_a_sender_is_paid_for_what_readers_accept_and_not_for_its_claims(world: World) -> None:
    """Rows that nobody has signed whom it named, and more than it has sent by its own log."""
    world.periods(0)
    epoch = world._writer.epoch if world._writer else -1
    before = BatchId(f"{epoch:012d}", 9)
    forged = BoundaryRecord("0", epoch, BatchId(before.timeline, 10), before, 10_020)
    world.keys["north"], honest = SigningKey.generate("north", "1"), world.keys["north"]
    world.append_signed("north", forged)
    world.append_signed("south", forged)
    world.keys["north"] = honest
    world.periods(1)
    world.virtual.advance(12_000)
    world.say("north", stream_metered(1_000, "north", 10**9, 10))
    world.run(world.broker("billing"), ms=20_000)
    ledger = world.ledger()
    assert ledger.disputes == [1_000]
    assert ledger.balances() == {"north": 2 * FULL, "billing": -2 * FULL}


def test_a_contract_in_dispute_is_suspended_and_nothing_is_due_until_it_is_resumed(
    world: World,
) -> None:
    billing = world.broker("billing")
    for number in range(DISPUTES_MAX):
        world.periods(number)
    world.virtual.advance(2_000)
    for number in range(DISPUTES_MAX):
        world.say("north", stream_metered(1_000 + number, "north", 9_000, 10))
    world.run(billing, ms=3_000)
    booked = world.found().booked
    assert booked is not None
    assert (booked.state, booked.suspended_by) == (ContractState.SUSPENDED, ("billing",))
    measured = len(world.metered())
    world.run(billing, ms=20_000)
    assert len(world.metered()) <= measured + 2, "only what had begun"
    assert world.found().ignored["not in the contract's present state"] == 0
    at_ms = world.virtual.now_ms()
    world.say("billing", ContractChange(CONTRACT_ID, 1, "billing", Change.RESUMED, at_ms, at_ms))
    world.run(billing, ms=30_000)
    assert len(world.metered()) > measured + 2
    assert world.ledger().balances()["north"] == DISPUTES_MAX * FULL, "the smaller figures"


def test_what_was_deleted_before_it_was_read_has_no_figure_of_this_side(world: World) -> None:
    world.periods(0)
    world.at(1_100, 11, b11=7)
    world.trim()
    for number in range(12, 31):
        world.at(100 * number, number, **{f"b{number}": 7})
    world.run(world.broker("billing"), ms=20_000)
    assert world.metered()[0] == stream_metered(1_002, "billing", 70, 10)
    assert world.ledger().balances() == {"north": FULL, "billing": -FULL}


def test_nothing_is_metered_before_it_counts_nor_after_the_contracts_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, valid_from_ms=BEGIN_MS + 1, valid_to_ms=BEGIN_MS + 3_500)
    broker = world.broker("north")
    world.periods(0, 5)
    world.run(broker, ms=30_000)
    assert [each.period for each in world.metered()] == [1_001, 1_002]
    assert broker._meter is not None
    assert broker._meter._streams == {}, "its log is not followed any more"
    assert world.ledger().balances() == {"north": 2 * FULL, "billing": -2 * FULL}


def test_a_long_suspension_is_passed_by(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_meter, "_SKIPS_MAX", 3)
    broker = world.broker("north")
    for number, change in enumerate((Change.SUSPENDED, Change.RESUMED)):
        at_ms = world.virtual.now_ms()
        world.say("north", ContractChange(CONTRACT_ID, 1, "north", change, at_ms, at_ms))
        world.virtual.advance(20_000 * (1 - number))
    world.at(20_000, 200)
    world.periods(20)
    world.run(broker, ms=30_000)
    assert world.ledger().balances() == {"north": FULL, "billing": -FULL}


def test_why_a_stream_is_not_metered_is_shown_and_it_is_once_it_can_be(world: World) -> None:
    north = world.broker("north")
    world.stop_stage()
    with closing(world.local.admin()) as admin:
        admin.delete_topics([world.topic])
    north.step()
    why = north.status.detail["not_metered"]
    assert isinstance(why, dict)
    assert world.topic in str(why[CONTRACT_ID])
    world.make_stream()
    world.begin(bucket_ms=250)
    world.virtual.advance(10_000)
    world.run(north)
    assert "buckets of 250 ms" in str(north.status.detail["not_metered"])
    with closing(world.local.admin()) as admin:
        admin.delete_topics([world.topic])
    world.make_stream()
    world.begin()
    world.virtual.advance(10_000)
    world.run(north)
    assert north.status.detail["not_metered"] == {}


def test_a_broker_whose_file_does_not_have_the_stream_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = world.pipeline_of("north").model_copy(update={"publish_ms": {}})
    monkeypatch.setattr(world, "pipeline_of", lambda _: hidden)
    north = world.broker("north")
    for _ in range(2):
        north.step()
        world.virtual.advance(11_000)
    assert north.status.detail["not_metered"] == {CONTRACT_ID: f"north does not publish {ENTITY}"}


def test_who_has_nothing_to_do_with_the_stream_meters_nothing(world: World) -> None:
    auditor = world.broker("auditor")
    world.periods(0)
    world.run(auditor, ms=20_000)
    assert world.metered() == []
    assert auditor.status.detail["contracts"] == {CONTRACT_ID: "active"}


def test_the_replicas_of_a_stream_stand_in_the_files_of_both(world: World) -> None:
    north, billing = world.pipeline_of("north"), world.pipeline_of("billing")
    (plan,) = world.text.plans
    for of in (north, billing):
        assert writers_of(of, plan) == ["0"]
    hidden = north.model_copy(update={"publish_ms": {}})
    assert writers_of(hidden, plan) == f"north does not publish {ENTITY}"
    unbound = billing.model_copy(update={"bindings": {}})
    assert "has no binding for stream totals of pipeline north" in writers_of(unbound, plan)
    elsewhere = billing.bindings["tolls"].model_copy(update={"cluster": "far"})
    far = billing.model_copy(update={"bindings": {"tolls": elsewhere}})
    assert writers_of(far, plan) == f"stream {ENTITY} of pipeline north is on another cluster"
