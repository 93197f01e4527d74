"""Whether a node whose tasks run on a cluster continues while it has no executor there.

Theory of operation. A cluster's master gives a node its executors when the node registers, and
replaces those that are lost as long as workers have room. A master that is started anew remembers
nobody, unless it was told to keep its state: it has the workers end the executors that they run,
and the node, which nobody tells, gets no others. So a node that is without executors since its
master has gone ends, and registers anew when it is started again. As long as its executors live it
needs no master.

A node that is without executors and has not lost its master waits: for a worker, or for room on
one. To register anew would put it behind others that wait there.

Invariants:
    EX1 A node that has an executor, or had one a moment ago, continues and waits for nothing.
    EX2 A node that has none, and whose master has not gone since it registered, waits and says so.
    EX3 A node that has none, and whose master has gone since, ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

EXECUTORS_AWAY_MS: Final = 15_000
"""A node that has no executor for less is not looked at: so long the start of an executor takes, or
its replacement. A node that has lost its master stands still for so long before it registers anew.
"""


class WithoutExecutors(Enum):
    """Action of a node without executors."""

    GO_ON = auto()
    WAIT = auto()
    END = auto()


@dataclass(slots=True)
class ExecutorWatch:
    """Watch over the executors of one node, from its start on. Times are monotonic ms."""

    seen_ms: int
    """Time at which there was an executor last, in ms; before the first one, the node's start."""

    def look(self, now_ms: int, executors: int, *, master_has_gone: bool) -> WithoutExecutors:
        """Return the action for having ``executors`` now. ``master_has_gone``: the master with
        which the node registered has gone, whether there is another one or not.
        """
        if executors > 0:
            self.seen_ms = now_ms
        if now_ms - self.seen_ms < EXECUTORS_AWAY_MS:
            return WithoutExecutors.GO_ON
        return WithoutExecutors.END if master_has_gone else WithoutExecutors.WAIT
