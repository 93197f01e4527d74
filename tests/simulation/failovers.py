"""Which process of a passive stage becomes the primary, and when, for ``checkers.failovers``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from anabranch.codec import control_records
from anabranch.pipeline.control_topics import control_topics
from anabranch.protocol.control.failure_detector import (
    OBSERVED_STEP_MS,
    REPLICA_SERVICE,
    STANDBY_SERVICE,
)
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.log.records import EpochStarted
from anabranch.protocol.stage.standby import ENDED, LEADING
from checkers import failovers
from checkers.failovers import Began, Closed, Primaries, Stands, Word
from simulation.conduct import is_cut
from simulation.faults import COPY_ZOMBIE, EVERYTHING
from simulation.hurrying import PRIMARY_SILENT_MS, STANDBY_TURN_MS
from simulation.log_states import log_states
from simulation.raw_logs import appended_ms, boundary_log, with_trimmed
from simulation.world import Run

_WAITS: Final = failovers.Waits(PRIMARY_SILENT_MS, STANDBY_TURN_MS)
_DELAYING: Final = (
    "pause",
    "zombie",
    COPY_ZOMBIE,
    "cut",
    "cut_to",
    "cut_from",
    "slow",
    "clock",
    "drift",
)
"""Faults while which a process may judge later than others, or by a clock that is wrong."""


def check(run: Run) -> list[str]:
    """Check how processes become primaries (SB1-SB4). Return what is wrong."""
    wrong = []
    for stage in run.options.stages:
        if stage.ha != "passive":
            continue
        begun = _begun(run, stage.name)
        closed = list(_closed(run, stage.name))
        said = Primaries(begun, list(_words(run, stage.name)), closed)
        received = Primaries(
            begun, list(_words(run, stage.name, kept_ms=failovers.ON_THE_WAY_MS)), closed
        )
        stands = list(_stands(run, stage.name))
        # Who was held up in the middle of its look judges by what it had heard before.
        became = [
            (event.at_ms, str(event.facts[1]), int(event.facts[2] or 0) > 0)
            for event in run.history.events
            if event.what == "becomes the primary"
            and event.facts[0] == stage.name
            and event.at_ms - int(event.facts[3] or 0) <= failovers.ON_THE_WAY_MS
        ]
        heard = [
            each
            for each in became
            if not is_cut(run, f"processing/{stage.name}.{each[1]}", each[0])
            and not _has_wrong_clock(run, f"processing/{stage.name}.{each[1]}")
        ]
        wrong += failovers.check(stage.name, heard, received, stands, _WAITS)
        wrong += [
            f"{stage.name}.{process} becomes the primary at {at_ms} ms, the broker is hardly back"
            for at_ms, process, _ in heard
            if any(each.at_ms < at_ms for each in begun) and _is_just_back(run, at_ms)
        ]
        last_ms = run.options.heal_ms if run.is_complete else run.ended_ms
        wrong += failovers.check_in_time(
            stage.name,
            said,
            lambda begin_ms, end_ms, name=stage.name: _free(run, name, begin_ms, end_ms),  # type: ignore[misc]
            _WAITS,
            last_ms,
        )
    return wrong


def _begun(run: Run, stage: str) -> list[Began]:
    times = appended_ms(run, run.pipeline.topic_names.boundaries(stage))
    return [
        Began(times[offset], offset)
        for offset, entry in boundary_log(run, stage)
        if isinstance(entry, EpochStarted) and offset in times
    ]


def _closed(run: Run, stage: str) -> Iterator[Closed]:
    """Yield the buckets that the log lets each process close: a record that the log rejects is no
    sign of life.
    """
    writers = run.pipeline.stream_writers(stage)
    before = dict.fromkeys(writers, 0)
    for at_ms, _, _, _, log_state in log_states(run, stage):
        for writer in writers:
            closed, epoch = log_state.closed(writer), log_state.epoch(writer)
            if closed > before[writer] and epoch is not None:
                before[writer] = closed
                yield Closed(at_ms, epoch)


def _heartbeats(
    run: Run, service: str, stage: str, kept_ms: int
) -> Iterator[tuple[int, Heartbeat]]:
    """(time, heartbeat) of the processes of a stage, those that somebody sent again too; of those
    that retention deleted, the ones that had stood in the log for ``kept_ms``.
    """
    for topic, speaker in control_topics(run.pipeline).items():
        times, gone = appended_ms(run, topic), _deleted_ms(run, topic)
        for _, offset, record in with_trimmed(run, topic):
            if offset in gone and gone[offset] < times.get(offset, 0) + kept_ms:
                continue  # nobody need have read it
            with contextlib.suppress(RemoteProtocolError):
                entry = control_records.decode(record.value)
                if (
                    isinstance(entry, Heartbeat)
                    and speaker.may_say(entry)
                    and (entry.service, entry.name) == (service, stage)
                    and offset in times
                ):
                    yield times[offset], entry


def _deleted_ms(run: Run, topic: str) -> dict[int, int]:
    """Return when retention deleted each record of a topic of one partition."""
    found: dict[int, int] = {}
    for at_ms, _, what, facts in run.history.events:
        if what == "delete" and facts[0] == topic:
            found |= dict.fromkeys(range(len(found), len(found) + int(facts[2] or 0)), at_ms)
    return found


def _words(run: Run, stage: str, kept_ms: int = 0) -> Iterator[Word]:
    for at_ms, beat in _heartbeats(run, REPLICA_SERVICE, stage, kept_ms):
        yield Word(at_ms, beat.epoch, beat.state == ENDED)


def _stands(run: Run, stage: str) -> Iterator[Stands]:
    for at_ms, beat in _heartbeats(run, STANDBY_SERVICE, stage, failovers.ON_THE_WAY_MS):
        if beat.state != LEADING:
            yield Stands(at_ms, beat.replica, beat.checkpoint_bucket > 0)


def _is_just_back(run: Run, at_ms: int) -> bool:
    """Return whether the broker was away so long that no heartbeat could be received, and a moment
    ago (SB3). For OBSERVED_STEP_MS after its last own heartbeat a process still judges (SL5).
    """
    return any(
        fault.kind == "broker away"
        and fault.duration_ms >= _WAITS.silent_ms
        and fault.at_ms + OBSERVED_STEP_MS + failovers.ON_THE_WAY_MS
        <= at_ms
        < min(fault.at_ms + fault.duration_ms, run.options.heal_ms) + _WAITS.silent_ms
        for fault in run.faults
    )


def _has_wrong_clock(run: Run, target: str) -> bool:
    return any(fault.kind == "drift" and fault.target == target for fault in run.faults)


def _free(run: Run, stage: str, begin_ms: int, end_ms: int) -> list[str]:
    """Return the processes that stood by from ``begin_ms`` to ``end_ms`` without any fault."""
    found = []
    for number in range(next(s.replicas for s in run.options.stages if s.name == stage)):
        target = f"processing/{stage}.{number}"
        is_delayed = any(
            fault.target in (target, EVERYTHING)
            and fault.at_ms <= end_ms
            and (fault.kind in _DELAYING or fault.at_ms >= begin_ms - _WAITS.silent_ms)
            for fault in run.faults
        )
        if not is_delayed and _stood_by(run, target, begin_ms, end_ms):
            found.append(target)
    return found


def _stood_by(run: Run, target: str, begin_ms: int, end_ms: int) -> bool:
    """One process of ``target``, as a standby, from before ``begin_ms`` to after ``end_ms``."""
    standing: set[str] = set()
    for event in run.history.events:
        if event.at_ms > end_ms:
            break
        if not event.who.startswith(f"{target}#"):
            continue
        if event.what == "stands by" and event.at_ms < begin_ms:
            standing.add(event.who)
        elif event.what in ("end", "becomes the primary"):
            standing.discard(event.who)
    return bool(standing)
