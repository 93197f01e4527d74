"""Results of a stage for sale, bucket by bucket: on which node they were computed, and whether they
are right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.log.records import EpochStarted
from checkers import streams
from checkers.audits import Made
from simulation.raw_logs import boundary_log

if TYPE_CHECKING:
    from simulation.workload import Buckets
    from simulation.world import Run

FIRST_BUCKETS: Final = 1_000
"""The first record of a stream closes so many buckets at most that are looked at: whoever begins a
stage may be held up.
"""


def nodes_of(run: Run, stage: str, reading: streams.Reading | None = None) -> dict[int, str]:
    """Return the node that computed each bucket of a stage of one replica; of those that its first
    record closes, the last ones.
    """
    log = boundary_log(run, stage)
    nodes = {offset: entry.node for offset, entry in log if isinstance(entry, EpochStarted)}
    found: dict[int, str] = {}
    upto = 0
    (writer,) = (reading or streams.read(log, run.pipeline.stream_writers(stage))).writers.values()
    for _, record in writer.accepted:
        for bucket in range((upto or record.closed - FIRST_BUCKETS) + 1, record.closed + 1):
            found[bucket] = nodes[record.epoch]
        upto = max(upto, record.closed)
    return found


def made(
    run: Run, stage: str, reading: streams.Reading, answer: Buckets, blocks: streams.ReadPart
) -> dict[int, Made]:
    """All of it."""
    ((replica, writer),) = reading.writers.items()
    found = {}
    for bucket, node in nodes_of(run, stage, reading).items():
        parts = writer.closed_parts.get(bucket, ())
        rows = [row for part in parts for row in blocks(replica, part) or ()]
        is_right = sorted(rows, key=repr) == sorted(answer.get(bucket, ()), key=repr)
        found[bucket] = Made(node, len(rows), is_right)
    return found


def spoilt(
    run: Run, reading: streams.Reading, answer: Buckets, blocks: streams.ReadPart
) -> frozenset[tuple[str, int]]:
    """(replica, bucket) that its seller has made wrong."""
    stage = run.options.spoils
    (replica,) = reading.writers
    return frozenset(
        (replica, bucket)
        for bucket, each in made(run, stage, reading, answer, blocks).items()
        if not each.is_right and each.node == run.options.spoiler
    )
