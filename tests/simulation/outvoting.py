"""One of three replicas computes wrong rows: what it made, and what came of that, for
``checkers.outvoted``.

What the stream has is what stands first in the log. So results are right where somebody else was
first with every bucket that the wrong replica spoilt; elsewhere a person was told, and nothing more
is promised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.codec import control_records
from anabranch.protocol.control.consistency import MISMATCH
from anabranch.protocol.control.records import Alarm, Fence
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.log.records import EpochStarted
from checkers import outvoted, streams
from checkers.outvoted import Made, ManagerFence
from simulation.raw_logs import appended_ms, boundary_log, records

if TYPE_CHECKING:
    from simulation.workload import Buckets
    from simulation.world import Run


@dataclass
class Verdict:
    """Verdict on a run in which one replica computed wrong rows."""

    wrong: list[str]
    spoilt: frozenset[tuple[str, int]]
    """(replica, bucket) that may be wrong."""
    wrong_stands: bool
    """Something wrong was first in the log."""


def judge(run: Run, reading: streams.Reading, answer: Buckets, blocks: streams.ReadPart) -> Verdict:
    """Judge the only stage."""
    (stage,) = (stage.name for stage in run.options.stages)
    times = appended_ms(run, run.pipeline.topic_names.boundaries(stage))
    closed = list(_closed(reading, answer, blocks))
    made = [
        Made(times[offset], replica, epoch, bucket, is_right)
        for offset, replica, epoch, bucket, is_right in closed
    ]
    struck_ms = {
        fault.target.removeprefix(f"processing/{stage}."): fault.at_ms
        for fault in run.faults
        if fault.kind == "wrong rows"
    }
    spoilt = frozenset(
        (each.replica, each.bucket)
        for each in made
        if not each.is_right and each.replica in struck_ms and each.at_ms >= struck_ms[each.replica]
    )
    first: dict[int, bool] = {}
    for _, _, _, bucket, is_right in sorted(closed):
        first.setdefault(bucket, is_right)
    fences = list(_fences(run, stage))
    begun = [
        (entry.replica, offset, times[offset])
        for offset, entry in boundary_log(run, stage)
        if isinstance(entry, EpochStarted)
    ]
    wrong = outvoted.check_anew(made, fences, begun)
    if run.is_complete:
        wrong += outvoted.check(made, fences, list(_alarmed(run, stage)))
    if fences:
        run.history.reached("replica fenced")
    return Verdict(wrong, spoilt, wrong_stands=not all(first.values()))


def _closed(
    reading: streams.Reading, answer: Buckets, blocks: streams.ReadPart
) -> Iterator[tuple[int, str, int, int, bool]]:
    """(offset, replica, epoch, bucket, whether it is right) of every bucket that has rows, or
    should have, where its writer closed it itself.
    """
    for replica, writer in reading.writers.items():
        upto = 0
        for offset, record in writer.accepted:
            upto = max(upto, record.base or 0)
            for bucket in range(upto + 1, record.closed + 1):
                rows = [
                    row
                    for part in writer.closed_parts.get(bucket, ())
                    for row in blocks(replica, part) or ()
                ]
                if rows or answer.get(bucket):
                    is_right = sorted(rows, key=repr) == sorted(answer.get(bucket, ()), key=repr)
                    yield offset, replica, record.epoch, bucket, is_right
            upto = max(upto, record.closed)


def _fences(run: Run, stage: str) -> Iterator[ManagerFence]:
    topic = run.pipeline.topic_names.fences()
    times = appended_ms(run, topic)
    for _, offset, record in records(run, topic):
        with contextlib.suppress(RemoteProtocolError):
            entry = control_records.decode(record.value)
            if isinstance(entry, Fence) and entry.stage == stage:
                yield ManagerFence(times[offset], entry.replica, entry.epoch)


def _alarmed(run: Run, stage: str) -> Iterator[int]:
    for _, _, record in records(run, run.pipeline.topic_names.alarms()):
        entry = control_records.decode(record.value)
        if isinstance(entry, Alarm) and (entry.kind, entry.stream) == (MISMATCH, stage):
            yield entry.bucket
