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
from collections.abc import Callable, Mapping
from typing import Final

from simulation import drawing, faults, market, market_faults, scenarios, splits
from simulation.explore import once
from simulation.options import Options
from simulation.planted_bugs import MUTANTS
from simulation.planting import (
    BY_CHECKPOINT,
    FEDERATION,
    HOSTILE_STORE,
    OVER,
    RESALE,
    SPLITS,
    Mutant,
    MutantDoesNotRunError,
    check_runs,
    planted,
)
from simulation.world import keys

SEEDS_MAX: Final = 1_000
ALWAYS: Final = 10
FAULTS_MIN: Final = 4
MANY_RECORDS: Final = 30
"""Interval of log snapshots, in records, from which on no process begins at one."""


FOUND_BY: Final[dict[str, int]] = {
    "epoch_alone_counts_as_made": 184,
    "begins_late_although_there_are_results": 477,
    "moves_to_a_node_that_is_silent": 1485,
    "ends_while_an_input_is_corrected": 602,
    "waits_for_what_nobody_has": 109,
    "base_without_what_is_open": 611,
    "unheard_reader_is_not_waited_for": 1967,
    "rejected_records_are_indexed": 52,
    "tips_of_a_lost_index_are_not_restored": 180,
    "an_emptied_log_counts_as_read": 1251,
    "a_log_that_partners_write_may_lack_its_start": 10,
    "a_lost_log_is_opened_in_each_round": 16,
    "why_a_log_is_lost_is_not_said": 16,
    "a_log_that_is_read_again_is_still_named": 16,
    "a_log_that_stays_lost_is_not_stuck": 16,
    "a_lost_log_stays_known": 16,
    "a_lost_log_keeps_its_reader": 16,
    "withdrawn_half_holds_its_input": 565,
    "stands_by_for_a_shard_that_was_split": 717,
    "fenced_for_each_bucket": 30,
    "branches_share_a_number": 74,
    "what_is_gone_is_left_out": 42,
    "open_parts_go_with_closed_ones": 5,
    "one_missing_stream_is_named": 5719,
    "columns_of_a_part_of_the_log": 966,
    "columns_of_a_version_that_is_over": 2768,
    "notice_among_the_results": 46,
    "notices_again_after_a_failover": 3224,
    "notice_counts_as_a_live_result": 46,
    "neighbours_of_a_large_row_are_rejected": 46,
    "late_stage_does_not_fork": 899,
    "a_little_work_is_late": 899,
    "branch_keeps_all": 899,
    "successor_keeps_its_share": 899,
    "overload_never_ends": 899,
    "correction_never_has_its_turn": 197,
    "correction_runs_beside_a_late_branch": 3076,
    "branch_that_fails_is_tried_at_once": 2455,
    "share_is_not_written_with_the_batch": 62,
    "rows_of_another_stage_are_kept": 899,
    "what_is_left_out_is_not_said": 899,
    "what_the_input_lacks_is_not_claimed": 185,
    "state_lacks_what_its_last_batch_lacked": 48,
    "shares_of_a_chain_are_not_multiplied": 48,
    "numbers_with_a_fraction_are_compared": 7,
    "no_answer_is_an_empty_partition": 84,
    "retention_ends_the_reader": 24,
    "held_while_the_store_is_away": 14,
    "held_before_it_is_stored": 11,
    "nothing_is_stored": 14,
    "nothing_is_stored_for_a_move": 9327,
    "who_shares_the_directory_is_waited_for": 9327,
    "move_is_withdrawn_at_once": 9327,
    "copy_of_an_earlier_stay_counts": 9327,
    "move_goes_on_for_ever": 9604,
    "silent_node_is_lost_at_once": 157,
    "lost_node_is_waited_for": 157,
    "one_report_is_overload": 157,
    "first_batches_are_judged": 665,
    "rehearses_beside_a_replica": 309,
    "idle_node_rests": 297,
    "goes_back_before_it_has_begun": 157,
    "former_life_is_heard": 29,
    "checkpoint_of_an_earlier_life_counts": 755,
    "progress_of_an_earlier_life_counts": 77,
    "live_progress_of_an_earlier_life_counts": 77,
    "keys_of_an_earlier_life_stay": 18,
    "ids_of_an_earlier_life_count": 18,
    "skips_what_is_there": 635,
    "ids_compared_behind_the_records": 1077,
    "epochs_of_former_lives_count": 1816,
    "arrivals_run_back_with_a_new_leader": 212,
    "a_leader_in_front_closes_the_future": 1249,
    "what_has_arrived_lies_in_the_future": 1249,
    "another_topic_of_the_same_name": 56,
    "given_up_in_the_former_topic": 56,
    "reads_on_behind_what_is_missing": 635,
    "sync_ends_the_node": 1,
    "needs_no_sync": 45,
    "old_node_takes_back_what_moves": 2704,
    "dead_letter_of_the_neighbour": 12,
    "dead_letter_without_key": 12,
    "dead_letter_without_headers": 12,
    "senders_headers_pass_for_ours": 12,
    "every_dead_letter_is_late": 12,
    "reads_on_though_readers_are_behind": 87,
    "kept_blocks_not_counted": 87,
    "reads_again_too_soon": 2978,
    "pushed_back_for_good": 12,
    "aborted_progress_believed": 39,
    "forged_fence_believed": 22,
    "votes_not_compared_with_the_log": 22,
    "minority_believed": 30,
    "fenced_state_kept": 1852,
    "copies_less_than_is_claimed": 1047,
    "rest_is_given_up_before_the_lower_claim_is_heard": 514,
    "late_heartbeat_raises_a_lowered_claim": 4080,
    "claims_a_checkpoint_that_is_cut_off": 1508,
    "stops_what_is_about_to_begin": 88,
    "fence_ignored": 129,
    "failure_begins_unread": 242,
    "patient_output_shows_at_once": 137,
    "patient_output_waits_beyond_its_bound": 158,
    "stage_waits_as_its_patient_output": 137,
    "trims_for_one_output": 200,
    "trims_by_the_wall_clock": 106,
    "outputs_fence_each_other": 23,
    "backup_begins_at_the_end": 264,
    "backup_trimmed": 1153,
    "partial_results_kept": 1020,
    "gives_up_too_much": 376,
    "late_start_awaits_deleted_blocks": 172,
    "plan_of_deleted_blocks_is_run_again": 3110264,
    "late_start_forgotten": 3934,
    "late_start_is_partial": 233,
    "gap_not_told": 82,
    "older_epochs_are_heard": 9356,
    "pause_counts_as_silence": 198,
    "goes_first_without_a_checkpoint": 2102,
    "no_turns": 554,
    "recomputes_too_late": 1795,
    "checkpoint_too_late": 42,
    "asks_nobody": 42,
    "asks_for_no_input": 1433,
    "missing_not_remembered": 32,
    "given_up_is_shown": 300010942,
    "last_run_believed": 7,
    "rec_done_too_early": 4508,
    "end_not_written": 0,
    "first_end_is_enough": 17,
    "the_dead_are_waited_for": 99,
    "older_end_ends_the_newer": 22,
    "branch_outlives_its_process": 102,
    "end_written_at_the_first_correction": 0,
    "forged_word_believed": 720085,
    "forged_beat_believed": 45,
    "rejected_not_read_back": 419,
    "neighbours_rejected": 45,
    "off_chain_accepted": 53,
    "token_not_compared": 5,
    "silence_not_observed": 139,
    "one_shard_is_the_source": 5,
    "copy_not_checked": 469,
    "timeline_not_written": 605,
    "tip_forgotten": 175,
    "delete_all_others": 118,
    "dropped_at_a_hole": 25,
    "forks_again_at_once": 0,
    "later_buckets_wait_again": 1600,
    "ended_branch_begins_a_failure": 10163,
    "shown_twice": 28,
    "pending_not_inherited": 43,
    "log_is_read_with_the_lock": 9,
    "removes_with_the_lock": 0,
    "gate_always_open": 32,
    "never_forgets": 10,
    "branch_directory_stays": 10,
    "nothing_cleaned": 1,
    "second_recovery_blind": 184,
    "second_fork_unwaited": 25,
    "failed_branch_again": 179,
    "failed_branch_stays": 9,
    "what_may_pass_is_for_good": 493,
    "peer_not_asked": 63,
    "snapshot_forgets_all": 412,
    "trims_beyond_the_snapshot": 311,
    "snapshot_without_pending": 197,
    "snapshot_without_ends": 338,
    "no_room_for_what_is_missing": 141,
    "one_failure_shown_as_two": 25,
    "waits_too_long": 21,
    "clocks_of_readers_decide": 1484,
    "late_limit_off_by_one": 142,
    "digest_not_compared": 1253,
    "never_sent_again": 4,
    "keep_pending": 119,
    "trims_for_the_fastest": 5,
    "record_too_large": 960,
    "pieces_not_chained": 269,
    "piece_closes_too_much": 5812,
    "only_a_branch_that_sheds_goes_first": 6000000100,
    "reader_of_an_overloaded_stage_waits_from_its_records": 6410001184,
    "stable_query_takes_all_before_the_next_try": 4678,
    "ahead_is_taken": 28,
    "source_waits_too_little": 18,
    "counts_before_it_has_caught_up": 4288,
    "old_version_goes_on": 50,
    "goes_on_from_another_functions_state": 313,
    "partial_windows_of_a_stage_that_begins_anew": 447,
    "parts_dropped_on_rewind": 712,
    "timers_by_boundaries_only": 47,
    "front_leads": 311,
    "found_partition_is_late": 19,
    "left_out_for_good": 22,
    "idle_forgotten_at_restart": 16681,
    "depth_ignored": 41,
    "empty_buckets_alone": 54,
    "timers_not_looked_at": 407,
    "closes_one_batch_late": 95,
    "begins_beside_who_runs": 574,
    "moves_though_behind": 2,
    "fails_over_from_who_is_heard": 198,
    "silence_though_cut_off": 1778,
    "copy_not_synced": 198,
    "copies_share_a_name": 1112,
    "copies_any": 360,
    "goes_on_from_torn_files": 94,
    "delivery_not_fenced": 194,
    "outcome_believed": 57,
    "live_not_fenced": 22,
    "live_outcome_believed": 113,
    "replicas_not_compared": 30,
    "made_up_epochs_are_heard": 8,
    "partners_claim_trims": 0,
    "forged_answer_believed": 1,
    "price_above_the_bound": 23,
    "any_stored_checkpoint_is_believed": 11,
    "owners_checkpoint_is_waited_for_for_ever": 0,
    "partner_restores_what_nobody_announced": 765,
    "failed_seller_keeps_the_stage": 214,
    "old_node_stops_at_the_move": 0,
    "one_task_under_two_movements": 2,
    "paid_for_what_others_made": 0,
    "slot_paid_whole": 2,
    "claim_above_the_meter_paid": 25,
    "blame_without_proof": 54,
    "late_measurement_is_silence": 54,
    "ended_before_it_is_home": 0,
    "started_before_it_runs": 0,
    "promise_never_lapses": 56,
    "audit_counts_rows_alone": 114,
    "audit_without_the_horizon": 4,
    "convicted_twice": 55,
    "convicted_only_for_one_reason": 115,
    "findings_change_nothing": 61,
    "auditor_picks_buckets": 6,
    "convict_sells_on": 114,
    "waits_by_a_clock_that_goes_back": 152,
    "resale_outlives_its_source": 27,
    "owners_node_is_paid_for": 30064,
    "sold_on_is_not_metered": 30028,
    "sold_on_is_not_audited": 30016,
    "no_end_is_written": 1247,
    "an_old_shard_ignores_its_end": 1116,
    "where_an_output_begins_is_not_recorded": 2546,
    "a_run_ends_within_a_later_bucket": 7000499,
    "an_heir_begins_at_the_farthest": 962,
    "an_heir_forgets_what_it_inherits": 1972,
    "rejected_results_of_earlier_shards_are_not_read": 1507,
    "withdrawn_after_it_was_confirmed": 10,
    "ends_when_it_is_wanted": 3,
    "half_stops_at_the_end": 3,
    "rows_are_counted_and_not_compared": 5,
    "one_half_is_compared_with_the_shard": 0,
    "few_buckets_prove_it": 8,
    "late_scaler_begins_an_attempt": 22,
    "later_attempt_goes_on_from_an_earlier_one": 5,
    "answer_to_an_earlier_attempt": 135,
    "void_buckets_are_compared": 0,
    "half_is_left_behind": 1,
    "no_deadline": 2,
    "split_goes_on_for_ever": 1,
    "end_takes_back_what_was_read": 72,
    "records_after_the_end_count": 3,
    "old_epoch_ends_the_shard": 13,
    "halves_overlap": 0,
    "results_that_lack_input_are_not_void": 0,
    "half_of_a_half_is_read_too_early": 3,
    "shard_is_read_beyond_its_end": 8,
    "end_by_another_replica_is_a_replacement": 315,
    "end_closes_buckets_of_its_writer": 315,
    "differing_halves_raise_no_alarm": 165,
}
"""Seeds that found a mutant once; only hints, since what a seed does changes with the code."""


def _near(chosen: Options) -> set[str]:
    """Return what a seed comes near to, besides its faults."""
    is_left_out = chosen.idle_ms is not None and chosen.source_partitions > 1
    traits = {
        "grown": chosen.grown_ms is not None,
        "shards": chosen.shards > 1,
        "output shards": chosen.output_shards > 1,
        "idle": is_left_out,
        "late edges": is_left_out and chosen.edge_percent > 0,
        "silence in a backlog": chosen.backlog_records is not None
        and (is_left_out or chosen.source_idle_ms is not None),
        "source idle": chosen.source_idle_ms is not None,
        "ahead": chosen.max_ahead_ms is not None,
        "more columns": any(stage.has_more_columns for stage in chosen.stages),
        "store": chosen.has_store,
        "earlier life": chosen.has_earlier_life,
        "earlier upsert view": chosen.has_earlier_life and chosen.is_live and chosen.is_upsert,
        "bad records": chosen.hostile_percent > 0,
        "bounded output": chosen.output_bytes_max is not None,
        "costly buckets": any(stage.bucket_percent for stage in chosen.stages),
    }
    return {name for name, is_there in traits.items() if is_there}


def _may_find_in_market(mutant: Mutant, seed: int) -> bool:
    """Return whether a seed of several participants may find ``mutant``."""
    chosen = market.draw(seed)
    drawn = market_faults.draw(chosen, keys(chosen))
    traits = {chosen.dishonest, *(fault.kind for fault in drawn)}
    traits |= {chosen.lie} | ({RESALE} if chosen.is_resale else set())
    traits |= {BY_CHECKPOINT} if chosen.has_store else set()
    traits |= {HOSTILE_STORE} if chosen.store_is_hostile else set()
    return not mutant.needs or bool(traits.intersection(mutant.needs))


def _may_find(mutant: Mutant, seed: int) -> bool:
    """Whether a seed comes near the place of the bug at all. The first ten are always tried:
    many bugs need no fault.
    """
    if mutant.scenario and scenarios.of(seed) != mutant.scenario:
        return False
    chosen = drawing.draw(seed)
    drawn = faults.draw(chosen, keys(chosen))
    kinds = {fault.kind for fault in drawn} | _near(chosen)
    if drawn and all(fault.kind.startswith("silent") for fault in drawn):
        kinds.add("only silence")
    if {"bounded output", "commit applied"} <= kinds:
        kinds.add("commit of a bounded output applied")
    has_needed = not mutant.needs or bool(kinds.intersection(mutant.needs))
    if mutant.scenario or not has_needed:
        return has_needed or (seed < ALWAYS and not mutant.scenario)
    # what a seed's options say decides by itself, whichever module the bug is in
    if seed < ALWAYS or _near(chosen).intersection(mutant.needs):
        return True
    module = mutant.where.partition(":")[0]
    if module in (
        "protocol.edge.live_choice",
        "protocol.edge.live_delivery",
        "delivery.live",
        "delivery.live_writing",
    ):
        return chosen.is_live and not chosen.is_upsert and bool(drawn)
    if module in (
        "protocol.stage.replica",
        "protocol.log.tentative",
        "protocol.stage.availability",
        "protocol.stage.scheduling",
    ):
        return chosen.is_live and bool(drawn)
    if mutant.needs is OVER or module == "protocol.log.log_snapshots":
        return chosen.has_manager and chosen.snapshot_every < MANY_RECORDS
    if module in ("protocol.log.timeline", "processing.replica", "protocol.control.trimming"):
        return any(fault.target.startswith("processing/") for fault in drawn)
    return bool(mutant.needs) or len(drawn) >= FAULTS_MIN


_Judged = tuple[list[str], BaseException | None]


def _once_by(draw: Callable[[int], Options]) -> Callable[[int], _Judged]:
    """Return a function that runs a seed whose options ``draw`` gives: what is wrong, and the error
    that ended the run early.
    """

    def run(seed: int) -> _Judged:
        outcome = once(seed, chosen=draw(seed))
        return outcome.wrong, outcome.error

    return run


_FAMILIES: Final[Mapping[str, tuple[Callable[[Mutant, int], bool], Callable[[int], _Judged]]]] = {
    FEDERATION: (_may_find_in_market, _once_by(market.draw)),
    SPLITS: (lambda _, seed: seed >= 0, lambda seed: splits.once(seed)[:2]),
}
"""For each family of seeds with options of its own, which seeds may find a mutant, and how one is
run.
"""


def hunt(mutant: Mutant, seeds_max: int) -> tuple[int | None, str]:
    """Return a seed that finds the mutant and what was wrong; None if none does.

    The seed in ``FOUND_BY`` is tried first, then ``seeds_max`` seeds of those that may. What fails
    without the mutant too does not count.

    Raises:
        MutantDoesNotRunError: its text failed of itself.
    """
    comes_near, run = _FAMILIES.get(mutant.scenario, (_may_find, _once_by(drawing.draw)))
    may_find = itertools.islice(
        (seed for seed in itertools.count() if comes_near(mutant, seed)), seeds_max
    )
    for seed in itertools.chain(
        [FOUND_BY[mutant.name]] if mutant.name in FOUND_BY else [], may_find
    ):
        with planted(mutant):
            found, error = run(seed)
        check_runs(mutant, error)
        wrong = [line for line in found if line.split(":")[0] in mutant.by]
        if wrong and not run(seed)[0]:
            return seed, wrong[0]
    return None, ""


def _job(task: tuple[int, int, int]) -> tuple[str, int | None, str, float]:
    number, seeds_max, job = task
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[job % len(processors)]})
    begun, mutant = time.perf_counter(), MUTANTS[number]
    try:
        seed, wrong = hunt(mutant, seeds_max)
    except MutantDoesNotRunError as error:
        seed, wrong = None, str(error)
    return mutant.name, seed, wrong, time.perf_counter() - begun


def main() -> int:
    """Run the command line. Return 1 if a mutant survives."""
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
            if seed is None:
                found = wrong or f"SURVIVES {given.seeds} seeds"
            else:
                found = f"seed {seed}: {wrong[:150]}"
            print(f"{name:28s} {seconds:6.1f} s  {found}", flush=True)
    print(f"{killed} of {len(chosen)} killed")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
