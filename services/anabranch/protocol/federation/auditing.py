"""Decisions of an auditor about a movement: when it commits to a number, which buckets it computes
again, when it reveals the number.

Theory of operation. The time of a movement is covered by *terms*, each with a number of its own. A
number is drawn and kept, then its hash is written into the ledger. From then on the buckets of its
sample count, until the hash of the next number stands there. A term lasts ``TERM_MS``, or until
something is found. Then the hash of the next number is written first, so that no moment is left
unaudited, and after it the number, with the findings. A number without findings is revealed as
well, so that everybody can check that the auditor looked where it had to.

The number is secret until the auditor reveals it, so only the auditor keeps it, and does so before
its hash is written: a number that is lost has no findings, and costs what its term would have
found.

Some buckets of a sample say nothing about the seller and are left out: those that another node has
made; those that may rightly be partial, within a horizon after the stage began late, or after its
version began to count; those within a horizon after the seller's node began, if it began from the
owner's state (``protocol.stage.owners_checkpoint``); and those of another version of the stage than
the auditor has. The audit counts the buckets that it leaves out. All functions of one version give
the same results, whatever fingerprint a seller claims.

The states of a term:
    drawn      --its hash stands in the ledger-->                    open
    open       --the next one is open, or the movement is over-->    over
    over       --all is judged, or something was found-->            its number is revealed
    drawn      --the movement is over-->                             dropped

Invariants:
    AU1 a number is revealed only after the hash of the next one stands in the ledger, or the
        movement is over.
    AU2 every bucket of a sample that the seller's node has made, and that may be judged, is wanted
        once, if its term does not end by a finding before.
    AU3 a finding is reported with the number of whose sample its bucket is, in whose term it ended.
    AU4 a replay of the ledger with the numbers that were kept comes to the same terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.protocol.federation.audit import Finding, commitment, is_sampled
from anabranch.protocol.federation.ledger import FINDINGS_MAX, AuditCommitted, Audited, Ledger
from anabranch.protocol.federation.movements import Movement, MovementState
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.stage.recovery import HaMode

TERM_MS: Final = 3_600_000
"""Duration of a term, in ms: what a number that is lost costs at most, and one commitment an hour
in the ledger for each movement.
"""

WANTED_MAX: Final = 256
"""Buckets that one query computes again: bounds how long it takes."""


@dataclass(frozen=True, slots=True)
class SoldStage:
    """Facts about a stage whose movement the auditor checks."""

    replica: str
    """Replica that writes the stage's stream."""
    nodes: frozenset[str]
    """Nodes whose results count for the movement."""
    horizon: int
    """Horizon of the stage's state, in buckets."""
    version: int
    """Version of the stage's function in the auditor's file."""
    width_ms: int
    """Width of a bucket, in ms."""
    by_checkpoint: bool = False
    """Whether the seller's node begins from the state of the stage's owner."""


def reason_against(ha: HaMode) -> str:
    """Return why a stage cannot be audited; empty: it can. A seller must have made the state from
    the input alone, without gaps: otherwise it would be blamed for the work of others.
    """
    if ha == "upstream_backup":
        return ""
    return f"with ha: {ha} its results do not follow from its input alone; it needs upstream_backup"


def why_not_judged(log_state: LogState, stage: SoldStage, bucket: int) -> str:
    """Return why a stable bucket of the stage says nothing of its seller; empty: it does."""
    if bucket <= log_state.forgotten:
        return "its log describes it no more"
    origin = log_state.origin(stage.replica)
    if origin.node_of(bucket) not in stage.nodes:
        return "another node made it"
    if log_state.version_of(stage.replica) != stage.version:
        return "it is of another version of the stage"
    _, version_after = log_state.version
    partial_upto = max(origin.late_upto, origin.gap or 0, version_after) + stage.horizon
    if bucket <= partial_upto:
        return "it may be partial"
    taken_after = origin.made_on_after(bucket) if stage.by_checkpoint else None
    is_owners = taken_after is not None and bucket <= taken_after + stage.horizon
    return "it may come from its owner's state" if is_owners else ""


@dataclass(slots=True)
class _Term:
    """Stretch of a movement's time under one number."""

    number: bytes
    begun_ms: int | None = None
    """Time of its hash in the ledger, by the log; None: it is not there yet."""
    looked_upto: int = 0
    """Last bucket that was checked for the sample."""
    wanted: list[int] = field(default_factory=list)
    """Buckets to be computed again."""
    findings: list[Finding] = field(default_factory=list)


class MovementAudit:
    """Audit of one movement. Not thread-safe. After a crash: a new one is made from the kept
    numbers.
    """

    def __init__(
        self, auditor: str, contract_id: str, movement_id: str, numbers: Iterable[bytes] = ()
    ) -> None:
        """``numbers``: that were drawn for it and not revealed, the oldest first."""
        self._auditor = auditor
        self._contract_id = contract_id
        self._movement_id = movement_id
        self._terms = [_Term(number) for number in numbers]
        self.left_out: Counter[str] = Counter()
        """Buckets of the sample that were not judged, by the reason."""

    @property
    def numbers(self) -> tuple[bytes, ...]:
        """Return the numbers to keep on disk, in the order in which they were drawn."""
        return tuple(term.number for term in self._terms)

    def read(self, ledger: Ledger, movement: Movement) -> None:
        """Take what the ledger says: which hashes stand in it, which numbers were revealed."""
        is_over = movement.state is MovementState.OVER
        kept = []
        for term in self._terms:
            found = ledger.commitment(self._movement_id, commitment(term.number))
            if found is not None:
                term.begun_ms = found.at_ms
            is_done = is_over if found is None else not found.is_open
            if not is_done:
                kept.append(term)
        self._terms = kept

    def is_number_due(self, movement: Movement, now_ms: int) -> bool:
        """Return whether another number is to be drawn, and kept."""
        if movement.state is not MovementState.RUNNING:
            return False
        newest = self._terms[-1] if self._terms else None
        if newest is None:
            return True
        return newest.begun_ms is not None and (
            bool(newest.findings) or now_ms - newest.begun_ms >= TERM_MS
        )

    def drawn(self, number: bytes) -> None:
        """Take a random number that was drawn and is on disk by now."""
        self._terms.append(_Term(number))

    def look(
        self, ledger: Ledger, movement: Movement, log_state: LogState, stage: SoldStage, now_ms: int
    ) -> None:
        """Want those buckets of the samples that the seller has made by now (AU2)."""
        sample_ppm = ledger.movements.contract(movement.version).audit.sample_ppm
        for index, term in enumerate(self._terms):
            if term.begun_ms is None:
                continue
            until_ms = self._until_ms(index, movement)
            first = max(term.begun_ms, movement.started_ms) // stage.width_ms + 1
            last = min(log_state.upto, (until_ms or now_ms) // stage.width_ms)
            for bucket in range(max(first, term.looked_upto + 1), last + 1):
                if is_sampled(term.number, self._movement_id, bucket, sample_ppm):
                    why = why_not_judged(log_state, stage, bucket)
                    if why:
                        self.left_out[why] += 1
                    else:
                        term.wanted.append(bucket)
            term.looked_upto = max(term.looked_upto, last)

    def wanted(self, horizon: int) -> tuple[int, ...]:
        """Return the buckets that one query is to compute next, ascending: those whose input is the
        same, or adjoins. Empty: there are none. A term in which something was found needs no more.
        """
        every = sorted(
            {bucket for term in self._terms if not term.findings for bucket in term.wanted}
        )
        found = every[:1]
        for bucket in every[1:WANTED_MAX]:
            if bucket - horizon - 1 > found[-1]:
                break
            found.append(bucket)
        return tuple(found)

    def judged(self, buckets: Sequence[int], findings: Sequence[Finding]) -> None:
        """Take the findings of the recomputed ``buckets`` (AU3)."""
        self._looked(buckets, findings)

    def skipped(self, buckets: Sequence[int], why: str) -> None:
        """Note that ``buckets`` cannot be judged, and why."""
        self.left_out[why] += len(buckets)
        self._looked(buckets, ())

    def needed_after(self, ended: int) -> int:
        """Return the bucket up to which the stage's buckets are not needed any more. ``ended``: a
        bucket that ends before now, by any clock. None of the buckets up to it will be in the
        sample of a number whose hash the ledger does not have yet, or never will have.
        """
        return min(
            (
                ended if term.begun_ms is None else min([*term.wanted, term.looked_upto + 1]) - 1
                for term in self._terms
            ),
            default=ended,
        )

    def entries(self, movement: Movement, width_ms: int) -> list[AuditCommitted | Audited]:
        """Return the entries that are due and missing from the ledger, in AU1 order."""
        ids = self._contract_id, self._movement_id, self._auditor
        due: list[AuditCommitted | Audited] = [
            AuditCommitted(*ids, commitment(term.number), width_ms)
            for term in self._terms
            if term.begun_ms is None
        ]
        return due + [
            Audited(*ids, term.number, tuple(term.findings[:FINDINGS_MAX]))
            for index, term in enumerate(self._terms)
            if self._is_ripe(index, movement, width_ms)
        ]

    def _looked(self, buckets: Sequence[int], findings: Sequence[Finding]) -> None:
        done = frozenset(buckets)
        for term in self._terms:
            own = done.intersection(term.wanted)
            term.findings += [finding for finding in findings if finding.bucket in own]
            term.wanted = [bucket for bucket in term.wanted if bucket not in own]

    def _until_ms(self, index: int, movement: Movement) -> int | None:
        """Return the end of a term by the log's time, in ms; None if it is not over."""
        following = self._terms[index + 1 : index + 2]
        begun_ms = following[0].begun_ms if following else None
        if begun_ms is None and movement.state is MovementState.OVER:
            return movement.ended_ms
        return begun_ms

    def _is_ripe(self, index: int, movement: Movement, width_ms: int) -> bool:
        term, until_ms = self._terms[index], self._until_ms(index, movement)
        if term.begun_ms is None or until_ms is None:
            return False
        return bool(term.findings) or (not term.wanted and term.looked_upto >= until_ms // width_ms)
