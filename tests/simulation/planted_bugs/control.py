"""Bugs planted in what the services tell each other: heartbeats, trim points, fences, moves."""

from __future__ import annotations

from typing import Final

from simulation.planting import Mutant

CONTROL: Final = (
    Mutant(
        "trims_for_the_fastest",
        "protocol.control.trimming:Trimming._position",
        "min(positions",
        "max(positions",
        "rule 18, TM2",
        by=("ends", "trimming"),
    ),
    Mutant(
        "neighbours_with_the_lock",
        "runtime.heartbeats:ReplicaControl.poll",
        "entries = self._reader.poll(wait_ms)",
        "with self._lock:\n            entries = self._reader.poll(wait_ms)",
        "no lock while the broker is waited for",
    ),
    Mutant(
        "forged_word_believed",
        "protocol.control.speaking:Speaker.may_say",
        "return self.trims and isinstance",
        "return isinstance",
        "SK3",
        ("hostile",),
        by=("ends",),
    ),
    Mutant(
        "forged_fence_believed",
        "protocol.control.fencing:is_proven",
        "own = votes.get(fence.replica)",
        "own = votes.get(fence.replica); return True",
        "EF2",
        ("hostile",),
        by=("ends",),
    ),
    Mutant(
        "votes_not_compared_with_the_log",
        "protocol.control.fencing:_is_contradicted",
        "return contents(parts) != (vote.rows, vote.digest)",
        "return False",
        "EF2",
        ("hostile",),
        by=("ends",),
    ),
    Mutant(
        "forged_beat_believed",
        "protocol.control.speaking:Speaker.may_say",
        "return (entry.service, entry.name, entry.replica) in self.beats",
        "return True",
        "SK1",
        ("hostile",),
        by=("progress",),
    ),
    Mutant(
        "clocks_of_readers_decide",
        "protocol.control.trimming:Trimming._position",
        "if self._detector.silent_ms(reader, now_ms) > TRIM_READER_MS:",
        "if (last := self._detector.last(reader)) is not None and now_ms - last.written_ms >"
        " TRIM_READER_MS:",
        "TM2",
        ("clock",),
        by=("trimming",),
    ),
    Mutant(
        "leaves_too_early",
        "protocol.control.placement:goes_on",
        "return runs_here and not is_passive and not is_removed",
        "return False",
        "PC5",
        scenario="moved",
        by=("moves",),
    ),
    Mutant(
        "replicas_not_compared",
        "protocol.control.consistency:StreamAudit._compare",
        "if one != two:",
        "if False:",
        "CN1",
        scenario="outvoted",
        by=("outvoted",),
    ),
    Mutant(
        "minority_believed",
        "protocol.control.fencing:outvoted",
        "vote != stated",
        "vote == stated",
        "EF2",
        scenario="outvoted",
        by=("outvoted",),
    ),
    Mutant(
        "fence_ignored",
        "runtime.fences:FenceWatch.hear",
        "if self._proven([entry]):",
        "if False:",
        "EF2",
        scenario="outvoted",
        by=("outvoted",),
    ),
    Mutant(
        "fenced_state_kept",
        "protocol.log.timeline:_is_fenced",
        "return (epoch_of",
        "return False and (epoch_of",
        "TI8",
        scenario="outvoted",
        by=("outvoted",),
    ),
)
