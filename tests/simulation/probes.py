"""Places that good seeds reach: what was never reached was never tried. Rows of the tables
are counted where they decide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from unittest import mock

from anabranch.processing.recompute_server import RecomputeServer
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.edge import live_delivery
from anabranch.protocol.log.log_snapshots import LogStart
from anabranch.protocol.stage import recomputation, upstream_selection
from anabranch.protocol.stage.planner import QueryPosition
from anabranch.protocol.stage.replica import Decision, Replica, Situation
from anabranch.protocol.stage.scheduling import GateReason
from simulation import faults, scenarios
from simulation.history import History

LOG_STATE_REASONS = (
    "epoch",
    "accepted",
    "tentative",
    "fenced",
    "known",
    "off_chain",
    "older_branch",
    "branch_ended",
    "no_base",
    "unknown_writer",
    "log_snapshot",
    "recomputed",
)
REPLICA_ROWS: Final = {
    1: "stable, the stable query runs a bucket",
    2: "forks",
    3: "the branch runs a bucket",
    4: "begins to correct",
    5: "corrects on",
    6: "has caught up, drops the branch",
    7: "forks again",
    8: "the branch failed",
    9: "ends with a branch",
    10: "the branch waits for the stable query",
    11: "catches up",
    12: "falls behind",
    13: "forks because it is overloaded",
    14: "the successor waits for the cores",
    15: "the successor makes way for the branch",
}
"""The table of ``protocol.stage.replica``, row by row."""
_OVERLOAD_ROWS: Final = {13, 14, 15}
"""Rows about overload, which few seeds have."""

_STABLE_ROWS: Final = {
    ReplicaState.STABLE: 1,
    ReplicaState.UP_FAILURE: 4,
    ReplicaState.STABILIZATION: 5,
    ReplicaState.FAILURE: 11,
}
"""Rows of the state table for a bucket of the stable query, by the state before."""

ROWS: Final[tuple[str, ...]] = (
    *(
        f"upstream selection row {row.number}"
        for row in (*upstream_selection.TABLE, upstream_selection.NOBODY)
    ),
    *(f"live row {row.number}" for row in live_delivery.TABLE),
    *(f"gate {why.name}" for why in GateReason),
    *(f"log state {reason}" for reason in LOG_STATE_REASONS),
    *(
        f"replica row {number}: {what}"
        for number, what in REPLICA_ROWS.items()
        if number not in {10, *_OVERLOAD_ROWS}
    ),
)
"""Rows of transition tables: a few hundred seeds reach each of them."""

UNREACHABLE: Final[dict[str, str]] = {
    "log state malformed": (
        "decoding rejects a branch of another epoch before a log state sees it:"
        " tests/unit/protocol/log/test_tentative.py"
    ),
    "log state ended_branch": (
        "the last record of a dropped branch must still be on its way when its end is written:"
        " tests/unit/protocol/log/test_boundary_log_branches.py"
    ),
    "log state superseded": (
        "no stage here is upgraded within a run: tests/unit/protocol/log/test_boundary_log.py"
    ),
    "log state other_width": (
        "nobody changes the width of a bucket within a run:"
        " tests/unit/protocol/log/test_boundary_log.py"
    ),
    "log state other_share": (
        "nobody changes the shards of a stage within a run:"
        " tests/unit/protocol/log/test_boundary_log.py"
    ),
    "log state unknown_successors": (
        "no stream ends here that its readers do not know the successors of:"
        " tests/unit/protocol/log/test_boundary_log.py"
    ),
    "log state ended": (
        "a process that begins an epoch after the end reads it before it writes:"
        " tests/unit/protocol/log/test_boundary_log.py"
    ),
    "log state earlier_attempt": (
        "a node must not have read for long that a shard is to be split anew:"
        " tests/unit/protocol/log/test_boundary_log.py"
    ),
    "log state pending": (
        "takes more than PENDING_PARTS_MAX = 1 000 000 open parts:"
        " tests/unit/protocol/log/test_boundary_log.py"
    ),
    "replica row 10: the branch waits for the stable query": (
        "takes batches that cost more than real time:"
        " tests/unit/protocol/stage/test_scheduling.py and test_replica.py"
    ),
}
"""Rows that no seed can reach, and why; what tests them instead."""

BEGUN_AFTER_AN_END: Final = "begun at a snapshot made after the end of a branch"
"""Claim of a process that still runs: no record after it says that its branch has ended."""

EXPECTED: Final[tuple[str, ...]] = (
    f"fault {faults.STORE_AWAY}",
    f"fault {faults.CLEANED}",
    f"fault {faults.LOG_LOST}",
    "cut log judged: consistency_manager",
    "alarm log_unread",
    f"fault {faults.NO_LEADER}",
    "in the log before its report",
    "control records deleted",
    "topics compacted",
    "checkpoint restored",
    *(
        f"fault {kind}"
        for kind in sorted(
            {
                *faults.PROCESS_KINDS,
                *faults.WRITER_KINDS,
                faults.WRITE_TWICE,
                *faults.DELIVERY_KINDS,
                *faults.REPLICA_KINDS,
                *faults.SOURCE_KINDS,
                *faults.INDEX_KINDS,
                *faults.AIMED_KINDS,
                *faults.WIDE_KINDS,
                *faults.SCENARIO_KINDS,
            }
            - {"commit twice"}
        )
    ),
    "fault grown",
    *(f"write {kind}" for kind in ("lost", "late", "applied", "twice", "part", "rejected")),
    *(f"commit {kind}" for kind in ("lost", "applied", "torn", "unrecorded")),
    *ROWS,
    *(f"replica row {number}: {REPLICA_ROWS[number]}" for number in sorted(_OVERLOAD_ROWS)),
    *(f"scenario {name}" for name in scenarios.CHANCES),
    *(f"replica {state}" for state in ("stable", "up_failure", "stabilization", "failure")),
    *(
        "successor started",
        "branch dropped",
        "branch cannot begin",
        "tentative batch",
        "task run again",
        "logged batch run again",
        "input read twice",
    ),
    *(
        "checkpoint tail lost",
        "checkpoint files out of order",
        "checkpoint files torn",
        "torn checkpoint files passed over",
        "directory removed under a process",
        "blocks trimmed",
        "index compared as a whole",
        "has caught up",
        "peer copied",
        "replica fenced",
        "late arrival",
        "written twice without an error",
        "transaction torn",
        "open transaction aborted: corrected",
        "open transaction aborted: live",
        "its transaction timed out",
    ),
    *(
        "stands by",
        "rehearsed from a checkpoint",
        "standby copied",
        "fails over to a copy",
        "an older epoch is heard again",
        "state made anew",
        "state made anew while nothing new is closed",
        "results given up",
        "asks for blocks",
        "waits for what was asked for",
        "snapshot written",
        "boundary log trimmed",
        "begun at a snapshot",
        BEGUN_AFTER_AN_END,
        "no room for more of an input",
        "push back judged",
        "alarm rows_rejected",
    ),
    *(
        "question without answer",
        "log outcome_unknown",
        "log live_delayed",
        "log index_unavailable",
        "log blocks_missing",
        "log failover_delayed",
    ),
    *("live undo", "live rec_done", "live failure", "live shown again", "live bound judged"),
    *(f"end {service} Fenced" for service in ("ingestion", "processing", "delivery")),
    *(f"end {service} Unavailable" for service in ("ingestion", "processing")),
)

"""Whatever should be reached, in a few thousand seeds."""
SEEDS_FOR_ROWS: Final = 300
SEEDS_FOR_ALL: Final = 3_000
"""Number of seeds that must have reached every one of ``ROWS``, or of ``EXPECTED``."""


def unreached(reached: Mapping[str, int], seeds: int) -> list[str]:
    """Return what ``seeds`` seeds, which reached ``reached``, should have reached and did not;
    nothing for fewer than ``SEEDS_FOR_ROWS``.
    """
    wanted = EXPECTED if seeds >= SEEDS_FOR_ALL else ROWS if seeds >= SEEDS_FOR_ROWS else ()
    return [name for name in wanted if not reached.get(name)]


def _begun(is_adopted: bool, start: LogStart, *_: object) -> str:
    """Return where a reader begins that holds back what it has read of a log."""
    if not is_adopted:
        return "snapshot passed by"
    log_state = start._log_state
    for writer in log_state.writers:
        branch = log_state.branch(writer)
        of_who_runs = branch is not None and branch[0] == log_state.epoch(writer)
        if of_who_runs and not log_state.has_branch(writer):
            return BEGUN_AFTER_AN_END
    return "begun at a snapshot"


@contextlib.contextmanager
def counted(history: History) -> Iterator[None]:
    """Within it, every row of a table that decides is counted."""
    tables: tuple[tuple[Any, str, Callable[..., str]], ...] = (
        (
            upstream_selection,
            "decide",
            lambda answer, *_: f"upstream selection row {answer[0].number}",
        ),
        (live_delivery, "decide", lambda answer, *_: f"live row {answer.number}"),
        (LogStart, "_adopt", _begun),
        (
            recomputation.RecomputeRequests,
            "lacking",
            lambda answer, *_: (
                "waits for what was asked for" if answer is None else "asks for blocks"
            ),
        ),
        (RecomputeServer, "recompute", lambda answer, *_: f"recomputed: {answer[0].value}"),
    )
    originals = [vars(owner)[name] for owner, name, _ in tables]

    def counting(original: Callable[..., Any], named: Callable[..., str]) -> Callable[..., Any]:
        def decide(*arguments: Any, **named_arguments: Any) -> Any:
            answer = original(*arguments, **named_arguments)
            history.reached(named(answer, *arguments))
            return answer

        return decide

    for (owner, name, named), original in zip(tables, originals, strict=True):
        setattr(owner, name, counting(original, named))
    try:
        with _replicas_counted(history):
            yield
    finally:
        for (owner, name, _), original in zip(tables, originals, strict=True):
            setattr(owner, name, original)


@contextlib.contextmanager
def _replicas_counted(history: History) -> Iterator[None]:
    """Count the rows of a replica's table, which its methods follow."""
    decide = Replica.decide
    forked = Replica.forked
    abandon = Replica.abandon
    leaves_cores = Replica._leaves_cores
    latest: dict[Replica, ReplicaState] = {}

    def reached(row: int) -> None:
        history.reached(f"replica row {row}: {REPLICA_ROWS[row]}")

    def counted_decide(
        self: Replica, query: str, position: QueryPosition, situation: Situation
    ) -> Decision:
        before, is_stable_query = self.state_at(situation.now_ms), query == self.stable_query
        if latest.get(self) is ReplicaState.STABLE and before is ReplicaState.FAILURE:
            reached(12)
        decision = decide(self, query, position, situation)
        latest[self] = self.state_at(situation.now_ms)
        if decision.drop is not None:
            reached(6)
        plan = decision.plan
        if plan is not None and plan.after.bucket > plan.before.bucket:
            reached(_STABLE_ROWS[before] if is_stable_query else 3)
        return decision

    def counted_forked(self: Replica, position: QueryPosition, now_ms: int) -> str | None:
        is_late = self._is_late
        old = forked(self, position, now_ms)
        reached(13 if is_late else 2 if old is None else 7)
        return old

    def counted_leaves_cores(self: Replica, position: QueryPosition, situation: Situation) -> bool:
        leaves = leaves_cores(self, position, situation)
        if leaves:
            is_correcting = self.state_at(situation.now_ms) is ReplicaState.STABILIZATION
            reached(15 if is_correcting else 14)
        return leaves

    def counted_abandon(self: Replica, now_ms: int, cause: Exception | None = None) -> str | None:
        old = abandon(self, now_ms, cause)
        if old is None:
            history.reached("branch cannot begin")
        else:
            reached(8)
        return old

    with mock.patch.multiple(
        Replica,
        decide=counted_decide,
        forked=counted_forked,
        abandon=counted_abandon,
        _leaves_cores=counted_leaves_cores,
    ):
        yield
