"""How much later than the first of its inputs is each input of a stage complete? Measured, where
their depths differ.

Theory of operation. A stage that joins a source with a stream that has gone through four stages
sees a bucket of the source four hops before the stream's. Its timer starts with the source
(``protocol.stage.availability``), so what the deeper input usually takes is no part of a failure,
and the wait must leave time for it. How long a hop takes hangs on functions, batches and cores. So
it is measured from what the boundary logs show anyway: from the start of a bucket's timer to the
moment at which the input had closed it, both on the clock of the one process that waits. The median
of the last LAG_SAMPLES counts, which a short failure does not move. Until there is one, HOP_MS is
taken for each hop.

Invariants:
    IL1 an input that is no deeper than the shallowest has no lag.
    IL2 a lag is at most HOP_LONGEST_MS for each stage that the input has more than the shallowest:
        where stages are slower, the stage goes on without it.
    IL3 what took longer than that says nothing about a hop: it is a failure, or its correction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from anabranch.protocol.limits import HOP_MS

HOP_LONGEST_MS: Final = 1_500
"""The most that is waited for a stage that one input of another has gone through and another has
not, in place of HOP_MS: a stage that takes longer is late itself, and waiting for it would make all
that comes after it late.
"""

LAG_SAMPLES: Final = 61
"""Buckets over which the lag of an input is measured; its median counts, so that the thirty
of a failure do not.
"""


class InputLags:
    """The lags of one stage's inputs, as one replica sees them."""

    def __init__(self, deeper: Mapping[str, int], shallow_ms: int) -> None:
        """``deeper``: per input, its stages beyond those of the shallowest. ``shallow_ms``:
        what a bucket of that one takes from its first sign.
        """
        self._deeper = {name: hops for name, hops in deeper.items() if hops > 0}
        self._shallow_ms = shallow_ms
        self._samples: dict[str, deque[int]] = {
            name: deque(maxlen=LAG_SAMPLES) for name in self._deeper
        }
        self._expected_ms = max(self._deeper.values(), default=0) * HOP_MS
        self.beyond_expected_ms = 0
        """By so much longer than HOP_MS per hop the stage waits for its slowest input; below
        0: shorter.
        """

    def closed(self, name: str, took_ms: int) -> None:
        """Input ``name`` has closed a bucket ``took_ms`` after the bucket's timer started."""
        lag_ms = max(0, took_ms - self._shallow_ms)
        if lag_ms > self._deeper.get(name, 0) * HOP_LONGEST_MS or name not in self._deeper:
            return
        self._samples[name].append(lag_ms)
        self.beyond_expected_ms = max(map(self._lag_ms, self._deeper)) - self._expected_ms

    def _lag_ms(self, name: str) -> int:
        samples = sorted(self._samples[name])
        return samples[len(samples) // 2] if samples else self._deeper[name] * HOP_MS
