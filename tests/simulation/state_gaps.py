"""Results that stages with ``ha: amnesia``, and stages added late, gave up, as their logs state:
buckets that are empty because the state they depend on is lost, or never was. The answer has
nothing there. This module checks that no more was given up than necessary, and that people were
told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.codec import control_records
from anabranch.protocol.control.consistency import GAP
from anabranch.protocol.control.records import Alarm
from checkers import gaps, streams
from simulation.faults import BEFORE_RESULTS
from simulation.raw_logs import appended_ms, boundary_log, records

if TYPE_CHECKING:
    from simulation.options import StageOptions
    from simulation.world import Run

_LOSSES = ("disk", "power", "power of all")
"""Faults after which a process may find no checkpoint."""


@dataclass(frozen=True)
class _GivenUp:
    """Gap that one boundary record states."""

    offset: int
    """Offset of that record; or of the first one of its process if that one closed nothing new."""
    begins: bool
    """Whether it is the first record of a process without a checkpoint."""
    buckets: range


def _given_up(run: Run, stage: StageOptions, replica: str) -> Iterator[_GivenUp]:
    writers = run.pipeline.stream_writers(stage.name)
    writer = streams.read(boundary_log(run, stage.name), writers).writers[replica]
    closed, began = 0, None
    for offset, record in writer.accepted:
        if record.prev is None:
            began = offset
        if record.closed > closed:
            if record.missing:
                buckets = range(closed + 1, record.closed + 1)
                yield _GivenUp(offset if began is None else began, began is not None, buckets)
            closed, began = record.closed, None


def _incomplete(run: Run) -> list[StageOptions]:
    """Return the stages that may give up results."""
    if run.options.scenario == "added late":
        return list(run.options.stages)
    return [stage for stage in run.options.stages if stage.ha == "amnesia"]


def declared(run: Run) -> dict[str, set[int]]:
    """Return the buckets that each stage's log states as given up."""
    return {
        stage.name: {
            bucket
            for replica in run.pipeline.stream_writers(stage.name)
            for each in _given_up(run, stage, replica)
            for bucket in each.buckets
        }
        for stage in _incomplete(run)
    }


def check(run: Run, complete: Mapping[str, list[tuple[int, int]]]) -> list[str]:
    """Check what was given up. Return what is wrong. ``complete``: (time, bucket up to which it was
    stable) of each stream.
    """
    wrong = []
    for stage in _incomplete(run):
        if run.options.scenario == "added late":
            wrong += _check_late(run, stage, complete)
            continue
        target = f"processing/{stage.name}.0"
        lost_ms = [
            fault.at_ms
            for fault in run.faults
            if fault.kind in _LOSSES and fault.target in (target, "everything")
        ]
        found = _gaps(run, stage, "0", lost_ms)
        inputs = [complete[stream] for stream in stage.reads]
        wrong += gaps.check(stage.name, found, lost_ms, inputs, stage.horizon_buckets)
        if run.is_complete and run.options.has_manager:
            wrong += gaps.check_alarms(stage.name, found, _alarmed(run, stage.name))
    return wrong


def _gaps(run: Run, stage: StageOptions, replica: str, lost_ms: Collection[int]) -> list[gaps.Gap]:
    """Neighbours are one gap, unless the state was lost once more between them: a process that
    dies before its first commit begins again.
    """
    times = appended_ms(run, run.pipeline.topic_names.boundaries(stage.name))
    found: list[gaps.Gap] = []
    for each in _given_up(run, stage, replica):
        at_ms, first = times[each.offset], each.buckets[0]
        is_next = bool(found) and found[-1].last == first - 1
        if is_next and not (
            each.begins and any(found[-1].at_ms < lost <= at_ms for lost in lost_ms)
        ):
            found[-1] = found[-1]._replace(last=each.buckets[-1])
        else:
            found.append(gaps.Gap(at_ms, first, each.buckets[-1]))
    return found


def _check_late(
    run: Run, stage: StageOptions, complete: Mapping[str, list[tuple[int, int]]]
) -> list[str]:
    """Each replica gave up, once for each deletion before the first result, what lies before the
    blocks that are left, and a horizon.
    """
    first_ms = {
        fault.at_ms
        for fault in run.faults
        if fault.kind == "all blocks deleted" and fault.value != BEFORE_RESULTS
    }
    # Faults of this value strike only while there is no result.
    again_ms = {event.at_ms for event in run.history.events if event.what == "deleted again"}
    deleted_ms = sorted(first_ms | again_ms)
    closed = [
        (when_ms, max(gaps.closed_at(complete[stream], when_ms) for stream in stage.reads))
        for when_ms in deleted_ms
    ]
    wrong = []
    for replica in run.pipeline.stream_writers(stage.name):
        found = _gaps(run, stage, replica, deleted_ms)
        wrong += gaps.check(stage.name, found, deleted_ms, [closed], stage.horizon_buckets)
    return wrong


def _alarmed(run: Run, stage: str) -> set[int]:
    """Return the first bucket of each gap that an alarm reports."""
    entries = (
        control_records.decode(record.value)
        for _, _, record in records(run, run.pipeline.topic_names.alarms())
    )
    return {
        entry.bucket
        for entry in entries
        if isinstance(entry, Alarm) and (entry.kind, entry.stream) == (GAP, stage)
    }
