"""Shards that may be split, as a scaler sees them: which of them run, whether it may want the split
of one now, and the nodes that its halves get.

Theory of operation. The pipeline file names the halves of each shard that may be split; they are
stages with places, and run only from the split on (``protocol.stage.splitting``). Whether a split
is under way follows from the log of moves alone: the last step of each shard that counts. A scaler
that wants a split names the newest attempt that it knows, so of two scalers that decide at once,
one late by a whole attempt, one begins an attempt (HV1).

Invariants:
    HG1 a half runs while the split of its shard is wanted, and from its confirmation on. Before,
        and after it was withdrawn, it has a place and no process.
    HG2 at most one split is wanted by a scaler at a time: while one is under way, the work of a
        shard is done twice.
    HG3 after an attempt was withdrawn, a scaler wants no other one for ``SPLIT_AGAIN_MS``, doubled
        with each attempt of this shard that was withdrawn. If a bucket differed, it wants none any
        more: the function or its state horizon is wrong, and an operator has to mend it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.protocol.control.records import SplitStep, Step

SPLIT_AGAIN_MS: Final = 600_000
"""Time, in ms, for which a scaler does not want a split again that was withdrawn: what kept the
halves from the proof, such as a node that is too slow, lasts. An attempt doubles the work of its
shard for minutes.
"""

_DOUBLINGS_MAX: Final = 6
"""Maximum number of times that this time doubles: it is ten hours then."""


class Shards:
    """Shards of a pipeline that may be split, by the steps that count. ``now_ms`` is monotonic."""

    def __init__(self, halves: Mapping[str, Sequence[str]]) -> None:
        """Start before the first step. ``halves``: of each shard that may be split."""
        self._halves = halves
        self._parents = {half: shard for shard, those in halves.items() for half in those}
        self._last: dict[str, SplitStep] = {}
        """Last step of each shard that counts."""
        self._withdrawn: dict[str, int] = {}
        """Number of attempts to split each shard that were withdrawn."""
        self._again_ms: dict[str, int] = {}
        """Time from which on a split that was withdrawn may be wanted again."""

    def apply(self, step: SplitStep, now_ms: int) -> None:
        """Apply a step that counts. One that this process reads at its start counts as of now."""
        shard = step.shard
        self._last[shard] = step
        if step.step is Step.WITHDRAWN:
            doublings = min(self._withdrawn.get(shard, 0), _DOUBLINGS_MAX)
            self._withdrawn[shard] = self._withdrawn.get(shard, 0) + 1
            self._again_ms[shard] = now_ms + (SPLIT_AGAIN_MS << doublings)

    def halves(self, shard: str) -> Sequence[str]:
        """Return the halves of ``shard``; empty: it cannot be split."""
        return self._halves.get(shard, ())

    def runs(self, stage: str) -> bool:
        """Return whether processes of ``stage`` run: it is no half, or one whose split is wanted or
        confirmed (HG1).
        """
        parent = self._parents.get(stage)
        return parent is None or self._is_last(parent, Step.WANTED, Step.CONFIRMED)

    def is_split(self, stage: str) -> bool:
        """Return whether ``stage`` is a shard whose halves take over, or have done so."""
        return self._is_last(stage, Step.CONFIRMED)

    def is_compared(self, stage: str) -> bool:
        """Return whether ``stage`` is a shard whose split is under way, or a half of one."""
        return self._is_last(self._parents.get(stage, ""), Step.WANTED) or self._is_last(
            stage, Step.WANTED
        )

    def _is_last(self, shard: str, *steps: Step) -> bool:
        last = self._last.get(shard)
        return last is not None and last.step in steps

    def hindrance(self, shard: str, now_ms: int) -> str:
        """Return why a scaler does not want ``shard`` to be split now; empty if it may (HG2,
        HG3).
        """
        if not self._halves.get(shard):
            return "the pipeline file names no halves of it: raise `halvings` of its stage"
        under_way = next((each for each in self._halves if self._is_last(each, Step.WANTED)), None)
        if under_way is not None:
            return f"the split of {under_way} is under way"
        last = self._last.get(shard)
        if last is None or last.step is not Step.WITHDRAWN:
            return ""
        if last.bucket >= 0:
            return f"its split was withdrawn: {last.reason}. Mend that, then split it by command"
        left_ms = self._again_ms[shard] - now_ms
        if left_ms <= 0:
            return ""
        return (
            f"its split was withdrawn: {last.reason}. It is tried again in"
            f" {-(-left_ms // 60_000)} min"
        )

    def wanted(self, shard: str, because: str, written_ms: int) -> SplitStep:
        """Return the record by which a scaler wants the split of ``shard``."""
        last = self._last.get(shard)
        attempt = -1 if last is None else last.attempt
        return SplitStep(shard, Step.WANTED, written_ms, attempt, because)


class Room:
    """Load of nodes during and after a split, in permille of one core."""

    def __init__(self, cores: Mapping[str, int]) -> None:
        """Start without load. ``cores``: number of tasks that each node runs at once."""
        self._cores = cores
        self._until: dict[str, int] = dict.fromkeys(cores, 0)
        self._then: dict[str, int] = dict.fromkeys(cores, 0)

    def add(self, node: str, busy: int) -> None:
        """Add load that stays."""
        self._until[node] += busy
        self._then[node] += busy

    def will_leave(self, node: str, busy: int) -> None:
        """Note load that is there until the shard ends."""
        self._then[node] -= busy

    def then(self, node: str) -> int:
        """Return the load per core of ``node`` once the shard has ended."""
        return self._then[node] // self._cores[node]

    def take(self, nodes: Sequence[str], busy: int) -> str:
        """Add the load of a half to that one of ``nodes`` which has the least load per core once
        the shard has ended, of equal ones the least until then, and return it; of equal ones the
        first.
        """

        def loads(node: str) -> tuple[int, int]:
            """Return the load per core with the half, after the split and during it."""
            cores = self._cores[node]
            return (self._then[node] + busy) // cores, (self._until[node] + busy) // cores

        best = min(nodes, key=loads)
        self.add(best, busy)
        return best
