"""Bugs planted in the split of a shard. Seeds of ``split_world`` find them."""

from __future__ import annotations

from typing import Final

from simulation.planting import SPLITS as SCENARIO
from simulation.planting import Mutant

_MODULE: Final = "protocol.stage.splitting"


def _bug(name: str, where: str, old: str, new: str, breaks: str, *by: str) -> Mutant:
    return Mutant(name, where, old, new, breaks, scenario=SCENARIO, by=by)


SPLITS: Final = (
    _bug(
        "withdrawn_after_it_was_confirmed",
        f"{_MODULE}:Splits.apply",
        "phase = AFTER.get((now.phase, record.step))",
        "phase = AFTER.get((Phase.WANTED if record.attempt >= 0 else now.phase, record.step))",
        "HV1",
        "ends",
        "outcome",
        "results",
    ),
    _bug(
        "answer_to_an_earlier_attempt",
        f"{_MODULE}:Splits.apply",
        "if record.attempt != now.number:",
        "if record.attempt < 0:",
        "HV1",
        "ends",
        "outcome",
    ),
    _bug(
        "late_scaler_begins_an_attempt",
        f"{_MODULE}:Splits.apply",
        "record.is_scalers_wish and record.attempt != now.number",
        "record.attempt > now.number",
        "HV1",
        "outcome",
    ),
    _bug(
        "later_attempt_goes_on_from_an_earlier_one",
        "protocol.log.boundary_log:LogState._begin",
        "if entry.attempt > self.attempt:",
        "if entry.attempt > self.attempt and self.attempt < 0:",
        "BL21",
        "outcome",
    ),
    _bug(
        "ends_when_it_is_wanted",
        f"{_MODULE}:SplitDriver.answer",
        "self.proof.is_enough and",
        "",
        "HV4",
        "proof",
        "outcome",
    ),
    _bug(
        "half_stops_at_the_end",
        f"{_MODULE}:half_runs",
        "attempt.phase in (Phase.WANTED, Phase.CONFIRMED)",
        "attempt.phase is Phase.WANTED",
        "HV3",
        "results",
    ),
    _bug(
        "rows_are_counted_and_not_compared",
        f"{_MODULE}:Proof.compare",
        "if mine != together:",
        "if mine[0] != together[0]:",
        "HV4",
        "proof",
        "outcome",
    ),
    _bug(
        "one_half_is_compared_with_the_shard",
        f"{_MODULE}:Proof.compare",
        "sum(rows for rows, _ in theirs)",
        "max(rows for rows, _ in theirs)",
        "HV4",
        "outcome",
        "proof",
    ),
    _bug(
        "few_buckets_prove_it",
        f"{_MODULE}:Proof.is_enough",
        "self.compared >= PROVEN_BUCKETS and self.with_rows > 0",
        "self.compared >= 1",
        "HV4",
        "proof",
    ),
    _bug(
        "void_buckets_are_compared",
        f"{_MODULE}:Proof.compare",
        "first = 1 + max(self.upto, *(each.forgotten for each in logs))",
        "first = 1 + max(self._upto, *(each.forgotten for each in logs))",
        "HV5",
        "proof",
        "outcome",
    ),
    _bug(
        "half_is_left_behind",
        f"{_MODULE}:SplitDriver._is_within_reach",
        "half.upto + REACH_BUCKETS >= shard.upto",
        "half.upto > 0",
        "HV4",
        "proof",
    ),
    _bug(
        "no_deadline",
        f"{_MODULE}:SplitDriver.answer",
        "now_ms - self._progress_ms >= STALLED_MS",
        "now_ms < 0",
        "HV7",
        "outcome",
    ),
    _bug(
        "split_goes_on_for_ever",
        f"{_MODULE}:SplitDriver.answer",
        "now_ms - self._seen_ms >= self._split_ms_max",
        "now_ms < 0",
        "HV7",
        "outcome",
    ),
    _bug(
        "results_that_lack_input_are_not_void",
        f"{_MODULE}:void_upto",
        "return late + horizon if late else 0",
        "return late",
        "HV5",
        "outcome",
        "proof",
    ),
    _bug(
        "end_takes_back_what_was_read",
        "protocol.log.boundary_log:LogState._boundary",
        "past=max(entry.past, self._upto)",
        "past=entry.past",
        "BL20",
        "results",
        "run",
        "ends",
    ),
    _bug(
        "records_after_the_end_count",
        "protocol.log.boundary_log:LogState._boundary",
        "if self._end is not None:",
        "if self._end is not None and entry.heirs:",
        "BL20",
        "results",
        "run",
    ),
    _bug(
        "old_epoch_ends_the_shard",
        "protocol.log.boundary_log:LogState.apply",
        "if not writer.is_of_epoch(entry):",
        "if not writer.is_of_epoch(entry) and not getattr(entry, 'heirs', 0):",
        "BL1",
        "ends",
        "results",
    ),
    _bug(
        "half_of_a_half_is_read_too_early",
        f"{_MODULE}:ShardLogState.begins_after",
        "max(self._parent.closed_upto, self._parent.begins_after)",
        "self._parent.begins_after",
        "HV6",
        "results",
    ),
    _bug(
        "shard_is_read_beyond_its_end",
        f"{_MODULE}:ShardLogState._own_range",
        "min(last, self.closed_upto) if self.heirs else last",
        "last",
        "HV6",
        "results",
    ),
    _bug(
        "halves_overlap",
        "protocol.stage.intervals:Interval.has",
        "value >> self.shift == self.prefix",
        "value >> self.shift >= self.prefix",
        "IV1",
        "outcome",
        "proof",
    ),
)
