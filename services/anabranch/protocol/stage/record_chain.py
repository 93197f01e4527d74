"""The boundary records of one query: each continues the one before.

Theory of operation. A query that begins in a timeline's directory continues the record of the last
batch committed there (``protocol.log.timeline``). From a fork on the query that runs is the branch:
its records are tentative, and its first one begins from what was closed at the fork, with the parts
that were open then. What was missing once a branch names from then on: state lacks it, and rows
made of it may belong to later buckets, of which a batch that lacks them shows nothing.

Invariants:
    RX1 a record names the one before it of its query (rules 3, 9), and counts as the one before
        only once it was seen accepted.
    RX2 a stable record is of a query in the stable timeline that never forked (rules 11, 12); a
        tentative one of a query that did.
    RX3 the first record of a branch names all parts that were open at the fork.
    RX4 up to where the output is given up, buckets are closed empty, by branches too, and their
        stable records name every input as missing (``protocol.stage.beginning``).
    RX5 a timeline that goes on in a copy of another's state begins with a base record: it closes
        what the copy holds, and says that this is not the replica's own (rule 6).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from anabranch.protocol.errors import Fenced, LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import MISSING_STREAMS_MAX
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, Part
from anabranch.protocol.log.timeline import Timeline

BRANCH_PENDING_PARTS_MAX: Final = 10_000
"""Open parts that a branch can inherit: its first record repeats them, while live results
wait for it. A stage with more waits for its input.
"""


def base_record(replica: str, epoch: int, timeline: Timeline, written_ms: int) -> BoundaryRecord:
    """The base record of ``timeline`` (RX5).

    Raises:
        LocalProtocolError: the timeline goes on in no copy.
    """
    if timeline.base is None or timeline.start_tip is None:
        message = f"timeline {timeline.name} has no base"
        raise LocalProtocolError(message)
    return BoundaryRecord(
        replica=replica,
        epoch=epoch,
        id=timeline.start_tip,
        prev=None,
        closed=timeline.base,
        base=timeline.base,
        written_ms=written_ms,
    )


class RecordChain:
    """Of one query of one process."""

    def __init__(self, replica: str, epoch: int, timeline: Timeline, *, given_up: int = 0) -> None:
        """``given_up``: buckets up to this one are closed empty, and named as missing
        (``protocol.stage.beginning``).
        """
        self.given_up = given_up
        self._replica = replica
        self._epoch = epoch
        self._timeline = timeline.name
        self.tip: BatchId | None = timeline.start_tip
        self._fork: tuple[int, int, tuple[Part, ...]] | None = None
        self._branch_begun = False
        self.has_shown = False
        """The query is a branch, and has closed something tentatively."""
        self._missing: tuple[str, ...] = ()

    @staticmethod
    def can_inherit(pending: tuple[Part, ...]) -> bool:
        """Whether a branch can begin with these open parts: its first record names them all."""
        return len(pending) <= BRANCH_PENDING_PARTS_MAX

    def became_branch(self, counter: int, closed: int, pending: tuple[Part, ...]) -> None:
        """From here on the query's records are tentative: branch ``counter``, from ``closed``
        on, with the parts still open at the fork.
        """
        self._fork = (counter, closed, pending)

    def record(
        self,
        kind: BoundaryKind,
        batch: int,
        closed: int,
        parts: tuple[Part, ...],
        *,
        is_stable_query: bool,
        missing: tuple[str, ...],
        made_from: tuple[tuple[str, int], ...],
        written_ms: int,
    ) -> BoundaryRecord:
        """The record of Spark's batch ``batch``.

        Raises:
            Fenced: a stable batch of a query that is not in the stable timeline (rule 12, RE1).
            LocalProtocolError: a tentative batch of a query that never forked.
        """
        record = BoundaryRecord(
            replica=self._replica,
            epoch=self._epoch,
            id=BatchId(self._timeline, batch),
            prev=self.tip,
            closed=closed,
            parts=tuple(part for part in parts if part.bucket > self.given_up),
            made_from=made_from,
            written_ms=written_ms,
        )
        if kind is BoundaryKind.STABLE:
            if not is_stable_query or self._fork is not None:
                message = (
                    f"stable batch {batch} of timeline {self._timeline}, which is not the"
                    " stable one"
                )
                raise Fenced(message)
            if closed > self.given_up or not self.given_up:
                return record
            every = tuple(name for name, _ in made_from)[:MISSING_STREAMS_MAX]
            return replace(record, missing=every)
        if self._fork is None:
            message = f"tentative batch {batch} of timeline {self._timeline}, which never forked"
            raise LocalProtocolError(message)
        counter, base, pending = self._fork
        missing = tuple(sorted({*self._missing, *missing})[:MISSING_STREAMS_MAX])
        self._missing = missing
        tentative = replace(record, kind=kind, branch=(self._epoch, counter), missing=missing)
        if self._branch_begun:
            return tentative
        return replace(tentative, base=base, parts=(*pending, *record.parts))

    def appended(self, record: BoundaryRecord) -> None:
        """``record`` was seen accepted in the log."""
        self.tip = record.id
        if record.kind is BoundaryKind.TENTATIVE and self._fork is not None:
            self._branch_begun = True
            self.has_shown = record.closed > self._fork[1]
