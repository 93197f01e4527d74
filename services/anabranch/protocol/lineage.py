"""Lineages: which checkpoint directory does a replica go on from, and which record does it continue?

Theory of operation. A replica's query has a checkpoint directory. At every start (and every fork) the replica goes on in a *copy*, under a
lineage name of its own, which carries its epoch (rule 8). A small lineage file beside the directories says so; the highest name is the
newest. Record ids are (lineage, batch of Spark), so a batch that is run again under a new lineage has a new id and says by ``prev`` which
record it continues (rules 3, 9): that of the last batch that Spark committed in the directory.

Invariants:
    G1  names sort as (epoch, number): the newest lineage is the one of the newest process.
    G2  only directories and files of lower epochs are ever deleted.
    G3  ``tip`` is the record of the last committed batch, by whichever lineage made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId

_NAME = re.compile(r"([0-9]{12})-([0-9]{6})\Z")


def lineage_name(epoch: int, number: int) -> str:
    """Name of the ``number``-th lineage that the process of ``epoch`` began (G1)."""
    return f"{epoch:012d}-{number:06d}"


def epoch_of(name: str) -> int | None:
    """The epoch in a lineage's name; None: not such a name."""
    match = _NAME.match(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a lineage file says. Written once, before the lineage's first batch."""

    name: str
    start_batch: int
    """Last batch that was committed in the directory when it was copied; -1: none, a new checkpoint."""
    start_tip: BatchId | None
    """The record of that batch."""

    @classmethod
    def fresh(cls, epoch: int) -> Self:
        """The lineage of a replica that starts from nothing."""
        return cls(name=lineage_name(epoch, 0), start_batch=-1, start_tip=None)

    def tip(self, last_commit: int) -> BatchId | None:
        """The record that a query in this lineage's directory continues, when Spark committed ``last_commit`` last (G3).

        Raises:
            LocalProtocolError: the directory stands before the lineage's start: it is not this lineage's.
        """
        if last_commit < self.start_batch:
            message = f"lineage {self.name} began after batch {self.start_batch}, but its directory stands at {last_commit}"
            raise LocalProtocolError(message)
        return self.start_tip if last_commit == self.start_batch else BatchId(self.name, last_commit)

    def copied(self, epoch: int, last_commit: int) -> Lineage:
        """The lineage of a process of ``epoch`` that starts from a copy of this one's directory."""
        return Lineage(name=lineage_name(epoch, 0), start_batch=last_commit, start_tip=self.tip(last_commit))


def newest(names: Iterable[str]) -> str | None:
    """The newest lineage (G1)."""
    return max((n for n in names if epoch_of(n) is not None), default=None)


def obsolete(names: Iterable[str], epoch: int) -> list[str]:
    """What the process of ``epoch`` may delete: of lower epochs only (G2)."""
    return sorted(n for n in names if (e := epoch_of(n)) is not None and e < epoch)
