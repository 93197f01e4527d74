"""Driver of one process of a replica: logs in, decisions of ``protocol.stage.replica``, checkpoint
directories and boundary records out.

It does not depend on Spark. An engine asks ``advance`` what a query runs next, calls ``begin`` and
``finish`` around each batch, and carries out ``orders``. Spark is the real engine
(``processing.stage_replica``); the simulation has a small one.

There are two locks, and no thread holds both at once. ``lock`` guards the log states of the inputs,
the state of neighbours, and every decision. Followers, heartbeats and timers need it, so a thread
holds it only for moments and never waits for a disk or a broker meanwhile.

``log_lock`` guards this replica's boundary log. Its holder waits for the broker, and must: only one
record is in flight at a time (OW2), and a second reader would consume the acknowledgement that the
writer waits for. So it is held for the records of one batch, or for one read to the log's end. That
ends: the writer fails after SEND_ATTEMPTS_MAX attempts, and the process ends with it. Only threads
that write to the log, or need to know its contents, wait for this lock: the queries' threads, which
have nothing else to do then, a thread that recomputes blocks, and the replica's own thread after a
query failed. No heartbeat, follower or timer does.

After a crash at any point the newest timeline file names a directory from which the next process
continues; every appended record is either continued or cut off by its records; branches are lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from anabranch.codec.plan_offsets import (
    Offset,
    kind_of,
    least_kept,
    missing_of,
    offset_of,
    position_of,
    rows_of,
    shed_of,
)
from anabranch.ports import Checkpoints
from anabranch.processing.replica_environment import (
    HostProcess,
    OnlySources,
    Recovery,
    Upstream,
)
from anabranch.processing.replica_steps import ReplicaSteps
from anabranch.protocol.control.failure_detector import QUERY_STUCK_MS, QueryStandstill
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import Fenced, LocalProtocolError, TooManyParts, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.given_up import named, of_results
from anabranch.protocol.log.records import BoundaryKind, BranchEnded, GivenUp, Part
from anabranch.protocol.log.timeline import (
    OwnChain,
    Timeline,
    carry_out,
    check_plan_steps,
    failover_steps,
    fork_steps,
)
from anabranch.protocol.log.writer import RecordChain, pieces
from anabranch.protocol.stage.availability import OWN, Round, RoundKind
from anabranch.protocol.stage.busy_time import BusyRead, BusyTime
from anabranch.protocol.stage.load_control import LoadDemand, LoadFigures
from anabranch.protocol.stage.planned_batch import PlannedBatch
from anabranch.protocol.stage.planner import Plan, QueryPosition, check_joint, check_watermark
from anabranch.protocol.stage.recovery import CleanPoints, begins_anew
from anabranch.protocol.stage.replica import (
    JointPlan,
    Replica,
    Situation,
    StageRules,
)
from anabranch.protocol.stage.splitting import end
from anabranch.protocol.stage.upstream_selection import works_on_tentative
from anabranch.streams.boundary_reader import StreamReader
from anabranch.streams.boundary_writer import BoundaryWriter

_ANSWER_WAIT_MS: Final = 2_000
"""Time that a request for a plan blocks, in ms. Each request costs Spark a round over all inputs,
which is most of the cost of an idle node.
"""
_LOOK_MS: Final = 50
"""Interval of checks during that time, in ms, for changes that only time brings: a delay that is
over.
"""


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Order to start a query in the directory of ``timeline``."""

    timeline: str


@dataclass(frozen=True, slots=True)
class StopQuery:
    """Order to stop the query of ``timeline`` and then call ``stopped``."""

    timeline: str


Order = StartQuery | StopQuery


@dataclass(slots=True)
class _Query:
    """Query of a timeline, with its record chain and its plans."""

    timeline: Timeline
    chain: RecordChain
    joint: JointPlan
    running: PlannedBatch | None = None
    standstill: QueryStandstill = field(default_factory=QueryStandstill)


class ReplicaRunner:
    """Process of one replica: its queries, their plans and their boundary records."""

    def __init__(
        self,
        inputs: Mapping[str, StreamReader],
        boundary: BoundaryWriter,
        disk: Checkpoints,
        rules: StageRules,
        process: HostProcess,
        upstream: Upstream | None = None,
    ) -> None:
        self._name = boundary.replica
        self._inputs = inputs
        self.boundary = boundary
        """Writer of the stage's boundary log. Use it under ``log_lock``."""
        self._disk = disk
        self._rules = rules
        self._availability = rules.availability
        self._traits = rules.traits
        self._process, self._clock = process, process.clock
        self._upstream = upstream if upstream is not None else OnlySources()
        self.lock, self.log_lock = process.lock, process.log_lock
        self._steps = ReplicaSteps(boundary, disk, process, rules)
        self._replica: Replica | None = None
        self._queries: dict[str, _Query] = {}
        self._orders: list[Order] = []
        self._successor: StartQuery | None = None
        """Order for the successor's start, held back until ``Replica.successor_due``."""
        self._ended: BranchEnded | None = None
        """Record of a dropped branch's end, not yet appended."""
        self.unread: set[str] = set()
        """Inputs whose logs are not read further, since there is no room for more of their records.
        """
        self.missing: tuple[str, ...] = ()
        """Inputs that the newest tentative plan lacks, for people."""
        self._busy = BusyTime(self._clock.monotonic_ms())
        self.shed = 0
        """Per mille of the input's rows that the newest tentative plan lacks, for people."""

    @property
    def state(self) -> ReplicaState:
        """State that the replica advertises."""
        with self.lock:
            return (
                ReplicaState.FAILURE
                if self._replica is None
                else self._replica.state_at(self._clock.monotonic_ms())
            )

    @property
    def wants_to_correct(self) -> bool:
        """Whether the replica has something to correct and the input for it."""
        return self._replica is not None and self._replica.wants_to_correct

    @property
    def synced_bucket(self) -> int:
        """Last bucket of input that the synced checkpoint of the stable query holds; 0 if not
        known.
        """
        return 0 if self._replica is None else self._replica.synced_bucket

    @property
    def given_up(self) -> int:
        """Last bucket of the output that is given up; 0 if none."""
        return self._started().beginning.given_up

    @property
    def epoch(self) -> int:
        """Epoch of this process."""
        return self._started().epoch

    @property
    def stable_query(self) -> str:
        """Timeline of the stable query."""
        return self._started().stable_query

    @property
    def branch(self) -> str | None:
        """Timeline of the branch; None if there is none."""
        return self._started().branch

    @property
    def branch_number(self) -> int | None:
        """Number of the running branch; None if there is none."""
        replica = self._started()
        return None if replica.branch is None else replica.branches

    def fail_over(self, recovery: Recovery | None = None) -> str:
        """Begin an epoch, copy the directory of the newest timeline, or a peer's, and write this
        process's timeline file (rules 1, 6, 8). Return the name of the first query. ``recovery``:
        what the start needs besides this process's disk.

        Raises:
            Fenced: another process of this replica began after this one.
            ConfigurationError: the function's state differs in kind from that in the checkpoint.
                The log has no epoch of this process then, except in a race with another process.
        """
        if recovery is not None:
            self._steps.recovery = recovery
        recovery = self._steps.recovery
        points, log_state = recovery.points, self.boundary.log_state
        if points is None:
            points = CleanPoints(recovery.peers, self._name)
        self.boundary.listen(lambda _offset, entry, outcome: points.seen(log_state, entry, outcome))

        def own_chain(plan: str) -> OwnChain:
            """Describe this replica's accepted records to the rules of the timeline."""
            return OwnChain(
                log_state.chain(self._name).__contains__,
                lambda ident: points.cut_off_base(ident, plan, log_state.upto),
                is_open=begins_anew(log_state.origin(self._name), self._rules.ha),
                replica=self._name,
                state=self._rules.state,
                is_restated=self._rules.restated_after is not None,
                takes_over=recovery.takes_over,
                claimed=lambda: recovery.claimed,
            )

        def may_begin(log_state: LogState) -> None:
            # Both before the epoch: a process that cannot run must not fence one that does.
            self._process.may_begin(log_state)
            carry_out(check_plan_steps(own_chain("")), self._steps.carry_out)

        epoch = self.boundary.start(may_begin)
        self._process.epoch_begun()
        plan = log_state.fingerprint(self._name)
        timeline, beginning = self._steps.begin(
            failover_steps(
                epoch,
                lambda replica, ident: points.base(replica, ident, plan, log_state.upto),
                own_chain(plan),
            )
        )
        self.boundary.listen(None)
        self._replica = Replica(epoch, timeline.name, self._rules, beginning)
        self._add(timeline)
        return timeline.name

    def follow(self, name: str, wait_ms: int) -> int:
        """Run one round of following the log of input ``name``. Return the number of records that
        were read.
        """
        reader = self._inputs[name]
        now_ms = self._clock.monotonic_ms()
        with self.lock:
            look = self._choose_look(name, now_ms)
            clusters = self._availability.clusters_to_ask(
                name, look, is_opening=reader.is_opening, own_wanted=self._must_probe_own(now_ms)
            )
        before, is_whole = reader.offset_next, False
        if look is RoundKind.NOTHING:
            self._clock.sleep_ms(wait_ms)
        elif look is RoundKind.READ_TO_END:
            try:
                reader.read_to_end()
                is_whole = True
            except Unavailable:  # no judgement without the log's end; records that arrive are read
                reader.poll(wait_ms)
        else:
            for cluster in clusters:
                if not self._probe(cluster, now_ms):
                    break
            reader.poll(wait_ms)
        read = reader.offset_next - before
        with self.lock:
            has_news = self._availability.followed(
                Round(name, now_ms, reader.offset_next, has_read=read > 0, is_whole=is_whole),
                {stream: each.log_state for stream, each in self._inputs.items()},
                self._clock.monotonic_ms(),
            )
            if has_news:
                self.lock.notify_all()
        return read

    def _choose_look(self, name: str, now_ms: int) -> RoundKind:
        """Decide how far the log of input ``name`` is read now."""
        parts = self._stable_parts()
        look = (
            RoundKind.READ_ON
            if self._replica is None
            else self._replica.look(name, self._inputs[name].log_state.upto, parts, now_ms)
        )
        if look is RoundKind.NOTHING:
            self.unread.add(name)
        else:
            self.unread.discard(name)
        return look

    def _must_probe_own(self, now_ms: int) -> bool:
        """Return whether to probe the pipeline's own cluster now, if no input is on it."""
        return self._replica is not None and (
            self._availability.own_wanted() or self._replica.look_wanted(OWN, now_ms)
        )

    def _probe(self, cluster: str, now_ms: int) -> bool:
        """Probe the pipeline's own cluster, or ask the cluster of an input for its log's end, and
        note the result. Return whether it answered.
        """
        if cluster == OWN:
            if not self._process.own_answers():
                return False
            with self.lock:
                self._availability.read_to_end(OWN, now_ms)
            return True
        question_ms = self._clock.monotonic_ms()
        try:
            end = self._inputs[cluster].end()
        except Unavailable:
            with self.lock:
                self._availability.unanswered(cluster, question_ms, self._clock.monotonic_ms())
                self.lock.notify_all()
            return False
        with self.lock:
            self._availability.end_found(cluster, question_ms, end)
        return True

    def tick(self) -> None:
        """Run one round of following every input, without waiting: for engines with one thread."""
        for name in self._inputs:
            self.follow(name, 0)

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        """Return the offset to which input ``name`` of ``query`` reads next, after ``start``; None
        if there is nothing to read yet. ``source``: see ``ports.QueryDriver``.

        When the wait for a missing input is over, the calling thread takes the checkpoint for the
        fork: it is the query's own thread, so the query runs no batch meanwhile, and no other
        thread waits.

        Raises:
            Fenced: this process is not the writer any more.
        """
        position = position_of(start)
        self._moved(query, is_engines_turn=False)
        plan, forks = self._planned(query, (name, source), position)
        self._append_branch_end(query)
        if forks:
            self._fork(query, position)
            plan, _ = self._planned(query, (name, source), position)
        self._moved(query, is_engines_turn=True)
        return None if plan is None else offset_of(plan, name)

    def _moved(self, query: str, *, is_engines_turn: bool) -> None:
        """Note that ``query`` asks or gets an answer (``QueryStandstill.moved``)."""
        with self.lock:
            if query in self._queries:
                self._queries[query].standstill.moved(is_engines_turn=is_engines_turn)

    def _append_branch_end(self, query: str) -> None:
        """Append the end of a dropped branch to the log, so that readers drop it. If the process
        crashes before, the next process's epoch ends the branch for them.

        Only the stable query's thread does this: if the append fails, the process ends, as with any
        other record.
        """
        with self.lock:
            if self._ended is None or query != self._started().stable_query:
                return
            ended, self._ended = self._ended, None
        self._process.crash_point("processing.branch_dropped")
        with self.log_lock:
            self.boundary.append_other(ended)

    def _planned(
        self, query: str, source: tuple[str, int], position: QueryPosition
    ) -> tuple[Plan | None, bool]:
        """Return the plan of ``query`` after ``position``, and whether the query must fork first.
        Waits a little for a plan, if it may. ``source``: (input, number) of the source that asks.
        """
        with self.lock:
            entry = self._queries.get(query)
            if entry is None:
                return None, False
            plan = entry.joint.known(position)
            if plan is not None or not entry.joint.leads(*source) or self._process.stopping():
                return plan, False
            plan, forks = self._next(entry, position)
            until_ms = self._clock.monotonic_ms() + _ANSWER_WAIT_MS if self._process.may_wait else 0
            while (
                plan is None
                and not forks
                and self._ended is None
                and query in self._queries
                and (left_ms := until_ms - self._clock.monotonic_ms()) > 0
            ):
                if self._process.stopping():
                    break
                # Any record of an input wakes this thread, but few records complete a plan.
                self.lock.wait(min(left_ms, _LOOK_MS) / 1_000)
                plan, forks = self._next(entry, position)
            if plan is not None:
                entry.joint.made(plan)
            return plan, forks

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> PlannedBatch:
        """Note that a batch of ``query`` is in its offset log and about to run. ``before``: the
        position at which the previous batch ended.

        A dropped branch's batch is not checked: perhaps only some of its sources got a plan before
        the drop.

        Raises:
            LocalProtocolError: the inputs do not agree, or the watermark is not the batch's
                boundary.
        """
        rows, missing = (
            rows_of(offsets),
            {name for offset in offsets for name in missing_of(offset)},
        )
        shed = max(map(shed_of, offsets), default=0)
        kept = least_kept(offsets)
        with self.lock:
            entry = self._queries.get(query)
            if entry is None:
                return PlannedBatch(BoundaryKind.TENTATIVE, before, before, rows, ())
            after = check_joint({str(i): position_of(offset) for i, offset in enumerate(offsets)})
            check_watermark(after, watermark_ms, self._rules.batches.width_ms)
            entry.running = start = PlannedBatch(
                kind_of(offsets[0]), before, after, rows, tuple(sorted(missing)), shed, kept
            )
            entry.standstill.moved(is_engines_turn=False)
            closes_ms = start.closes_ms(self._rules.batches.width_ms)
            is_stable = query == self._started().stable_query
            now_ms = self._clock.monotonic_ms()
            self._busy.began(query, rows, now_ms, closes_ms, is_stable=is_stable)
            self._process.batch_began(query)
            if before.sequence == 0:
                entry.chain.given_up = self._started().begins(after.bucket, has_rows=rows > 0)
        return start

    def finish(
        self, query: str, batch: int, parts: tuple[Part, ...], rows_read: int | None = None
    ) -> bool:
        """Append the boundary record of a batch whose results are written as ``parts``, and wait
        until the log shows it accepted (rule 2). Return False for a dropped branch's batch.
        ``rows_read``: see ``ports.QueryDriver``.

        Raises:
            Fenced: this process is not the writer any more, or the query is not in the stable
                timeline (rule 12).
            TooManyParts: more would be open than readers hold.
        """
        with self.lock:
            replica, entry = self._started(), self._queries.get(query)
            if entry is None:
                return False
            start = entry.running
            if start is None:
                message = f"batch {batch} of {query} ends but never began"
                raise LocalProtocolError(message)
            record = entry.chain.record(
                start.kind,
                batch,
                start.after.bucket,
                parts,
                is_stable_query=query == replica.stable_query,
                missing=start.missing,
                made_from=tuple((name, start.after.bucket) for name in self._inputs),
                written_ms=self._clock.now_ms(),
                shed=start.shed,
            )
            record = named(record, self._given_up_results(start.before.bucket + 1, record.closed))
        if self._steps.recovery.comparison is not None:
            for found in self._steps.recovery.comparison.check(record):
                self._steps.recovery.report_difference(found)
        # Without ``lock``: an append waits for the broker, and followers, heartbeats and timers
        # must not wait with it.
        try:
            with self.log_lock:
                for piece in pieces(record):
                    self.boundary.append(piece)
                self.boundary.log_state.forget(self.boundary.log_state.upto)
        except (Fenced, TooManyParts):
            with self.lock:
                if query in self._queries:
                    raise
                return False  # the branch was dropped meanwhile: the log rejects its records
        with self.lock:
            entry.chain.appended(record)
            entry.running = None
            entry.standstill.moved(is_engines_turn=True)
            self._busy.ended(query, start.rows, self._clock.monotonic_ms())
            rows = start.rows_processed(rows_read)
            if rows_read is not None:
                replica.processed(query, rows)
            replica.used(query, rows, self._process.batch_ended(query))
            self._started().gave(record)
            if entry.chain.has_shown:
                self._started().shown(query, record, self._clock.monotonic_ms())
        return True

    def _given_up_results(self, first: int, last: int) -> tuple[GivenUp, ...]:
        """Return what the results of buckets ``first..last`` lack because inputs were given up."""
        inputs = [reader.log_state.given_up for reader in self._inputs.values()]
        return of_results(
            inputs, first, last, self._rules.horizon_buckets, is_stateful=self._traits.is_stateful
        )

    def failed(self, query: str, cause: Exception) -> bool:
        """Handle the failure of ``query`` with ``cause``. Return whether the process continues
        without it: it was the branch, or had been dropped before.

        The log is read first. A newer process of this replica removes the directories of older
        ones, so an error of an older process's query then only means that its epoch is over. If
        the log cannot be read, the query's own error counts.

        Raises:
            Fenced: a newer process replaced this one.
        """
        with self.log_lock:
            with contextlib.suppress(Unavailable):
                self.boundary.read_to_end()
            self.boundary.check_epoch()
        with self.lock:
            replica = self._started()
            if query == replica.stable_query:
                return False
            if query == replica.branch:
                self._abandon(cause)
            return True

    def check_query(self, query: str) -> None:
        """Check that the engine runs ``query`` on. Call it every second while the query runs.

        Raises:
            Unavailable: the query is stuck, and has to be begun again.
        """
        with self.lock:
            entry = self._queries.get(query)
            if entry is not None and entry.standstill.is_stuck(self._clock.monotonic_ms()):
                message = (
                    f"the query of {query} has neither run a batch nor asked for input for"
                    f" {QUERY_STUCK_MS // 1_000} s; it is begun again, and Spark's log may say why"
                )
                raise Unavailable(message)

    def tip(self, query: str) -> BatchId | None:
        """Return the id of the record that ``query`` continues."""
        return self._queries[query].chain.tip

    def orders(self) -> list[Order]:
        """Return the orders that the engine must carry out now, each once."""
        with self.lock:
            if self._successor is not None and self._started().successor_due(
                self._clock.monotonic_ms(), self._complete_upto()
            ):
                self._release_successor()
            orders, self._orders = self._orders, []
        return orders

    def stopped(self, query: str) -> None:
        """Remove the directory of ``query``, a dropped query that the engine has stopped."""
        self._disk.remove(query)

    def sync(self, store: Callable[[str], bool] = lambda _: True) -> None:
        """Make the stable query's committed state durable. Afterwards no earlier input is read
        again (rule 18). Blocks for the disk, and for ``store``, which uploads a directory to the
        checkpoint store and returns whether it did.
        """
        with self.lock:
            query = self._started().stable_query
            # Before the sync: batches that the query commits meanwhile may not be in it.
            position = self._started().position(query)
        self._disk.sync(query)
        if store(query):
            with self.lock:
                self._started().synced(query, position)

    def check_epoch(self) -> None:
        """Check whether a newer process replaced this one. Skips the check while another thread
        holds the log: appending a record checks it, too.

        Raises:
            Fenced: a newer process did.
        """
        if self.log_lock.acquire(blocking=False):
            try:
                self.boundary.poll()
                self.boundary.check_epoch()
            finally:
                self.log_lock.release()

    def complete_upto(self) -> int:
        """Return the last bucket that is complete on all inputs."""
        with self.lock:
            return self._complete_upto()

    def read_busy(self) -> BusyRead:
        """Return the busy time and the rows of the batches since the previous call."""
        with self.lock:
            return self._busy.read(self._clock.monotonic_ms())

    def behind(self) -> int:
        """Return the number of buckets that the stable query is behind its inputs."""
        with self.lock:
            return self._started().behind(self._complete_upto())

    def load_figures(self) -> LoadFigures | None:
        """Return the load of the replica while its branch sheds rows; else None."""
        with self.lock:
            return self._started().load_figures(self._clock.monotonic_ms(), self._stable_parts())

    def demand(self) -> LoadDemand | None:
        """Return what the replica tells its node of its load; None: nothing yet."""
        with self.lock:
            return self._started().demand(self._clock.monotonic_ms())

    def limit(self, kept: int | None) -> None:
        """Let the branch keep ``kept`` per mille of its rows at most; None: there are no limits on
        the node. The next request takes it into account.
        """
        with self.lock:
            self._started().limit(kept)

    def note_split(self, *, is_read: bool, is_awaited: bool) -> None:
        """Note whether readers follow the stream, or soon will, and whether halves of this shard
        wait for its stable results. The next request takes it into account.
        """
        with self.lock:
            replica = self._started()
            replica.is_read, replica.is_awaited = is_read, is_awaited

    def is_capped(self) -> bool:
        """Return whether the rate limit keeps the stage from taking the input that is available
        (RE11).
        """
        with self.lock:
            return self._started().is_capped(self._clock.monotonic_ms())

    def waiting_for(self) -> str:
        """Return the input that delays the stage: the one whose complete buckets end first."""
        with self.lock:
            return min(self._inputs, key=lambda name: self._inputs[name].log_state.upto)

    def _stable_parts(self) -> int:
        """Return the number of stable parts of all inputs that are held. Call it with ``lock``
        held.
        """
        return sum(reader.log_state.stable_parts for reader in self._inputs.values())

    def _complete_upto(self) -> int:
        """Return the last bucket that is complete on all inputs. Call it with ``lock`` held."""
        return min(reader.log_state.upto for reader in self._inputs.values())

    def _started(self) -> Replica:
        """Return the machine of the decisions, which exists after ``fail_over``."""
        assert self._replica is not None, "fail_over must run first"  # noqa: S101
        return self._replica

    def _add(self, timeline: Timeline) -> _Query:
        """Add the query of ``timeline``."""
        chain = RecordChain(
            self._name,
            self._started().epoch,
            timeline,
            given_up=self.given_up,
            is_stateful=self._traits.is_stateful,
            horizon_buckets=self._rules.horizon_buckets,
        )
        entry = _Query(timeline, chain, JointPlan())
        self._queries[timeline.name] = entry
        return entry

    def _next(self, entry: _Query, position: QueryPosition) -> tuple[Plan | None, bool]:
        """Return the next plan of a query, and whether it must fork first. Forget what all queries
        have passed.
        """
        replica, query = self._started(), entry.timeline.name
        decision = replica.decide(query, position, self._situation(query, position))
        if decision.drop is not None:
            self._end_branch(decision.drop)
        if decision.plan is not None and decision.plan.kind is BoundaryKind.TENTATIVE:
            self.missing = decision.plan.missing
            self.shed = decision.plan.shed
        passed = replica.passed()
        for reader in self._inputs.values():
            reader.log_state.forget(passed)
        self._availability.forget(passed)
        return decision.plan, decision.fork

    def _situation(self, query: str, position: QueryPosition) -> Situation:
        """Describe the inputs and peers as ``query`` finds them. Only a branch takes tentative
        buckets, and only from a replica that offers more than the branch has read.
        """
        upstream, chosen = self._upstream, dict[str, str | None]()
        if query == self._started().branch:
            for name, reader in self._inputs.items():
                chosen[name] = upstream.choose(
                    name, reader.log_state.tentative_offers(position.bucket)
                )
        return Situation(
            now_ms=self._clock.monotonic_ms(),
            log_states={name: reader.log_state for name, reader in self._inputs.items()},
            chosen=chosen,
            working=frozenset(
                name
                for name, reader in self._inputs.items()
                if works_on_tentative(upstream.states(name), reader.log_state.upto)
            ),
            may_correct=upstream.may_correct(self._started().wants_to_correct),
            peer_serves=upstream.peer_serves(),
        )

    def end_stream(self, ident: BatchId) -> None:
        """End the stream in favour of the halves of the shard, unless another process has done so
        (``protocol.stage.splitting``, HV2). No query may run any more.

        Raises:
            Fenced: a newer process of this replica began, and ends the stream.
        """
        boundary = self.boundary
        with self.log_lock:
            boundary.read_to_end()
            if boundary.log_state.heirs:
                return
            state, now_ms = boundary.log_state, self._clock.now_ms()
            try:
                boundary.append(end(self._name, boundary.epoch, ident, state, now_ms))
            except Fenced:
                if not state.heirs:  # else another replica's end came first
                    raise

    def _fork(self, query: str, position: QueryPosition) -> None:
        """Fork (rule 11): take a snapshot and write its timeline file. From then on the running
        query is the branch, and the snapshot's query the successor.

        Runs on the thread of ``query``, the stable one, which runs no batch until this is done: so
        nothing that counts changes meanwhile.
        """
        with self.log_lock:
            pending = self.boundary.log_state.pending(self._name)
        with self.lock:
            entry, replica = self._queries[query], self._started()
            if not entry.chain.can_inherit(pending):  # a branch's first record must name them all
                self._abandon()
                return
            name = replica.forks()
        self._process.crash_point("processing.fork_decided")
        successor = carry_out(fork_steps(entry.timeline, name), self._steps.carry_out)
        self._process.crash_point("processing.fork_written")
        with self.lock:
            old = replica.forked(position, self._clock.monotonic_ms())
            entry.chain.became_branch(replica.branches, position.bucket, pending)
            self._add(successor)
            self._release_successor()
            if old is not None:
                self._drop(old)
            self._successor = StartQuery(successor.name)

    def _abandon(self, cause: Exception | None = None) -> None:
        """Continue without a branch at this hole (RE7)."""
        branch = self._started().abandon(self._clock.monotonic_ms(), cause)
        self._release_successor()
        if branch is not None:
            self._end_branch(branch)

    def _end_branch(self, branch: str) -> None:
        """Drop the branch and prepare the record of its end."""
        self._drop(branch)
        self.missing, self.shed = (), 0
        epoch, counter = self._started().number
        self._ended = BranchEnded(self._name, epoch, counter)

    def _release_successor(self) -> None:
        """Order the successor's start now, if it is still held back."""
        if self._successor is not None:
            self._orders.append(self._successor)
            self._successor = None

    def _drop(self, query: str) -> None:
        """Remove ``query`` and order its stop."""
        self._queries.pop(query, None)
        self._busy.dropped(query, self._clock.monotonic_ms())
        self._process.batch_ended(query)
        self._orders.append(StopQuery(query))
