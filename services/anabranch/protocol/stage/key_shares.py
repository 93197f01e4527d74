"""Share of the rows that a share of the keys has, as batches show, and the share of the keys to
keep for a wanted share of the rows.

Theory of operation. A plan that keeps whole keys keeps those whose mixed hash is below a threshold
(``protocol.stage.kept_rows``): its per mille is a share of the keys. Of hundreds of keys with as
many rows each this is the share of the rows, too. Of few keys it is not: the rows that are kept are
a step function of the per mille, with a step for each key, as high as the key has rows. If the
lowest of 20 keys has its step at 72 per mille, a plan of 50 per mille keeps nothing.

The function is not known, but it is monotone, both ends are (none at 0, all at KEPT_ALL), and each
batch shows a point of it. Keys come and go, so points fade from batch to batch. A point counts like
that many rows beside PRIOR_ROWS rows of which the share is the nominal one. So without points, or
once they have faded, the share of the keys is that of the rows; few rows say little; and what was
a large step long ago is tried again by and by. Between two points the function counts as a line, so
a search for a step halves the distance or does better with each batch.

*At least one key.* A branch that keeps nothing shows nothing, however soon. So after a batch that
kept nothing the next one keeps what the least per mille keeps of which it is known to keep
something, and until that is known twice as much as the last one. If that is a small share of the
rows for which there is time, each batch keeps as much, also where it should leave more to the
correction: these rows cost it little, and without them windows would have no results until they are
corrected. If it is more than fits, every other batch keeps nothing: it is short, so the next one
has the time, and new results of some keys are in time, although with gaps.

Invariants:
    KK1 without points the share of the keys is the wanted share of the rows.
    KK2 the more rows are wanted, the more keys are kept; all for all, and none only for none.
    KK3 of two batches in a row one keeps a row, once a per mille is known at which one does.
        Until then each keeps twice as many per mille as the last one. Where that per mille has at
        most SMALL_SHARE of the rows, these fit, and fewer keys are known to have none, each batch
        keeps at least as many.
    KK4 while the rows of each key stay the same, batches come to keep all keys that fit: the next
        one by its hash would exceed the wanted share of the rows.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.stage.kept_rows import KEPT_ALL

PRIOR_ROWS: Final = 10
"""Number of rows with the nominal share beside each point."""
POINT_ROWS_MAX: Final = 1_000
"""Maximum number of rows that a batch counts for: more say no more about the next batch."""
FADING: Final = 0.9
"""Factor by which points fade with each batch: to a tenth in 22 batches, some 20 seconds."""
SMALL_SHARE: Final = 100
"""Share of the rows, in per mille, up to which a branch keeps its first key in every batch: what a
tenth of the rows takes of the cores delays a correction hardly.
"""
NONE_ROWS: Final = 3
"""Number of rows that a batch was to keep by the share of its keys, from which it says something
that it kept none.
"""
_FORGOTTEN_ROWS: Final = 1.0
"""Number of rows below which a point is forgotten."""


def rows_of_all(rows: int, halvings: int) -> int:
    """Return how many of all rows a batch stands for that read ``rows`` as one of 2 ** ``halvings``
    shards. Plans count all rows, and what a shard takes of them does not depend on the keys that
    are kept.
    """
    return rows << halvings


class KeyShares:
    """Estimate of the share of the rows that each share of the keys has, for one stage."""

    def __init__(self) -> None:
        """Start without points."""
        self._points: dict[int, tuple[float, float]] = {}
        """Rows kept, and all rows, by the per mille of the keys at which that was seen. Faded."""
        self._is_empty = False
        """Whether the last batch kept nothing."""
        self._keeps_none = 0
        """Largest per mille of the keys that kept nothing where NONE_ROWS were to be expected, and
        no fewer keys kept anything since; 0 if there is none.
        """

    def saw(self, keys: int, kept: int, rows: int) -> None:
        """Add a batch of ``rows`` of which ``keys`` per mille of the keys had ``kept``."""
        if keys <= 0 or rows <= 0:
            return
        self._is_empty = not kept
        if keys >= KEPT_ALL:
            return
        if not kept and rows * keys >= NONE_ROWS * KEPT_ALL:
            self._keeps_none = max(self._keeps_none, keys)
        elif kept and keys <= self._keeps_none:
            self._keeps_none = 0
        faded = {
            at: (some * FADING, of * FADING)
            for at, (some, of) in self._points.items()
            if of * FADING >= _FORGOTTEN_ROWS
        }
        some, of = faded.get(keys, (0.0, 0.0))
        counted = min(rows, POINT_ROWS_MAX)
        faded[keys] = some + counted * min(1.0, kept / rows), of + counted
        self._points = faded

    def keys_for(self, wanted: int, fits: int) -> int:
        """Return the per mille of the keys to keep for ``wanted`` per mille of the rows. ``fits``:
        per mille of the rows for which there is time.
        """
        if not 0 < wanted < KEPT_ALL:
            return max(0, min(wanted, KEPT_ALL))
        found = self._inverse(wanted)
        least = min((at for at, (kept, _) in self._points.items() if kept), default=None)
        if least is None:
            return max(found, min(2 * max(self._points), KEPT_ALL)) if self._is_empty else found
        kept, rows = self._points[least]
        is_small = kept * KEPT_ALL <= rows * min(SMALL_SHARE, fits)
        keeps_it = self._is_empty or (is_small and 0 < self._keeps_none < least)
        return max(found, least) if keeps_it else found

    def _inverse(self, wanted: int) -> int:
        """Return the largest per mille of the keys that has at most ``wanted`` of the rows by the
        line through all points; at least 1.
        """
        line = [(0, 0.0), *self._monotone(), (KEPT_ALL, float(KEPT_ALL))]
        number = next(number for number, (_, share) in enumerate(line) if share > wanted)
        (below, has), (above, exceeds) = line[number - 1], line[number]
        return max(1, below + int((above - below) * (wanted - has) / (exceeds - has)))

    def _monotone(self) -> list[tuple[int, float]]:
        """Return the points with their shares of the rows, in per mille, pooled so that none has
        less than one of fewer keys.
        """
        pools: list[tuple[float, float, list[int]]] = []
        for at, (kept, rows) in sorted(self._points.items()):
            pool = kept + PRIOR_ROWS * at / KEPT_ALL, rows + PRIOR_ROWS, [at]
            while pools and pools[-1][0] * pool[1] > pool[0] * pools[-1][1]:
                some, of, before = pools.pop()
                pool = some + pool[0], of + pool[1], before + pool[2]
            pools.append(pool)
        return [(at, KEPT_ALL * some / of) for some, of, places in pools for at in places]
