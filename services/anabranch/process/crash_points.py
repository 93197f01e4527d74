"""Named points at which a test can kill this process: one between any two steps that others can
tell apart.

A point does nothing unless ``ANABRANCH_CRASH_POINT`` names it, as ``name`` or ``name:count`` (kills
at the count-th pass). A tidy test checks that each of ``POINTS`` is used in the code exactly once,
and that a test kills there.
"""

from __future__ import annotations

import itertools
import os
import signal
from typing import Final

VARIABLE: Final = "ANABRANCH_CRASH_POINT"

POINTS: Final = {
    "auditor.number_kept": "a number is on the disk; its hash is in no ledger",
    "ingestion.fetched": "records were read, nothing was done with them",
    "ingestion.decoded": "decided about each record, nothing was written",
    "ingestion.blocks_begun": (
        "blocks and dead letters are sent, in a backlog also the record of the round before;"
        " nobody has answered"
    ),
    "ingestion.blocks_written": (
        "blocks and dead letters are in the log; no record names the blocks"
    ),
    "ingestion.boundary_appended": (
        "the boundary record was seen in the log; memory does not know yet"
    ),
    "processing.batch_logged": "a plan is in Spark's log; nothing was run",
    "processing.blocks_written": "the results are in the log; no record names them",
    "processing.boundary_appended": (
        "the stable record was seen in the log; Spark has not committed"
    ),
    "processing.tentative_appended": (
        "the branch's record was seen in the log; Spark has not committed"
    ),
    "processing.fork_decided": "a branch is due; nothing was copied",
    "processing.fork_written": (
        "the successor's timeline file is written; the query that runs is not a branch yet"
    ),
    "processing.branch_dropped": "a branch was dropped; the log does not say so yet",
    "processing.standby_due": "one that stands by is to become the primary: nothing was written",
    "processing.checkpoint_copied": "a directory was copied; no timeline file names the copy",
    "processing.peer_copied": "a peer's directory was copied; no timeline file names the copy",
    "processing.timeline_written": "the own timeline file is written; older ones are still there",
    "processing.base_appended": "the base record was seen in the log; no batch has run",
    "processing.split_answered": "the log of moves has an answer to a split; nothing followed yet",
    "processing.split_ended": "a shard's stream has ended; its process still reads its inputs",
    "checkpoint.fetched": "the files of a stored checkpoint were read: there is no copy of it yet",
    "checkpoint.taking_fetched": "a copy of a stored checkpoint is to become the replica's own",
    "checkpoint.copying": "half of a copy: the files are linked, it does not have its name",
    "delivery.fenced": "a failover has fenced the older writer; nothing was read back",
    "delivery.earlier_fenced": "a new shard has fenced an old one; that has not ended",
    "delivery.earlier_ended": "an old shard has ended; the new one has not begun",
    "delivery.read_back": "a failover knows what there is; nothing was written",
    "delivery.records_sent": "records are in an open transaction, without progress",
    "delivery.progress_sent": "records and progress are in an open transaction",
    "delivery.committed": "the transaction is committed; memory does not know yet",
    "live.fenced": "a failover of the live half has fenced the older writer",
    "live.records_sent": "live records are in an open transaction, without progress",
    "live.progress_sent": "live records and progress are in an open transaction",
    "live.committed": "the live transaction is committed; memory does not know yet",
    "manager.alarms_written": "alarms are in the log; memory does not know yet",
    "manager.control_written": "fences, trim points are in the log; nothing followed from them",
    "manager.blocks_deleted": "blocks below a trim point are deleted; memory does not know yet",
    "manager.snapshot_written": (
        "a log snapshot of a boundary log is in the log; memory does not know yet, nothing is"
        " deleted"
    ),
    "manager.log_trimmed": "records below a log snapshot are deleted; memory does not know yet",
    "manager.index_written": "one entry of the index is written; memory does not know yet",
    "ledger.entry_due": "an entry is to be in a contract's log; nothing is written",
    "ledger.entry_written": "it is in the contract's log; memory does not know yet",
    "agent.move_due": "a stage is to run elsewhere; nothing is written",
    "agent.move_written": "the move of a stage is in the log; memory does not know yet",
}


def crash_point(name: str) -> None:
    """Kill the process here if the variable names this point. ``name`` is one of ``POINTS``."""
    if _IS_ARMED:
        _reached(name)


def _reached(name: str) -> None:
    wanted, _, count = os.environ.get(VARIABLE, "").partition(":")
    if name == wanted and next(_TIMES) == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)


_IS_ARMED: Final = bool(os.environ.get(VARIABLE))
"""Whether any point is armed. Read once, since points are in loops that run for every batch."""
_TIMES: Final = itertools.count(1)
"""Counter of passes of the armed point."""
