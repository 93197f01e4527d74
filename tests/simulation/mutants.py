"""Bugs that were thought of: each must be found. ``python -m simulation.mutants [NAME...]`` says
after how many seeds it was.

A mutant that nothing finds says that a rule is not exercised, or that no checker looks: it is named
in the output, not hidden. It counts as found only by the checker that is meant for it
(``Mutant.by``): that something else went wrong, too, shows nothing.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from typing import Final

from simulation import faults, options, scenarios
from simulation.explore import once
from simulation.options import Options
from simulation.planting import Mutant, planted
from simulation.world import keys

SEEDS_MAX: Final = 1_000
ALWAYS: Final = 10
FAULTS_MIN: Final = 4
MANY_RECORDS: Final = 30
"""Where a boundary log gets a snapshot so seldom, nobody begins at a log snapshot."""

_LOG_STATE: Final = "protocol.log.boundary_log:LogState"
_WRITER: Final = "runtime.boundary_writer:BoundaryWriter"
_SOURCE: Final = "protocol.edge.ingestion:SourceMachine"
_DELIVERY: Final = "protocol.edge.delivery:CorrectedDelivery"
_REPLICA: Final = "protocol.stage.replica:Replica"

_OVER: Final = ("crash", "double", "race", "zombie")
"""Somebody starts again while others go on."""

_BRANCH: Final = ("silent", "silent all")

MUTANTS: Final = (
    Mutant(
        "epoch_not_checked",
        f"{_LOG_STATE}.apply",
        "if entry.epoch != writer.epoch:",
        "if False:",
        "rule 1",
        ("double", "zombie"),
    ),
    Mutant(
        "second_record",
        f"{_LOG_STATE}._boundary",
        "if entry.id.batch <= writer.timelines.get(entry.id.timeline, -1):",
        "if False:",
        "rule 4, BL2",
        ("write late",),
    ),
    Mutant(
        "off_chain_accepted",
        f"{_LOG_STATE}._continue",
        'return "off_chain"',
        'return ""',
        "rule 4, BL3",
        ("hostile",),
    ),
    Mutant(
        "rewind_rejected",
        f"{_LOG_STATE}._continue",
        "elif record.prev in writer.path:",
        "elif False:",
        "rule 4",
        by=("progress", "ends"),
    ),
    Mutant(
        "keep_pending",
        f"{_LOG_STATE}._continue",
        "writer.pending.drop(frozenset(writer.path[end:]))",
        "pass",
        "rule 4, BL3",
        scenario="far rows",
    ),
    Mutant(
        "parts_dropped_on_rewind",
        f"{_LOG_STATE}._continue",
        "writer.pending.drop(frozenset(writer.path[end:]))",
        "writer.pending.drop(frozenset(i for i, _ in writer.pending.items() if i not in"
        " writer.path[:end]))",
        "rule 4, BL13",
        scenario="far rows",
        by=("streams", "corrected", "alarms"),
    ),
    Mutant(
        "record_too_large",
        "protocol.log.record_pieces:pieces",
        "if len(record.parts) <= PARTS_PER_RECORD_MAX:",
        "if True:",
        "RP1",
        scenario="far rows",
        by=("ends",),
    ),
    Mutant(
        "piece_closes_too_much",
        "protocol.log.record_pieces:pieces",
        "parts[0].bucket - 1",
        "parts[0].bucket",
        "RP2",
        scenario="far rows",
    ),
    Mutant(
        "pieces_not_chained",
        "protocol.log.record_pieces:pieces",
        "base, prev = None, ident",
        "base = None",
        "RP3",
        scenario="far rows",
        by=("streams", "corrected", "ends"),
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
        "depth_ignored",
        "pipeline.shape:_deeper",
        "hops - shallowest for",
        "0 for",
        "IL1",
        scenario="deep join",
        by=("forks", "progress"),
    ),
    Mutant(
        "empty_buckets_alone",
        "protocol.stage.planner:_end",
        "        buckets_max = 1\n",
        "        return position.bucket + 1, True\n",
        "PN3",
        scenario="quiet gap",
        by=("alarms",),
    ),
    Mutant(
        "timers_not_looked_at",
        "protocol.stage.planner:_end",
        "if traits.has_timers:",
        "if False:",
        "PN3, PL3",
        scenario="quiet gap",
        by=("ends",),
    ),
    Mutant(
        "forget_pending",
        f"{_LOG_STATE}._take",
        "writer.pending.add(record.id, part)",
        "writer.pending.add(record.id, part) if part.bucket <= record.closed else None",
        "rule 5",
    ),
    Mutant(
        "closes_one_more",
        f"{_LOG_STATE}._take",
        "writer.closed = record.closed\n",
        "writer.closed = record.closed + 1\n",
        "rule 5",
    ),
    Mutant(
        "ack_is_enough",
        f"{_WRITER}.append",
        'self._wait(settled, f"record {record.id}", resend=record)',
        "pass",
        "rule 2",
    ),
    Mutant(
        "never_sent_again",
        f"{_WRITER}._wait",
        "if resend is not None:\n                self._send(resend)",
        "if resend is not None:\n                pass",
        "rule 2",
        by=("ends", "progress"),
    ),
    Mutant(
        "token_not_compared",
        f"{_WRITER}._seen",
        "entry == self._started",
        "isinstance(entry, EpochStarted) and entry.replica == self._replica",
        "rule 1",
        ("twins",),
    ),
    Mutant(
        "given_up_not_named",
        "protocol.log.given_up:named",
        "return replace(record, given_up=tuple(lacks))",
        "return record",
        "GU3",
        scenario="given up",
        by=("given up",),
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
        "min(counted) - self",
        "max(counted) - self",
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
        "closes_the_open_bucket",
        "protocol.log.buckets:closed_by",
        "- 1",
        "",
        "BU3",
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
        "no_read_back",
        f"{_DELIVERY}.there",
        "return True",
        "return False",
        "rule 19, DE1",
        by=("corrected",),
    ),
    Mutant(
        "last_run_believed",
        f"{_DELIVERY}._go_on",
        "= begin_of(progress), end_of",
        "= end_of(progress), end_of",
        "DE2",
        by=("corrected",),
    ),
    Mutant(
        "second_recovery_blind",
        f"{_DELIVERY}.progress",
        "self._read_from if self.comparing else self._ends",
        "self._ends",
        "DE4",
        ("commit lost", "commit applied", "commit torn"),
        by=("corrected",),
    ),
    Mutant(
        "rejected_not_read_back",
        "delivery.service:DeliveryService._fail_over",
        "foreign += read_back.ids(log, self._rejected_topic, read_from[-1:], rejected_stops, take,"
        " self._wait_for)",
        "pass",
        "DE8",
        ("commit applied",),
        by=("corrected",),
    ),
    Mutant(
        "neighbours_rejected",
        f"{_DELIVERY}.rejected",
        "if len(sizes) > 1:",
        "if False:",
        "DE8",
        by=("corrected",),
    ),
    Mutant(
        "delivery_not_fenced",
        "delivery.service:DeliveryService._fail_over",
        "transactional_writer(self._transactional_id)",
        "transactional_writer(self._transactional_id + self._context.entropy.token())",
        "rule 19",
        ("double", "zombie"),
        by=("corrected",),
    ),
    Mutant(
        "outcome_believed",
        "delivery.service:DeliveryService.step",
        "self._give_up_writer()",
        "self._delivery.advance(run, {})",
        "rule 19",
        by=("corrected",),
    ),
    Mutant(
        "stale_log_at_failover",
        "delivery.service:DeliveryService._fail_over",
        "self._following().read_to_end()",
        "pass",
        "rule 19, DE7",
        by=("corrected",),
    ),
    Mutant(
        "closes_one_batch_late",
        "processing.replica:ReplicaRunner.finish",
        "batch, start.after.bucket, parts",
        "batch, start.before.bucket, parts",
        "rule 5",
        by=("progress", "delays"),
    ),
    Mutant(
        "takes_incomplete_input",
        "protocol.stage.planner:next_plan",
        "complete = min(",
        "complete = max(",
        "PN1, PN2",
    ),
    Mutant(
        "skips_a_bucket",
        "protocol.stage.planner:next_plan",
        "log_state.stable(position.bucket + 1, last, count_max)",
        "log_state.stable(position.bucket + 2, last, count_max) if last > position.bucket + 1"
        " else []",
        "PN2",
    ),
    Mutant(
        "timeline_not_written",
        "protocol.log.timeline:fork_steps",
        "yield Write(timeline)",
        "pass",
        "rule 11",
        ("crash", "power"),
    ),
    Mutant(
        "timeline_id_kept",
        "protocol.stage.replica:RecordChain.__init__",
        "timeline.name",
        '"kept"',
        "rule 3",
        ("power",),
    ),
    Mutant(
        "tip_forgotten",
        "protocol.log.timeline:Timeline.copied",
        "tip = self.tip(last_commit)",
        "tip = None",
        "rule 9",
    ),
    Mutant(
        "copy_not_checked",
        "protocol.log.timeline:failover_steps",
        "if (yield FindNewest()) == found:",
        "if True:",
        "rule 8",
        ("fork zombie",),
    ),
    Mutant(
        "base_not_appended",
        "protocol.log.timeline:failover_steps",
        "if timeline.base is not None:",
        "if False:",
        "rule 6",
        ("disk",),
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
        "trims_unsynced",
        "processing.replica:ReplicaRunner.sync",
        "self._disk.sync(stable_query)",
        "pass",
        "rule 18",
        ("power",),
    ),
    Mutant(
        "neighbours_with_the_lock",
        "runtime.heartbeats:ReplicaControl.poll",
        "entries = self._reader.poll(wait_ms)",
        "with self._lock:\n            entries = self._reader.poll(wait_ms)",
        "no lock while the broker is waited for",
    ),
    Mutant(
        "delete_all_others",
        "protocol.log.timeline:obsolete",
        "< (epoch, number)",
        "!= (epoch, number)",
        "rule 8, TI2",
        ("race",),
        by=("disk",),
    ),
    Mutant(
        "forks_with_the_lock",
        "processing.replica:ReplicaRunner.advance",
        "self._fork(query, position)",
        "with self.lock:\n                self._fork(query, position)",
        "no lock while the disk is waited for",
    ),
    Mutant(
        "branch_stays_stable",
        f"{_REPLICA}.forked",
        "self.branch, self.stable_query = self.stable_query, timeline_name(self.epoch,"
        " self.branches)",
        "self.branch = timeline_name(self.epoch, self.branches)",
        "rule 11, RE1",
    ),
    Mutant(
        "stable_from_the_branch",
        "protocol.stage.planner:next_tentative_plan",
        "return replace(plan, kind=BoundaryKind.TENTATIVE, missing=",
        "return replace(plan, missing=",
        "rule 12, RE1",
        ("silent",),
    ),
    Mutant(
        "dropped_at_a_hole",
        f"{_REPLICA}._caught_up",
        "if self._availability.overdue(max(complete, position.bucket) + 1, situation.now_ms +"
        " self._settled_ms):",
        "if False:",
        "rule 15, RE5",
        by=("forks",),
    ),
    Mutant(
        "branch_never_dropped",
        f"{_REPLICA}._caught_up",
        "if self.branch is None:",
        "if True:",
        "rule 15, RE5",
        by=("progress", "leaks"),
    ),
    Mutant(
        "forks_again_at_once",
        f"{_REPLICA}._fork_due",
        "return position.bucket > self._forked_at and ",
        "return True or ",
        "rule 14, RE4",
        by=("forks",),
    ),
    Mutant(
        "successor_not_started",
        "processing.replica:ReplicaRunner._release_successor",
        "self._orders.append(self._successor)",
        "pass",
        "rule 11",
        by=("progress",),
    ),
    Mutant(
        "missing_not_remembered",
        "protocol.stage.replica:RecordChain.record",
        "{*self._missing, *missing}",
        "{*missing}",
        "PT7",
        by=("tentative",),
    ),
    Mutant(
        "waits_too_long",
        "protocol.stage.availability:waits_of",
        "max_delay_ms - SLACK_MS - height * hop_ms",
        "2 * max_delay_ms",
        "docs/concepts.md",
        by=("delays",),
    ),
    Mutant(
        "later_buckets_wait_again",
        "protocol.stage.availability:Availability._later_wait_ms",
        "if self.policy is Policy.DELAY",
        "if True",
        "docs/concepts.md",
        by=("delays",),
    ),
    Mutant(
        "stable_while_behind",
        f"{_REPLICA}.state_at",
        "ReplicaState.STABLE if self._is_in_time(now_ms) else ReplicaState.FAILURE",
        "ReplicaState.STABLE",
        "RE10",
        by=("states",),
    ),
    Mutant(
        "correction_never_begins",
        "protocol.stage.correction_order:CorrectionGate.open",
        "return ",
        "return False and ",
        "CO2",
        by=("progress",),
    ),
    Mutant(
        "undo_loses_the_rest",
        "protocol.edge.live_delivery:LiveDelivery._again",
        "return tuple(reversed(kept)), left",
        "return (), left",
        "rule 20, LD4",
        by=("live",),
    ),
    Mutant(
        "undo_again",
        "protocol.edge.live_delivery:LiveDelivery.plan",
        "after = replace(after, undone=True)",
        "pass",
        "rule 20, LD3",
        by=("live",),
    ),
    Mutant(
        "undo_names_the_new",
        "delivery.live_writing:KindSequence.write",
        "Kind.UNDO, run.before",
        "Kind.UNDO, run.after",
        "rule 20, LD3",
        by=("live",),
    ),
    Mutant(
        "rec_done_too_early",
        "protocol.edge.live_delivery:LiveDelivery._is_over",
        "0 < at.shown <= at.stable",
        "at.shown > 0 and at.undone",
        "rule 20, LD5",
        by=("live",),
    ),
    Mutant(
        "one_failure_shown_as_two",
        "protocol.edge.live_delivery:LiveDelivery._is_over",
        "there.settled and ",
        "",
        "rule 20, LD5",
        ("silent",),
        by=("live",),
    ),
    Mutant(
        "old_branch_shown_at_once",
        "protocol.edge.live_hold:Hold.left_ms",
        "self._long_ms if is_over and not failing else LIVE_HOLD_MS",
        "LIVE_HOLD_MS",
        "LH2, LD5",
        ("silent",),
        by=("live",),
    ),
    Mutant(
        "live_not_fenced",
        "delivery.live:LiveTopic._fail_over",
        "transactional_writer(self._transactional_id)",
        "transactional_writer(self._transactional_id + self._context.entropy.token())",
        "rule 19",
        ("double", "zombie"),
        by=("live",),
    ),
    Mutant(
        "live_outcome_believed",
        "delivery.live:LiveTopic.step",
        "self._delay(error, _RETRY_MS if self._unknown_before else 0)",
        "self._machine.advance(run)",
        "rule 19",
        ("commit lost",),
        by=("live",),
    ),
    Mutant(
        "shown_twice",
        "delivery.live:LiveTopic._available",
        "max(log_state.upto, now.stable, now.shown)",
        "max(log_state.upto, now.stable)",
        "rule 20, LD2",
        by=("live",),
    ),
    Mutant(
        "timers_by_boundaries_only",
        f"{_LOG_STATE}._boundary",
        "self._past = max(self._past, entry.past)",
        "pass",
        "rule 13",
        ("silent",),
        by=("delays",),
    ),
    Mutant(
        "forged_word_believed",
        "protocol.control.speaking:Speaker.may_say",
        "return self.is_manager and isinstance",
        "return isinstance",
        "SK3",
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
        "older_branch_wins",
        "protocol.log.tentative:Branches.rejection",
        'return "older_branch"',
        'return ""',
        "rule 16, TE1",
        ("hostile",),
    ),
    Mutant(
        "pending_not_inherited",
        "protocol.stage.replica:RecordChain.record",
        "parts=(*pending, *parts)",
        "parts=parts",
        "rule 11",
    ),
    Mutant(
        "blocks_of_any_attempt",
        "runtime.block_reader:BlockReader._take",
        "index.get((partition, head.attempt, head.bucket))",
        "next((i for (p, _, b), i in index.items() if (p, b) == (partition, head.bucket)), None)",
        "rule 7",
        ("zombie", "double", "twins", "race"),
    ),
    Mutant(
        "second_fork_unwaited",
        f"{_REPLICA}._fork_due",
        " and self._availability.still()",
        "",
        "rule 14, RE4",
        by=("forks",),
    ),
    Mutant(
        "failed_branch_again",
        f"{_REPLICA}._fork_due",
        "if position.bucket <= self._abandoned_at and not again:",
        "if False:",
        "RE7",
        ("branch fails",),
        by=("forks",),
    ),
    Mutant(
        "failed_branch_stays",
        "processing.replica:ReplicaRunner.failed",
        "self._abandon(cause)",
        "pass",
        "RE7",
        ("branch fails",),
        by=("progress", "leaks"),
    ),
    Mutant(
        "digest_not_compared",
        "runtime.block_reader:BlockReader._checked",
        "if part.digest != total:",
        "if False:",
        "rule 7",
        ("blocks spoilt",),
        scenario="blocks deleted",
        by=("corrected",),
    ),
    Mutant(
        "peer_not_asked",
        "delivery.bucket_reader:BucketReader.stable",
        "others = [r for r in self._writers if r != replica]",
        "others: list[str] = []",
        "rule 5",
        ("blocks deleted",),
        by=("progress", "ends"),
    ),
    Mutant(
        "gate_always_open",
        "protocol.stage.correction_order:CorrectionGate.open",
        "return self.why in OPEN",
        "return True",
        "CO1",
        ("silent",),
        by=("correction order",),
    ),
    Mutant(
        "never_forgets",
        f"{_LOG_STATE}.forget",
        "self._stable.pop_upto(upto)",
        "()",
        "BL13",
        by=("leaks",),
    ),
    Mutant(
        "branch_directory_stays",
        "processing.replica:ReplicaRunner.stopped",
        "self._disk.remove(query)",
        "pass",
        "rule 8",
        by=("leaks",),
    ),
    Mutant(
        "no_room_for_what_is_missing",
        "protocol.stage.replica:Replica.reads_on",
        "upto <= stable_at.bucket",
        "upto < stable_at.bucket",
        "RE8",
    ),
    Mutant(
        "snapshot_forgets_all",
        "protocol.log.log_snapshots:forgettable",
        "min(trim_point, log_state.upto)",
        "log_state.upto",
        "SN3",
        _OVER,
    ),
    Mutant(
        "trims_beyond_the_snapshot",
        "protocol.log.log_snapshots:LogSnapshots.cut",
        "return below[-1] if below else 0",
        "return self.newest + 1 if below else 0",
        "SN1",
    ),
    Mutant(
        "snapshot_without_pending",
        "protocol.log.boundary_log:_restored",
        "pending=OpenParts(r.pending)",
        "pending=OpenParts()",
        "BL8",
        _OVER,
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
        "nothing_cleaned",
        "protocol.log.timeline:failover_steps",
        "yield Clean(epoch)",
        "pass",
        "rule 8",
        ("crash",),
        by=("leaks",),
    ),
    Mutant(
        "healthy_rows_left_out",
        "protocol.stage.planner:_best",
        "log_state.stable(first, min(last, log_state.upto), count_max) if first <= log_state.upto"
        " else []",
        "[]",
        "PT6",
        _BRANCH,
        by=("tentative",),
    ),
    Mutant(
        "missing_is_empty",
        "protocol.stage.planner:next_tentative_plan",
        "missing=tuple(sorted(missing)[:MISSING_MAX])",
        "missing=()",
        "PT7",
        _BRANCH,
        by=("tentative",),
    ),
    Mutant(
        "dead_letters_not_flushed",
        "ingestion.service:IngestionService._take",
        "self._dead_letters.flush()",
        "pass",
        "3.1",
        ("bad records",),
        by=("ingestion",),
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
    Mutant(
        "unsynced_named",
        "processing.replica:ReplicaRunner.sync",
        "max(self.synced_bucket, position.bucket)",
        "max(self.synced_bucket, position.bucket + 1)",
        "rule 18",
        by=("disk",),
    ),
    Mutant(
        "wrong_key_partition",
        "delivery.partitioning:Partitioner._learn",
        "partition_of(key, BEGINNING, self._partitions)",
        "(partition_of(key, BEGINNING, self._partitions) + 1) % self._partitions",
        "DE6",
        by=("corrected",),
    ),
    Mutant(
        "wrong_event_time_header",
        "delivery.rendering:Renderer.render",
        "(EVENT_TIME_HEADER, t)",
        '(EVENT_TIME_HEADER, t + b"0")',
        "4.1",
        by=("corrected",),
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
        "begins_beside_who_runs",
        "protocol.stage.standby:StandbyWatch.must_wait",
        'self._runs_on not in ("", self._node)',
        "False",
        "SB8",
        scenario="moved",
        by=("moves", "progress"),
    ),
    Mutant(
        "takes_over_though_behind",
        "protocol.stage.standby:StandbyWatch.due",
        "bucket + self._behind_max >= closed",
        "closed >= 0",
        "SB8",
        scenario="moved",
        by=("moves", "progress"),
    ),
    Mutant(
        "needless_exit",
        "delivery.service:DeliveryService._beat",
        "self._heartbeats.send(beat)",
        "self._heartbeats.send(beat)\n    if self._context.clock.monotonic_ms() % 1_000 == 999:\n  "
        '      raise Unavailable("for no reason")',
        "ends",
        by=("ends",),
    ),
)


FOUND_BY: Final[dict[str, int]] = {
    "forged_word_believed": 720085,
    "forged_beat_believed": 720094,
    "rejected_not_read_back": 720304,
    "neighbours_rejected": 720069,
    "off_chain_accepted": 53,
    "token_not_compared": 168,
    "silence_not_observed": 1410,
    "copy_not_checked": 197,
    "delete_all_others": 148,
    "dropped_at_a_hole": 25,
    "forks_again_at_once": 14,
    "later_buckets_wait_again": 108,
    "shown_twice": 28,
    "pending_not_inherited": 43,
    "blocks_of_any_attempt": 10,
    "gate_always_open": 49,
    "never_forgets": 10,
    "branch_directory_stays": 10,
    "nothing_cleaned": 54,
    "second_recovery_blind": 7,
    "older_branch_wins": 191,
    "second_fork_unwaited": 25,
    "failed_branch_again": 179,
    "failed_branch_stays": 9,
    "peer_not_asked": 63,
    "snapshot_forgets_all": 68,
    "trims_beyond_the_snapshot": 6,
    "snapshot_without_pending": 6,
    "no_room_for_what_is_missing": 141,
    "one_failure_shown_as_two": 3137,
    "waits_too_long": 34,
    "old_branch_shown_at_once": 2539,
    "clocks_of_readers_decide": 1484,
    "late_limit_off_by_one": 577,
    "digest_not_compared": 1253,
    "never_sent_again": 4,
    "keep_pending": 119,
    "trims_for_the_fastest": 73,
    "record_too_large": 960,
    "pieces_not_chained": 960,
    "piece_closes_too_much": 5812,
    "ahead_is_taken": 12,
    "source_waits_too_little": 31,
}
"""Seeds that found a mutant once; only hints, since what a seed does changes with the code."""


def _near(chosen: Options) -> set[str]:
    """What a seed is near to beside its faults."""
    is_left_out = chosen.idle_ms is not None and chosen.source_partitions > 1
    traits = {
        "grown": chosen.grown_ms is not None,
        "idle": is_left_out,
        "late edges": is_left_out and chosen.edge_percent > 0,
        "source idle": chosen.source_idle_ms is not None,
        "ahead": chosen.max_ahead_ms is not None,
        "bad records": chosen.hostile_percent > 0,
    }
    return {name for name, is_there in traits.items() if is_there}


def _may_find(mutant: Mutant, seed: int) -> bool:
    """Whether a seed comes near the place of the bug at all. The first ten are always tried:
    many bugs need no fault.
    """
    if mutant.scenario:
        return scenarios.of(seed) == mutant.scenario
    chosen = options.draw(seed)
    if seed < ALWAYS:
        return True
    drawn = faults.draw(chosen, keys(chosen))
    kinds = {fault.kind for fault in drawn} | _near(chosen)
    if mutant.needs and not kinds.intersection(mutant.needs):
        return False
    module = mutant.where.partition(":")[0]
    if module in ("protocol.edge.live_delivery", "delivery.live", "delivery.live_writing"):
        return chosen.is_live and not chosen.is_upsert and bool(drawn)
    if module in (
        "protocol.stage.replica",
        "protocol.log.tentative",
        "protocol.stage.availability",
        "protocol.stage.correction_order",
    ):
        return chosen.is_live and bool(drawn)
    if mutant.needs is _OVER or module == "protocol.log.log_snapshots":
        return chosen.has_manager and chosen.snapshot_every < MANY_RECORDS
    if module in ("protocol.log.timeline", "processing.replica", "protocol.control.trimming"):
        return any(fault.target.startswith("processing/") for fault in drawn)
    return bool(mutant.needs) or len(drawn) >= FAULTS_MIN


def hunt(mutant: Mutant, seeds_max: int) -> tuple[int | None, str]:
    """(a seed that finds it, what was wrong); None: nothing did.

    The seed in ``FOUND_BY`` is tried first, then ``seeds_max`` seeds of those that may. What fails
    without the mutant too does not count.
    """
    may_find = itertools.islice(
        (seed for seed in itertools.count() if _may_find(mutant, seed)), seeds_max
    )
    for seed in itertools.chain(
        [FOUND_BY[mutant.name]] if mutant.name in FOUND_BY else [], may_find
    ):
        with planted(mutant):
            outcome = once(seed)
        told = [line for line in outcome.wrong if line.split(":")[0] in mutant.by]
        if told and not once(seed).wrong:
            return seed, told[0]
    return None, ""


def _job(task: tuple[int, int, int]) -> tuple[str, int | None, str, float]:
    number, seeds_max, job = task
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[job % len(processors)]})
    begun, mutant = time.perf_counter(), MUTANTS[number]
    seed, wrong = hunt(mutant, seeds_max)
    return mutant.name, seed, wrong, time.perf_counter() - begun


def main() -> int:
    """The command line; 1 if a mutant survives."""
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    chosen = [
        number
        for number, mutant in enumerate(MUTANTS)
        if not given.names or mutant.name in given.names
    ]
    tasks = [(number, given.seeds, number % given.jobs) for number in chosen]
    killed = 0
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for name, seed, wrong, seconds in pool.imap(_job, tasks):
            killed += seed is not None
            found = (
                f"SURVIVES {given.seeds} seeds" if seed is None else f"seed {seed}: {wrong[:150]}"
            )
            print(f"{name:28s} {seconds:6.1f} s  {found}", flush=True)
    print(f"{killed} of {len(chosen)} killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
