"""Reaction of each half of a delivery to a failure: the pause before its next failover, and the end
with an error.

Theory of operation. After every failure a half of a delivery, that of the corrected or of the live
topic, closes its writer and fails over again: that settles what the last transaction has written
(``protocol.edge.delivery``, ``protocol.edge.live_delivery``). So no failure loses a result, and the
pause decides only what an attempt costs. The two halves share a process, and a failover of one
delays the other. So a half pauses longer, the less is likely to have changed meanwhile.

==============  ============================================================================
failure         what it is
==============  ============================================================================
UNKNOWN         a transaction may or may not have been committed
UNKNOWN_AGAIN   so may the one after it
FITS            the topic rejected a record for its size; the next one leaves it out
NO_FAILOVER     a failover did not come to its end
REJECTED        the log rejects a read or a write, or blocks are missing or damaged
LOST            the log no longer describes the next bucket
TOO_LARGE       an upsert view does not fit into memory, or a column has no form
==============  ============================================================================

Invariants:
    DF1 after the first unknown outcome in a row, and where the next attempt differs, a half fails
        over at once. The corrected half does so after each: their number is bounded (DF3).
    DF2 what only a person can change costs the other half no more than one attempt in
        REJECTED_RETRY_MS; one that reads a whole view back, one in TOO_LARGE_RETRY_MS.
    DF3 the corrected half ends with an error after UNKNOWN_MAX unknown outcomes in a row. The live
        half does not: it would take the corrected one along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

FAILOVER_RETRY_MS: Final = 200
"""Pause after a failure that passes quickly, in ms."""

REJECTED_RETRY_MS: Final = 10_000
"""Pause after the log rejected something for good, or blocks are missing or differ from what its
boundary log says, in ms. Long: an operator must act first.
"""

TOO_LARGE_RETRY_MS: Final = 600_000
"""Pause after an upsert view was too large for memory, in ms. Long, since reading the view back
stops the corrected half.
"""

UNKNOWN_MAX: Final = 10
"""Number of consecutive unknown outcomes after which the corrected half ends with an error: so many
are no passing trouble of a broker, and an operator must see it.
"""


class DeliveryFailure(Enum):
    """Failure of a half of a delivery; see the table above."""

    UNKNOWN = auto()
    UNKNOWN_AGAIN = auto()
    FITS = auto()
    NO_FAILOVER = auto()
    REJECTED = auto()
    LOST = auto()
    TOO_LARGE = auto()


PAUSES_MS: Final[Mapping[DeliveryFailure, int]] = {
    DeliveryFailure.UNKNOWN: 0,
    DeliveryFailure.UNKNOWN_AGAIN: FAILOVER_RETRY_MS,
    DeliveryFailure.FITS: 0,
    DeliveryFailure.NO_FAILOVER: FAILOVER_RETRY_MS,
    DeliveryFailure.REJECTED: REJECTED_RETRY_MS,
    DeliveryFailure.LOST: REJECTED_RETRY_MS,
    DeliveryFailure.TOO_LARGE: TOO_LARGE_RETRY_MS,
}
"""Pause between each failure and the next failover, in ms (DF1, DF2)."""


@dataclass(slots=True)
class UnknownOutcomes:
    """Unknown outcomes of the transactions of one half since the last known one."""

    count: int = 0

    def another(self) -> DeliveryFailure:
        """Count one more. Return which failure it is."""
        self.count += 1
        return DeliveryFailure.UNKNOWN if self.count == 1 else DeliveryFailure.UNKNOWN_AGAIN

    @property
    def are_too_many(self) -> bool:
        """Whether the corrected half must end with an error (DF3)."""
        return self.count >= UNKNOWN_MAX

    def settled(self) -> None:
        """Note that a transaction was committed."""
        self.count = 0


def failed_failover(*, is_lost: bool) -> DeliveryFailure:
    """Return which failure a failover is that did not come to its end. ``is_lost``: whether the log
    no longer describes the next bucket.
    """
    return DeliveryFailure.LOST if is_lost else DeliveryFailure.NO_FAILOVER


def rejected_size(fitting_bytes: int | None) -> DeliveryFailure:
    """Return which failure a record is that the topic rejected for its size. ``fitting_bytes``:
    size above which records are left out from now on; None: none is.
    """
    return DeliveryFailure.REJECTED if fitting_bytes is None else DeliveryFailure.FITS
