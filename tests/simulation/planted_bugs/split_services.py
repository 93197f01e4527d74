"""Bugs planted in what the services do around the split of a shard. Seeds of the scenario ``split``
find them: most were there once, and were found by reading.
"""

from __future__ import annotations

from typing import Final

from simulation.planting import Mutant
from simulation.scenarios import SPLIT


def _bug(name: str, where: str, old: str, new: str, breaks: str, *by: str) -> Mutant:
    return Mutant(name, where, old, new, breaks, scenario=SPLIT, by=by)


SPLIT_SERVICES: Final = (
    _bug(
        "end_by_another_replica_is_a_replacement",
        "processing.stage_replica:StageReplica.step",
        "if not primary.stream_has_ended:",
        "if primary.has_begun:",
        "all replicas of a shard rest once one has ended it",
        "ends",
    ),
    _bug(
        "end_closes_buckets_of_its_writer",
        "protocol.control.consistency:StreamAudit.seen",
        "isinstance(entry, BoundaryRecord) and entry.heirs",
        "isinstance(entry, BoundaryRecord) and entry.heirs < 0",
        "CN1",
        "alarms",
    ),
    _bug(
        "differing_halves_raise_no_alarm",
        "consistency_manager.moves:MovesFollower._stepped",
        "if step.bucket >= 0:",
        "if step.bucket < -1:",
        "a function that is not key by key is found and alarmed",
        "splits",
    ),
    _bug(
        "withdrawn_half_holds_its_input",
        "protocol.control.trimming:Trimming._position",
        "TRIM_HALF_MS if is_tried else TRIM_READER_MS",
        "TRIM_READER_MS",
        "TM3",
        "trimming",
    ),
    _bug(
        "stands_by_for_a_shard_that_was_split",
        "processing.stage_replica:StageReplica._run_standby",
        "if self.split.was_carried_out():",
        "if self._ended:",
        "all replicas of a shard rest once one has ended it",
        "progress",
    ),
)
