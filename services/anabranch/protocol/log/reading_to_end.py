"""Reading of partitions up to the ends that they had when it began.

Such an end may never be reached: a broker that was elected without all copies lacks the last
records, and a topic may be deleted and created again. Whoever waits for the old end then waits for
ever, so reading fails where nothing arrives for long, and is begun anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from anabranch.protocol.errors import Unavailable

SILENT_MAX: Final = 300
"""Number of consecutive fetches without progress, after which reading fails: at least 30 s."""

K = TypeVar("K")


class ReadingToEnd(Generic[K]):
    """Progress of reading up to ends."""

    def __init__(
        self,
        ends: Mapping[K, int],
        position: Callable[[K], int],
        *,
        silent_max: int = SILENT_MAX,
    ) -> None:
        """Begin to read.

        Args:
            ends: End offset of each partition.
            position: Function that returns the offset of a partition's next record.
            silent_max: Maximum number of consecutive fetches without progress.
        """
        self._position, self._silent_max = position, silent_max
        self._left = {at: (-1, end) for at, end in ends.items()}
        """Last position and end of each partition that is not read to its end."""
        self._silent = 0

    def is_over(self) -> bool:
        """Return whether all partitions are read to their ends. Call it before each fetch.

        Raises:
            Unavailable: too many fetches have made no progress.
        """
        before = self._left
        now = {at: (self._position(at), end) for at, (_, end) in before.items()}
        self._left = {at: (offset, end) for at, (offset, end) in now.items() if offset < end}
        self._silent = self._silent + 1 if self._left == before else 0
        if self._left and self._silent > self._silent_max:
            at = next(iter(self._left))
            offset, end = self._left[at]
            raise Unavailable(
                f"{at}: no record arrived after offset {offset}, but the log ended at {end}: the"
                " broker does not answer, or has lost what followed; read it again"
            )
        return not self._left
