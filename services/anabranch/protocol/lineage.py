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
from collections.abc import Generator, Iterable
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

    def copied(self, name: str, last_commit: int) -> Lineage:
        """The lineage ``name`` that goes on in a copy of this one's directory, in which ``last_commit`` is the last batch committed."""
        return Lineage(name=name, start_batch=last_commit, start_tip=self.tip(last_commit))


def newest(names: Iterable[str]) -> str | None:
    """The newest lineage (G1)."""
    return max((n for n in names if epoch_of(n) is not None), default=None)


def obsolete(names: Iterable[str], epoch: int) -> list[str]:
    """What the process of ``epoch`` may delete: of lower epochs only (G2)."""
    return sorted(n for n in names if (e := epoch_of(n)) is not None and e < epoch)


@dataclass(frozen=True, slots=True)
class FindNewest:
    """Answer: the lineage that the newest file names, or None."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make an empty directory."""

    name: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Make directory ``target`` a copy of ``source``, whole and synced, or not at all."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class FindCommit:
    """Answer: the last batch committed in the directory, -1 if none."""

    name: str


@dataclass(frozen=True, slots=True)
class Write:
    """Write the lineage file, durably."""

    lineage: Lineage


@dataclass(frozen=True, slots=True)
class CheckEpoch:
    """Read the boundary log; end here if a newer process began."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Remove what belongs to lower epochs (G2)."""

    epoch: int


Step = FindNewest | Create | Copy | FindCommit | Write | CheckEpoch | Clean
Steps = Generator[Step, "Lineage | int | None", Lineage]
"""Steps in their order; the shell performs each and sends the answer, if there is one. A crash between any two is safe."""


def take_over_steps(epoch: int) -> Steps:
    """Rule 8: how the process of ``epoch`` comes to its stable lineage.

    The old process may be alive: it may fork while its directory is copied, which makes the directory a branch. So the newest lineage is
    looked up again after copying, and the copy is made again if it changed.
    """
    name = lineage_name(epoch, 0)
    while True:
        found = yield FindNewest()
        if isinstance(found, Lineage):
            yield Copy(found.name, name)
            last = yield FindCommit(name)
            assert isinstance(last, int)  # noqa: S101 - the answer to FindCommit
            lineage = found.copied(name, last)
        else:
            yield Create(name)
            lineage = Lineage.fresh(epoch)
        if (yield FindNewest()) == found:
            break
    yield Write(lineage)
    yield CheckEpoch()
    yield Clean(epoch)
    return lineage


def fork_steps(main: Lineage, name: str) -> Steps:
    """Rule 11: snapshot, sync, lineage file. Only after the last step may the query of ``main`` go on as the branch."""
    yield Copy(main.name, name)
    last = yield FindCommit(name)
    assert isinstance(last, int)  # noqa: S101 - the answer to FindCommit
    lineage = main.copied(name, last)
    yield Write(lineage)
    return lineage
