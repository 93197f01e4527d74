"""Bugs planted in what moves replicas by itself."""

from __future__ import annotations

from typing import Final

from simulation.planting import Mutant
from simulation.scenarios import SCALED, SPLIT

SCALING: Final = (
    Mutant(
        "silent_node_is_lost_at_once",
        "protocol.control.scaling:Scaler.node_state",
        "known.silence.ms >= limit_ms",
        "known.silence.ms >= limit_ms // 8",
        "SG7",
        scenario=SCALED,
        by=("scaling",),
    ),
    Mutant(
        "lost_node_is_waited_for",
        "protocol.control.scaling:Scaler._urgent",
        "duty in (Duty.RECOVER, Duty.TAKE_BACK)",
        "duty is Duty.TAKE_BACK",
        "what is lost is moved",
        ("dead",),
        scenario=SCALED,
        by=("progress",),
    ),
    Mutant(
        "one_report_is_overload",
        "protocol.control.scaling:Scaler.is_overloaded",
        "last_ms - first_ms < rules.for_ms",
        "last_ms < first_ms",
        "SG1",
        scenario=SCALED,
        by=("scaling",),
    ),
    Mutant(
        "first_batches_are_judged",
        "protocol.control.scaling:Scaler._observe",
        "if track is None or is_over or is_cold:",
        "if track is None or is_over:",
        "SG13",
        scenario=SCALED,
        by=("scaling",),
    ),
    Mutant(
        "rehearses_beside_a_replica",
        "protocol.control.idle_node:Idleness.next_step",
        "return IdleStep.END if rehearses else IdleStep.NOTHING",
        "return IdleStep.NOTHING",
        "RI4",
        scenario=SCALED,
        by=("rehearsals",),
    ),
    Mutant(
        "idle_node_rests",
        "protocol.control.idle_node:Idleness.next_step",
        "now_ms - self._since_ms >= IDLE_FOR_MS",
        "now_ms - self._since_ms >= 100 * IDLE_FOR_MS",
        "RI3",
        scenario=SCALED,
        by=("rehearsals",),
    ),
    Mutant(
        "moves_to_a_node_that_is_silent",
        "protocol.control.scaling:Scaler._targets",
        "if self._is_fresh(node, now_ms) and not self._places",
        "if not self._places",
        "SG6",
        scenario=SCALED,
        by=("scaling",),
    ),
    Mutant(
        "goes_back_before_it_has_begun",
        "protocol.control.scaling:Scaler._not_begun",
        "now_ms - since_ms >= BEGIN_MS_MAX",
        "now_ms >= since_ms",
        "SG5: it is given time to begin",
        scenario=SCALED,
        by=("scaling",),
    ),
    Mutant(
        "lost_shard_only_moves",
        "protocol.control.scaling:Scaler._may_be_parallel",
        "self._rules.is_parallel",
        "not self._rules.is_parallel",
        "SG15",
        ("dead",),
        scenario=SPLIT,
        by=("splits",),
    ),
    Mutant(
        "input_of_halves_is_trimmed",
        "processing.primary:Primary._unneeded_upto",
        "min(upto, needed_after(closed, horizon)) if self._keeps_for_halves else upto",
        "upto",
        "HV12",
        ("dead",),
        scenario=SPLIT,
        by=("trimming",),
    ),
)
