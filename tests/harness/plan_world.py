"""Two participants with a movement contract: north has a query over a stream of south's, and pays;
south may run the query. Agents and brokers of contracts are as they are; the rest are stand-ins, as
of ``trading_world``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from anabranch.codec import federation_records
from anabranch.protocol.federation.contract_log import StreamLog
from anabranch.protocol.federation.plan_switching import PlanSwitch, PlanWord, Word
from anabranch.protocol.federation.stream_contracts import (
    Payment,
    StreamContract,
    StreamTerms,
    Tier,
)
from anabranch.protocol.federation.stream_ledger import StreamLedger, StreamMetered
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, Part
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from harness.markets import DAY_MS
from harness.plans import plans
from harness.sources import REPORT, everything
from harness.trading_world import BUCKET_MS, CAPACITY, SETTLE_MS, Node, Source, TradingWorld

PLAN_ID: Final = "north-south"
BUSY: Final = 560
"""Rows per second of south's own: nearly all that it can do."""
SELECTED: Final = 2
"""The query lets every second row through."""
STREAM_PRICE, RESULT_PRICE = 10, 60
"""In a rush both gain if south runs the query, while it is calm only south does, and if south is
busy it does not.
"""

_FILES: Final = {
    "north": """
pipeline: {prefix}north
bucket: 250ms
partitions: 1
bindings:
  sightings: {{pipeline: {prefix}south, stream: speeds, record: report.avsc, participant: south}}
stages:
  speeds:
    participant: north
    reads: [sightings]
    transform: "functions:same"
    ha: upstream_backup
    state_horizon: 1s
outputs:
  out: {{stage: speeds, corrected: {{topic: {prefix}north.out}}}}
federation:
  name: {federation}
  participant: north
  partners: {{south: [speeds]}}
  agent: {{capacity: {capacity}, scale: 1000, backoff: 6s}}
""",
    "south": """
pipeline: {prefix}south
bucket: 250ms
partitions: 1
sources:
  sightings:
    topics: [{prefix}south.sightings]
    record: report.avsc
    event_time: {{field: time, unit: ms}}
stages:
  speeds:
    participant: south
    reads: [sightings]
    transform: "functions:same"
    ha: upstream_backup
    state_horizon: 1s
outputs:
  out: {{stage: speeds, corrected: {{topic: {prefix}south.out}}}}
publish:
  speeds: {{record: report.avsc}}
federation:
  name: {federation}
  participant: south
  hosts: {{{prefix}north: north.yaml}}
  agent: {{capacity: {capacity}, scale: 1000, backoff: 6s}}
""",
}


class QueryNode(Node):
    """Its results have rows."""

    sources: Mapping[str, Source]

    def _close(self, writer: BoundaryWriter, upto: int) -> None:
        before = writer.log_state.closed("0")
        if before and upto > before and not self.is_stuck:
            rows = self.sources["north"].rows
            parts = tuple(
                Part(bucket, 0, "a", 1, 0, 1, rows[bucket] // SELECTED, 7)
                for bucket in range(before + 1, upto + 1)
                if rows.get(bucket, 0) >= SELECTED
            )
            self.closed |= set(range(before + 1, upto + 1))
            self._batch += 1
            ident = BatchId(self._entropy.token(), self._batch)
            writer.append(BoundaryRecord("0", writer.epoch, ident, writer.tip(), upto, parts))
        super()._close(writer, upto)


class PlanWorld(TradingWorld):
    """``rate``: rows per second of south's stream; ``souths_rate``: of what it does beside."""

    def _write_files(self) -> None:
        (self.folder / "functions.py").write_text("def same(sightings):\n    return sightings\n")
        (self.folder / "report.avsc").write_text(json.dumps(REPORT.avro))
        for name, text in _FILES.items():
            (self.folder / f"{name}.yaml").write_text(
                text.format(prefix=self.prefix, federation=self.federation, capacity=CAPACITY[name])
            )

    def _source(self, name: str) -> Source:
        """Return north's source, which is south's, and signed."""
        sign = self.book.keys["south"].sign_message
        signing = Signing(sign) if name == "north" else None
        return Source(self.log, self.clock, self.pipelines[name], signing)

    def _node(self, name: str, seed: int) -> Node:
        made = QueryNode(self.log, self.clock, self.pipelines["north"], name, seed)
        made.sources = self.sources
        return made

    def plans(self, **changes: Any) -> StreamContract:
        north, south = f"{self.prefix}north", f"{self.prefix}south"
        plain = StreamTerms(
            (), south, "speeds", Payment.MESSAGE, (Tier(500_000, STREAM_PRICE),), 2_000, 1_000
        )
        other = replace(
            plain,
            at_sender=("speeds",),
            pipeline=north,
            tiers=(Tier(900_000, RESULT_PRICE), Tier(500_000, RESULT_PRICE // 2)),
            delay_ms_max=3_000,
        )
        terms: dict[str, Any] = {
            "contract_id": PLAN_ID,
            "sender": "south",
            "receiver": "north",
            "pipeline": north,
            "bucket_ms": BUCKET_MS,
            "valid_to_ms": self.clock.now_ms() + DAY_MS,
            "plans": (plain, other),
            "settle_ms": SETTLE_MS,
            "notice_ms": 10_000,
            "proposal_ms": 3_000,
            "deadline_ms": 10_000,
            "min_hold_ms": 4_000,
            **changes,
        }
        return plans(**terms)

    def agree_on_plans(self, **changes: Any) -> StreamContract:
        text = self.plans(**changes)
        for party in ("north", "south"):
            self.book.say(party, text)
        return text

    def plan_log(self) -> StreamLog:
        with closing(self.book.reader()) as reader:
            reader.read_to_end()
            return reader.streams[PLAN_ID]

    def plan_ledger(self) -> StreamLedger:
        found = self.plan_log().ledger
        assert found is not None, "agreed"
        return found

    def switch(self) -> PlanSwitch:
        return self.plan_ledger().switch

    def is_under(self, plan: int) -> bool:
        """Return whether the plan is active, as an agent has read, and the query runs where the
        plan has it.
        """
        return self.newest() == ("south.0" if plan else "north.0") and self._read().plan == plan

    def _read(self) -> PlanSwitch:
        """Return what an agent has read by now: a separate reader for each round would take
        long.
        """
        for agent in self.agents.values():
            reader = agent._reader
            log = None if reader is None else reader.streams.get(PLAN_ID)
            if log is not None and log.ledger is not None:
                return log.ledger.switch
        return self.switch()

    def balances(self) -> Mapping[str, int]:
        return self.plan_ledger().balances()

    def words(self, *kinds: Word) -> list[PlanWord]:
        """All of these kinds that were written, whether or not they count."""
        return [
            each for each in self._written() if isinstance(each, PlanWord) and each.word in kinds
        ]

    def figures(self) -> list[StreamMetered]:
        return [each for each in self._written() if isinstance(each, StreamMetered)]

    def _written(self) -> list[Any]:
        return [
            federation_records.decode(value).statement
            for chunk in everything(self.log, self.book.topics.contract(PLAN_ID))
            for value in chunk.values
        ]

    def seen(self) -> str:
        details = {name: dict(each.status.detail) for name, each in self.agents.items()}
        ledger = self.plan_ledger()
        return f"runs on {self.runs_on()}, {ledger.switch.changes}, {details}, {ledger.postings}"
