"""Bugs planted in ingestion: what is read, what is late, when a bucket closes."""

from __future__ import annotations

from typing import Final

from simulation.planting import Mutant

_SOURCE: Final = "protocol.edge.ingestion:SourceMachine"

SOURCES: Final = (
    Mutant(
        "every_shard_reads_all",
        "protocol.log.shards:Shard.reads",
        "partition % self.count == self.index",
        "True",
        "MB1",
        ("shards",),
        by=("streams", "conservation"),
    ),
    Mutant(
        "one_shard_is_the_source",
        "codec.plan_offsets:offset_of",
        "if input_of(stream) == name",
        "if stream.removesuffix('.0') == name",
        "MB2, PN1",
        ("shards",),
    ),
    Mutant(
        "front_leads",
        "protocol.edge.source_pace:SourcePace.go_on",
        "min(highest_ms, self._would_be(now_ms, self._moves or [self._first]))",
        "highest_ms",
        "rule 13, SP2",
        scenario="ahead",
        by=("tentative", "forks"),
    ),
    Mutant(
        "positions_forgotten",
        f"{_SOURCE}.add",
        "offset_next=known.offset_next",
        "offset_next=offset_first",
        "rule 17",
        by=("ingestion",),
    ),
    Mutant(
        "positions_ahead",
        f"{_SOURCE}.positions",
        "p.offset_next, p.event_time_max_ms",
        "p.offset_next + 1, p.event_time_max_ms",
        "rule 17, IN6",
        by=("ingestion",),
    ),
    Mutant(
        "low_mark_forgotten",
        f"{_SOURCE}.add",
        "event_time_max_ms=known.event_time_max_ms",
        "event_time_max_ms=0",
        "rule 17, IN6",
        by=("ingestion",),
    ),
    Mutant(
        "fastest_partition_leads",
        f"{_SOURCE}._raise_low",
        "min(counted) if",
        "max(counted) if",
        "IN2",
        by=("ingestion",),
    ),
    Mutant(
        "out_of_orderness_ignored",
        f"{_SOURCE}._raise_low",
        "- self._rules.out_of_orderness_ms",
        "",
        "IN2",
        by=("ingestion",),
    ),
    Mutant(
        "silence_not_observed",
        f"{_SOURCE}._leave_out",
        "silent = observed is not None and observed[1] - observed[0] >= idle_ms",
        "silent = True",
        "IN3",
        ("cut", "cut_to", "cut_from", "pause"),
    ),
    Mutant(
        "found_partition_is_late",
        f"{_SOURCE}.limits",
        "ahead, never_late, stated_ms)",
        "ahead, {}, stated_ms)",
        "IN9",
        ("grown",),
        by=("ingestion",),
    ),
    Mutant(
        "dead_letters_not_flushed",
        "ingestion.service:IngestionService._name",
        "self._dead_letters.flush()",
        "pass",
        "3.1",
        ("bad records",),
        by=("ingestion",),
    ),
    Mutant(
        "silence_closes_what_has_no_name",
        "ingestion.service:IngestionService.step",
        """if self._machine.moves_unread(clock.monotonic_ms()):
            self._draft = self._decided()
            self._finish()""",
        "if self._machine.advance(clock.monotonic_ms()) > self._closed: self._accept() or"
        " self._boundaries.append(replace(self._decided(), prev=self._boundaries.tip()))",
        "IN12",
        ("silence in a backlog",),
        by=("ingestion", "conservation"),
    ),
    Mutant(
        "late_limit_off_by_one",
        "ingestion.batches:judge",
        "times <= limits.late_upto_ms",
        "times < limits.late_upto_ms",
        "BU1",
        ("late edges",),
        by=("ingestion",),
    ),
    Mutant(
        "left_out_for_good",
        f"{_SOURCE}._leave_out",
        "partition.left_out = silent",
        "partition.left_out = partition.left_out or silent",
        "IN3",
        ("idle",),
        by=("ingestion",),
    ),
    Mutant(
        "ahead_is_taken",
        "ingestion.batches:judge",
        "ahead = times > limits.ahead_above_ms",
        "ahead = times > times",
        "IN5",
        ("ahead",),
        by=("ingestion",),
    ),
    Mutant(
        "source_waits_too_little",
        f"{_SOURCE}._advance_in_silence",
        "until_ms - since_ms - self._rules.source_idle_ms",
        "until_ms - since_ms",
        "IN4",
        ("source idle",),
        by=("ingestion",),
    ),
)
