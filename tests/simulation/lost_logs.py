"""Boundary logs whose records a foreign hand deletes: they are lost for one process that follows
logs, until a person restores them. What that process must do meanwhile, and must not.

All other processes are kinder treated than by the world: they find the records, also if they begin
meanwhile. A replica or a delivery that begins then could only wait for the person.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from anabranch.codec import control_records
from anabranch.protocol.control.consistency import LOG_UNREAD
from anabranch.protocol.control.records import Alarm
from anabranch.protocol.log.records import LogSnapshot
from simulation.faults import EVERYTHING, LOG_LOST, MANAGER, NO_LEADER, Fault
from simulation.history import Event
from simulation.hurrying import OPEN_AGAIN_MS
from simulation.log_states import log_states
from simulation.raw_logs import records

if TYPE_CHECKING:
    from simulation.world import Run

_SOON_MS: Final = 700
"""Time in which an undisturbed process has named a log that it has opened in vain, in ms."""


def check(run: Run) -> list[str]:
    """Check what processes did while records of a log were lost for them (UR1-UR4). Return what is
    wrong.
    """
    cuts = [each for each in run.history.events if each.what == "log cut"]
    alarms = list(_alarmed(run))
    wrong = [
        f"alarm about the log of {stream}, of which nothing is lost"
        for stream in alarms
        if stream not in [cut.facts[1] for cut in cuts]
    ]
    for cut in cuts:
        wrong += _check(run, cut, alarms)
    return wrong


def _check(run: Run, cut: Event, alarms: list[str]) -> Iterator[str]:
    target, stream, topic, first, until_ms = map(str, cut.facts)
    within = [each for each in run.history.events if cut.at_ms <= each.at_ms <= int(until_ms)]
    has_snapshot = any(
        isinstance(entry, LogSnapshot) and offset >= int(first) and at_ms <= int(until_ms)
        for at_ms, offset, entry, _, _ in log_states(run, stream)
    )
    back = next((each for each in within if each.what == "log is back"), None)
    openers = 0
    for who in {each.who for each in within if each.what in ("cut log met", "cut log opened")}:
        own = [each for each in within if each.who == who]
        opened_ms = [
            each.at_ms for each in own if each.what == "cut log opened" and each.facts[0] == topic
        ]
        met_ms = next(each.at_ms for each in own if each.what.startswith("cut log"))
        openers += bool(opened_ms)
        # The first time as it begins, once more at once, and one that is under way.
        times = 3 + (int(until_ms) - met_ms) // OPEN_AGAIN_MS
        if len(opened_ms) > times * _followers(run, target, stream):
            yield f"{who} has opened {topic} {len(opened_ms)} times since {met_ms} ms (UR2)"
        if has_snapshot:
            run.history.reached("cut log read from a snapshot")
            continue
        yield from (
            f"{who} deletes from {each.facts[0]} at {each.at_ms} ms, though it cannot read {topic}"
            " (UR1)"
            for each in own
            if each.what == "deletes"
            and str(each.facts[0]).startswith(topic.removesuffix("boundaries"))
            and each.at_ms > met_ms
        )
        if (
            back is None
            or back.who != who
            or not opened_ms
            or opened_ms[0] > int(until_ms) - _SOON_MS
            or target.startswith("auditor/")  # it follows a log only while a movement is audited
            or _is_disturbed(run.faults, target, int(until_ms))
        ):
            continue
        run.history.reached(f"cut log judged: {target.partition('/')[0]}")
        if topic not in str(back.facts[1]):
            yield f"{who} does not name {topic}, which it cannot read: {back.facts[1]!r} (UR3)"
        if target == MANAGER and stream not in alarms:
            yield f"no alarm of {who} about the log of {stream} (UR4)"
    if alarms.count(stream) > openers:
        yield f"{alarms.count(stream)} alarms about {stream}, which {openers} processes cannot read"


def _followers(run: Run, target: str, stream: str) -> int:
    """Return how many followers of a log a process may have: agents and auditors follow each stage
    with its inputs.
    """
    if target == MANAGER:
        return 1
    return 1 + sum(stream in run.pipeline.inputs(name) for name in run.pipeline.stages)


def _is_disturbed(faults: list[Fault], target: str, until_ms: int) -> bool:
    """Return whether another fault may keep the process ``target`` from its work."""
    return any(
        fault.kind != LOG_LOST
        and fault.at_ms < until_ms
        and (fault.target in (target, EVERYTHING) or fault.kind == NO_LEADER)
        for fault in faults
    )


def _alarmed(run: Run) -> Iterator[str]:
    """Yield the stream of each alarm about a log that cannot be read."""
    for _, _, record in records(run, run.pipeline.topic_names.alarms()):
        entry = control_records.decode(record.value)
        if isinstance(entry, Alarm) and entry.kind == LOG_UNREAD:
            yield entry.stream
