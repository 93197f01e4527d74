"""The auditor of a run of a federation: the numbers that it keeps on its disk, an engine, and one
that picks whom to blame.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.auditor.service import AuditorService
from anabranch.codec import federation_records
from anabranch.pipeline.model import Federation
from anabranch.ports import StartingEngine, TopicPartition
from anabranch.process.frame import ServiceContext
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from anabranch.protocol.federation.audit import Fault, Finding, commitment, is_sampled
from anabranch.protocol.federation.ledger import AuditCommitted, Audited, Ledger
from anabranch.protocol.federation.movements import Movement, MovementState
from simulation.disk import Machine, SimulatedDisk
from simulation.engine import SimulatedEngine
from simulation.market import MarketOptions
from simulation.network import Port

_PICKS_AFTER_MS: Final = 1_500
"""Time that a movement has run before the picking auditor picks, in ms."""
_TRIES: Final = 100


@dataclass
class NumbersDisk:
    """Disk of an auditor's machine, with its numbers."""

    numbers: dict[str, tuple[bytes, ...]] = field(default_factory=dict)

    def lose(self) -> None:
        """All of them."""
        self.numbers = {}


class SimulatedNumbers:
    """``ports.AuditNonces`` of one process: what it has read when it began, and has written since;
    a file is written whole.
    """

    def __init__(self, port: Port, disk: NumbersDisk) -> None:
        self._port, self._disk = port, disk
        self._own = dict(disk.numbers)

    def of(self, movement_id: str) -> tuple[bytes, ...]:
        """See the port."""
        return self._own.get(movement_id, ())

    def keep(self, movement_id: str, numbers: Sequence[bytes]) -> None:
        """See the port."""
        if tuple(numbers) == self.of(movement_id):
            return
        own = {name: its for name, its in self._own.items() if name != movement_id}
        if numbers:
            own[movement_id] = tuple(numbers)
        self._port.disk()
        self._own = self._disk.numbers = own
        self._port.disk()


class PickingAuditor(AuditorService):
    """An auditor that finds what it likes in buckets that it has picked: once with a number that
    was never committed to, once with one to which it commits when the bucket is over.
    """

    _picked: frozenset[str] = frozenset()

    def step(self) -> None:
        """See ``AuditorService``."""
        super().step()
        assert self._reader is not None
        for contract in self._reader.contracts.values():
            for movement in contract.ledger.movements if contract.ledger is not None else ():
                if contract.ledger is not None and self._is_due(movement):
                    self._picked |= {movement.movement_id}
                    self._blame(contract.ledger, contract.contract_id, movement)

    def _is_due(self, movement: Movement) -> bool:
        now_ms = self._context.clock.now_ms()
        return (
            movement.state is MovementState.RUNNING
            and movement.movement_id not in self._picked
            and now_ms >= movement.started_ms + _PICKS_AFTER_MS
        )

    def _blame(self, ledger: Ledger, contract_id: str, movement: Movement) -> None:
        width_ms = self._pipeline.bucket_ms
        bucket = (movement.started_ms + _PICKS_AFTER_MS) // width_ms - 1
        share_ppm = ledger.movements.contract(movement.version).audit.sample_ppm
        rng = random.Random(movement.movement_id)
        numbers = [rng.randbytes(32) for _ in range(_TRIES)]
        drawn = (
            each for each in numbers if is_sampled(each, movement.movement_id, bucket, share_ppm)
        )
        ids = contract_id, movement.movement_id, self._key.participant
        found = (Finding(bucket, Fault.WRONG_RESULT),)
        first, second = next(drawn, numbers[0]), next(drawn, numbers[1])
        for entry in (
            Audited(*ids, first, found),
            AuditCommitted(*ids, commitment(second), width_ms),
            Audited(*ids, second, found),
        ):
            self._say(contract_id, entry)

    def _say(self, contract_id: str, entry: AuditCommitted | Audited) -> None:
        at = TopicPartition(self._topics.contract(contract_id), 0)
        with contextlib.suppress(OutcomeUnknown, Unavailable):
            writer = self._context.log.writer()
            writer.send(at, federation_records.encode(entry, self._key.sign(entry)))
            writer.flush()
            writer.close()


def build(
    context: ServiceContext,
    federation: Federation,
    port: Port,
    options: MarketOptions,
    numbers: NumbersDisk,
    *,
    picks: bool,
) -> AuditorService:
    """Build a process of the auditor. ``picks``: it is a ``PickingAuditor``."""
    stages = {stage.name: stage for stage in options.stages}
    disk = SimulatedDisk(Machine(), port.disk, port.network.history.reached)
    rng = random.Random(f"{options.seed}/{port.process.name}")
    engine = SimulatedEngine(context, port, lambda _: disk, stages, rng)

    def start(of: ServiceContext, name: str, names: Collection[str]) -> StartingEngine:
        del of, name, names
        return StartingEngine(lambda: engine)

    make = PickingAuditor if picks else AuditorService
    return make(
        context,
        federation,
        options.key(options.auditor),
        SimulatedNumbers(port, numbers),
        start,
    )
