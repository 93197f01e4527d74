"""Report of a replica to people: its status, its metrics and its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.codec.blocks import ROW_BYTES_MAX
from anabranch.process.frame import ServiceStatus
from anabranch.processing.state_metrics import StateMetrics
from anabranch.protocol.control.records import ReplicaState

if TYPE_CHECKING:
    from anabranch.ports import BatchDone
    from anabranch.process.frame import ServiceContext
    from anabranch.processing.input_followers import InputFollowers
    from anabranch.processing.replica import ReplicaRunner
    from anabranch.processing.replica_identity import ReplicaIdentity
    from anabranch.protocol.stage.load_control import LoadFigures
    from anabranch.protocol.stage.planner import PlanTraits
    from anabranch.protocol.stage.recovery import PartnerWrong

_PARTNER_WRONG_MAX: Final = 20
"""Maximum number of buckets with differing partner results that ``status`` lists."""


class ReplicaReport:
    """Status and metrics of one replica. It changes nothing else, and decides nothing."""

    def __init__(self, context: ServiceContext, own: ReplicaIdentity) -> None:
        """Start with the state "starting"."""
        self._context, self._own = context, own
        self._width_ms = context.pipeline.bucket_ms
        self._metrics = StateMetrics(
            context.registry, context.pipeline.name, own.stage_name, own.process
        )
        self.status = ServiceStatus(
            detail={"stage": own.stage_name, "replica": own.process, "batches": 0}
        )
        self.rejected = 0
        """Number of rows of stable batches that were too large for the stream."""

    @property
    def bucket(self) -> int:
        """Last bucket of stable results; 0 if none."""
        return (self.status.last_bucket_ms or 0) // self._width_ms

    def prepared(self, traits: PlanTraits) -> None:
        """Show how the stage's plan was judged."""
        self.status.detail |= {
            "batch_safe": traits.is_batch_safe,
            "stateful": traits.is_stateful,
            "why": list(traits.reasons),
        }

    def starting(self) -> None:
        """Show that the replica starts and waits for nothing."""
        self.status.state, self.status.waiting_for = "starting", None

    def rests(self, waiting_for: str) -> None:
        """Report the replica as idle, without load: its stream has ended, so it has no more work.
        ``waiting_for``: the reason that the status shows.
        """
        self.status.state, self.status.lag_ms = "standby", None
        self.status.waiting_for = waiting_for
        self.status.detail |= {"replica_state": ReplicaState.STABLE.value, "missing": [], "shed": 0}
        self._metrics.show(ReplicaState.STABLE, ())
        self._show_load(None)

    def waits_for_blocks(self, missing: str, requested: str) -> None:
        """Show that there is nothing to start from. ``missing``: the blocks that are missing;
        ``requested``: the state of the requests for them.
        """
        self.status.state = "waiting"
        self.status.waiting_for = (
            f"a checkpoint of another replica of {self._own.stage_name}: {missing}, and this"
            f" replica has none; {requested}"
        )

    def waits_for_acknowledgement(self) -> None:
        """Show that the replica starts from less input than it has reported to trimming, and that
        the broker has not acknowledged the lower report yet.
        """
        self.status.waiting_for = (
            "the broker's acknowledgement of a heartbeat that reports an older checkpoint:"
            " check that the replica's control topic has a leader"
        )

    def results_given_up(self, bucket: int) -> None:
        """Log and show that results up to ``bucket`` are given up."""
        self.status.detail["given_up_ms"] = bucket * self._width_ms
        self._context.logger.error(
            "results_given_up", stage=self._own.label, upto_ms=self.status.detail["given_up_ms"]
        )

    def partner_differs(self, found: PartnerWrong) -> None:
        """Log a bucket that a partner computed differently, and list it in the status. The
        partner's result stays valid.
        """
        self._metrics.partner_wrong()
        self._context.logger.error(
            "partner_wrong",
            stage=found.stage,
            bucket=found.bucket,
            node=found.node,
            text=f"bucket {found.bucket}, computed on {found.node}, differs from what {found.stage}"
            " computes from the same input here; it stays valid. An audit can prove the difference"
            " (docs/federation.md)",
        )
        wrong = self.status.detail.setdefault("partner_wrong", [])
        if isinstance(wrong, list) and len(wrong) < _PARTNER_WRONG_MAX:
            wrong.append({"bucket": found.bucket, "node": found.node})

    def tentative_batch_done(self, done: BatchDone) -> None:
        """Show the figures of a branch's or successor's batch."""
        ends = {"bucket_ms": done.start.after.bucket * self._width_ms}
        self.status.detail["last_tentative_batch"] = _figures(done) | ends

    def batch_done(self, done: BatchDone) -> None:
        """Show and count a batch of the stable query."""
        context, closed = self._context, done.start.after.bucket
        self.status.detail["batches"] = done.batch + 1
        self.status.detail["last_batch"] = _figures(done)
        if closed:
            now_ms = context.clock.now_ms()
            self.status.last_bucket_ms = closed * self._width_ms
            self.status.lag_ms = now_ms - self.status.last_bucket_ms
            self.status.age_ms = context.metrics.closed(self.status.last_bucket_ms, now_ms)
        self._metrics.batch(done.seconds)
        self.status.state = "running"
        context.metrics.count_in(done.start.rows, 0)
        context.metrics.count_out(done.rows_out, 0)
        if done.rejected:
            self._rejected(done)

    def _rejected(self, done: BatchDone) -> None:
        """Count and log rows that were too large for the stream. The manager raises an alarm when
        the next heartbeat reports them.
        """
        self.rejected += done.rejected
        self._context.metrics.count_rejected(done.rejected)
        self.status.detail["rejected"] = self.rejected
        self._context.logger.warning(
            "rows_rejected",
            stage=self._own.label,
            rows=done.rejected,
            row_bytes_max=ROW_BYTES_MAX,
            first_bucket=done.start.before.bucket + 1,
            last_bucket=done.start.after.bucket,
        )

    def show(self, runner: ReplicaRunner, inputs: InputFollowers) -> None:
        """Show the present state of the replica and its inputs."""
        status = self.status
        if status.state in ("running", "waiting"):
            idle = runner.complete_upto() <= self.bucket
            status.state = "waiting" if idle else "running"
            rows_per_s = self._own.stage.rows_per_s
            cap = f"its cap, {rows_per_s} rows/s" if runner.is_capped() else None
            status.waiting_for = inputs.slowest(runner) if idle else cap
            if status.last_bucket_ms is not None:
                status.lag_ms = self._context.clock.now_ms() - status.last_bucket_ms
        status.detail |= {
            "replica_state": runner.state.value,
            "missing": list(runner.missing),
            "shed": runner.shed,
            "unread": sorted(runner.unread),
        }
        self._metrics.show(runner.state, runner.missing, runner.shed)
        self._show_load(runner.load_figures())
        for name, reader in inputs.readers.items():
            self._context.metrics.rejected(name, reader.counts)

    def _show_load(self, figures: LoadFigures | None) -> None:
        """Show the load of an overloaded stage; None: it is not overloaded."""
        self._metrics.show_load(figures)
        if figures is None:
            self.status.detail.pop("overload", None)
            return
        self.status.detail["overload"] = {
            "kept_permille": figures.kept,
            "limit_permille": figures.limit,
            "use_permille": figures.use,
            "backlog_rows": figures.backlog,
            "room_left_ms": figures.room_left_ms,
        }


def _figures(done: BatchDone) -> dict[str, float]:
    """Return the size and duration of a batch."""
    return {"rows_in": done.start.rows, "rows_out": done.rows_out, "seconds": done.seconds}
