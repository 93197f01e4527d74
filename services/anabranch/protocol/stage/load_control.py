"""Control of a stage's load: whether the stage is overloaded, and how many per mille of the rows
its branch keeps so that new results stay within their bound.

Theory of operation. Aurora's load shedder compares the load of a query network with the capacity of
its machine and drops rows until the rest fits. What it drops is lost. Here only tentative results
lack rows: the stable query processes all of them later, like the rows of an input that was missing.

*What batches cost.* The duration of a batch is a fixed part and a part for each row. The fixed part
is that of a line through batches of all sizes that were seen, and at most the duration of the
shortest. While all have about one size nothing tells it: it counts as at most a target, since a
larger one would leave no room for rows, and as half a bucket where each bucket has a batch of its
own, which would not keep up with a larger one. What is longer is due to rows. The median over the
last COST_BATCHES batches, weighted by rows, is the *cost* of a row: one slow batch among several
does not move it. The first COLD_BATCHES batches of a query do not count, since Java compiles during
them. Costs of batches that ran *beside* a batch of the successor are kept apart from those that ran
alone: two queries share the cores. Such a batch may also wait until a task of the successor ends.
That has nothing to do with its own rows: counted as theirs, few rows would seem dear, and fewer of
them dearer still, until hardly any were kept. So what a batch takes beyond twice its time alone
does not count. That time is an upper bound: until sizes differ, as if no part of a batch were
fixed.

*When fewer rows do not help.* Where other programs have the cores, a batch takes seconds whatever
it holds. Counted as the cost of its few rows that would look like an overload: hardly any row would
be kept, no batch would become shorter, and the branch would never end. So large batches of the last
ones are compared with small ones. If the small ones take HOPELESS_TARGETS targets and at least half
as long as the large ones, what the line through both leaves without rows is fixed: it is no cost of
rows until batches are shorter again. Batches that a branch made small are such an experiment, so
shedding that buys nothing ends by itself. Nor are rows left out that would make their batch hardly
longer.

*When a stage is overloaded.* The stage is *late* if the rows that wait would take longer than the
time that is left until the oldest of them miss the bound. It forks then, before the bound is
missed, because the batch that would miss it need not run first. The last two batches must both
predict it, so one slow batch makes no fork. Nor does it fork for less than WORK_LEAST_MS of work:
what is left then was used up by the pace of batches, and fewer rows would not help. A cost that was
measured on few rows predicts nothing for many: until two larger batches were measured, a batch has
at most EXTRAPOLATED_TIMES the rows that two had, or ROWS_FIRST. A batch of a branch must end soon:
it has instead of ROWS_FIRST the rows that take WORK_LEAST_MS if no part of its duration is fixed.

*Before anything is measured.* Where a row takes 10 ms, ROWS_FIRST of them take 10 s, and five such
batches pass before the cost is known: a process that begins with a backlog would show nothing of
the present for a minute. So until then a batch has at most ROWS_UNKNOWN. Cold batches do not say
what a row costs: their fixed part is larger by what Java compiles. But it falls from batch to
batch. So if a later batch of more rows takes longer, at least the difference is due to its rows. So
a batch has at most the rows that take COLD_MOST_MS by that, too.

*How much is kept.* A batch of the branch must end in the time that is left, and within a part of
the bound that leaves the next batch as much: two batches, one of which a row waits for, take at
most ``target_ms`` each. So two shares limit it. The *steady* share is the rows that fit into
``target_ms`` divided by the rows that mostly wait. It falls at once, and rises by at most KEPT_RISE
a batch, and only by KEPT_STEP or more, so it does not swing with the noise of measurements. The
share of this batch alone is the rows that fit into the time that is left divided by those that wait
now. It alone limits the first batch of a branch: what waited for the fork says nothing of what will
wait later, and from the little that is kept then a steady share, which rises batch by batch, would
leave the cores idle for seconds.

*Which query has the cores.* The *use* is the rate of arriving rows divided by the *capacity*, the
rate at which batches of ``target_ms`` process rows without the successor beside them. While it is
OVERLOADED or more the branch needs all cores, and the successor waits. Once it has stayed below
RESUMED for HOLD_MS the successor corrects. The branch then leaves it half of what the load leaves:
at a use of one half it keeps 500 per mille, so corrections gain on their input by a quarter of the
capacity. Between the two thresholds nothing changes. A use that is measured wrongly shows in a
correction that does not come nearer over a step (``protocol.stage.scheduling``): the branch then
keeps half as much, and after some such steps the successor waits until the use was measured anew.

*How long a batch of the correction takes.* A row that comes just after a batch of the branch began
waits for that one, for the one of the correction, and for its own. What two short batches of the
branch leave of two targets is therefore the correction's. The less the branch keeps, the larger are
the batches of the correction, and the fewer, each of which pays the fixed part. Held to a target,
as those of the branch are, they may correct hardly more than comes in: then keeping less would help
little, and the branch would keep next to nothing for as long as that lasts.

*Limits.* Where the stages of a node together need more than its cores, the node may limit the per
mille that a stage keeps, although the stage itself is not late (``protocol.stage.shed_choice``). A
stage with a limit is overloaded like one that is late, and no stage of the node corrects meanwhile.
For this decision each stage measures what its rows cost in processor time
(``protocol.stage.shared_cores``). Unlike the duration of its batches that does not depend on what
the other stages do.

Invariants:
    OL1 without two measured batches that predict it no stage is late.
    OL2 one batch, whatever it took, makes no stage late.
    OL3 at a constant load and cost the per mille that is kept becomes constant.
    OL4 the per mille is between KEPT_LEAST and KEPT_ALL. It is at most the steady one, which rises
        by at most KEPT_RISE a batch.
    OL5 corrections begin only after the use was below RESUMED for HOLD_MS.
    OL6 the fewer rows wait, or the more time is left, the more is kept.
    OL7 no more is kept than the limit.
    OL8 a batch beside another one counts as at most twice what it may take alone. Until such
        batches are measured, the branch has half of the time that is left.
    OL9 what small batches take and large ones hardly exceed is no cost of rows, while it lasts.
    OL10 cold batches bound the rows of batches until the cost of a row is measured, and decide
        nothing else: a stage whose first batches are only slow has the same batches as without.
    OL11 until then no batch has more than ROWS_UNKNOWN.
    OL12 a batch of the correction takes at most a target, or together with two of the branch as it
        keeps rows now two targets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from math import inf
from statistics import median
from typing import Final

from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.stage.availability import delay_bound_ms
from anabranch.protocol.stage.kept_rows import KEPT_ALL

COST_BATCHES: Final = 8
"""Number of batches over which the cost of a row is measured: a few seconds at full load."""
SIZES_APART: Final = 2
"""Least factor between the rows of two batches from which the fixed part is computed. Below it the
line between them is due to noise.
"""
COMPARED_BATCHES: Final = 16
"""Number of the last batches of which large and small ones are compared. Where other programs have
the cores their durations differ by much, whatever they hold.
"""
HOPELESS_TARGETS: Final = 2
"""Duration of small batches, in targets, from which they may say that fewer rows do not help. A
branch leaves out rows so that its batches take one target: twice of that is no noise.
"""
NEWEST_BATCHES: Final = 3
"""Number of batches after which the control knows that batches have become shorter."""
HARDLY_LONGER_PARTS: Final = 4
"""Divisor of the fixed part of a batch: rows that take less than that, and than a target, are not
left out. Their batch would take at least four fifths of its time without any.
"""
COLD_BATCHES: Final = 3
"""Number of the first batches of a query that are not measured, since Java compiles during them."""
EXTRAPOLATED_TIMES: Final = 4
"""Largest factor between the rows of a measured batch and those of a batch whose duration is
predicted from it. The fixed part of a small batch is measured too roughly for more.
"""
ROWS_FIRST: Final = 1_000
"""Number of rows that a batch may have whatever was measured, but for a measured stage's branch: a
second of a function that takes a millisecond a row.
"""
ROWS_UNKNOWN: Final = 200
"""Number of rows that a batch has at most before the cost of a row is known: five such batches show
within ten seconds that a row takes 10 ms. Where it takes less, a few batches more are soon run.
"""
WORK_LEAST_MS: Final = 1_000
"""Duration of the waiting rows' processing, in ms, below which a stage is never late: the time that
is left was used up by the pace of batches (APART_MOST_MS), not by rows.
"""
COLD_MOST_MS: Final = 2 * WORK_LEAST_MS
"""Duration, in ms, that the rows of a batch may take until their cost is measured, as far as cold
batches tell. Batches of half of that would give a stage that is not overloaded, and whose first
batches are slow, a backlog.
"""
LOAD_WINDOW_MS: Final = 5_000
"""Window over which arriving rows are counted, in ms: several batches and buckets."""
HOLD_MS: Final = 3_000
"""Time for which the use must stay below RESUMED before corrections begin, in ms: they follow a
lull of some batches, not of one. The other way a rate over LOAD_WINDOW_MS is steady enough.
"""
OVERLOADED: Final = 1_000
"""Use, in per mille of the capacity, from which the branch needs all cores."""
RESUMED: Final = 900
"""Use, in per mille of the capacity, below which corrections begin: above it they would take longer
than ten times the backlog.
"""
KEPT_LEAST: Final = 10
"""Minimum per mille of the rows that are kept: with none at all a branch would show nothing."""
KEPT_MEASURED: Final = 200
"""Minimum per mille that a branch with a limit keeps so that its batches say what rows cost."""
KEPT_RISE: Final = 100
"""Maximum rise of the per mille that is kept, per batch."""
KEPT_STEP: Final = 25
"""Minimum rise of the per mille that is kept; a smaller one is within the noise of costs."""
_MEAN_PART: Final = 0.25
"""Weight of the newest batch in the mean of the rows that wait."""
_TARGET_PARTS: Final = 4
"""Divisor of the target: the shortest duration that is aimed at, however little time is left."""


class BatchCost:
    """Cost of a row in the last batches of a kind."""

    def __init__(self, target_ms: float = inf, unmeasured_ms: float | None = None) -> None:
        """Start without measurements.

        Args:
            target_ms: Duration, in ms, that the batches of a branch should have.
            unmeasured_ms: Largest fixed part of a batch, in ms, that is assumed while all have
                about one size; None: ``target_ms``.
        """
        self._hopeless_ms = HOPELESS_TARGETS * target_ms
        """Duration of a batch, in ms, from which its rows miss the bound, few as they may be."""
        self._unmeasured_ms = target_ms if unmeasured_ms is None else unmeasured_ms
        self._is_measured = False
        """Whether batches of different sizes tell the fixed part."""
        self._line_ms = 0.0
        """Fixed part of a batch by the line through batches of all sizes, in ms."""
        self._whatever_ms = 0.0
        """Duration that the last batches of several sizes had whatever they held, in ms."""
        self._least_ms = inf
        self._batches: deque[tuple[int, float]] = deque(maxlen=COST_BATCHES)
        """Rows and duration, in ms, of each batch."""
        self._last: deque[tuple[int, float]] = deque(maxlen=COMPARED_BATCHES)
        """The same of more batches, to compare large ones with small ones."""
        self._sizes: dict[int, tuple[float, float]] = {}
        """Mean rows and duration, in ms, of the newest batches of each number of binary digits."""

    def took(self, rows: int, duration_ms: float) -> None:
        """Add a batch of ``rows`` that took ``duration_ms``."""
        self._last.append((rows, float(duration_ms)))
        self._compare()
        if rows <= 0:
            return
        self._least_ms = min(self._least_ms, float(duration_ms))
        self._batches.append((rows, float(duration_ms)))
        size = rows.bit_length()
        before = self._sizes.get(size, (float(rows), float(duration_ms)))
        self._sizes[size] = (before[0] + rows) / 2, (before[1] + duration_ms) / 2
        (few, short_ms), (many, long_ms) = (
            self._sizes[min(self._sizes)],
            self._sizes[max(self._sizes)],
        )
        self._is_measured = many >= SIZES_APART * few
        if not self._is_measured:
            self._line_ms = min(self._least_ms, self._unmeasured_ms)
        else:
            row_ms = max(0.0, long_ms - short_ms) / (many - few)
            self._line_ms = max(0.0, min(self._least_ms, short_ms - row_ms * few))

    @property
    def fixed_ms(self) -> float:
        """Fixed part of a batch, in ms."""
        return max(self._line_ms, self._whatever_ms)

    def _compare(self) -> None:
        """Decide how much of the duration of the last batches fewer rows would not save (OL9):
        compare the large ones with the small ones, from the one before the first large one on.
        While all have about one size they say nothing new.
        """
        sizes = [rows for rows, _ in self._last]
        is_large = [rows * SIZES_APART > max(sizes) for rows in sizes]
        since = max(0, is_large.index(True) - 1) if any(is_large) else 0
        pairs = list(zip(is_large, self._last, strict=True))[since:]
        large = [batch for is_one, batch in pairs if is_one]
        small = [batch for is_one, batch in pairs if not is_one]
        if large and small:
            many, long_ms = _medians(large)
            few, short_ms = _medians(small)
            row_ms = max(0.0, long_ms - short_ms) / (many - few)
            is_hopeless = short_ms >= max(self._hopeless_ms, long_ms / SIZES_APART)
            self._whatever_ms = min(long_ms, short_ms - row_ms * few) if is_hopeless else 0.0
        newest_ms = median(took_ms for _, took_ms in list(self._last)[-NEWEST_BATCHES:])
        is_hopeless = newest_ms >= self._hopeless_ms
        self._whatever_ms = max(0.0, min(self._whatever_ms, newest_ms)) if is_hopeless else 0.0

    @property
    def is_known(self) -> bool:
        """Whether two batches were measured (OL1)."""
        return len(self._batches) > 1

    @property
    def rows_measured(self) -> int:
        """Number of rows that two of the batches had; 0 if there are no two."""
        return sorted((rows for rows, _ in self._batches), reverse=True)[1] if self.is_known else 0

    def rows_surely_in(self, duration_ms: int) -> float:
        """Return how many rows a batch processes in ``duration_ms`` if no part of its duration is
        fixed: with a fixed part it processes more. Infinite before two batches were measured.
        """
        took_ms = sum(took_ms for _, took_ms in self._batches)
        if not self.is_known or took_ms == 0:
            return inf
        return duration_ms * sum(rows for rows, _ in self._batches) / took_ms

    def longest_ms(self, rows: int) -> float:
        """Return how long a batch of ``rows`` takes at most, in ms (OL8): while all batches have
        about one size, as if no part of its duration were fixed.
        """
        likely_ms = self.fixed_ms + rows * self.row_ms()
        return likely_ms if self._is_measured else max(likely_ms, rows / self.rows_surely_in(1))

    def row_ms(self) -> float:
        """Return the cost of a row, in ms: the median of the batches, weighted by rows."""
        costs = sorted((self._cost(rows, took_ms), rows) for rows, took_ms in self._batches)
        half, passed = sum(rows for _, rows in costs) / 2, 0
        for cost, rows in costs:
            passed += rows
            if passed >= half:
                return cost
        return 0.0

    def row_ms_twice(self) -> float:
        """Return the cost of a row, in ms, that each of the last two batches had at least (OL2); of
        those with enough rows to predict the largest one.
        """
        least = self.rows_measured // EXTRAPOLATED_TIMES
        large = [batch for batch in self._batches if batch[0] >= least]
        return min(self._cost(*batch) for batch in large[-2:])

    def _cost(self, rows: int, took_ms: float) -> float:
        return max(0.0, took_ms - self.fixed_ms) / rows


def _medians(batches: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the median of the rows of ``batches``, and that of their durations."""
    return median(rows for rows, _ in batches), median(took_ms for _, took_ms in batches)


def _least_row_ms(batches: Iterable[tuple[int, float]]) -> float:
    """Return what a row costs at least, in ms, by ``batches`` that were run in this order while the
    fixed part fell; 0 if they do not tell.
    """
    return max(
        (
            (later_ms - earlier_ms) / (more - few)
            for (few, earlier_ms), (more, later_ms) in combinations(batches, 2)
            if more > few and later_ms > earlier_ms
        ),
        default=0.0,
    )


class ArrivalRate:
    """Rate at which rows arrive, over the last LOAD_WINDOW_MS."""

    def __init__(self) -> None:
        """Start without observations."""
        self._since_ms: int | None = None
        self._arrived: deque[tuple[int, int]] = deque()
        self._rows = 0

    def begin(self, now_ms: int) -> None:
        """Start to count at ``now_ms``: what arrived before, or during a pause, is no rate."""
        self._since_ms = now_ms
        self._arrived.clear()
        self._rows = 0

    def arrived(self, now_ms: int, rows: int) -> None:
        """Add ``rows`` that arrived by ``now_ms``."""
        if self._since_ms is None:
            self.begin(now_ms)
        elif rows > 0:
            self._arrived.append((now_ms, rows))
            self._rows += rows

    def rows_per_ms(self, now_ms: int) -> float:
        """Return the rate; 0 before anything was counted."""
        while self._arrived and self._arrived[0][0] <= now_ms - LOAD_WINDOW_MS:
            self._rows -= self._arrived.popleft()[1]
        since_ms = now_ms if self._since_ms is None else self._since_ms
        return self._rows / max(1, min(LOAD_WINDOW_MS, now_ms - since_ms))


class LoadControl:
    """Load of one replica, and the share of the rows that its branch keeps. ``now_ms`` is
    monotonic.
    """

    def __init__(self, target_ms: int, apart_ms: int | None = None) -> None:
        """Start without measurements.

        Args:
            target_ms: Duration of a branch's batch, in ms, with which new results stay within their
                bound.
            apart_ms: Width of a bucket, in ms, if each bucket with rows has a batch of its own;
                None: a batch may have several.
        """
        self.target_ms = target_ms
        self._unmeasured_ms = target_ms if apart_ms is None else min(target_ms, apart_ms // 2)
        self.kept = KEPT_ALL
        """Per mille that the last batch of the branch kept."""
        self.fits = KEPT_ALL
        """Per mille for which the last batch of the branch had the time."""
        self._branch_rows = 0
        """Number of rows that the last batch of the branch kept."""
        self.steady = KEPT_ALL
        """Per mille that a batch of the branch keeps if there is time for it."""
        self.limit: int | None = None
        """Per mille that the branch keeps at most, because other stages need the cores. KEPT_ALL:
        others leave out rows for this one. None: the node has no limits.
        """
        self.is_late_itself = False
        """Whether the branch needs all cores so that its results are in time."""
        self.arrivals = ArrivalRate()
        self._alone, self._beside = self._new_cost(), self._new_cost()
        self._processor = BatchCost(unmeasured_ms=self._unmeasured_ms)
        self._first: deque[tuple[int, int]] = deque(maxlen=COST_BATCHES)
        """Rows and duration, in ms, of the batches before the cost was known, cold ones too."""
        self._measured_anew = COST_BATCHES
        """Number of batches that ran alone on the cores since a correction got stuck, up to
        COST_BATCHES.
        """
        self._mean_waiting: float | None = None
        """Mean number of rows that waited when a batch of the branch began, without the first one
        that had to leave out rows; 0 after that one, None before it.
        """
        self._below_ms: int | None = None
        """Time since which the use has been below its threshold."""

    def took_cold(self, rows: int, duration_ms: int) -> None:
        """Record that a batch, during which Java compiled, processed ``rows`` in ``duration_ms``
        (OL10).
        """
        if not self._alone.is_known:
            self._first.append((rows, duration_ms))

    def took(self, rows: int, duration_ms: int, *, beside: bool) -> None:
        """Record that a batch processed ``rows`` in ``duration_ms``. ``beside``: whether a batch of
        the other query ran meanwhile.
        """
        if beside:
            self._beside.took(rows, min(duration_ms, self._half_speed_ms(rows)))
            return
        self.took_cold(rows, duration_ms)
        self._alone.took(rows, duration_ms)
        if rows > 0:
            self._measured_anew = min(COST_BATCHES, self._measured_anew + 1)

    def used(self, rows: int, processor_ms: float) -> None:
        """Record that a batch of any query took ``processor_ms`` of the cores for ``rows``. Not one
        of a branch that keeps little: what it takes is hardly due to its rows.
        """
        if not self.is_limited or self.kept >= KEPT_MEASURED:
            self._processor.took(rows, processor_ms)

    def demand_us(self, now_ms: int) -> int | None:
        """Return the processor time that all arriving rows need, in us per second; None while the
        cost of a row is unknown.
        """
        cost, rate = self._processor, self.arrivals.rows_per_ms(now_ms)
        if not cost.is_known:
            return None
        return int(1_000_000 * self._cores_for(rate, cost))

    def _cores_for(self, rows_per_ms: float, cost: BatchCost) -> float:
        """Return the time of batches of ``target_ms`` that rows arriving at this rate need, as a
        multiple of all time.
        """
        room_ms = self._room_ms(cost, self.target_ms)
        return rows_per_ms * cost.row_ms() * self.target_ms / room_ms

    @property
    def is_limited(self) -> bool:
        """Whether the stage must leave out rows for other stages."""
        return self.limit is not None and self.limit < KEPT_ALL

    @property
    def is_overloaded(self) -> bool:
        """Whether the successor leaves the cores to the branch, or to other stages. While others
        leave out rows there is no room for corrections.
        """
        return self.is_late_itself or self.limit is not None

    @property
    def rows_max(self) -> int:
        """Maximum number of rows of a batch whose duration can be predicted."""
        return max(self._rows_first, EXTRAPOLATED_TIMES * self._alone.rows_measured)

    @property
    def _rows_first(self) -> int:
        """Number of rows that a batch may have whatever was measured (OL10, OL11)."""
        if self._alone.is_known:
            return ROWS_FIRST
        row_ms = _least_row_ms(self._first)
        return max(1, int(min(ROWS_UNKNOWN, COLD_MOST_MS / row_ms))) if row_ms else ROWS_UNKNOWN

    @property
    def branch_rows_max(self) -> int:
        """Maximum number of rows of a branch's batch that keeps all of them. The stable query may
        have more: a backlog is processed sooner in large batches, and nothing waits for one.
        """
        first = int(min(self._rows_first, self._alone.rows_surely_in(WORK_LEAST_MS)))
        measured = max(self._alone.rows_measured, self._beside.rows_measured)
        return max(1, first, EXTRAPOLATED_TIMES * measured)

    def rows_within(self, duration_ms: int) -> int:
        """Return how many rows a batch alone on the cores processes in ``duration_ms``, as far as
        it can be predicted.
        """
        cost = self._alone.row_ms()
        room_ms = max(duration_ms / 2, duration_ms - self._alone.fixed_ms)
        return self.rows_max if cost == 0 else max(1, min(self.rows_max, int(room_ms / cost)))

    @property
    def correction_ms(self) -> int:
        """Duration, in ms, that a batch of the correction may have beside the branch (OL12): what
        two batches of the branch leave of two targets, and at least one target.
        """
        branch_ms = self._alone.fixed_ms + self._branch_rows * self._alone.row_ms()
        return int(max(self.target_ms, 2 * (self.target_ms - branch_ms)))

    def is_late(
        self, waiting: int, left_ms: int, *, beside: bool = False, batches: float = 1
    ) -> bool:
        """Return whether results of ``waiting`` rows, which take so many ``batches``, would miss
        the bound, which is ``left_ms`` away (OL1, OL2).
        """
        cost = self._cost(beside=beside)
        if not cost.is_known:
            return False
        work_ms = waiting * cost.row_ms_twice() + (batches - 1) * cost.fixed_ms
        allowed_ms = left_ms - cost.fixed_ms if left_ms > 0 else 2 * self.target_ms
        return work_ms > max(WORK_LEAST_MS, allowed_ms, self._hardly_longer_ms(cost))

    def use(self, now_ms: int) -> int | None:
        """Return the use, in per mille of the capacity; None while the cost of a row is unknown.

        The capacity is that in batches of ``target_ms``, so it does not depend on how the duration
        of batches of this size is divided into a fixed part and a part for each row.
        """
        rate, cost = self.arrivals.rows_per_ms(now_ms), self._alone
        if rate == 0:
            return 0
        if not cost.is_known or self._measured_anew < COST_BATCHES:
            return None
        return int(1_000 * self._cores_for(rate, cost))

    def forked(self) -> None:
        """Record that the stage forked because it was late. The use is not asked: it may have risen
        a moment ago. A stage that forked because of its limit is not late itself.
        """
        self.is_late_itself, self._below_ms = not self.is_limited, None

    def watch(self, now_ms: int) -> None:
        """Compare the use with its thresholds (OL5)."""
        use = self.use(now_ms)
        if use is None or use >= (RESUMED if self.is_late_itself else OVERLOADED):
            self._below_ms = None
            self.is_late_itself = self.is_late_itself or use is not None
        elif self._below_ms is None:
            self._below_ms = now_ms
        elif now_ms - self._below_ms >= HOLD_MS:
            self.is_late_itself = False

    def stuck(self) -> None:
        """Record that a correction does not come nearer: its successor waits until the cost of a
        row was measured anew.
        """
        self._measured_anew = 0
        self.is_late_itself, self._below_ms = True, None

    def keep(
        self, waiting: int, left_ms: int, now_ms: int, *, beside: bool, yields: int | None
    ) -> int:
        """Return the per mille of ``waiting`` rows that the next batch of the branch keeps (OL4,
        OL6, OL7).

        Args:
            waiting: Number of rows.
            left_ms: Time until the oldest of them miss the bound.
            now_ms: Now.
            beside: Whether the successor corrects.
            yields: None if the branch shares the cores with the correction as they come. Otherwise
                it leaves the correction half of the spare capacity, and of the rest one half again
                for each of so many steps in which the correction did not come nearer.
        """
        if beside and not self._beside.is_known:
            # The correction may take half of the cores, and nothing says yet how much it takes.
            left_ms = min(left_ms, left_ms // 2)
        is_yielding = beside and yields is not None
        # A branch for a missing input begins when the wait is over: what it takes must not be late
        # by much more. (Before a fork that is no reason, since the fork itself takes time.)
        is_late = self.is_late(waiting, max(1, left_ms), beside=beside)
        if self.kept == KEPT_ALL and not self.is_limited and not is_yielding and not is_late:
            self._branch_rows = waiting
            return KEPT_ALL
        self.fits, steady = self._fitting(waiting, left_ms, self._cost(beside=beside))
        if beside and yields is not None:
            steady = min(steady, self._spare(now_ms)) >> yields
        steady = max(KEPT_LEAST, min(steady, KEPT_ALL if self.limit is None else self.limit))
        if steady >= min(KEPT_ALL, self.steady + KEPT_STEP):
            self.steady = min(steady, self.steady + KEPT_RISE)
        elif steady < self.steady:
            self.steady = steady
        self.kept = max(KEPT_LEAST, min(self.fits, self.steady))
        self._branch_rows = waiting * self.kept // KEPT_ALL
        return self.kept

    def ended(self) -> None:
        """Record that the branch has ended: everything is kept again."""
        self.kept = self.steady = KEPT_ALL
        self.is_late_itself, self._below_ms = False, None
        self._beside = self._new_cost()
        self._mean_waiting = None

    def _new_cost(self) -> BatchCost:
        return BatchCost(self.target_ms, self._unmeasured_ms)

    def _room_ms(self, cost: BatchCost, within_ms: int) -> float:
        """Return the part of a batch that is for rows, in ms, if it must end in ``within_ms``."""
        least_ms = max(self.target_ms / _TARGET_PARTS, self._hardly_longer_ms(cost))
        return max(least_ms, within_ms - cost.fixed_ms)

    def _hardly_longer_ms(self, cost: BatchCost) -> float:
        """Return the time that rows may add to a batch and hardly make it longer, in ms (OL9)."""
        return min(self.target_ms, cost.fixed_ms / HARDLY_LONGER_PARTS)

    def _spare(self, now_ms: int) -> int:
        """Return the per mille of arriving rows that half of the spare capacity can process. A use
        above RESUMED counts as that: the correction ends soon, or the load falls again.
        """
        use = min(self.use(now_ms) or 0, RESUMED)
        return min(KEPT_ALL, (1_000 - use) * KEPT_ALL // max(1, 2 * use))

    def _fitting(self, waiting: int, left_ms: int, cost: BatchCost) -> tuple[int, int]:
        """Return the per mille of ``waiting`` rows that a batch can process within ``left_ms``, and
        the per mille of the rows that mostly wait within ``target_ms``: the number of buckets that
        wait differs by one from batch to batch. Before the first batch nothing is known of these.
        """
        mean = self._mean_waiting
        if mean is None:
            self._mean_waiting = 0.0
            return self._share(waiting, min(left_ms, self.target_ms), cost), KEPT_ALL
        self._mean_waiting = mean + (waiting - mean) * (_MEAN_PART if mean else 1)
        steady = self._share(self._mean_waiting, self.target_ms, cost)
        return self._share(waiting, left_ms, cost), steady

    def _share(self, rows: float, within_ms: int, cost: BatchCost) -> int:
        """Return the per mille of ``rows`` that a batch can process in ``within_ms``."""
        return int(KEPT_ALL / max(1.0, rows * cost.row_ms() / self._room_ms(cost, within_ms)))

    def _half_speed_ms(self, rows: int) -> float:
        """Return how long a batch of ``rows`` takes at most with half of the cores, in ms (OL8).
        Infinite while the cost of a row alone is unknown.
        """
        if not self._alone.is_known:
            return inf
        return 2 * self._alone.longest_ms(rows)

    def _cost(self, *, beside: bool) -> BatchCost:
        """Return the costs of batches alone, or of those beside the successor once measured."""
        return self._beside if beside and self._beside.is_known else self._alone


def target_of(first_ms: int, next_ms: int) -> int:
    """Return the duration of a branch's batch, in ms, with which new results stay within their
    bound, for a stage with these waits (``protocol.stage.availability.Waits``): a row waits for the
    batch before its own, and both together take no longer than the long wait exceeds the short one.
    """
    return max(WORK_LEAST_MS // 2, (first_ms - next_ms) // 2)


def shed_bound_ms(depth: int, height: int) -> int:
    """Return the smallest ``max_delay``, in ms, that leaves a branch's batch WORK_LEAST_MS
    (``target_of``). With less, noise that is no cost of rows takes the time of all of them.

    Args:
        depth: Stages before the one that sheds (``protocol.stage.availability.waits_of``).
        height: Stages from it to its strictest output.
    """
    return 2 * WORK_LEAST_MS + delay_bound_ms(height) + depth * HOP_MS


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Load of a replica whose branch sheds, for people."""

    kept: int
    """Per mille of the rows that its last batch kept."""
    use: int | None
    """Use, in per mille of the capacity; None while it is unknown."""
    backlog: int
    """Number of rows that the stable query has yet to process."""
    limit: int | None
    """Per mille that it keeps at most, because other stages of its node need the cores; None: the
    node has no limits.
    """
    room_left_ms: int | None
    """Time until the replica cannot hold more of its input and stops, at the rate since the
    overload began, in ms; None if the backlog does not grow, or not yet known.
    """


@dataclass(frozen=True, slots=True)
class LoadDemand:
    """Demand of a replica, for the decision of its node."""

    cpu_us: int
    """Processor time that all arriving rows need, in us per second."""
    is_late: bool
    """Whether its branch leaves out rows so that its own results are in time."""
    backlog: int = 0
    """Number of rows that it has to correct, and can; 0 if it has no branch that left out rows."""
    inputs_shed: int = 0
    """Per mille of the rows that the input of its branch lacks: stages before it left them out."""


FORECAST_AFTER_MS: Final = 10_000
"""Time over which a backlog is observed before its growth is extrapolated, in ms: some buckets and
batches, whose parts come and go together.
"""


class BacklogForecast:
    """Growth of the backlog during one overload. ``now_ms`` is monotonic."""

    def __init__(self, limit: int) -> None:
        """Start without observations. ``limit``: size that the backlog cannot exceed."""
        self._limit = limit
        self._first: tuple[int, int] | None = None
        """Time and size at the first observation."""

    def observe(self, now_ms: int, held: int) -> int | None:
        """Return the time until the backlog, which is ``held`` now, has no room left, in ms; None
        if it does not grow, or that is not yet known.
        """
        if self._first is None:
            self._first = now_ms, held
        began_ms, before = self._first
        if now_ms - began_ms < FORECAST_AFTER_MS:
            return None
        return time_left_ms(held, self._limit, held - before, now_ms - began_ms)

    def ended(self) -> None:
        """Record that the overload is over."""
        self._first = None


def time_left_ms(held: int, limit: int, grown: int, during_ms: int) -> int | None:
    """Return how long a growing backlog has room, in ms; None if it does not grow.

    Args:
        held: Size of the backlog.
        limit: Size that it cannot exceed (INPUT_PARTS_MAX of ``protocol.stage.replica``, for
            parts).
        grown: Growth of the backlog.
        during_ms: Time in which it grew by that.
    """
    if grown <= 0 or during_ms <= 0:
        return None
    return max(0, limit - held) * during_ms // grown
