"""Two to four participants that trade a stage: agents and brokers of contracts as they are, and
stand-ins for ingestion and nodes, which follow the log of moves and write boundary logs as these
would.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.signing import SigningKey
from anabranch.agent import service as agent_service
from anabranch.agent.service import AgentService
from anabranch.codec import control_records, federation_records
from anabranch.contract_broker import service as broker_service
from anabranch.pipeline.file import load
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Pipeline
from anabranch.ports import Clock, EventLog
from anabranch.process.frame import ServiceContext
from anabranch.protocol.control.records import Heartbeat, Move
from anabranch.protocol.errors import Fenced
from anabranch.protocol.federation.contract_log import LoadLog
from anabranch.protocol.federation.contracts import AuditClauses, Contract, MoveClauses
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.ledger import Ledger
from anabranch.protocol.federation.movements import Movement
from anabranch.protocol.federation.stage_moves import node_of
from anabranch.protocol.federation.stream_signers import wanted_words
from anabranch.protocol.federation.workload import ROW_PER_SECOND
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage.owners_checkpoint import Transfer
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from anabranch.streams.heartbeats import HeartbeatSender
from anabranch.streams.placement import PlacementReader
from harness import outputs
from harness.control_topics import beating
from harness.federations import FederationWorld
from harness.markets import DAY_MS, contract
from harness.sources import REPORT

BUCKET_MS: Final = 250
METER_MS, SETTLE_MS = 1_000, 5_000
SAMPLE_PPM: Final = 200_000
MIN_HOLD_MS: Final = 4_000
WARM_UP_MS: Final = 800
"""Time that a node stands by before it begins, in ms."""
CALM, RUSH = 20, 200
"""Rows per second."""
CAPACITY: Final = {"north": 220, "south": 600, "west": 1_200, "east": 1_200}
"""Capacity of each participant: in a rush the stage is nearly all that north can do."""
FILE = """
pipeline: {pipeline}
bucket: 250ms
partitions: 1
sources:
  sightings:
    topics: [{pipeline}.sightings]
    record: report.avsc
    event_time: {{field: time, unit: ms}}
stages:
  speeds:
    participant: {name}
    reads: [sightings]
    transform: "functions:same"
    ha: upstream_backup
    state_horizon: 1s
outputs:
  out: {{stage: speeds, corrected: {{topic: {pipeline}.out}}}}
federation:
  name: {federation}
  participant: {name}
  auditor: auditor
  {more}
  agent:
    capacity: {capacity}
    scale: 1000
    offer_every: 1s
    answer_within: {answer_within}
    rest: 2s
"""


def terms(now_ms: int, task: str, **changes: Any) -> Contract:
    """Between 15 and 40 micro-units per row and second: a stage that costs less is not sold."""
    found: dict[str, Any] = {
        "unit": ROW_PER_SECOND,
        "tasks": (task,),
        "fixed_price": 40,
        "delta": 25,
        "min_hold_ms": MIN_HOLD_MS,
        "valid_to_ms": now_ms + DAY_MS,
        "moving": MoveClauses(Transfer.REBUILD, 10_000),
        "audit": AuditClauses(METER_MS, 100_000, SAMPLE_PPM, SETTLE_MS),
        **changes,
    }
    return contract(**found)


class Source:
    """Stands in for ingestion: closes the buckets up to the clock, each with its rows."""

    def __init__(
        self, log: EventLog, clock: Clock, of: Pipeline, signing: Signing | None = None
    ) -> None:
        self._clock = clock
        self._writer = BoundaryWriter(
            log,
            of.topic_names.boundaries("sightings"),
            ["0"],
            EpochStarted("0", "f", SeededEntropy(3).token(), bucket_ms=BUCKET_MS),
            clock,
            signing=signing,
        )
        self._epoch = self._writer.start()
        self.upto = clock.now_ms() // BUCKET_MS
        self.batch = 0
        self.rows: dict[int, int] = {}

    def write(self, rows_per_s: int) -> None:
        before, self.upto = self.upto, self._clock.now_ms() // BUCKET_MS
        if self.upto == before:
            return
        count = rows_per_s * BUCKET_MS // 1_000
        made = dict.fromkeys(range(before + 1, self.upto + 1), count)
        self.rows |= made
        parts = tuple(Part(b, 0, "a", 1, 0, 1, rows, 7) for b, rows in made.items())
        self.batch += 1
        self._writer.append(
            BoundaryRecord(
                "0",
                self._epoch,
                BatchId("s", self.batch),
                self._writer.tip(),
                self.upto,
                parts,
                written_ms=self._clock.now_ms(),
            )
        )

    def close(self) -> None:
        self._writer.close()


class Node:
    """Stands in for a node that can run the stage: it begins where the log of moves places it,
    and closes what the source has closed.
    """

    def __init__(self, log: EventLog, clock: Clock, of: Pipeline, name: str, seed: int) -> None:
        self.name = name
        self._log = log
        self._clock = clock
        self._of = of
        self._entropy = SeededEntropy(seed)
        self._placement = PlacementReader(log, of.topic_names.placement(), of.places())
        self._control_topic = of.topic_names.control("processing", "speeds.0")
        self._beats = HeartbeatSender(log, self._control_topic, clock, every_ms=200)
        self._beat: Heartbeat | None = None
        self._writer: BoundaryWriter | None = None
        self._batch = 0
        self._placed_ms: int | None = None
        self.epoch = -1
        self.is_alive = True
        self.is_stuck = False
        """It is heard, and closes nothing."""
        self.closed: set[int] = set()
        """Buckets that it has made."""

    def run(self, upto: int) -> None:
        if not self.is_alive:
            self.end()
            return
        self._placement.poll()
        if self._writer is None:
            if self._placement.places.node_of("speeds.0") != self.name:
                self._placed_ms = None
                return
            now_ms = self._clock.monotonic_ms()
            if self._placed_ms is None:
                self._placed_ms = now_ms
            if now_ms - self._placed_ms < WARM_UP_MS:
                return
            self._writer = self._begin()
        try:
            self._writer.poll()
            self._writer.check_epoch()
            self._close(self._writer, upto)
        except Fenced:
            self.end()

    def _begin(self) -> BoundaryWriter:
        names = self._of.topic_names
        made = BoundaryWriter(
            self._log,
            names.boundaries("speeds"),
            ["0"],
            EpochStarted("0", "f", self._entropy.token(), bucket_ms=BUCKET_MS, node=self.name),
            self._clock,
        )
        self.epoch = made.start()
        return made

    def _close(self, writer: BoundaryWriter, upto: int) -> None:
        self._beat = Heartbeat("processing", "speeds", "0", writer.epoch, "running", upto, 0)
        self._beats.send(self._beat)
        if upto > writer.log_state.closed("0") and not self.is_stuck:
            before = writer.log_state.closed("0")
            if before:
                self.closed |= set(range(before + 1, upto + 1))
            self._batch += 1
            ident = BatchId(self._entropy.token(), self._batch)
            writer.append(BoundaryRecord("0", writer.epoch, ident, writer.tip(), upto))

    def beating(self) -> AbstractContextManager[None]:
        """While it runs it is heard also between two rounds, however long they take."""
        return beating(self._log, self._control_topic, self._clock, lambda: self._beat)

    @property
    def runs(self) -> bool:
        return self._writer is not None

    def end(self) -> None:
        self._beat = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def close(self) -> None:
        self.end()
        self._beats.close()
        self._placement.close()


@dataclass
class TradingWorld:
    """North sells to south under contract ``north-south``; if there is a west, south sells on to it
    under ``south-west``, and west in its turn to an east under ``west-east``. All have an agent and
    a broker.
    """

    log: EventLog
    clock: Clock
    folder: Path
    """Folder of the pipeline files; without any they are written."""
    passes: Callable[[], None]
    """Lets a little time pass."""
    federation: str = "tolls"
    prefix: str = ""
    """Before the names of both pipelines."""
    rate: int = CALM
    """Rows per second of north."""
    souths_rate: int = CALM
    wests_rate: int = CALM
    answer_within: str = "1500ms"
    participants: tuple[str, ...] = ("north", "south")
    agents: dict[str, AgentService] = field(default_factory=dict)
    brokers: dict[str, broker_service.ContractBroker] = field(default_factory=dict)
    before_round: Callable[[], None] = lambda: None
    """Function that an outsider runs before each round."""
    are_signers_named: bool = True
    """Whether owners name the partners that may sign results of their published stages."""

    def __post_init__(self) -> None:
        if not (self.folder / "north.yaml").exists():
            self._write_files()
        self.pipelines: dict[str, Pipeline] = {
            name: load(self.folder / f"{name}.yaml") for name in self.participants
        }
        keys = {name: SigningKey.generate(name, "1") for name in self.participants}
        self.book = FederationWorld(self.log, self.federation, keys)
        self._reader = self.book.reader()
        if self.are_signers_named:
            self._name_signers()
        for buyer, seller in pairwise(self.participants):
            self.book.open(f"{buyer}-{seller}")
            self.book.make("offers", self.book.topics.offers(f"{buyer}-{seller}"))
        admin = self.log.admin()
        for pipeline in self.pipelines.values():
            admin.create([settings for _, settings in internal_topics(pipeline, 1)])
        admin.close()
        for name in self.participants:
            write_key(self.book.keys[name], self.folder / f"{name}.key")
        self.sources = {name: self._source(name) for name in self.pipelines}
        self.nodes = {
            name: self._node(name, seed)
            for seed, name in enumerate(map(node_of, self.participants), 10)
        }

    def _name_signers(self) -> None:
        now_ms = self.clock.now_ms()
        self._reader.read_to_end()
        for owner, pipeline in self.pipelines.items():
            signers = pipeline.other_signers()
            for word in wanted_words(owner, pipeline.name, signers, self._reader.signers, now_ms):
                value = federation_records.encode(word, self.book.keys[owner].sign(word))
                self.book.write(self.book.topics.keys(owner), value)

    def _source(self, name: str) -> Source:
        return Source(self.log, self.clock, self.pipelines[name])

    def _node(self, name: str, seed: int) -> Node:
        return Node(self.log, self.clock, self.pipelines["north"], name, seed)

    def _write_files(self) -> None:
        (self.folder / "functions.py").write_text("def same(sightings):\n    return sightings\n")
        (self.folder / "report.avsc").write_text(json.dumps(REPORT.avro))
        sellers = self.participants[1:]
        more = dict.fromkeys(sellers, f"hosts: {{{self.prefix}north: north.yaml}}")
        partners = ", ".join(f"{name}: [speeds]" for name in sellers)
        more["north"] = f"partners: {{{partners}}}"
        for name, lines in more.items():
            text = FILE.format(
                name=name,
                pipeline=f"{self.prefix}{name}",
                federation=self.federation,
                more=lines,
                capacity=CAPACITY[name],
                answer_within=self.answer_within,
            )
            (self.folder / f"{name}.yaml").write_text(text)

    @property
    def task(self) -> str:
        """Task that is traded."""
        return f"{self.prefix}north.speeds"

    def agree(self, **changes: Any) -> Contract:
        text = terms(self.clock.now_ms(), self.task, **changes)
        for party in (text.buyer, text.seller):
            self.book.say(party, text)
        return text

    def start(self, *participants: str) -> None:
        """Start new processes: an agent and a broker of each participant."""
        for name in participants:
            with self._key_of(name):
                context = self._context("agent", name)
                self.agents[name] = agent_service.build(context.settings, context)
                self.agents[name].start()
            self.start_broker(name)

    def start_broker(self, name: str) -> None:
        """Start a new broker."""
        with self._key_of(name):
            context = self._context("contract_broker", name)
            self.brokers[name] = broker_service.build(context.settings, context)
            self.brokers[name].start()

    def _context(self, service: str, name: str) -> ServiceContext:
        of = self.pipelines[name]
        return outputs.context(self.log, of, self.clock, SeededEntropy(1), service, name)

    @contextmanager
    def _key_of(self, name: str) -> Iterator[None]:
        before = os.environ.get(f"{VARIABLE}_FILE")
        os.environ[f"{VARIABLE}_FILE"] = str(self.folder / f"{name}.key")
        try:
            yield
        finally:
            os.environ.pop(f"{VARIABLE}_FILE")
            if before is not None:
                os.environ[f"{VARIABLE}_FILE"] = before

    def move(self, node: str) -> None:
        """Move the stage as an operator of north does; remove it if ``node`` is empty."""
        move = Move("speeds", "0", node, self.clock.now_ms())
        topic = self.pipelines["north"].topic_names.placement()
        self.book.write(topic, control_records.encode(move))

    def kill(self, *participants: str) -> None:
        for name in participants:
            self.agents.pop(name).stop()
            self.brokers.pop(name).stop()

    def round(self) -> None:
        """Everybody does a little."""
        self.before_round()
        rates = {"north": self.rate, "south": self.souths_rate, "west": self.wests_rate}
        for name, source in self.sources.items():
            source.write(rates.get(name, CALM))
        for node in self.nodes.values():
            node.run(self.sources["north"].upto)
        for agent in self.agents.values():
            agent.step()
        for broker in self.brokers.values():
            broker.step()
        self.passes()

    def lasts(self, time_ms: int) -> None:
        """Run rounds until so much time has passed."""
        end_ms = self.clock.now_ms() + time_ms
        while self.clock.now_ms() < end_ms:
            self.round()

    def until(self, holds: Callable[[], bool], what: str, rounds: int = 400) -> None:
        for _ in range(rounds):
            if holds():
                return
            self.round()
        raise AssertionError(f"not seen in {rounds} rounds: {what}; {self.seen()}")

    def seen(self) -> str:
        """For whoever looks at a failure."""
        places = {name: dict(each.status.detail) for name, each in self.agents.items()}
        return f"runs on {self.runs_on()}, {places}, {self.ledger().postings}"

    def place(self, of: str = "north") -> TaskPlace | None:
        holding = self.agents[of].agent.holdings.tasks.get(self.task)
        return None if holding is None else holding.place

    def newest(self) -> str:
        """Return the node that began last."""
        return max(self.nodes.values(), key=lambda node: node.epoch).name

    def runs_on(self) -> str:
        """Return the node that runs the stage, by the boundary log."""
        names = self.pipelines["north"].topic_names
        with closing(BoundaryReader(self.log, names.boundaries("speeds"), ["0"])) as reader:
            reader.read_to_end()
            return reader.log_state.node("0")

    def contract(self, name: str = "north-south") -> LoadLog:
        self._reader.read_to_end()
        return self._reader.contracts[name]

    def ledger(self, of: str = "north-south") -> Ledger:
        found = self.contract(of).ledger
        assert found is not None, "agreed"
        return found

    def movements(self, of: str = "north-south") -> list[Movement]:
        return list(self.ledger(of).movements)

    def balances(self) -> Mapping[str, int]:
        return self.ledger().balances()

    def close(self) -> None:
        self.kill(*list(self.agents))
        self._reader.close()
        for broker in self.brokers.values():
            broker.stop()
        for node in self.nodes.values():
            node.close()
        for source in self.sources.values():
            source.close()
