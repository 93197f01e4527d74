"""When to restart a process, or a replica on a node, that has ended.

Theory of operation. Anything that ends may be restarted, since all that matters is in Kafka and in
checkpoints. A process that ends soon after its start waits longer each time, so that one that
cannot run costs little. One that ran for a while starts again after the first delay.

All stages of a node share its engine, and one that takes all memory ends it for the others, again
and again. After one crash no single replica can be blamed, because several had a batch running.
After the second, only the replicas that ran both times are suspects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

DELAY_FIRST_MS: Final = 500
DELAY_MAX_MS: Final = 30_000
STAGE_FAILED_DELAY_MAX_MS: Final = 60_000
"""A function that fails will most likely fail again: the log and the machine get more rest."""

HEALTHY_AFTER_MS: Final = 60_000
"""What ran so long starts again at the first delay."""


@dataclass(slots=True)
class Backoff:
    """Growing delays of one of them: doubled at each end that comes soon after the start.
    Times are monotonic ms.
    """

    failures: int = 0

    def after_end(self, ran_ms: int, *, of_function: bool = False) -> int:
        """How long to wait, in ms, after the end of what had been ready for ``ran_ms``.
        ``of_function``: a stage's function ended it.
        """
        delay_max_ms = STAGE_FAILED_DELAY_MAX_MS if of_function else DELAY_MAX_MS
        if ran_ms >= HEALTHY_AFTER_MS:
            self.failures = 0
        delay_ms = min(delay_max_ms, DELAY_FIRST_MS << min(self.failures, 16))
        self.failures += 1
        return delay_ms


ENGINE_ENDS_MAX: Final = 4
"""So many ends of a node's engine are remembered: the last of them say all."""
ENGINE_ENDS_TOGETHER_MS: Final = 30 * 60_000
"""An end that is longer ago has nothing to do with this one."""


@dataclass(frozen=True, slots=True)
class EngineEnd:
    """An end of a node's engine: when, and the replicas of which a batch ran."""

    at_ms: int
    during: tuple[str, ...]


def remembered(ends: Iterable[EngineEnd], newest: EngineEnd) -> tuple[EngineEnd, ...]:
    """What is kept of ``ends`` after ``newest``, which is the last of it."""
    near = [end for end in ends if 0 <= newest.at_ms - end.at_ms <= ENGINE_ENDS_TOGETHER_MS]
    return (*near, newest)[-ENGINE_ENDS_MAX:]


def suspects(ends: Sequence[EngineEnd]) -> tuple[str, ...]:
    """The replicas of which a batch ran at each of ``ends``, if there are at least two; sorted."""
    if len(ends) < 2:
        return ()
    return tuple(sorted(set.intersection(*(set(end.during) for end in ends))))
