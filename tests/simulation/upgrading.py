"""The replicas of a stage get another version of its function: what that came to, for
``checkers.versions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkers import versions
from simulation.raw_logs import boundary_log
from simulation.workload import of_version, typed

if TYPE_CHECKING:
    from checkers.streams import ReadPart, Row
    from simulation.workload import Buckets
    from simulation.world import Run

NEWEST = 2


def judge(run: Run, stream: str, answer: Buckets, blocks: ReadPart) -> tuple[list[str], Buckets]:
    """(what is wrong, what readers get). ``answer``: of the first version."""
    writers = run.pipeline.stream_writers(stream)
    found = versions.read(boundary_log(run, stream), writers)
    wrong = versions.check(stream, found, answer, _made, blocks)
    if run.is_complete and found.newest != NEWEST:
        wrong.append(f"{stream}: version {found.newest} counts, though all have {NEWEST}")
    if len(found.counts) > 1 and found.upto > found.counts[found.newest]:
        run.history.reached("another version counts")
    stands = versions.stands(found, blocks)
    return wrong, {bucket: [typed(row) for row in rows] for bucket, rows in stands.items()}


def _made(row: Row, version: int) -> Row:
    return of_version(typed(row), version)
