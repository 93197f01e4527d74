"""Share of the time that a correction has in any case, whatever makes it wait.

Theory of operation. While a stage is overloaded its branch has the cores, and the correction waits
(``protocol.stage.load_control``). Whether it is overloaded is an estimate, from durations that
other programs change as much as rows do. An estimate that only ever made the correction wait would
never be refuted: batches of the correction show whether there is room for them. And an overload
that is real may last.

So the time for which the correction waits is counted. Once it has waited for long enough it runs
although the reason lasts, until its batches have taken a part of that time. They are the
experiment: beside them the branch is measured, too.

A batch counts for as long as it takes. Beside the branch it has at least half of the cores
meanwhile, or on a node that runs one task at a time its turn. Batches that run while there is no
reason to wait count as well.

There are two reasons to wait, and each has a floor of its own. An *overload* mostly ends within
OVERLOAD_WAIT_MS, in which its branch keeps all cores. A *branch that is behind* with its results
has caught up after some batches. Where it never does, because its buckets take more than half of
the cores whatever is kept of their rows, or because other programs have them, results are late with
or without the correction, which then waits no longer than it runs.

Invariants:
    CF1 over any time a correction waits at most for ``wait_most_ms``, for ``parts`` times what its
        batches take, and for the time between two of its requests.
    CF2 between two of its batches it waits at most for ``wait_most_ms`` and the time between two
        requests, however long the batches before took.
    CF3 one that has waited for less than ``wait_most_ms`` runs only when the reason is over.
"""

from __future__ import annotations

from typing import Final, Self

OVERLOAD_WAIT_MS: Final = 120_000
"""Longest wait for the end of an overload, in ms: longer than most rushes, and short beside the
time after which a replica has no room for its input.
"""
OVERLOAD_PARTS: Final = 12
"""Divisor of that wait: batches of the correction then take ten seconds, in which it shows whether
it comes nearer (``protocol.stage.scheduling.CORRECTION_STEP_MS``).
"""
BEHIND_TARGETS: Final = 4
"""Longest wait for a branch that is behind, in targets of its batches: one for the batch that runs,
and some in which it catches up.
"""
BEHIND_PARTS: Final = 1
"""Divisor of that wait. With a larger one the correction of a branch that is always behind would
take longer by so many times.
"""


class CorrectionFloor:
    """Time for which one correction has waited for one reason. ``now_ms`` is monotonic."""

    def __init__(self, wait_most_ms: int, parts: int) -> None:
        """Start with a correction that has not waited.

        Args:
            wait_most_ms: Time after which the correction runs although the reason lasts, in ms.
            parts: Divisor of the time that it has waited; its batches then take that part.
        """
        self.is_open = False
        """Whether the correction runs although the reason may last."""
        self._wait_most_ms, self._parts = wait_most_ms, parts
        self._waited_ms = 0
        """Time for which it has waited, less what its batches have made up for."""
        self._since_ms: int | None = None
        """Time of its last request, if it had to wait then."""

    @classmethod
    def of_overload(cls) -> Self:
        """Return the floor of a correction whose stage is overloaded."""
        return cls(OVERLOAD_WAIT_MS, OVERLOAD_PARTS)

    @classmethod
    def of_behind(cls, target_ms: int) -> Self:
        """Return the floor of a correction whose branch, with batches of ``target_ms``, is
        behind.
        """
        return cls(BEHIND_TARGETS * target_ms, BEHIND_PARTS)

    def must_wait(self, now_ms: int, *, reason: bool) -> bool:
        """Return whether the correction must wait. Called at its requests. ``reason``: whether it
        could run now, and should not.
        """
        before_ms, self._since_ms = self._since_ms, None
        self._waited_ms += 0 if before_ms is None else now_ms - before_ms
        if not reason or self.is_open:
            return False
        self.is_open = self._waited_ms >= self._wait_most_ms
        self._since_ms = None if self.is_open else now_ms
        return not self.is_open

    def ran(self, duration_ms: int) -> None:
        """Record that a batch of the correction took ``duration_ms``."""
        self._waited_ms = max(0, self._waited_ms - self._parts * duration_ms)
        self.is_open = self.is_open and self._waited_ms > 0
