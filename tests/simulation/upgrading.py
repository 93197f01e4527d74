"""The replicas of a stage get another version of its function: what that came to, for
``checkers.versions``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry, says_late_start
from checkers import versions
from simulation.raw_logs import boundary_log
from simulation.workload import of_version, typed

if TYPE_CHECKING:
    from checkers.streams import ReadPart, Row
    from simulation.workload import Buckets
    from simulation.world import Run

NEWEST = 2


def judge(run: Run, stream: str, answer: Buckets, blocks: ReadPart) -> tuple[list[str], Buckets]:
    """Return what is wrong, and what readers get. ``answer``: of the first version."""
    writers = run.pipeline.stream_writers(stream)
    log = list(boundary_log(run, stream))
    found = versions.read(log, writers)
    stands = versions.stands(found, blocks)
    horizon = next(each.horizon_buckets for each in run.options.stages if each.name == stream)
    left_out = _left_out(log, horizon)
    if any(
        bucket > found.counts.get(NEWEST, bucket) and bucket in answer and not stands.get(bucket)
        for _, bucket in left_out
    ):
        run.history.reached("results left out by a stage that begins anew")
    wrong = versions.check(stream, found, answer, _made, blocks, left_out)
    if run.is_complete and found.newest != NEWEST:
        wrong.append(f"{stream}: version {found.newest} counts, though all have {NEWEST}")
    if len(found.counts) > 1 and found.upto > found.counts[found.newest]:
        run.history.reached("another version counts")
    return wrong, {bucket: [typed(row) for row in rows] for bucket, rows in stands.items()}


def _left_out(log: Iterable[tuple[int, LogEntry]], horizon: int) -> set[tuple[str, int]]:
    """Return (writer, bucket) of the buckets that processes which begin anew, and say after which
    bucket, may leave empty: all that they had not closed by then, and those within the state
    horizon from there.
    """
    found, closed = set[tuple[str, int]](), dict[str, int]()
    for _, entry in log:
        if not isinstance(entry, BoundaryRecord) or entry.kind is not BoundaryKind.STABLE:
            continue
        before = closed.get(entry.replica, 0)
        if says_late_start(entry):
            last = entry.closed + horizon
            found |= {(entry.replica, bucket) for bucket in range(before + 1, last + 1)}
        closed[entry.replica] = max(before, entry.closed)
    return found


def _made(row: Row, version: int) -> Row:
    return of_version(typed(row), version)
