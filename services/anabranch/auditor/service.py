"""Auditor: connects ``protocol.federation.auditing`` with ledgers, logs and an engine.

This module does not decide what is wrong. It follows the contracts whose tasks are stages of its
pipeline file, draws and keeps numbers, has buckets recomputed, one query at a time, and writes the
entries that are due.

After a crash at any point the ledgers and the kept numbers tell which terms exist. Results of a
term that is not over are recomputed, as far as their input still exists.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter

from anabranch.adapters.key_files import key_of_environment
from anabranch.adapters.signing import SigningKey
from anabranch.auditor.sold_stage import GONE, SoldStageLogs, UnableError
from anabranch.federation.ledger_writer import LedgerWriter
from anabranch.federation.log_reader import FederationReader
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.pipeline.waits import known_horizon_buckets
from anabranch.ports import AuditNonces, Engine
from anabranch.process.crash_points import crash_point
from anabranch.process.frame import ServiceContext, ServiceStatus, StartEngine
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.audit import Finding, findings
from anabranch.protocol.federation.auditing import MovementAudit, SoldStage, reason_against
from anabranch.protocol.federation.contract_log import WORD_SKEW_MS
from anabranch.protocol.federation.ledger import AuditCommitted, Audited, Ledger
from anabranch.protocol.federation.movements import Movement, MovementState, Unfinished
from anabranch.protocol.federation.recheck import confirmed
from anabranch.protocol.federation.stage_moves import nodes_of, partners_nodes, stage_of
from anabranch.protocol.stage.owners_checkpoint import Transfer
from anabranch.streams.followed_logs import FollowedLogs

if TYPE_CHECKING:
    from anabranch.pipeline.model import Federation
    from anabranch.process.settings import ServiceSettings

_POLL_MS: Final = 200
"""Timeout for polling the ledgers, in ms."""
_LOOK_EVERY_MS: Final = 5_000
"""Interval between checks for new contracts, in ms: each asks the broker for the names of all
topics.
"""
_TOKENS: Final = 4
"""Number of tokens, of 8 bytes each, in an audit number, which so cannot be guessed."""


def build(
    settings: ServiceSettings,
    context: ServiceContext,
    start_engine: StartEngine,
    audit_nonces: Callable[[Path], AuditNonces],
) -> AuditorService:
    """Build the auditor of the stages that the owner of the pipeline file sells. ``audit_nonces``:
    opens the file of kept numbers.

    Raises:
        ConfigurationError: the file names no auditor, the key is missing or belongs to another
            participant, or the kept numbers cannot be read.
    """
    federation = context.pipeline.federation
    if federation is None or not federation.auditor:
        raise ConfigurationError(
            f"{settings.pipeline}: there is no auditor; name an `auditor` in the section"
            " `federation`"
        )
    key = key_of_environment(federation.auditor)
    if key is None:
        raise ConfigurationError(
            f"an auditor signs its findings: name the key of {federation.auditor} in"
            " ANABRANCH_SIGNING_KEY_FILE (anabranch keys new)"
        )
    path = Path(settings.state_dir) / "auditor" / f"{context.pipeline.name}.numbers.json"
    return AuditorService(context, federation, key, audit_nonces(path), start_engine)


class AuditorService:
    """Service of one auditor. Not thread-safe."""

    def __init__(
        self,
        context: ServiceContext,
        federation: Federation,
        key: SigningKey,
        numbers: AuditNonces,
        start_engine: StartEngine,
    ) -> None:
        """Prepare the auditor; no broker is contacted yet. ``start_engine``: called before the
        first computation.
        """
        self.status = ServiceStatus()
        self._context = context
        self._pipeline = context.pipeline
        self._federation = federation
        self._key = key
        self._numbers = numbers
        self._start_engine = start_engine
        self._topics = FederationTopics(federation.name)
        self._engine: Engine | None = None
        self._reader: FederationReader | None = None
        self._ledgers = LedgerWriter(context, self._topics, key)
        self._look_next_ms = 0
        self._unfinished: collections.defaultdict[str, Unfinished] = collections.defaultdict(
            Unfinished
        )
        """Movements whose audits are not over, by contract."""
        self._audits: dict[str, MovementAudit] = {}
        self._logs = FollowedLogs(
            lambda stage: SoldStageLogs(context, stage, self._running_engine),
            context.clock,
            context.logger,
        )
        """Logs of each followed stage."""
        self._served: set[str] = set()
        """Movements that had their turn in the current cycle over all of them."""
        self._not_audited: dict[str, str] = {}
        self._left_out: dict[str, collections.Counter[str]] = {}
        """Counts of buckets left out of each stage, by reason."""
        self._judged = Counter(
            "anabranch_audited_buckets",
            "Buckets of samples, by what the auditor found",
            ("pipeline", "stage", "outcome"),
            registry=context.registry,
        )

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Read the ledgers to their ends.

        Raises:
            Unavailable: the broker does not answer.
        """
        self._reader = FederationReader(self._context.log, self._topics, self._federation.auditor)
        self._reader.read_to_end()
        self._context.logger.info("ledgers_read", contracts=len(self._reader.contracts))

    def step(self) -> None:
        """Run one round: read new records, write due entries, and recompute one range of buckets.

        Raises:
            EngineEnded: the engine has ended.
        """
        reader = self._reader
        assert reader is not None, "started"  # noqa: S101 - step is called after start
        now_ms = self._context.clock.monotonic_ms()
        try:
            if now_ms >= self._look_next_ms:
                self._look_next_ms = now_ms + _LOOK_EVERY_MS
                reader.look()
            reader.poll(_POLL_MS)
            self._round(reader)
            self.status.waiting_for = self._logs.waits_for(reader.waits_for)
        except Unavailable as error:
            self.status.waiting_for = str(error)
        self.status.detail = {
            "federation": self._federation.name,
            "signs_as": self._key.participant,
            "movements": sorted(self._audits),
            "not_audited": dict(self._not_audited),
            "left_out": {stage: dict(reasons) for stage, reasons in self._left_out.items()},
        }

    def stop(self) -> None:
        """Close logs and engine. Idempotent."""
        self._logs.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._ledgers.close()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # ---------------------------------------------------------------- a round

    def _round(self, reader: FederationReader) -> None:
        """Advance the audits of all movements. A stage whose logs cannot be read holds up no other
        one.
        """
        self._logs.poll()
        needed: dict[str, list[int]] = {}
        sold_stages = set[str]()
        is_computing = False
        for contract in reader.contracts.values():
            ledger = contract.ledger
            if ledger is None:
                continue
            unfinished = self._unfinished[contract.contract_id]
            for movement in unfinished.of(ledger.movements):
                stage = self._stage_of(movement)
                audit = self._audit_of(contract.contract_id, movement) if stage else None
                if audit is None:
                    unfinished.done(movement.movement_id)
                    continue
                sold_stages.add(stage)
                self._logs.follow(stage)
                logs = self._logs.known(stage)
                if logs is None:
                    # As after a crash, the kept numbers say what is to be audited (AU4): the logs
                    # may no longer describe what this audit has begun with.
                    self._audits.pop(movement.movement_id, None)
                    continue
                sold = self._sold(stage, ledger, movement)
                self._take_up(audit, ledger, movement)
                now_ms = self._context.clock.now_ms()
                audit.look(ledger, movement, logs.log_state, sold, now_ms)
                for entry in audit.entries(movement, sold.width_ms):
                    self._write(entry)
                if not is_computing and movement.movement_id not in self._served:
                    is_computing = self._recheck(audit, logs, stage, sold)
                    self._served |= {movement.movement_id} if is_computing else set()
                self._count(stage, audit)
                ended = max(0, now_ms - WORD_SKEW_MS) // sold.width_ms
                needed_after = audit.needed_after(min(logs.log_state.upto, ended))
                needed.setdefault(stage, []).append(needed_after)
        if not is_computing:
            self._served.clear()
        for stage in self._logs.every.keys() - sold_stages:
            self._logs.drop(stage)
        self._forget(needed)

    def _stage_of(self, movement: Movement) -> str:
        """Return the stage of a movement; empty if this auditor cannot judge it."""
        pipeline, stage = stage_of(movement.task)
        declared = self._pipeline.stages.get(stage)
        if pipeline != self._pipeline.name:
            return ""
        reason = (
            "the pipeline file does not have it"
            if declared is None
            else reason_against(declared.ha)
        )
        if reason and self._not_audited.get(stage) != reason:
            self._not_audited[stage] = reason
            self._context.logger.warning("not_audited", stage=stage, why=reason)
        return "" if reason else stage

    def _audit_of(self, contract_id: str, movement: Movement) -> MovementAudit | None:
        """Return the audit of a movement; None if the movement is over and no number is left to
        reveal.
        """
        name = movement.movement_id
        numbers = self._numbers.of(name)
        if movement.state is MovementState.OVER and not numbers:
            self._audits.pop(name, None)
            return None
        if name not in self._audits:
            self._audits[name] = MovementAudit(self._key.participant, contract_id, name, numbers)
        return self._audits[name]

    def _sold(self, stage: str, ledger: Ledger, movement: Movement) -> SoldStage:
        """Collect the facts about a sold stage."""
        pipeline, declared = self._pipeline, self._pipeline.stages[stage]
        allowed = partners_nodes(self._federation.partners, stage)
        return SoldStage(
            pipeline.stream_writers(stage)[0],
            nodes_of(movement, ledger.movements.contract(movement.version).seller, allowed),
            known_horizon_buckets(pipeline, stage),
            declared.version,
            pipeline.bucket_ms,
            by_checkpoint=declared.transfer is Transfer.CHECKPOINT,
        )

    def _take_up(self, audit: MovementAudit, ledger: Ledger, movement: Movement) -> None:
        """Update an audit from the ledger, and draw a number if one is due. The number is kept
        before anything depends on it.
        """
        audit.read(ledger, movement)
        is_due = audit.is_number_due(movement, self._context.clock.now_ms())
        if is_due:
            tokens = [self._context.entropy.token() for _ in range(_TOKENS)]
            audit.drawn(bytes.fromhex("".join(tokens)))
        self._numbers.keep(movement.movement_id, audit.numbers)
        if is_due:
            crash_point("auditor.number_kept")

    def _running_engine(self) -> Engine:
        """Return the engine, which starts on the first call."""
        if self._engine is None:
            self._context.logger.info("engine_starts")
            self._engine = self._start_engine(
                self._context, "auditor", self._pipeline.audited_stages()
            ).wait()
        return self._engine

    def _forget(self, needed: dict[str, list[int]]) -> None:
        """Forget buckets that no number covers any more."""
        for stage, buckets in needed.items():
            horizon = known_horizon_buckets(self._pipeline, stage)
            self._logs.every[stage].forget(min(buckets), horizon)

    # ---------------------------------------------------------------- buckets

    def _recheck(
        self, audit: MovementAudit, logs: SoldStageLogs, stage: str, sold: SoldStage
    ) -> bool:
        """Recompute the next buckets of a sample and judge them. Return whether there were any."""
        buckets = audit.wanted(sold.horizon)
        if not buckets:
            return False
        first = self._recomputed(audit, logs, stage, buckets, sold.horizon)
        if first is None:
            return True
        # A difference counts only if a second computation, from earlier input, confirms the first:
        # horizon and determinism are promises of the stage's author, not of the seller.
        suspected = findings(logs.claimed(buckets), first)
        doubtful = [finding.bucket for finding in suspected]
        self._judge(audit, stage, [each for each in buckets if each not in doubtful], [])
        if doubtful:
            second = self._recomputed(audit, logs, stage, doubtful, 2 * sold.horizon)
            if second is not None:
                alike, differing = confirmed(first, second)
                self._leave_out(audit, stage, differing, "two computations of it differ")
                found = [finding for finding in suspected if finding.bucket in alike]
                self._judge(audit, stage, list(alike), found)
        return True

    def _recomputed(
        self,
        audit: MovementAudit,
        logs: SoldStageLogs,
        stage: str,
        buckets: Sequence[int],
        before: int,
    ) -> dict[int, tuple[int, int]] | None:
        """Recompute buckets. Return None if that is not possible now, or if they are left out."""
        try:
            return logs.computed(buckets, before)
        except UnableError as error:
            of = buckets[:1] if error.reason == GONE else buckets
            self._leave_out(audit, stage, of, error.reason, str(error))
            return None

    def _judge(
        self,
        audit: MovementAudit,
        stage: str,
        buckets: Sequence[int],
        found: Sequence[Finding],
    ) -> None:
        """Note the findings in ``buckets``, count them and log them."""
        audit.judged(buckets, found)
        name = self._pipeline.name
        self._judged.labels(name, stage, "right").inc(len(buckets) - len(found))
        self._judged.labels(name, stage, "wrong").inc(len(found))
        for finding in found:
            self._context.logger.error(
                "seller_wrong", stage=stage, bucket=finding.bucket, what=finding.fault.value
            )

    def _leave_out(
        self, audit: MovementAudit, stage: str, buckets: Sequence[int], why: str, detail: str = ""
    ) -> None:
        """Leave buckets out of the audit, for the reason ``why``."""
        if buckets:
            audit.skipped(buckets, why)
            self._context.logger.warning(
                "not_judged", stage=stage, buckets=list(buckets), why=why, detail=detail[:500]
            )

    def _count(self, stage: str, audit: MovementAudit) -> None:
        """Count the buckets that were left out since the last call."""
        left_out, audit.left_out = audit.left_out, collections.Counter()
        self._left_out.setdefault(stage, collections.Counter()).update(left_out)
        self._judged.labels(self._pipeline.name, stage, "left_out").inc(left_out.total())

    # ---------------------------------------------------------------- ledgers

    def _write(self, entry: AuditCommitted | Audited) -> None:
        """Write ``entry``, unless it was written a moment ago."""
        if self._ledgers.write(entry):
            count = len(entry.findings) if isinstance(entry, Audited) else None
            event = "audit_committed" if count is None else "findings_reported"
            self._context.logger.info(event, movement=entry.movement_id, findings=count)
