"""Bugs planted in what the services tell each other: heartbeats, trim points, fences, moves."""

from __future__ import annotations

from typing import Final

from simulation.planting import Mutant

CONTROL: Final = (
    Mutant(
        "former_life_is_heard",
        "runtime.heartbeats:_Lives.is_current",
        "if not topic or not",
        "if topic or not",
        "SK5",
        scenario="made anew",
        by=("trimming", "progress", "ends", "disk", "corrected"),
    ),
    Mutant(
        "trims_for_the_fastest",
        "protocol.control.trimming:Trimming._position",
        "min(positions",
        "max(positions",
        "rule 18, TM2",
        by=("ends", "trimming"),
    ),
    Mutant(
        "every_record_indexed",
        "consistency_manager.index_image:_Ranking.add",
        "if self.entries and self.entries[-1][1] == score:",
        "if self.entries and self.entries[-1][1] == score:\n        self.entries.append((member,"
        " score)); self.unsent = min(self.unsent + 1, len(self.entries)); return True"
        "\n    if False:",
        "the index does not grow while a stream stands still",
        ("silent",),
        by=("sizes",),
    ),
    Mutant(
        "trims_by_the_wall_clock",
        "protocol.control.trimming:Trimming.due",
        "monotonic_ms - seen_ms < TRIM_EVERY_MS",
        "wall_ms - vars(self).setdefault('dated', {}).setdefault((stream, seen_ms), wall_ms)"
        " < TRIM_EVERY_MS",
        "no wait depends on the wall clock",
        ("clock set",),
        by=("trimming",),
    ),
    Mutant(
        "trims_for_one_output",
        "consistency_manager.control:readers_of",
        "for name, output in pipeline.deliveries().items()",
        "for name, output in list(pipeline.deliveries().items())[:1]",
        "rule 18",
        scenario="two outputs",
        by=("ends", "trimming"),
    ),
    Mutant(
        "sharded_source_without_readers",
        "consistency_manager.control:readers_of",
        "pipeline.inputs(name)",
        "stage.reads",
        "TM7",
        ("shards",),
        by=("trimming",),
    ),
    Mutant(
        "neighbours_with_the_lock",
        "runtime.heartbeats:ReplicaControl.poll",
        "entries = self._reader.poll(wait_ms)",
        "with self._lock:\n            entries = self._reader.poll(wait_ms)",
        "no lock while the broker is waited for",
        by=("locks",),
    ),
    Mutant(
        "forged_word_believed",
        "protocol.control.records:Speaker.may_say",
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
        "protocol.control.records:Speaker.may_say",
        "return (entry.service, entry.name, entry.replica) in self.beats",
        "return True",
        "SK1",
        ("hostile",),
        by=("progress",),
    ),
    Mutant(
        "clocks_of_readers_decide",
        "protocol.control.trimming:Trimming._position",
        "if self._detector.silent_ms(reader, monotonic_ms) > TRIM_READER_MS:",
        "if (last := self._detector.last(reader)) is not None and max(b.written_ms for r in"
        " self._readers[stream] if (b := self._detector.last(r))) - last.written_ms >"
        " TRIM_READER_MS:",
        "TM2",
        ("clock",),
        by=("trimming",),
    ),
    Mutant(
        "a_reader_never_holds_less",
        "protocol.control.trimming:Trimming.heard",
        "self._detector.heard(beat, monotonic_ms)",
        "last = self._detector.last(Peer(beat.service, beat.name, beat.replica));"
        " last and last.checkpoint_bucket > beat.checkpoint_bucket"
        " or self._detector.heard(beat, monotonic_ms)",
        "TM5",
        ("disk",),
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
        "if one == two:",
        "if True:",
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
