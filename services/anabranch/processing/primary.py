"""Primary process of a replica: it has an epoch, runs the queries that ``processing.replica``
orders, and recomputes blocks for readers.

After a crash at any point the next process continues from the newest timeline (rule 8).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.pipeline.waits import known_horizon_buckets
from anabranch.ports import QueryOutput
from anabranch.process.logging_setup import short
from anabranch.processing.range_runs import run_range
from anabranch.processing.recompute_server import RecomputeServer, RecomputingReplica
from anabranch.processing.replica import StartQuery, StopQuery
from anabranch.protocol.errors import AnabranchError, Fenced
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.stage.recovery import unneeded_upto
from anabranch.protocol.stage.splitting import needed_after

if TYPE_CHECKING:
    from anabranch.ports import BatchDone, PreparedStage, ReplicaDisk, RunningQuery, Thread
    from anabranch.process.frame import ServiceContext
    from anabranch.processing.replica import ReplicaRunner
    from anabranch.processing.replica_environment import Recovery
    from anabranch.processing.replica_identity import ReplicaIdentity
    from anabranch.processing.replica_report import ReplicaReport
    from anabranch.processing.warm_standby import WarmStandby
    from anabranch.protocol.control.records import ControlRecord, Heartbeat
    from anabranch.streams.range_query import RangeQuery

_STEP_MS: Final = 100
"""Timeout for waiting on the queries in one round, in ms."""
_EPOCH_CHECK_MS: Final = 1_000
"""Interval between checks for a newer process of this replica, in ms."""


class Primary:
    """Primary of one replica. The replica's thread calls it, except for ``heartbeat``."""

    def __init__(
        self,
        context: ServiceContext,
        own: ReplicaIdentity,
        prepared: PreparedStage,
        disk: ReplicaDisk,
        runner: ReplicaRunner,
        report: ReplicaReport,
    ) -> None:
        """Keep the arguments. ``runner`` writes to ``disk``, too; ``begin`` starts it."""
        self._context, self._own, self._report = context, own, report
        self._prepared, self._disk = prepared, disk
        self.runner, self.boundary = runner, runner.boundary
        self.warm_standby: WarmStandby | None = None
        """Standby that this process was before, if any: it measures the failover."""
        self.has_begun = False
        """Whether the epoch has begun and its first timeline is written."""
        self._horizon_buckets = known_horizon_buckets(context.pipeline, own.stage_name)
        self._keeps_for_halves = context.pipeline.is_recovered_in_parallel(own.stage_name)
        self._running: dict[str, RunningQuery] = {}
        self._stopping: dict[str, Thread] = {}
        self._recompute_server: RecomputeServer | None = None
        self._epoch_checked_ms = 0

    @property
    def epoch(self) -> int:
        """Epoch of this process; negative until it begins."""
        return self.boundary.epoch

    def begin(self, recovery: Recovery) -> None:
        """Begin an epoch and continue in a copy of the newest timeline's directory (rules 1 and 8).
        No query runs yet.

        Raises:
            Fenced: another process of this replica runs.
            StoppingError: this process was told to stop.
            SplitConfirmedError: the epoch has begun, and the stream must end.
        """
        stable_query = self.runner.fail_over(recovery)
        if self.warm_standby is not None:
            self.warm_standby.passed("steps")
        self._report.starting()
        # The void buckets of a half are read from its shard: nothing is lost.
        is_lost = self.runner.given_up > self.boundary.log_state.closed(self._own.replica)
        if is_lost and not self._own.stage.parent:
            self._report.results_given_up(self.runner.given_up)
        self.has_begun = True
        self._report.status.detail |= {"epoch": self.epoch, "timeline": stable_query}

    def run(self) -> None:
        """Start the stable query, and serve requests to recompute."""
        own, runner = self._own, self.runner
        own_replica = RecomputingReplica(
            own.stage_name,
            own.replica,
            self._prepared.traits,
            self._prepared.fingerprint,
            self.epoch,
            self._disk,
            self.boundary,
            runner.log_lock,
            self._run_range,
        )
        self._recompute_server = RecomputeServer(self._context, own_replica)
        self._start_query(runner.stable_query)

    def receive(self, entry: ControlRecord) -> None:
        """Process a record of a control topic: a request to recompute, or a reply to one."""
        if self._recompute_server is not None:
            self._recompute_server.receive(entry)

    def step(self) -> None:
        """Run one round: start and stop queries, wait for them, and recompute for readers. Raises
        the error that ended the stable query, or that it is stuck.
        """
        self._carry_out_orders()
        running = list(self._running.items())
        for timeline, query in running:
            try:
                ended = query.ended(_STEP_MS // len(running))
                self.runner.check_query(timeline)
            except Fenced:
                raise
            except Exception as error:
                if not self.runner.failed(timeline, error):
                    raise
                self._context.logger.warning(
                    "branch_failed",
                    stage=self._own.label,
                    branch=timeline,
                    error=short(str(error)),
                )
            else:
                if ended and not self._context.stopping.is_set():
                    message = (
                        f"the query of {timeline} ended without an error; Spark's log may say why"
                    )
                    raise AnabranchError(message)
        if self._recompute_server is not None:
            self._recompute_server.step(
                may_begin=self.runner.branch is None and self._report.status.state != "starting"
            )

    def _carry_out_orders(self) -> None:
        """Start and stop queries as the runner orders."""
        orders = self.runner.orders()
        stopped = [order.timeline for order in orders if isinstance(order, StopQuery)]
        for order in orders:
            if isinstance(order, StartQuery) and order.timeline not in stopped:
                self._context.logger.info(
                    "branched",
                    stage=self._own.label,
                    successor=order.timeline,
                    missing=list(self.runner.missing),
                    shed=self.runner.shed,
                )
                self._start_query(order.timeline)
        for timeline in stopped:
            self._context.logger.info("branch_dropped", stage=self._own.label, branch=timeline)
            branch = self._running.pop(timeline, None)
            self._stopping[timeline] = self._context.threads.begin(
                f"stop {timeline}", partial(self._end_branch, timeline, branch)
            )
        for timeline, thread in list(self._stopping.items()):
            if not thread.is_alive():
                del self._stopping[timeline]

    def _start_query(self, timeline: str) -> None:
        """Start a query in the directory of ``timeline``."""
        self._running[timeline] = self._prepared.start(
            timeline,
            self.runner,
            QueryOutput(self._own.replica, self.epoch),
            str(self._disk.directory(timeline)),
            partial(self._batch_done, timeline),
        )

    def _end_branch(self, timeline: str, branch: RunningQuery | None) -> None:
        """Stop the query of a dropped branch and remove its directory. Errors of the branch no
        longer matter. A directory that cannot be removed takes room until the replica begins again,
        and ends nothing.
        """
        if branch is not None:
            branch.stop()
        try:
            self.runner.stopped(timeline)
        except OSError as error:
            self._context.logger.warning(
                "directory_not_removed",
                stage=self._own.label,
                branch=timeline,
                error=short(str(error)),
            )

    def _batch_done(self, query: str, done: BatchDone) -> None:
        """Report a batch of ``query``. Called on the thread of the query."""
        if query != self.runner.stable_query:
            self._report.tentative_batch_done(done)
            return
        self._report.batch_done(done)
        if self.warm_standby is not None:
            self.warm_standby.batch_done(done.seconds)

    def _run_range(self, query: RangeQuery) -> None:
        """Run a query that recomputes buckets for a reader (``processing.recompute_server``),
        beside this replica's queries, at most RECOMPUTE_MS_MAX. Raises the error that ended it.
        """
        context, place = self._context, str(self._disk.directory(query.name))
        output = QueryOutput(self._own.replica, self.epoch, query.only)
        run_range(self._prepared, query, output, place, context.clock, context.stopping.is_set)

    def check_epoch_if_due(self) -> bool:
        """Check for a newer process of this replica, if that is due, and return whether it was.

        Raises:
            Fenced: a newer process began.
        """
        now_ms = self._context.clock.monotonic_ms()
        if now_ms - self._epoch_checked_ms < _EPOCH_CHECK_MS:
            return False
        self._epoch_checked_ms = now_ms
        self.runner.check_epoch()
        return True

    def heartbeat(self, beat: Heartbeat) -> Heartbeat:
        """Return ``beat`` with the state of the queries. Called on the thread of the heartbeats.
        Until ``has_begun`` it names no checkpoint, so that nothing is trimmed before the checkpoint
        was read.
        """
        if not self.has_begun:
            return beat
        figures = self.runner.load_figures()
        return replace(
            beat,
            bucket=self._report.bucket,
            replica_state=self.runner.state.value,
            branch=self.runner.branch_number,
            checkpoint=self.runner.stable_query,
            checkpoint_bucket=self._unneeded_upto(),
            stored=self._disk.announces,
            room_left_ms=None if figures is None else figures.room_left_ms,
        )

    def _unneeded_upto(self) -> int:
        """Return the last bucket of input that is never read again (rule 18), by this process or by
        halves that its shard is split into if its node is lost.
        """
        closed, horizon = self.boundary.log_state.closed(self._own.replica), self._horizon_buckets
        upto = unneeded_upto(closed, self.runner.synced_bucket, horizon, self._own.stage.ha)
        return min(upto, needed_after(closed, horizon)) if self._keeps_for_halves else upto

    @property
    def stream_has_ended(self) -> bool:
        """Whether a replica has ended the stream of this shard, and no newer process of this one
        has begun.
        """
        return self.boundary.log_state.ended_in(self._own.replica, self.epoch)

    def end_stream(self, halves: str) -> None:
        """Stop the queries and end the stream of this shard, whose ``halves`` are proven.

        Raises:
            Fenced: a newer process of this replica began.
        """
        self.stop()
        self._running.clear()
        self.runner.end_stream(BatchId(self._context.entropy.token(), 0))
        self._context.crash_point("processing.split_ended")
        self._context.logger.info("shard_split", stage=self._own.label, halves=halves)

    def stop(self) -> None:
        """Let running batches end, then stop the queries. Idempotent."""
        for running in list(self._running.values()):
            running.stop()

    def close(self) -> None:
        """Wait for a running recomputation, and close the stage's log. Call it after ``stop``."""
        if self._recompute_server is not None:
            self._recompute_server.close()
        self.boundary.close()
