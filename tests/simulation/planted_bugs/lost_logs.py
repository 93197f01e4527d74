"""Bugs planted in what follows several logs, of which one loses its records."""

from __future__ import annotations

from typing import Final

from simulation.faults import LOG_LOST
from simulation.planting import FEDERATION, Mutant

LOST_LOGS: Final = (
    Mutant(
        "an_emptied_log_counts_as_read",
        "streams.boundary_reader:BoundaryReader.read_to_end",
        "self._check_start()",
        "pass",
        "UR1, UR4",
        (LOG_LOST,),
        by=("unread logs",),
    ),
    Mutant(
        "a_log_that_partners_write_may_lack_its_start",
        "agent.stage_logs:StageLogs._open_log",
        "needs_start=True",
        "needs_start=False",
        "UR1",
        (LOG_LOST,),
        scenario=FEDERATION,
        by=("unread logs", "progress", "ends"),
    ),
    Mutant(
        "a_lost_log_is_opened_in_each_round",
        "protocol.log.unread_logs:UnreadLogs.is_due",
        "now_ms >= self._opens_ms.get(name, now_ms)",
        "True",
        "UR2",
        (LOG_LOST,),
        by=("unread logs",),
    ),
    Mutant(
        "why_a_log_is_lost_is_not_said",
        "protocol.log.unread_logs:UnreadLogs.lost",
        "self.why[name] = why",
        "self.why[name] = ''",
        "UR3",
        (LOG_LOST,),
        by=("unread logs",),
    ),
    Mutant(
        "a_log_that_is_read_again_is_still_named",
        "protocol.log.unread_logs:UnreadLogs.read",
        "self.why.pop(name, None)",
        "pass",
        "UR3",
        (LOG_LOST,),
        by=("unread logs",),
    ),
    Mutant(
        "a_log_that_stays_lost_is_not_stuck",
        "protocol.log.unread_logs:UnreadLogs.lost",
        "self._stuck.add(name)",
        "pass",
        "UR4",
        (LOG_LOST,),
        by=("unread logs",),
    ),
    Mutant(
        "a_lost_log_stays_known",
        "protocol.log.unread_logs:UnreadLogs.lost",
        "self._known.discard(name)",
        "pass",
        "UR1",
        (LOG_LOST,),
        by=("unread logs",),
    ),
    Mutant(
        "a_lost_log_keeps_its_reader",
        "streams.followed_logs:FollowedLogs.poll",
        "self._followed[name] = self._prepare(name)",
        "pass",
        "what was derived from lost records goes with their reader",
        (LOG_LOST,),
        by=("ends", "unread logs"),
    ),
)
