"""Store of checkpoints that all machines of a run reach (``adapters.disk.checkpoint_store``), and
what is in it.

It is as unkind as the real one: it is away for a time, writing to it takes long, during which the
process may die or be replaced, and it retains two checkpoints of a replica. What a batch adds while
a checkpoint is written is not in it. Files that change, and damaged ones, are tried with the real
store (``harness.checkpoint_world``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from anabranch.codec.plan_offsets import position_of
from anabranch.protocol.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from anabranch.protocol.log.timeline import Timeline
    from simulation.disk import Directory

RETAINED: Final = 2
"""Number of checkpoints of a replica that a save leaves."""
BATCH_BYTES: Final = 4 << 20
"""Size of a batch's files: of more than a few that are missing a replica that moves is held up."""
CALLS_MAX: Final = 20
"""Maximum number of disk calls that writing one checkpoint takes."""


_FORGED_KEY: Final = 1_000_000


@dataclass(frozen=True)
class Stored:
    """One checkpoint of a replica."""

    number: int
    """Counts the saves of all replicas."""
    timeline: Timeline
    directory: Directory
    is_forged: bool = False
    """Whether it is not what a replica has stored."""

    @property
    def digest(self) -> str:
        """Digest of its manifest: different content has another one."""
        return f"{self.number}{'?' * self.is_forged}"

    @property
    def name(self) -> tuple[str, int]:
        """Key by which checkpoints of one replica are sorted, the newest last."""
        return self.timeline.name, self.number

    @property
    def position(self) -> tuple[str, int]:
        """Its timeline, and its last batch: as of a checkpoint on a disk."""
        return self.timeline.name, self.directory.last_commit

    def bytes_since(self, before: Stored | None) -> int:
        """Return the size of the batches that ``before``, an earlier one, does not have."""
        known = set() if before is None else set(before.directory.commits)
        return BATCH_BYTES * len(set(self.directory.commits) - known)


def _forged(stored: Stored) -> Stored:
    """Return a checkpoint of the same name, in whose state there is a window more."""
    directory = stored.directory.snapshot()
    for batch, state in directory.commits.items():
        logged = directory.logged.get(batch)
        if logged is not None:
            bucket = max(position_of(offset).bucket for offset in logged.offsets.values())
            directory.commits[batch] = (*state, ((bucket + 1, _FORGED_KEY), 1_000))
    return replace(stored, directory=directory, is_forged=True)


@dataclass
class CheckpointStore:
    """All checkpoints, by (``STAGE.PROCESS``, life of the stage's log)."""

    away: Callable[[], bool] = lambda: False
    saved: int = 0
    kept: dict[tuple[str, str], list[Stored]] = field(default_factory=dict)
    is_hostile: bool = False
    """Whether it serves other state as the newest checkpoint of a replica, too."""

    def check(self) -> None:
        """Check that the store answers.

        Raises:
            Unavailable: it is away.
        """
        if self.away():
            raise Unavailable("the store of checkpoints does not answer")

    def newest(self, place: str, life: str) -> Stored | None:
        """Return the newest checkpoint of a replica; None: it has none in that life.

        Raises:
            Unavailable: the store is away.
        """
        return next(iter(self.served(place, life)), None)

    def lives(self, place: str) -> frozenset[str]:
        """Return the lives of which the store has checkpoints of a replica; none if it is away."""
        return frozenset(life for of, life in self.kept if of == place and not self.away())

    def save(
        self,
        place: str,
        life: str,
        timeline: Timeline,
        directory: Directory,
        former: Collection[str] = (),
    ) -> Stored:
        """Add a checkpoint; remove what is below it, but for the newest, and what ``former`` lives
        left. Return it.

        Raises:
            Unavailable: the store is away.
        """
        self.check()
        self.saved += 1
        added = Stored(self.saved, timeline, directory)
        there = self.kept.pop((place, life), [])
        newer = [each for each in there if each.name > added.name]
        older = sorted((each for each in there if each.name < added.name), key=lambda of: of.name)
        for other in former:
            self.kept.pop((place, other), None)
        self.kept[place, life] = [*older[1 - RETAINED :], added, *newer]
        return added

    def served(self, place: str, life: str) -> list[Stored]:
        """Return the checkpoints of a replica as a reader finds them, the newest first.

        Raises:
            Unavailable: the store is away.
        """
        self.check()
        found = sorted(self.kept.get((place, life), ()), key=lambda each: each.name, reverse=True)
        return [*map(_forged, found[:1]), *found] if self.is_hostile else found

    def has(self, place: str, life: str, stored: Stored) -> bool:
        """Return whether a checkpoint is still stored."""
        return any(each.number == stored.number for each in self.kept.get((place, life), ()))

    def bucket(self, place: str, life: str) -> int:
        """Return the last input bucket of the newest checkpoint of a replica; 0: there is none."""
        found = self.kept.get((place, life), ())
        return max((each.directory.synced_bucket for each in found), default=0)
