"""One replica of a stage: the stable query, the branch that goes on without some of its input, and
the successor that corrects.

Theory of operation. A replica has one query, the *stable query*, in its stable timeline. For its
next batch it gets complete buckets; when the next one is missing for longer than the stage may
wait, the replica **forks**: a snapshot of the stable query's checkpoint becomes the stable
timeline, and the query that runs, warm as it is, goes on from there as the **branch**, on
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
    RE7 a branch that failed is not tried again at the same hole: the stable query must not die of
        what only the branch does. Where it died of what may pass, blocks or a broker that were
        away, it is, after a pause that doubles up to BRANCH_RETRY_MAX_MS.
    RE8 memory is bounded however long an input is missing: of INPUT_PARTS_MAX parts on only what
        the stable query waits for is read on. The stable query goes on whenever it can, and forgets
        what it has passed; the branch, which gets nothing new, stands still.
    RE9 beside a branch a batch of the stable query has at most CORRECTION_ROWS_MAX rows, or the
        buckets of one long wait if those have more: what a batch costs by itself is then a part of
        the time in which its buckets came, however many rows come, and corrections gain on their
        input.
    RE10 without a branch a replica says STABLE only while its results come in time. The stable
        query has run all that was complete when the logs of all inputs were first read to their
        ends, since the process began, woke from a pause, or had no room for them (RE8); and its
        next bucket is not overdue, by a hop, in which a replica that may fork does. Only a
        replica's own logs decide this: a pipeline in which all are behind waits for nobody.
    RE11 where there is a cap of rows a second, a query rests after a batch for as long as its rows
        take by the cap. It takes the rows of a second at once, or one bucket that has more. What
        waits stays in its input, and counts as late like any other.
    RE12 batches of a plan that compares rows, the stable query's and the branch's, have the size
        that their durations allow (``protocol.stage.batch_size``).
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
from anabranch.protocol.stage.availability import Availability, Look, Policy
from anabranch.protocol.stage.batch_size import BatchSize
from anabranch.protocol.stage.planner import (
    Plan,
    PlanTraits,
    QueryPosition,
    begun_after,
    next_plan,
    next_tentative_plan,
)
from anabranch.protocol.stage.recovery import Beginning, HaMode
from anabranch.protocol.stage.replica_phases import Event, Phase, advertised, next_phase
from anabranch.protocol.stage.scheduling import BatchPacing, BatchRules, CorrectionWatch, Pace
from anabranch.protocol.stage.upstream_selection import awaits_corrections

INPUT_PARTS_MAX: Final = 400_000
"""Parts of stable buckets that a stage holds of all its inputs together while it waits for one of
them: 400 bytes each, 750 where two replicas write the input. Some fourteen hours of two inputs in
500 ms buckets of two partitions. Beyond that it reads only what it waits for, so that new results
stand still too.
"""

SUCCESSOR_WITHOUT_ROWS_TIMES: Final = 5
"""How many times longer the successor of a branch waits that closes buckets and gives no rows, as
between the ends of windows: the rows are what somebody waits for. Not until they come at any price:
when the input is back, a successor that is running begins to correct two seconds sooner.
"""

CAUGHT_UP_MS: Final = 1_000
"""A successor that is less than this behind what is complete has caught up: about the time of
two small batches.
"""

CORRECTION_ROWS_MAX: Final = 100_000
"""Rows of one batch while a branch runs beside it: a larger one keeps the cores longer than
``max_delay`` allows the branch to stand still. What comes within the long wait may be more
(``protocol.stage.replica``, RE9).
"""

BRANCH_RETRY_MS: Final = 1_000
"""After a branch died of what may pass, blocks or a broker that are away: until another one
is tried, twice as long each time at the same hole.
"""

BRANCH_RETRY_MAX_MS: Final = 30_000
"""The longest of these pauses: a fork costs a copy of the checkpoint and the start of a query."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a decision is made from, besides the position of the query that asks."""

    now_ms: int
    log_states: Mapping[str, LogState]
    chosen: Mapping[str, str | None]
    """Per input, the upstream replica whose tentative buckets are taken
    (``protocol.stage.upstream_selection``).
    """
    working: frozenset[str] = frozenset()
    """Inputs that say that they work on tentative buckets: one of them that lacks the next
    bucket is given more time.
    """
    may_correct: bool = True
    """The replica may correct now (``protocol.stage.scheduling``)."""
    peer_serves: bool = False
    """Another replica of the stage gives new results."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do: run ``plan``; or fork and ask again; or nothing yet. ``drop``: the branch
    to stop, whatever else is done.
    """

    plan: Plan | None = None
    fork: bool = False
    drop: str | None = None


_NOTHING = Decision()


@dataclass(frozen=True, slots=True)
class StageRules:
    """What the decisions about one stage follow."""

    traits: PlanTraits
    availability: Availability
    """How long the stage goes without input, as this process observes it."""
    batches: BatchRules
    horizon_buckets: int | None = None
    """So far back its state reaches; None: not known."""
    ha: HaMode = "active"
    state: StageState = NO_STATE
    """What its function keeps between batches."""
    restated_after: int | None = None
    """Bucket after which an operator lets the stage begin anew with this function; None: nobody
    does.
    """


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Of batches and waits, as they follow from the rules of the stage."""

    caught_up_buckets: int
    correction_buckets: int
    """A batch beside the branch may take so many, whatever rows they have (RE9)."""
    settled_ms: int
    """The branch is dropped only where the next bucket has so much of its wait left: what comes
    before may lag for a moment.
    """

    @classmethod
    def of(cls, rules: StageRules) -> Self:
        """Of one stage."""
        batches = rules.batches
        first_ms = rules.availability.waits.first_ms
        return cls(
            caught_up_buckets=max(1, CAUGHT_UP_MS // batches.width_ms),
            correction_buckets=max(1, first_ms // batches.width_ms),
            settled_ms=min(HOP_MS, first_ms // 2),
        )


@dataclass(slots=True)
class _Query:
    """One query, from its first question or its fork on."""

    position: QueryPosition
    """Where it stood at its last question."""
    has_begun: bool = False
    """As the stable query."""
    paced_until_ms: int = 0
    is_capped: bool = False
    """It rests longer than its pace wants."""
    batch: tuple[Plan, int] | None = None
    """Its last batch, and the time in ms at which it began; None: the query has asked since."""


@dataclass(slots=True)
class _Branch:
    """What begins and ends with one branch."""

    query: str
    forked_at: int
    end: int
    """It has run buckets up to this one, or is running them."""
    watch: CorrectionWatch = field(default_factory=CorrectionWatch)
    stable_batch: tuple[int, int] | None = None
    """When the stable query's last batch began that took buckets, and what was complete then;
    None: the stable query has asked since that batch ended.
    """
    is_extended: bool = False
    """It waits a hop longer, as of its last question."""
    shown_ms: int | None = None
    """When it had its first bucket out."""
    rows_ms: int | None = None
    """When it had its first rows out."""


@dataclass(frozen=True, slots=True)
class _Abandoned:
    """A hole at which there is no branch (RE7)."""

    hole: int
    failures: int
    """There, one after the other, before the last one."""
    again_ms: int | None
    """From when on another branch may be tried there; None: never."""

    def forbids(self, position: QueryPosition, now_ms: int) -> bool:
        """Whether a query that stands there may not fork."""
        again = self.again_ms is not None and now_ms >= self.again_ms
        return position.bucket <= self.hole and not again


class Replica:
    """The queries of one process of one replica. Queries are named by the timeline of their
    directories.
    """

    def __init__(
        self,
        epoch: int,
        stable_query: str,
        rules: StageRules,
        beginning: Beginning,
    ) -> None:
        """Begin in the timeline ``stable_query``. A batch ends where the output is given up to."""
        self.epoch, self.stable_query = epoch, stable_query
        self.branches = 0
        self.synced_bucket = 0
        """The stable timeline holds everything up to this bucket of its inputs for good; 0: not
        known.
        """
        self._is_forking = False
        """The stable query's checkpoint is being copied."""
        self._phase = Phase.ALONE
        self._availability = rules.availability
        self._traits = rules.traits
        self._rules = rules.batches
        self._bounds = _Bounds.of(rules)
        self.beginning = beginning
        self._queries: dict[str, _Query] = {}
        """The stable query and the branch, as far as they have asked."""
        self._branch: _Branch | None = None
        self._abandoned: _Abandoned | None = None
        self._pacing = BatchPacing(rules.batches, rules.traits)
        self._batch_size = BatchSize(rules.batches.batch_rows_max(), rules.traits)
        self._catch_up: tuple[int, int] | None = None
        """When this process woke last, or last left an input unread, or 0, and the bucket that the
        stable query must reach after that (RE10).
        """

    def state_at(self, now_ms: int) -> ReplicaState:
        """As advertised to others at ``now_ms`` (DPC's node states, RF4)."""
        return advertised(
            self._phase, in_time=self._phase is Phase.ALONE and self._is_in_time(now_ms)
        )

    @property
    def branch(self) -> str | None:
        """The query of the branch; None: there is none."""
        return None if self._branch is None else self._branch.query

    @property
    def number(self) -> tuple[int, int]:
        """Of the newest branch (RE3)."""
        return self.epoch, self.branches

    @property
    def wants_to_correct(self) -> bool:
        """Whether a correction is possible, or under way."""
        return self._phase is Phase.CORRECTING

    def position(self, query: str) -> QueryPosition | None:
        """Where ``query`` stood at its last question."""
        found = self._queries.get(query)
        return None if found is None else found.position

    def passed(self) -> int:
        """Every query of this replica has read the buckets up to this one."""
        return min((query.position.bucket for query in self._queries.values()), default=0)

    def look(self, name: str, upto: int, parts: int, now_ms: int) -> Look:
        """How the log of input ``name`` is followed now, which is complete up to ``upto``, while
        all inputs together hold ``parts`` (RE8).
        """
        stable_at = self.position(self.stable_query)
        if parts > INPUT_PARTS_MAX and stable_at is not None and upto > stable_at.bucket:
            self._availability.left_unread(name, now_ms)
            return Look.NOTHING
        return self._availability.look(name, now_ms, wanted=self.look_wanted(name, now_ms))

    def _is_in_time(self, now_ms: int) -> bool:
        """RE10."""
        stable_at = self.position(self.stable_query)
        if stable_at is None or self._catch_up is None or self._availability.blind(now_ms):
            return False
        sighted_ms, upto = self._catch_up
        reached = sighted_ms == self._availability.sighted_ms and stable_at.bucket >= upto
        return reached and not self._availability.overdue(stable_at.bucket + 1, now_ms - HOP_MS)

    def look_wanted(self, name: str, now_ms: int) -> bool:
        """Whether reading the log of input ``name`` to its end now may decide something."""
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
        """What ``query``, which has run everything up to ``position``, does next.

        A query that was dropped gets nothing.
        """
        if query not in (self.stable_query, self.branch):
            return _NOTHING
        asks = self._queries.setdefault(query, _Query(position))
        asks.position = position
        if asks.batch is not None:
            (before, began_ms), asks.batch = asks.batch, None
            if before.after == position:
                self._batch_size.took(before.rows, situation.now_ms - began_ms)
        sighted_ms = self._availability.sighted_ms
        if (
            self._catch_up is None or self._catch_up[0] != sighted_ms
        ) and not self._availability.blind(situation.now_ms):
            self._catch_up = sighted_ms, _complete(situation)
        is_awaited = (
            self._branch is None
            and not asks.is_capped
            and self._pacing.is_awaited(position.bucket, _complete(situation))
        )
        if situation.now_ms < asks.paced_until_ms and not is_awaited:
            return _NOTHING
        self._watch_correction(situation)
        branch = self._branch
        is_branch = branch is not None and branch.query == query
        decision = (
            Decision(self._tentative(branch, position, situation))
            if branch is not None and is_branch
            else self._decide_stable(asks, situation)
        )
        if decision.plan is not None:
            rest_ms, asks.is_capped = self._pacing.rest(decision.plan.rows)
            asks.paced_until_ms = situation.now_ms + rest_ms
            asks.batch = decision.plan, situation.now_ms
            if branch is not None and is_branch:
                branch.end = decision.plan.after.bucket
        return decision

    def is_capped(self, now_ms: int) -> bool:
        """Whether the stable query takes nothing now, whatever there is, by its cap (RE11)."""
        stable = self._queries.get(self.stable_query)
        return stable is not None and now_ms < stable.paced_until_ms and stable.is_capped

    def forks(self) -> str:
        """A fork begins: the name of the timeline that it makes (rule 3)."""
        self._is_forking = True
        return timeline_name(self.epoch, self.branches + 1)

    def forked(self, position: QueryPosition, now_ms: int) -> str | None:
        """The snapshot is the stable timeline now, durably. Returns the branch before, which
        is to be stopped (RE4).
        """
        old = self._end_branch(Event.FORKED)
        self._is_forking = False
        self.branches += 1
        query, self.stable_query = self.stable_query, timeline_name(self.epoch, self.branches)
        self._branch = _Branch(query, forked_at=position.bucket, end=position.bucket)
        self._queries[self.stable_query] = _Query(position)
        self._availability.moved(now_ms)
        return old

    def synced(self, query: str, position: QueryPosition | None) -> None:
        """What ``query`` had committed at ``position`` is durable (rule 18).

        What ends while the stable query forks does not count: the copy that becomes the stable
        query may have been made before it was durable.
        """
        if position is not None and query == self.stable_query and not self._is_forking:
            self.synced_bucket = max(self.synced_bucket, position.bucket)

    def gave(self, record: BoundaryRecord) -> None:
        """A query has given these results."""
        self._pacing.gave(part.bucket for part in record.parts if part.rows)

    def shown(self, query: str, record: BoundaryRecord, now_ms: int) -> None:
        """The branch ``query`` has buckets out, the newest by ``record``. Of one that was dropped
        meanwhile this says nothing.
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
        """Whether the successor may be started, until which the stable query stands where it
        forked. ``complete_upto``: of all inputs.

        Not before, nor while, the first tentative results are made, here and in the stages after
        this one; unless there is something to correct already, or no result to be seen for long
        (SUCCESSOR_AFTER_MS, SUCCESSOR_WITHOUT_ROWS_TIMES).
        """
        branch = self._branch
        if branch is None or branch.shown_ms is None:
            return False
        waited_ms, after_ms = now_ms - branch.shown_ms, self._rules.successor_after_ms
        if branch.rows_ms is not None and now_ms - branch.rows_ms >= after_ms:
            return True
        return waited_ms >= after_ms * (
            1 if complete_upto > branch.forked_at else SUCCESSOR_WITHOUT_ROWS_TIMES
        )

    def abandon(self, now_ms: int, cause: Exception | None = None) -> str | None:
        """A branch cannot go on, or begin: do without, until the stable query got further, or what
        may pass has had time to (RE7).

        ``cause``: what it died of; None: it cannot begin. Returns the branch that was there, which
            is to be stopped.
        """
        before, hole = self._abandoned, self._queries[self.stable_query].position.bucket
        failures = before.failures + 1 if before is not None and before.hole == hole else 0
        again_ms = None
        if isinstance(cause, (DataMissing, Unavailable)):
            again_ms = now_ms + min(BRANCH_RETRY_MAX_MS, BRANCH_RETRY_MS << min(failures, 10))
        self._abandoned = _Abandoned(hole, failures, again_ms)
        return self._end_branch(Event.ABANDONED)

    def begins(self, bucket: int, *, has_rows: bool) -> int:
        """The first batch of a query without a checkpoint has read up to ``bucket``. Where an
        earlier process has logged its plan, it is run again (rule 9), and says what is left out.

        Returns the bucket up to which the output is given up.
        """
        self.beginning = self.beginning.planned(bucket, has_rows=has_rows)
        return self.beginning.given_up

    def _decide_stable(self, asks: _Query, situation: Situation) -> Decision:
        position, cold = asks.position, self._rules.warm_up and not asks.has_begun
        asks.has_begun = True
        if self.beginning.after > 0 and position.sequence == 0:
            return Decision(begun_after(self.beginning.after, situation.log_states))
        plan = self._stable(position, situation)
        if cold and (plan is None or (self._branch is not None and not situation.may_correct)):
            return Decision(next_plan(position, situation.log_states, self._traits, warm_up=True))
        drop = self._caught_up(position, situation)
        if plan is not None:
            branch = self._branch
            if branch is None and self._pacing.waits(plan, _complete(situation), situation.now_ms):
                return Decision(drop=drop)
            self._pacing.begins(situation.now_ms)
            if branch is not None and plan.after.bucket > position.bucket:
                self._comes_to(Event.CORRECTS)
                if not situation.may_correct:
                    return _NOTHING
                branch.stable_batch = situation.now_ms, _complete(situation)
            self._availability.moved(situation.now_ms)
            return Decision(plan, drop=drop)
        return Decision(fork=self._fork_due(position, situation.now_ms), drop=drop)

    def _stable(self, position: QueryPosition, situation: Situation) -> Plan | None:
        """RE9. What the stable query takes next, whether or not it may."""
        given_up = self.beginning.given_up
        last = given_up if position.bucket < given_up else None
        most = self._batch_size.rows_max
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

    def _caught_up(self, position: QueryPosition, situation: Situation) -> str | None:
        """RE5. The branch that is not needed any more, if so."""
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
        if position.bucket < min(branch.end - 1, there - self._bounds.caught_up_buckets):
            return None
        if self._availability.overdue(
            max(complete, position.bucket) + 1, situation.now_ms + self._bounds.settled_ms
        ):
            # it stands at a hole, or would in a moment: the next failure would begin right after
            # this one
            return None
        return self._end_branch(Event.CAUGHT_UP)

    def _watch_correction(self, situation: Situation) -> None:
        """PA1-PA3. The branch's questions count, too: the stable query may be in one batch
        for long.
        """
        branch = self._branch
        if branch is None:
            return
        lag = _complete(situation) - self._queries[self.stable_query].position.bucket
        if self._phase is not Phase.CORRECTING or lag <= self._bounds.caught_up_buckets:
            branch.watch.ended()
        elif situation.may_correct:
            branch.watch.lags(situation.now_ms, lag)
        else:
            branch.watch.waits()

    def _fork_due(self, position: QueryPosition, now_ms: int) -> bool:
        """Nothing is complete: is it time to go on without? Rules 10 (c), 14."""
        if self._availability.policy is Policy.SUSPEND or not self._availability.first_over(
            position.bucket + 1
        ):
            return False
        if self._abandoned is not None and self._abandoned.forbids(position, now_ms):
            return False
        branch = self._branch
        if branch is None:
            return True
        self._comes_to(Event.STANDS)
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
        return next_tentative_plan(
            position, log_states, chosen, due, self._traits, rows_max=self._batch_size.rows_max
        )

    def _waits_for_correction(
        self, branch: _Branch, position: QueryPosition, situation: Situation
    ) -> bool:
        """Whether the branch leaves the cores to the stable query now. Paced, it begins after
        half of the long wait: a batch that takes as long is in time.
        """
        pace = branch.watch.pace(peer_serves=situation.peer_serves)
        if pace is Pace.FREE or not situation.may_correct:
            return False
        if self._availability.overdue(position.bucket + 1, situation.now_ms - HOP_MS):
            branch.watch.branch_is_late()
        half_ms = self._availability.waits.first_ms // 2
        return pace is Pace.SUSPENDED or not self._availability.overdue(
            position.bucket + 1, situation.now_ms + half_ms
        )

    def _comes_to(self, event: Event) -> None:
        self._phase = next_phase(self._phase, event)

    def _end_branch(self, event: Event) -> str | None:
        """There is no branch any more. Returns the one that was there."""
        self._comes_to(event)
        ended, self._branch = self._branch, None
        if ended is None:
            return None
        self._queries.pop(ended.query, None)
        return ended.query


def _complete(situation: Situation) -> int:
    """The last bucket that is complete on all inputs."""
    return min(log_state.upto for log_state in situation.log_states.values())


def _tentative_upto(log_state: LogState, replica: str | None) -> int:
    return 0 if replica is None else log_state.tentative_upto(replica)


class JointPlan:
    """The plan that all inputs of one query run together.

    Spark polls the sources of a query one after the other, in an order that is fixed within a run.
    The source that Spark polls first leads: only its question makes a new plan, the others get
    their part of it, so all inputs of a batch advance together (PN1). An input that a function uses
    twice has two sources: both read the same part of the plan, and one of them at most leads.
    """

    def __init__(self) -> None:
        self._leader: tuple[str, int] | None = None
        self._plan: Plan | None = None

    def known(self, position: QueryPosition) -> Plan | None:
        """The plan made for ``position``, if there is one."""
        return self._plan if self._plan is not None and self._plan.before == position else None

    def leads(self, name: str, source: int) -> bool:
        """Return whether a question of this source of input ``name`` may make a plan."""
        if self._leader is None:
            self._leader = name, source
        return self._leader == (name, source)

    def made(self, plan: Plan) -> None:
        """The leader's question made ``plan``."""
        self._plan = plan
