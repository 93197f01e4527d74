"""A stream that is paid for, on a real broker: the processes that meter it are killed at each of
their crash points and between them. The ledger is what anybody computes of the stream's topic.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import boundary_records, federation_records
from anabranch.pipeline.file import load
from anabranch.ports import TopicPartition
from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.ledger import Settled
from anabranch.protocol.federation.stream_contracts import PeriodDelivery, SuggestedContract, Tier
from anabranch.protocol.federation.stream_ledger import StreamLedger, StreamMetered
from anabranch.protocol.log.records import BoundaryRecord
from harness.contents import content
from harness.service_processes import ModuleProcess, service
from harness.sold_streams import CONTRACT_ID, SoldStream
from harness.sources import REPORT, everything
from harness.stages import create_topics
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 120
BUCKET_MS, SETTLE_MS = 100, 1_000
DELAY_MS = 800

NORTH = """
pipeline: {name}
sources:
  reports: {{topics: [{name}.reports], record: report.avsc, event_time: {{field: time, unit: ms}}}}
stages:
  totals: {{participant: north, reads: [reports], transform: "functions:same"}}
publish: {{totals: {{}}}}
outputs:
  out: {{stage: totals, corrected: {{topic: {name}.out}}}}
federation: {{name: {name}, participant: north}}
"""
BILLING = """
pipeline: {name}-billing
bindings:
  tolls: {{pipeline: {name}, stream: totals, record: report.avsc, participant: north}}
stages:
  sums: {{participant: billing, reads: [tolls], transform: "functions:sums"}}
outputs:
  out: {{stage: sums, corrected: {{topic: {name}.sums}}}}
federation:
  name: {name}
  participant: billing
  agent: {{capacity: 600, scale: 1000, take_up: [south]}}
"""


class World(SoldStream):
    """North and billing with their pipeline files and keys."""

    def __init__(
        self, kafka: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(
            KafkaEventLog(kafka),
            SystemClock(),
            SystemEntropy(),
            name,
            name,
            bucket_ms=BUCKET_MS,
            settle_ms=SETTLE_MS,
            delay_ms_max=DELAY_MS,
            valid_to_ms=int(time.time() * 1_000) + 10**9,
            rate_max=10**6,
        )
        self.kafka = kafka
        self.folder = folder
        self.monkeypatch = monkeypatch
        (folder / "functions.py").write_text(
            "def same(reports):\n    return reports\n\ndef sums(tolls):\n    return tolls\n"
        )
        (folder / "report.avsc").write_text(json.dumps(REPORT.avro))
        for who, text in (("north", NORTH), ("billing", BILLING)):
            (folder / f"{who}.yaml").write_text(text.format(name=name))
            write_key(self.keys[who], folder / f"{who}.key")
        self.make_stream()

    def run(
        self, who: str, crash_point: str = "", module: str = "contract_broker"
    ) -> ModuleProcess:
        """Start a contract broker of this participant, or its agent."""
        self.monkeypatch.setenv(f"{VARIABLE}_FILE", str(self.folder / f"{who}.key"))
        return service(
            module,
            who,
            self.folder / f"{who}.yaml",
            self.kafka,
            self.folder / who,
            crash_point=crash_point,
        )

    def stream(self, duration_s: float) -> None:
        """Close each bucket of the stage when it ends, as far as this process keeps up."""
        until_ms = self.clock.now_ms() + int(duration_s * 1_000)
        closed = self.clock.now_ms() // BUCKET_MS
        while self.clock.now_ms() < until_ms:
            self.clock.sleep_ms(BUCKET_MS)
            upto = self.clock.now_ms() // BUCKET_MS
            self.close_up_to(upto, {each: each % 7 for each in range(closed + 1, upto + 1)})
            closed = upto

    def computed(self) -> dict[int, tuple[int, int]]:
        """Period -> messages and buckets in time: what the stream's topic says, record by record,
        without the rules that are tried here.
        """
        found = defaultdict[int, tuple[int, int]](lambda: (0, 0))
        closed = 0
        with closing(self.log.reader(headers=True)) as reader:
            at = TopicPartition(self.topic, 0)
            _, end = reader.offsets(at)
            reader.assign({at: 0})
            while reader.position(at) < end:
                for chunk in reader.fetch(1_000, 1_000):
                    rows = zip(chunk.values, chunk.headers, chunk.timestamps_ms, strict=True)
                    for value, headers, time_ms in rows:
                        entry = boundary_records.decode(value, headers)
                        if not isinstance(entry, BoundaryRecord):
                            continue
                        counts = {part.bucket: part.rows for part in entry.parts}
                        for bucket in range(max(closed + 1, entry.closed - 99), entry.closed + 1):
                            if time_ms - bucket * BUCKET_MS <= DELAY_MS:
                                period = (bucket * BUCKET_MS - 1) // SETTLE_MS
                                messages, buckets = found[period]
                                found[period] = messages + counts.get(bucket, 0), buckets + 1
                        closed = entry.closed
        return found

    def due(self, period: int) -> int:
        """Return the price by the terms: 50 a message from 99.9 % on, 30 from 90 % on."""
        messages, buckets = self.computed().get(period, (0, 0))
        price = {10: 50, 9: 30}.get(buckets, 0)
        return price * messages * 1_000

    def ledger(self) -> StreamLedger:
        found = self.found().ledger
        assert found is not None
        return found

    def entries(self) -> list[StreamMetered | Settled]:
        """Return the figures and settlements that were written, whether or not they count."""
        statements = [
            federation_records.decode(value).statement
            for chunk in everything(self.log, self.topics.contract(CONTRACT_ID))
            for value in chunk.values
        ]
        return [each for each in statements if isinstance(each, (StreamMetered, Settled))]

    def metered(self) -> list[tuple[str, int]]:
        """Return which side wrote figures of which periods."""
        return [
            (each.by, each.period) for each in self.entries() if isinstance(each, StreamMetered)
        ]

    def settle_a_second(self) -> None:
        """Let both state what came in time in one second, and north settle it."""
        came = PeriodDelivery(SETTLE_MS, 500, SETTLE_MS // BUCKET_MS, SETTLE_MS // BUCKET_MS)
        period = self.ledger().next_period(Side.BUYER)

        def is_settled() -> bool:
            for by in ("north", "billing"):
                self.say(by, StreamMetered(CONTRACT_ID, by, period, 500, came.buckets))
            self.say(
                "north", Settled(CONTRACT_ID, "north", period, self.text.plans[0].due_nano(came))
            )
            return self.ledger().last == came

        wait_until(is_settled, DEADLINE_S, "the period is over and settled", every_s=1)

    def state_of(self, contract_id: str) -> ContractState | None:
        """Return the state of a contract by its log."""
        with closing(self.reader()) as reader:
            reader.read_to_end()
            booked = reader.streams[contract_id].booked
            return None if booked is None else booked.state


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(kafka, topic_prefix, tmp_path, monkeypatch)


def test_brokers_are_killed_and_the_ledger_is_what_the_topic_says(world: World) -> None:
    world.agree()
    world.begin()
    world.stream(2.5)
    stopped_ms = world.clock.now_ms()  # it stands still: the buckets of the next 700 ms are late
    world.clock.sleep_ms(DELAY_MS + 700)
    late = {at_ms // SETTLE_MS for at_ms in (stopped_ms, stopped_ms + 700)}
    world.stream(1.5)
    first = world.ledger().next_period(Side.BUYER)
    last = (world.clock.now_ms() - 1) // SETTLE_MS
    # Nothing is written, then some figures are, and the other side's process dies as well.
    for who, point in (("north", ""), ("north", ":3"), ("billing", ":2")):
        with world.run(who, f"ledger.entry_due{point}") as process:
            process.wait_killed(DEADLINE_S)
    written = world.metered()
    assert [period for who, period in written if who == "north"] == [first, first + 1]
    # Billing's may begin with the settlement of what north's has measured.
    assert [each.by for each in world.entries()].count("billing") == 1
    with ExitStack() as running:
        processes = [running.enter_context(world.run(who)) for who in ("north", "billing")]
        wait_until(
            lambda: all(each.alive() for each in processes) and world.ledger().settled >= last,
            DEADLINE_S,
            lambda: f"what is due:\n{processes[0].log()}",
        )
    ledger, metered = world.ledger(), world.metered()
    assert [(each.reason, each.amount_nano) for each in ledger.postings] == [
        (f"period {period}", due) for period in range(first, last + 1) if (due := world.due(period))
    ]
    assert ledger.postings, "something came in time"
    assert 0 in map(world.due, late), "something did not"
    assert sum(ledger.balances().values()) == 0
    assert ledger.disputes == []
    assert len(set(metered)) == len(metered), "nothing is written a second time"
    assert {period for _, period in metered} >= set(range(first, last + 1))
    with world.run("billing") as process:
        wait_until(
            lambda: process.alive() and len(world.metered()) > len(metered),
            DEADLINE_S,
            "later periods, in which nothing comes, are metered by a new process",
        )
    written = world.metered()
    assert len(set(written)) == len(written)


def test_an_agent_that_is_killed_takes_up_a_suggestion_and_gives_notice(world: World) -> None:
    create_topics(world.kafka, load(world.folder / "billing.yaml"))
    world.agree()
    world.open("south-billing")
    terms = content(
        world.text,
        contract_id="south-billing",
        sender="south",
        pipeline="south",
        tiers=(Tier(999_000, 40), Tier(900_000, 30)),
    )
    world.say("south", terms)
    until_ms = world.clock.now_ms() + 3_600_000
    world.say("north", SuggestedContract(CONTRACT_ID, "north", "billing", terms, until_ms))
    with world.run("billing", "ledger.entry_written", module="agent") as agent:
        world.settle_a_second()
        agent.wait_killed(DEADLINE_S)
    states = world.state_of("south-billing"), world.state_of(CONTRACT_ID)
    assert states == (ContractState.ACTIVE, ContractState.ACTIVE), "signed, and no notice yet"
    with world.run("billing", module="agent") as agent:
        wait_until(
            lambda: agent.alive() and world.state_of(CONTRACT_ID) is ContractState.ENDING,
            DEADLINE_S,
            lambda: f"a notice:\n{agent.log()}",
        )
    assert world.state_of("south-billing") is ContractState.ACTIVE
