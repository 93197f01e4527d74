"""One replica of a stage: the stable query, the branch that continues without some of its input,
and the successor that corrects.

Theory of operation. A replica has one query, the *stable query*, in its stable timeline. For its
next batch it gets complete buckets; when the next one is missing for longer than the stage may
wait, the replica **forks**: a snapshot of the stable query's checkpoint becomes the stable
timeline, and the query that runs, warm as it is, continues from there as the **branch**, on
incomplete input, writing tentative records. The snapshot's query is the **successor**: it is the
*stable query* from now on. It waits at the hole, and corrects when the missing input comes. When it
has caught up the branch is dropped. So nothing is started, restored or replayed between a failure
and its first tentative result, and correcting never stops new results, even with one replica
(docs/adr/0008; Borealis' protocol restores the node itself and staggers replicas for that).

A decision is a pure function of what was read and of the time; the shell copies directories, starts
and stops queries, appends records. What may happen to a replica, and what follows, is the table of
``protocol.stage.replica_phases``. The table here says when it happens, and what else is done.

=============  ==========================================  =========================================
state          event                                       action and next state
=============  ==========================================  =========================================
FAILURE        next bucket complete                        the stable query runs it; STABLE once it
                                                           has caught up
STABLE         next bucket complete                        the stable query runs it
STABLE         paused, or no branch at an overdue bucket   FAILURE
STABLE         long wait over, next bucket not complete    fork; UP_FAILURE
STABLE         next bucket complete, but the stage cannot  fork, the branch sheds; UP_FAILURE
               process all that waits in time (OV1)
UP_FAILURE     next bucket complete, stage overloaded      the successor waits for the cores (OV3)
STABILIZATION  the stage is overloaded                     the successor waits; UP_FAILURE
UP_FAILURE     the branch asks, a bucket is due            the branch runs it, tentative
UP_FAILURE     the bucket at the hole becomes complete     the successor runs it; STABILIZATION
STABILIZATION  next bucket complete                        the stable query runs it
STABILIZATION  the stable query does not come nearer       the branch is paced, then suspended
                                                           (``protocol.stage.scheduling``)
STABILIZATION  it has caught up, next bucket not overdue,  drop the branch, and say so; STABLE
               no input to be corrected any more
STABILIZATION  it is past the fork, a long wait without    second fork: it becomes the next branch,
               progress at an overdue bucket               the old one is dropped; UP_FAILURE
with a branch  the branch's query fails                    drop it, and say so; FAILURE, no fork at
                                                           this hole, or none soon
any            crash                                       the next process starts in the newest
                                                           timeline: FAILURE
=============  ==========================================  =========================================

Invariants:
    RE1 only the stable query gives stable records (rule 12), only the branch tentative ones.
    RE2 a fork happens between two batches of the stable query: everything read is closed (rule 10).
    RE3 branch numbers (epoch, counter) grow (rule 16).
    RE4 a second fork needs progress past the first and a whole wait without any (rule 14).
    RE5 the branch is dropped when the stable query has caught up and does not stand at a hole, nor
        is about to (rule 15). It has caught up, too, when its last batch took all that was complete
        when it began, and was no longer than the long wait: where batches are longer than buckets
        what came meanwhile will always be missing, and the next one, alone on the cores, is in
        time. Nor is it dropped while an input awaits corrections (US4): a stage that ran out of
        them would fork again in the same failure.
    RE6 at most two queries.
    RE7 a branch that failed is not tried again at the same hole: an error of the branch alone must
        not end the stable query. If the cause may be transient (missing blocks, an unavailable
        broker), the branch is tried again, after a pause that doubles up to BRANCH_RETRY_MAX_MS.
    RE8 memory is bounded however long an input is missing: from INPUT_PARTS_MAX parts on the
        replica reads only the input that the stable query waits for. The stable query continues
        whenever it can, and forgets the buckets that it has passed; the branch, which receives
        nothing new, stops.
    RE9 beside a branch a batch of the stable query has at most CORRECTION_ROWS_MAX rows, or the
        buckets of one long wait if those have more: what a batch costs by itself is then a part of
        the time in which its buckets came, however many rows come, and corrections gain on their
        input.
    RE10 without a branch a replica says STABLE only while its results come in time. The stable
        query has run all that was complete when the logs of all inputs were first read to their
        ends, since the process began, woke from a pause, or had no room for them (RE8); and its
        next bucket is not overdue, by a hop, in which a replica that may fork does. Only a
        replica's own logs decide this: in a pipeline in which all are behind none waits.
    RE11 where there is a cap of rows a second, a query rests after a batch for as long as its rows
        take by the cap. It takes the rows of a second at once, or one bucket that has more. What
        waits stays in its input, and counts as late like any other.
    RE12 batches of a plan that compares rows, the stable query's and the branch's, have the size
        that their durations allow (``protocol.stage.batch_size``).

Of a stage that sheds rows while it is overloaded (``protocol.stage.load_control``):
    OV1 it forks, too, when its own batches are too slow: its next bucket is complete, and the rows
        that wait would be late. Not while it catches up and another replica gives new results, and
        not where it may not continue without input (AV6).
    OV2 only a tentative plan leaves out rows. It says how many per mille it keeps, so a batch that
        runs again keeps the same ones.
    OV3 while it is overloaded the branch has the cores: the successor waits, and is not even
        started. It corrects once the load leaves room for it, and the branch is never suspended
        for it: it keeps less. A batch of the successor takes no longer than one of the branch may,
        or than short ones of the branch leave (OL12), also beside a branch that keeps all rows: a
        rush may come during such a batch, and the branch then has half of the cores, or on a node
        with one task none, until the batch has ended.
    OV4 such a branch ends when the successor has run what is complete, as after any failure, and
        what has come meanwhile would not be late: the stage would fork again at once. That the
        successor has passed the branch is not enough (RE5): it began with complete buckets.
    OV5 a branch that sheds and fails is not tried again until the stable query has passed what it
        had run (RE7). If it failed for a transient reason the batches of the stable query end by
        the end of the pause, or take no longer than one of a branch: a fork waits for their end.
    OV6 it forks, too, where its node limits the rows that it keeps, and such a branch does not end
        before the limit (``protocol.stage.shed_choice``).
    OV7 on a node that runs one task at a time such a branch and its correction take turns: neither
        plans a batch while the other's runs. A batch that waited for the other one would lack the
        buckets that came meanwhile, and these would wait for two more. A branch that is late waits
        for no turn, and is not waited for.
    OV10 where the two do not take turns the branch of a correction goes first: the correction
        begins no batch while a complete bucket waits for the branch, or for the end of its batch,
        since half of the long wait. What each bucket costs, however few of its rows are kept, the
        branch cannot save. Beside the correction it would take twice as long for it, and be later
        and later. A branch that keeps all rows goes first, too, as long as the correction comes
        nearer: before batches were measured alone it does not know that the stage is overloaded.
    OV11 no correction waits for ever: OV3 and OV10 hold up to a floor
        (``protocol.stage.correction_floor``), whatever batches take and the load seems to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import DataMissing, Unavailable
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord
from anabranch.protocol.log.stateful_plan import NO_STATE, StageState
from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.availability import Availability, Policy, RoundKind
from anabranch.protocol.stage.batch_size import BatchSize
from anabranch.protocol.stage.correction_floor import CorrectionFloor
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import (
    BacklogForecast,
    LoadControl,
    LoadDemand,
    LoadFigures,
    target_of,
)
from anabranch.protocol.stage.load_watch import LoadWatch
from anabranch.protocol.stage.planner import (
    Plan,
    PlanTraits,
    QueryPosition,
    begun_after,
    next_plan,
    next_tentative_plan,
)
from anabranch.protocol.stage.recovery import Beginning, HaMode
from anabranch.protocol.stage.replica_phases import Phase, PhaseChange, advertised, next_phase
from anabranch.protocol.stage.scheduling import BatchPacing, BatchRules, CorrectionWatch, Pace
from anabranch.protocol.stage.upstream_selection import awaits_corrections

INPUT_PARTS_MAX: Final = 400_000
"""Maximum number of stable input parts that a stage holds while it waits for one of its inputs: 400
bytes each, 750 if two replicas write the input. About fourteen hours of two inputs in 500 ms
buckets of two partitions. Beyond that it reads only the input that it waits for, so new results
stop too.
"""

SUCCESSOR_WITHOUT_ROWS_TIMES: Final = 5
"""Factor by which the successor's start is delayed further while the branch closes buckets without
rows, as between the ends of windows: users wait for the rows. Bounded, because a running successor
begins to correct two seconds sooner once the input is back.
"""

CAUGHT_UP_MS: Final = 1_000
"""Lag behind the complete buckets, in ms, below which a successor has caught up: about the time of
two small batches.
"""

CORRECTION_ROWS_MAX: Final = 100_000
"""Maximum number of rows of a batch beside a running branch. A larger one would keep the cores
longer than ``max_delay`` allows the branch to pause. The rows of one long wait may be more
(``protocol.stage.replica``, RE9).
"""

BRANCH_RETRY_MS: Final = 1_000
"""Delay before another branch is tried after one failed for a transient reason (missing blocks, an
unavailable broker), in ms. Doubled for each failure at the same hole.
"""

BRANCH_RETRY_MAX_MS: Final = 30_000
"""Upper limit of that delay, in ms: each fork costs a copy of the checkpoint and the start of a
query.
"""


@dataclass(frozen=True, slots=True)
class Situation:
    """Facts that a decision is based on, besides the position of the query that asks."""

    now_ms: int
    log_states: Mapping[str, LogState]
    chosen: Mapping[str, str | None]
    """Per input, the upstream replica whose tentative buckets are used
    (``protocol.stage.upstream_selection``).
    """
    working: frozenset[str] = frozenset()
    """Inputs whose replicas report that they work on tentative buckets. Such an input is given more
    time if it lacks the next bucket.
    """
    may_correct: bool = True
    """Whether the replica may correct now (``protocol.stage.scheduling``)."""
    peer_serves: bool = False
    """Whether another replica of the stage gives new results."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Next action of a query: run ``plan``, or fork and ask again, or wait. ``drop`` names a branch
    to stop in any case.
    """

    plan: Plan | None = None
    fork: bool = False
    drop: str | None = None


_NOTHING = Decision()


@dataclass(frozen=True, slots=True)
class StageRules:
    """Settings and facts of one stage that its decisions follow."""

    traits: PlanTraits
    availability: Availability
    """Timers of the stage's inputs, as this process observes them."""
    batches: BatchRules
    horizon_buckets: int | None = None
    """State horizon, in buckets; None if it is not known."""
    ha: HaMode = "active"
    state: StageState = NO_STATE
    """State that the stage's function keeps between batches."""
    restated_after: int | None = None
    """Bucket after which an operator lets the stage begin anew with this function; None if no
    operator does.
    """
    sheds: bool = False
    """Whether its branch may leave out rows while the stage is overloaded."""
    has_one_task: bool = False
    """Whether the node runs one task at a time."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Limits of batches and waits, derived from the rules of the stage."""

    caught_up_buckets: int
    correction_buckets: int
    """Number of buckets that a batch beside the branch may always take, however many rows they have
    (RE9).
    """
    settled_ms: int
    """Remaining wait of the next bucket, in ms, below which the branch is not dropped: earlier
    buckets may lag for a moment.
    """

    @classmethod
    def of(cls, rules: StageRules) -> Self:
        """Return the limits of one stage."""
        batches = rules.batches
        first_ms = rules.availability.waits.first_ms
        return cls(
            caught_up_buckets=max(1, CAUGHT_UP_MS // batches.width_ms),
            correction_buckets=max(1, first_ms // batches.width_ms),
            settled_ms=min(HOP_MS, first_ms // 2),
        )


@dataclass(slots=True)
class _Query:
    """State of one query, from its first request or its fork on."""

    position: QueryPosition
    """Position at its last request."""
    has_begun: bool = False
    """Whether it has asked as the stable query."""
    paced_until_ms: int = 0
    is_capped: bool = False
    """Whether its rest is longer than its pace requires, because of the cap."""
    batch: tuple[Plan, int] | None = None
    """Last batch, and the time at which it began, in ms; None once the query has asked after it."""


@dataclass(slots=True)
class _Branch:
    """State of one branch, from its fork to its end."""

    query: str
    forked_at: int
    end: int
    """Last bucket that it has run, or is running."""
    behind_floor: CorrectionFloor
    """Bound of the correction's wait for this branch (OV11)."""
    watch: CorrectionWatch = field(default_factory=CorrectionWatch)
    stable_batch: tuple[int, int] | None = None
    """Start of the stable query's last batch with buckets, and the last bucket that was complete
    then; None once the stable query has asked after that batch.
    """
    is_extended: bool = False
    """Whether it waits one hop longer, as of its last request."""
    shown_ms: int | None = None
    """Time when its first bucket was published."""
    rows_ms: int | None = None
    """Time when its first rows were published."""
    sheds: bool = False
    """Whether the stage was overloaded at its fork or since."""
    inputs_shed: int = 0
    """Per mille of the rows that the input of its last batch lacked."""
    overload_floor: CorrectionFloor = field(default_factory=CorrectionFloor.of_overload)
    """Bound of the correction's wait for the end of an overload (OV11)."""

    def corrected_for(self, duration_ms: int) -> None:
        """Record that a batch of the stable query took ``duration_ms``."""
        self.overload_floor.ran(duration_ms)
        self.behind_floor.ran(duration_ms)


@dataclass(frozen=True, slots=True)
class _Abandoned:
    """Hole at which a branch was abandoned (RE7)."""

    hole: int
    failures: int
    """Number of consecutive failures there before the last one."""
    again_ms: int | None
    """Time from which another branch may be tried there; None if it may not."""

    def forbids(self, position: QueryPosition, now_ms: int) -> bool:
        """Return whether a query at ``position`` must not fork."""
        again = self.again_ms is not None and now_ms >= self.again_ms
        return position.bucket <= self.hole and not again

    def left_ms(self, position: QueryPosition, now_ms: int) -> int | None:
        """Return the time until a query at ``position`` may try another branch, in ms; None if only
        its progress permits one.
        """
        if self.again_ms is None or position.bucket > self.hole:
            return None
        return max(0, self.again_ms - now_ms)


class Replica:
    """Queries of one process of one replica. Queries are named by the timeline of their
    directories.
    """

    def __init__(
        self,
        epoch: int,
        stable_query: str,
        rules: StageRules,
        beginning: Beginning,
    ) -> None:
        """Begin in the timeline ``stable_query``. A batch ends at the bucket up to which output is
        given up.
        """
        self.epoch, self.stable_query = epoch, stable_query
        self.branches = 0
        self.synced_bucket = 0
        """Last bucket of its inputs that the stable timeline holds durably; 0 if it is not
        known.
        """
        self._is_forking = False
        """Whether the stable query's checkpoint is being copied."""
        self._phase = Phase.ALONE
        self._availability = rules.availability
        self._traits = rules.traits
        self._rules = rules.batches
        self._bounds = _Bounds.of(rules)
        self.beginning = beginning
        self._queries: dict[str, _Query] = {}
        """The stable query and the branch, once they have asked."""
        self._branch: _Branch | None = None
        self._abandoned: _Abandoned | None = None
        self._pacing = BatchPacing(rules.batches, rules.traits)
        self._batch_size = BatchSize(rules.batches.batch_rows_max(), rules.traits)
        waits = rules.availability.waits
        self.load = (
            LoadControl(
                target_of(waits.first_ms, waits.next_ms),
                None if rules.traits.is_batch_safe else rules.batches.width_ms,
            )
            if rules.sheds
            else None
        )
        """Load of the replica; None for a stage that sheds nothing."""
        self._load_watch = None if self.load is None else LoadWatch(self.load)
        self._has_one_task = rules.has_one_task
        self.is_read = True
        """Whether readers follow the stream, or soon will (OV8)."""
        self.is_awaited = False
        """Whether halves of the shard wait for its next stable bucket (OV9)."""
        self._forecast = BacklogForecast(INPUT_PARTS_MAX)
        self._is_late = False
        """Whether the fork that is due, or being made, is due to overload (OV1)."""
        self._catch_up: tuple[int, int] | None = None
        """Time when this process last woke or last left an input unread (0 if never), and the
        bucket that the stable query must reach after that (RE10).
        """

    def state_at(self, now_ms: int) -> ReplicaState:
        """Return the state to advertise to others at ``now_ms`` (DPC's node states, RF4)."""
        return advertised(
            self._phase, in_time=self._phase is Phase.ALONE and self._is_in_time(now_ms)
        )

    @property
    def branch(self) -> str | None:
        """Query of the branch; None if there is none."""
        return None if self._branch is None else self._branch.query

    @property
    def number(self) -> tuple[int, int]:
        """Number of the newest branch (RE3)."""
        return self.epoch, self.branches

    @property
    def wants_to_correct(self) -> bool:
        """Whether a correction is possible, or in progress."""
        return self._phase is Phase.CORRECTING

    def position(self, query: str) -> QueryPosition | None:
        """Return the position of ``query`` at its last request; None if it has not asked."""
        found = self._queries.get(query)
        return None if found is None else found.position

    def behind(self, complete_upto: int) -> int:
        """Return the number of buckets that are complete on all inputs, up to ``complete_upto``,
        and that the stable query has not run; 0 before its first bucket, which may be any.
        """
        position = self.position(self.stable_query)
        if position is None or position.bucket == 0:
            return 0
        return max(0, complete_upto - position.bucket)

    def passed(self) -> int:
        """Return the last bucket that every query of this replica has read."""
        return min((query.position.bucket for query in self._queries.values()), default=0)

    def look(self, name: str, upto: int, parts: int, now_ms: int) -> RoundKind:
        """Return how to follow the log of input ``name`` now, which is complete up to ``upto``,
        while all inputs together hold ``parts`` (RE8).
        """
        stable_at = self.position(self.stable_query)
        if parts > INPUT_PARTS_MAX and stable_at is not None and upto > stable_at.bucket:
            self._availability.left_unread(name, now_ms)
            return RoundKind.NOTHING
        return self._availability.look(name, now_ms, wanted=self.look_wanted(name, now_ms))

    def _is_in_time(self, now_ms: int) -> bool:
        """Return whether the stable query's results are in time (RE10)."""
        stable_at = self.position(self.stable_query)
        if stable_at is None or self._catch_up is None or self._availability.blind(now_ms):
            return False
        sighted_ms, upto = self._catch_up
        reached = sighted_ms == self._availability.sighted_ms and stable_at.bucket >= upto
        return reached and not self._availability.overdue(stable_at.bucket + 1, now_ms - HOP_MS)

    def look_wanted(self, name: str, now_ms: int) -> bool:
        """Return whether reading the log of input ``name`` to its end now may decide something."""
        if self._availability.policy is Policy.SUSPEND:
            return False
        branch, stable_at = self._branch, self.position(self.stable_query)
        branch_at = None if branch is None else self.position(branch.query)
        wanted = (
            branch is not None
            and branch_at is not None
            and self._availability.look_wanted(
                name, branch_at.bucket + 1, now_ms, branching=True, extended=branch.is_extended
            )
        )
        return wanted or (
            stable_at is not None
            and self._availability.look_wanted(
                name, stable_at.bucket + 1, now_ms, branching=False, again=branch is not None
            )
        )

    def decide(self, query: str, position: QueryPosition, situation: Situation) -> Decision:
        """Return the next action of ``query``, which has run everything up to ``position``.

        A query that was dropped gets nothing.
        """
        if query not in (self.stable_query, self.branch):
            return _NOTHING
        asks = self._queries.setdefault(query, _Query(position))
        asks.position = position
        if asks.batch is not None:
            (before, began_ms), asks.batch = asks.batch, None
            took_ms = situation.now_ms - began_ms
            self._measure(query, before, took_ms if before.after == position else None, situation)
        sighted_ms = self._availability.sighted_ms
        if (
            self._catch_up is None or self._catch_up[0] != sighted_ms
        ) and not self._availability.blind(situation.now_ms):
            self._catch_up = sighted_ms, _complete(situation)
        if self._load_watch is not None:
            stable_at = self._queries.get(self.stable_query, asks).position
            self._load_watch.looks(
                situation.now_ms,
                None if self._availability.blind(situation.now_ms) else sighted_ms,
                situation.log_states,
                # What it leaves out at its beginning is no backlog, and may be forgotten.
                max(stable_at.bucket, self.beginning.after),
            )
        is_awaited = (
            self._branch is None
            and not asks.is_capped
            and self._pacing.is_awaited(position.bucket, _complete(situation))
        )
        if situation.now_ms < asks.paced_until_ms and not is_awaited:
            return _NOTHING
        self._look_at_waits(situation)
        self._watch_correction(situation)
        if self.load is not None:
            self.load.watch(situation.now_ms)
        branch = self._branch
        is_branch = branch is not None and branch.query == query
        decision = (
            Decision(self._tentative(branch, position, situation))
            if branch is not None and is_branch
            else self._decide_stable(asks, situation)
        )
        if decision.plan is not None:
            asks.paced_until_ms, asks.is_capped = self._pacing.next_at(
                asks.paced_until_ms, decision.plan.rows, situation.now_ms
            )
            asks.batch = decision.plan, situation.now_ms
            if self._load_watch is not None:
                self._load_watch.begins(query, decision.plan, situation.now_ms)
            if branch is not None and is_branch:
                branch.end = decision.plan.after.bucket
                branch.inputs_shed = decision.plan.inputs_shed
        return decision

    def _measure(self, query: str, plan: Plan, took_ms: int | None, situation: Situation) -> None:
        """Record that the batch of ``plan`` has ended. ``took_ms``: its duration; None if the query
        has not run it.
        """
        is_successor = self._branch is not None and query == self.stable_query
        if took_ms is not None:
            self._batch_size.took(plan.rows, took_ms)
            if self._branch is not None and is_successor:
                self._branch.corrected_for(took_ms)
        if self._load_watch is not None:
            self._load_watch.ends(
                query, situation.now_ms, self._availability.woke_ms, is_successor=is_successor
            )

    def load_figures(self, now_ms: int, parts: int) -> LoadFigures | None:
        """Return the load of the replica while its branch sheds rows; else None. ``parts``: number
        of parts of its inputs that it holds (RE8).
        """
        branch, load, watch = self._branch, self.load, self._load_watch
        if branch is None or load is None or watch is None or not branch.sheds:
            self._forecast.ended()
            return None
        left_ms = self._forecast.observe(now_ms, parts)
        return LoadFigures(load.kept, load.use(now_ms), watch.backlog, load.limit, left_ms)

    def demand(self, now_ms: int) -> LoadDemand | None:
        """Return what the replica tells its node; None while the cost of its rows is unknown, while
        nobody reads it (OV8), and for a stage that sheds nothing.
        """
        needs_us = None if self.load is None else self.load.demand_us(now_ms)
        if self.load is None or self._load_watch is None or needs_us is None or not self.is_read:
            return None
        if self._branch is None:
            return LoadDemand(needs_us, is_late=False)
        inputs_shed = self._branch.inputs_shed
        if not self._branch.sheds:
            return LoadDemand(needs_us, is_late=False, inputs_shed=inputs_shed)
        # One that waits at a hole would keep its turn from the others until its input is back.
        is_correcting = self._phase is Phase.CORRECTING
        backlog = max(int(is_correcting), self._load_watch.backlog)
        return LoadDemand(needs_us, self.load.is_late_itself, backlog, inputs_shed)

    def limit(self, kept: int | None) -> None:
        """Let the branch keep ``kept`` per mille of its rows at most (OV6); None: there are no
        limits on the node.
        """
        if self.load is not None:
            self.load.limit = kept

    def processed(self, query: str, rows: int) -> None:
        """Record that the batch of ``query`` processed ``rows``, whatever its plan was to keep.
        Called before the query asks for its next plan.
        """
        if self._load_watch is not None:
            self._load_watch.processed(query, rows)

    def used(self, query: str, rows: int, processor_ms: float) -> None:
        """Record that a batch of ``query`` took ``processor_ms`` of the node's cores for ``rows``.
        Called before the query asks for its next plan.
        """
        if self._load_watch is not None:
            self._load_watch.used(query, rows, processor_ms)

    def is_capped(self, now_ms: int) -> bool:
        """Return whether its cap keeps the stable query from taking anything now (RE11)."""
        stable = self._queries.get(self.stable_query)
        return stable is not None and now_ms < stable.paced_until_ms and stable.is_capped

    def forks(self) -> str:
        """Begin a fork. Return the name of the timeline that it makes (rule 3)."""
        self._is_forking = True
        return timeline_name(self.epoch, self.branches + 1)

    def forked(self, position: QueryPosition, now_ms: int) -> str | None:
        """Complete the fork, whose copy is the stable timeline now, durably. Return the previous
        branch, which must be stopped (RE4).
        """
        old = self._end_branch(PhaseChange.FORKED)
        self._is_forking = False
        self.branches += 1
        query, self.stable_query = self.stable_query, timeline_name(self.epoch, self.branches)
        self._branch = _Branch(
            query,
            forked_at=position.bucket,
            end=position.bucket,
            behind_floor=CorrectionFloor.of_behind(0 if self.load is None else self.load.target_ms),
            sheds=self._is_late,
        )
        if self.load is not None and self._is_late:
            self.load.forked()
        self._is_late = False
        self._queries[self.stable_query] = _Query(position)
        self._availability.moved(now_ms)
        return old

    def synced(self, query: str, position: QueryPosition | None) -> None:
        """Record that the commit of ``query`` at ``position`` is durable (rule 18).

        What ends while the stable query forks does not count: the copy that becomes the stable
        query may have been made before it was durable.
        """
        if position is not None and query == self.stable_query and not self._is_forking:
            self.synced_bucket = max(self.synced_bucket, position.bucket)

    def gave(self, record: BoundaryRecord) -> None:
        """Record the results of a query's batch, to learn their spacing."""
        self._pacing.gave(part.bucket for part in record.parts if part.rows)

    def shown(self, query: str, record: BoundaryRecord, now_ms: int) -> None:
        """Record that the branch ``query`` has published the buckets of ``record``. Ignored if that
        branch was dropped meanwhile.
        """
        branch = self._branch
        if branch is None or branch.query != query:
            return
        if branch.shown_ms is None:
            branch.shown_ms = now_ms
        if branch.rows_ms is None and any(
            part.rows > 0 and part.bucket <= record.closed for part in record.parts
        ):
            branch.rows_ms = now_ms

    def successor_due(self, now_ms: int, complete_upto: int) -> bool:
        """Return whether the successor may be started; until then the stable query stays where it
        forked. ``complete_upto``: last complete bucket of all inputs.

        Not before, nor while, the first tentative results are made, here and in the stages after
        this one; unless there is something to correct already, or no result to be seen for long
        (SUCCESSOR_AFTER_MS, SUCCESSOR_WITHOUT_ROWS_TIMES).
        """
        branch = self._branch
        if branch is None or branch.shown_ms is None:
            return False
        if self._yields(branch, now_ms, has_work=complete_upto > branch.forked_at):
            return False  # its start would take the cores from the branch (OV3)
        waited_ms, after_ms = now_ms - branch.shown_ms, self._rules.successor_after_ms
        if branch.rows_ms is not None and now_ms - branch.rows_ms >= after_ms:
            return True
        return waited_ms >= after_ms * (
            1 if complete_upto > branch.forked_at else SUCCESSOR_WITHOUT_ROWS_TIMES
        )

    def abandon(self, now_ms: int, cause: Exception | None = None) -> str | None:
        """Give up the branch, or the attempt to begin one, until the stable query has advanced or a
        transient cause has had time to pass (RE7).

        ``cause``: error that ended it; None: it cannot begin. Returns the branch that was there,
            which is to be stopped.
        """
        before, hole = self._abandoned, self._queries[self.stable_query].position.bucket
        if self._branch is not None and self._branch.sheds:
            hole = max(hole, self._branch.end)  # OV5
        self._is_late = False
        failures = before.failures + 1 if before is not None and before.hole == hole else 0
        again_ms = None
        if isinstance(cause, (DataMissing, Unavailable)):
            again_ms = now_ms + min(BRANCH_RETRY_MAX_MS, BRANCH_RETRY_MS << min(failures, 10))
        self._abandoned = _Abandoned(hole, failures, again_ms)
        return self._end_branch(PhaseChange.ABANDONED)

    def begins(self, bucket: int, *, has_rows: bool) -> int:
        """Record that the first batch of a query without a checkpoint has read up to ``bucket``. If
        an earlier process has logged its plan, that is run again (rule 9) and decides what is left
        out.

        Returns the bucket up to which the output is given up.
        """
        self.beginning = self.beginning.planned(bucket, has_rows=has_rows)
        return self.beginning.given_up

    def _look_at_waits(self, situation: Situation) -> None:
        """Note up to which bucket overloaded stages before this one have waited (AV11): what a
        branch closes with its first record has had the long wait.
        """
        for name in self._availability.stages_before:
            log_state = situation.log_states[name]
            first = log_state.upto + 1
            for replica in log_state.tentative_offers():
                upto = log_state.first_tentative_upto(replica)
                if any(each.shed for each in log_state.tentative_ranges(replica, first, upto)):
                    self._availability.has_waited(name, upto, situation.now_ms)

    def _decide_stable(self, asks: _Query, situation: Situation) -> Decision:
        position, cold = asks.position, self._rules.warm_up and not asks.has_begun
        asks.has_begun = True
        if self.beginning.after > 0 and position.sequence == 0:
            return Decision(begun_after(self.beginning.after, situation.log_states))
        if self._leaves_cores(position, situation):
            self._comes_to(PhaseChange.YIELDS)
            return _NOTHING
        plan = self._stable(position, situation)
        if cold and (plan is None or (self._branch is not None and not situation.may_correct)):
            return Decision(next_plan(position, situation.log_states, self._traits, warm_up=True))
        drop = self._caught_up(position, plan, situation)
        if plan is not None:
            branch = self._branch
            if branch is None and self._shed_due(position, plan, situation):
                self._is_late = True
                return Decision(fork=True, drop=drop)
            if branch is None and self._pacing.waits(plan, _complete(situation), situation.now_ms):
                return Decision(drop=drop)
            self._pacing.begins(situation.now_ms)
            if branch is not None and plan.after.bucket > position.bucket:
                self._comes_to(PhaseChange.CORRECTS)
                if (
                    self._goes_first(branch, situation)  # at each request: it counts the wait
                    or not situation.may_correct
                    or self._is_turn_of(branch, situation)
                ):
                    return _NOTHING
                branch.stable_batch = situation.now_ms, _complete(situation)
            self._availability.moved(situation.now_ms)
            return Decision(plan, drop=drop)
        return Decision(fork=self._fork_due(position, situation.now_ms), drop=drop)

    def _stable(self, position: QueryPosition, situation: Situation) -> Plan | None:
        """Return the next plan of the stable query, even if it may not run it now (RE9)."""
        given_up = self.beginning.given_up
        last = given_up if position.bucket < given_up else None
        most = self._rows_max(position, situation.now_ms)
        rows_max = most if self._branch is None else min(most, CORRECTION_ROWS_MAX)
        plan = next_plan(position, situation.log_states, self._traits, rows_max=rows_max, last=last)
        span = position.bucket + self._bounds.correction_buckets
        if rows_max == most or plan is None or plan.after.bucket >= min(span, _complete(situation)):
            return plan
        return next_plan(
            position,
            situation.log_states,
            self._traits,
            rows_max=most,
            last=span if last is None else min(last, span),
        )

    def _rows_max(self, position: QueryPosition, now_ms: int) -> int:
        """Return the maximum number of rows of the stable query's next batch. For a stage that
        sheds: as many as take a time that can be predicted. Beside a branch the batch takes no
        longer than the branch allows (OV3). While another branch may not be tried yet, it takes no
        longer than one of a branch, or ends by the time that one may (OV5).
        """
        most, load, abandoned = self._batch_size.rows_max, self.load, self._abandoned
        if load is None:
            return most
        if self._branch is not None:
            return min(most, load.rows_within(load.correction_ms))
        left_ms = None if abandoned is None else abandoned.left_ms(position, now_ms)
        if left_ms is None:
            return min(most, load.rows_max)
        return min(most, load.rows_within(max(left_ms, load.target_ms)))

    def _shed_due(self, position: QueryPosition, plan: Plan, situation: Situation) -> bool:
        """Return whether the stable query, whose next batch is ``plan``, must fork because the
        stage is overloaded (OV1, OV8), or must leave out rows for other stages (OV6).
        """
        availability, now_ms = self._availability, situation.now_ms
        if self.load is None or not self.is_read or availability.policy is Policy.SUSPEND:
            return False
        if availability.blind(now_ms):
            return False
        if situation.peer_serves and not self._is_in_time(now_ms):
            return False
        if self._abandoned is not None and self._abandoned.forbids(position, now_ms):
            return False
        return self.load.is_limited or self._is_late_with(plan, situation)

    def _is_late_with(self, plan: Plan, situation: Situation) -> bool:
        """Return whether the rows that wait when the stable query's next batch is ``plan`` would be
        late.
        """
        left_ms = self._availability.left_ms(plan.before.bucket + 1, situation.now_ms)
        waiting = _waiting(plan, _complete(situation))
        batches = 1 if self._traits.is_batch_safe else waiting / max(1, plan.rows)
        return self.load is not None and self.load.is_late(waiting, left_ms, batches=batches)

    def _leaves_cores(self, position: QueryPosition, situation: Situation) -> bool:
        """Return whether the stable query, whose next bucket is complete, must leave the cores to a
        branch that sheds (OV3).
        """
        load, branch = self.load, self._branch
        if load is None or branch is None or not branch.sheds:
            return False
        has_work = position.bucket < _complete(situation)
        if has_work and branch.watch.pace(peer_serves=False) is Pace.SUSPENDED:
            branch.watch.ended()
            load.stuck()
        return self._yields(branch, situation.now_ms, has_work=has_work) and has_work

    def _yields(self, branch: _Branch, now_ms: int, *, has_work: bool) -> bool:
        """Return whether the successor of ``branch`` waits for the cores (OV3, OV8, OV9, OV11).
        ``has_work``: whether there is a bucket that it could correct.
        """
        is_overloaded = branch.sheds and self.load is not None and self.load.is_overloaded
        yields = is_overloaded and self.is_read and not self.is_awaited
        must_wait = branch.overload_floor.must_wait(now_ms, reason=yields and has_work)
        if must_wait:  # each floor counts the wait for its own reason only
            branch.behind_floor.must_wait(now_ms, reason=False)
        return must_wait if has_work else yields

    def _goes_first(self, branch: _Branch, situation: Situation) -> bool:
        """Return whether the correction must wait until the branch, which is behind, has run its
        next bucket (OV10, OV11).
        """
        query, now_ms = self._queries.get(branch.query), situation.now_ms
        half_ms = self._availability.waits.first_ms // 2
        # With one task a branch that sheds has its turns (OV7). One that keeps all rows yields, by
        # its pace, to a correction that does not come nearer.
        may_precede = not self._has_one_task if branch.sheds else not branch.watch.steps
        is_behind = (
            may_precede
            and self.load is not None
            and situation.may_correct
            and self.is_read
            and query is not None
            and query.position.bucket < _complete(situation)
            and self._availability.overdue(query.position.bucket + 1, now_ms + half_ms)
        )
        return branch.behind_floor.must_wait(now_ms, reason=is_behind)

    @property
    def _has_limit(self) -> bool:
        """Whether the node limits what the branch takes, because others need the cores (OV6)."""
        return self.load is not None and self.load.limit is not None

    def _takes_turns(self, branch: _Branch, situation: Situation) -> bool:
        """Return whether the branch and its correction take turns (OV7)."""
        is_correcting = self._phase is Phase.CORRECTING and situation.may_correct
        return self._has_one_task and branch.sheds and is_correcting and not self._has_limit

    def _is_turn_of(self, branch: _Branch, situation: Situation) -> bool:
        """Return whether the correction must let the branch begin a batch first (OV7)."""
        query, now_ms = self._queries.get(branch.query), situation.now_ms
        if query is None or query.batch is not None or now_ms < query.paced_until_ms:
            return False
        bucket = query.position.bucket + 1
        is_there = bucket <= _complete(situation)
        is_lost = self._availability.overdue(bucket, now_ms - HOP_MS)
        return is_there and not is_lost and self._takes_turns(branch, situation)

    def _caught_up(
        self, position: QueryPosition, plan: Plan | None, situation: Situation
    ) -> str | None:
        """End the branch if it is no longer needed, and return its query; else None (RE5, OV4).
        ``plan``: next batch of the stable query.
        """
        branch = self._branch
        if branch is None:
            return None
        complete = there = _complete(situation)
        if branch.stable_batch is not None:
            began_ms, before = branch.stable_batch
            branch.stable_batch = None
            if situation.now_ms - began_ms <= self._availability.waits.first_ms:
                there = before
        if self._availability.blind(situation.now_ms):
            return None
        if any(map(awaits_corrections, situation.log_states.values())):
            return None
        near = there - self._bounds.caught_up_buckets
        if position.bucket < (near if branch.sheds else min(branch.end - 1, near)):
            return None
        if branch.sheds and self.load is not None and self.load.is_limited:
            return None
        if branch.sheds and plan is not None and self._is_late_with(plan, situation):
            return None
        if self._availability.overdue(
            max(complete, position.bucket) + 1, situation.now_ms + self._bounds.settled_ms
        ):
            # it stands at a hole, or would in a moment: the next failure would begin right after
            # this one
            return None
        return self._end_branch(PhaseChange.CAUGHT_UP)

    def _watch_correction(self, situation: Situation) -> None:
        """Measure the lag of the correction (PA1-PA3). Runs at the branch's requests too, because
        one batch of the stable query may take long.
        """
        branch = self._branch
        if branch is None:
            return
        lag = _complete(situation) - self._queries[self.stable_query].position.bucket
        nears = lag if self._load_watch is None or not branch.sheds else self._load_watch.backlog
        comes_no_nearer = branch.sheds and (self.is_awaited or not self.is_read)  # and need not
        if (
            self._phase is not Phase.CORRECTING
            or lag <= self._bounds.caught_up_buckets
            or comes_no_nearer
        ):
            branch.watch.ended()
        elif situation.may_correct and not branch.overload_floor.is_open:
            branch.watch.lags(situation.now_ms, nears)
        else:
            branch.watch.waits()

    def _fork_due(self, position: QueryPosition, now_ms: int) -> bool:
        """Return whether the stable query, whose next bucket is not complete, must fork now (rules
        10 (c), 14).
        """
        if self._availability.policy is Policy.SUSPEND or not self._availability.first_over(
            position.bucket + 1
        ):
            return False
        if self._abandoned is not None and self._abandoned.forbids(position, now_ms):
            return False
        branch = self._branch
        if branch is None:
            return True
        self._comes_to(PhaseChange.STANDS)
        branch.watch.ended()
        return position.bucket > branch.forked_at and self._availability.still()

    def _tentative(
        self, branch: _Branch, position: QueryPosition, situation: Situation
    ) -> Plan | None:
        if self._waits_for_correction(branch, position, situation):
            return None
        log_states, chosen = situation.log_states, situation.chosen
        there = {
            name: max(log_state.upto, _tentative_upto(log_state, chosen.get(name)))
            for name, log_state in log_states.items()
        }
        branch.is_extended = any(there[name] <= position.bucket for name in situation.working)
        due = self._availability.due_upto(
            _complete(situation), min(there.values()), extended=branch.is_extended
        )
        most, load = self._batch_size.rows_max, self.load
        whole_max = most if load is None else min(most, load.branch_rows_max)
        plan = next_tentative_plan(
            position, log_states, chosen, due, self._traits, rows_max=whole_max
        )
        if plan is None or load is None or not plan.rows:
            return plan
        branch.sheds = branch.sheds or load.is_overloaded
        yields = branch.watch.steps if branch.sheds else None
        if branch.overload_floor.is_open:
            yields = None  # of what an overload leaves, the correction would leave nothing
        kept = load.keep(
            _waiting(plan, due),
            self._availability.left_ms(position.bucket + 1, situation.now_ms),
            situation.now_ms,
            beside=self._phase is Phase.CORRECTING and situation.may_correct,
            yields=yields,
        )
        if kept == KEPT_ALL:
            return plan
        return next_tentative_plan(
            position,
            log_states,
            chosen,
            due,
            self._traits,
            rows_max=most * KEPT_ALL // kept,
            kept=(
                kept
                if self._load_watch is None
                else self._load_watch.key_shares.keys_for(kept, load.fits)
            ),
        )

    def _waits_for_correction(
        self, branch: _Branch, position: QueryPosition, situation: Situation
    ) -> bool:
        """Return whether the branch must leave the cores to the stable query now. A paced branch
        begins after half of the long wait: a batch that takes as long is in time.
        """
        if self._takes_turns(branch, situation):
            is_busy = self._queries[self.stable_query].batch is not None
            return is_busy and not self._availability.overdue(position.bucket + 1, situation.now_ms)
        if branch.sheds:  # never suspended: the successor waits, or the branch keeps less (OV3)
            # With a limit, too: other stages need the cores, and fewer batches cost less.
            is_paced = self._has_limit or self._phase is Phase.CORRECTING
            pace = Pace.PACED if is_paced else Pace.FREE
        else:
            pace = branch.watch.pace(peer_serves=situation.peer_serves)
        if pace is Pace.FREE or not situation.may_correct:
            return False
        if self._availability.overdue(position.bucket + 1, situation.now_ms - HOP_MS):
            branch.watch.branch_is_late()
        half_ms = self._availability.waits.first_ms // 2
        return pace is Pace.SUSPENDED or not self._availability.overdue(
            position.bucket + 1, situation.now_ms + half_ms
        )

    def _comes_to(self, event: PhaseChange) -> None:
        self._phase = next_phase(self._phase, event)

    def _end_branch(self, event: PhaseChange) -> str | None:
        """End the branch, if there is one, and return its query; else None."""
        self._comes_to(event)
        ended, self._branch = self._branch, None
        if ended is None:
            return None
        if self.load is not None and self._load_watch is not None:
            self.load.ended()
            self._load_watch.dropped(ended.query)
        self._queries.pop(ended.query, None)
        return ended.query


def _complete(situation: Situation) -> int:
    """Return the last bucket that is complete on all inputs."""
    return min(log_state.upto for log_state in situation.log_states.values())


def _waiting(plan: Plan, upto: int) -> int:
    """Return the number of rows that wait in the buckets up to ``upto``, of which ``plan`` takes
    the first ones: as dense as these, where it does not take all.
    """
    taken = plan.after.bucket - plan.before.bucket
    return plan.rows if taken <= 0 else plan.rows * max(taken, upto - plan.before.bucket) // taken


def _tentative_upto(log_state: LogState, replica: str | None) -> int:
    return 0 if replica is None else log_state.tentative_upto(replica)


class JointPlan:
    """Plan that all inputs of one query run together.

    Spark polls the sources of a query one after the other, in an order that is fixed within a run.
    The source that Spark polls first leads: only its question makes a new plan, the others get
    their part of it, so all inputs of a batch advance together (PN1). An input that a function uses
    twice has two sources: both read the same part of the plan, and one of them at most leads.
    """

    def __init__(self) -> None:
        self._leader: tuple[str, int] | None = None
        self._plan: Plan | None = None

    def known(self, position: QueryPosition) -> Plan | None:
        """Return the plan made for ``position``; None if there is none."""
        return self._plan if self._plan is not None and self._plan.before == position else None

    def leads(self, name: str, source: int) -> bool:
        """Return whether a question of this source of input ``name`` may make a plan."""
        if self._leader is None:
            self._leader = name, source
        return self._leader == (name, source)

    def made(self, plan: Plan) -> None:
        """Store ``plan``, which the leader's request made."""
        self._plan = plan
