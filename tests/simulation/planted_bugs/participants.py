"""Bugs planted in what two participants agree on, and in where a sold stage runs. Seeds of the
family of ``market`` find them.
"""

from __future__ import annotations

from typing import Final

from simulation.dishonest import ASKS_TOO_MUCH, BLAMES, CLAIMS_TOO_MUCH, MAKES_NOTHING, NEVER_STARTS
from simulation.planting import FEDERATION, Mutant

PARTICIPANTS: Final = (
    Mutant(
        "forged_answer_believed",
        "agent.conversations:Conversations._believed",
        "if not is_signed(",
        "if False and not is_signed(",
        "FO2",
        ("forged answer",),
        scenario=FEDERATION,
        by=("answers",),
    ),
    Mutant(
        "price_above_the_bound",
        "protocol.federation.offers:_is_within",
        "contract.floor <= task.price <= offered.reserve_price",
        "contract.floor <= task.price",
        "FO2",
        (ASKS_TOO_MUCH,),
        scenario=FEDERATION,
        by=("prices",),
    ),
    Mutant(
        "failed_seller_keeps_the_stage",
        "protocol.federation.stage_moves:wanted_node",
        "(place is Place.AWAY and has_failed)",
        "(place is Place.COMING and has_failed)",
        "FZ2",
        (MAKES_NOTHING, "dead"),
        scenario=FEDERATION,
        by=("runners", "progress"),
    ),
    Mutant(
        "old_node_stops_at_the_move",
        "protocol.control.placement:goes_on",
        "return runs_here and",
        "return False and",
        "PC5",
        scenario=FEDERATION,
        by=("moves", "runners"),
    ),
    Mutant(
        "one_task_under_two_movements",
        "protocol.federation.movements:MovementLog._objection",
        'return "the task runs under another movement" if entry.task in self._runs else ""',
        'return ""',
        "FM3",
        ("double", "zombie", "pause"),
        scenario=FEDERATION,
        by=("ledger", "paid once", "run"),  # of a task that ends twice readers of the ledger die
    ),
    Mutant(
        "paid_for_what_others_made",
        "protocol.federation.workload:Workload.units",
        "own = self._own(buckets, node)",
        "own = list(buckets)",
        "FV4",
        scenario=FEDERATION,
        by=("payments", "measurements"),
    ),
    Mutant(
        "slot_paid_whole",
        "protocol.federation.metering:overlap_ms",
        "min(last, last if ended_ms is None else ended_ms) - max(first, started_ms)",
        "last - max(first, started_ms) if ended_ms is None or ended_ms > first else 0",
        "FB2",
        scenario=FEDERATION,
        by=("ledger", "payments"),
    ),
    Mutant(
        "claim_above_the_meter_paid",
        "protocol.federation.metering:counted",
        "min(reading.seller, reading.buyer) if is_dispute(reading, tolerance_ppm)",
        "reading.seller if is_dispute(reading, tolerance_ppm)",
        "FB3",
        (CLAIMS_TOO_MUCH,),
        scenario=FEDERATION,
        by=("ledger", "payments"),
    ),
    Mutant(
        "blame_without_proof",
        "protocol.federation.ledger:Ledger._penalise",
        "by_buyer and self.is_silent(movement, movement.ended_ms)",
        "by_buyer",
        "FI1",
        (BLAMES,),
        scenario=FEDERATION,
        by=("penalties",),
    ),
    Mutant(
        "late_measurement_is_silence",
        "protocol.federation.silence:Silence.is_silent",
        "> patience_ms(contract)",
        "> SILENT_SLOTS * contract.audit.meter_ms",
        "FI1",
        (BLAMES,),
        scenario=FEDERATION,
        by=("penalties",),
    ),
    Mutant(
        "ended_before_it_is_home",
        "protocol.federation.stage_moves:is_ready",
        "place is Place.COMING and runs_on == home",
        "place is Place.COMING",
        "FZ2",
        scenario=FEDERATION,
        by=("handovers",),
    ),
    Mutant(
        "started_before_it_runs",
        "protocol.federation.stage_moves:is_ready",
        "return runs_on == partner",
        "return True",
        "FZ2",
        scenario=FEDERATION,
        by=("handovers",),
    ),
    Mutant(
        "promise_never_lapses",
        "protocol.federation.agent:Agent._lapse",
        "Place.PROMISED, Place.LEAVING, Place.COMING",
        "Place.LEAVING, Place.COMING",
        "FA3",
        (NEVER_STARTS, "crash", "dead"),
        scenario=FEDERATION,
        by=("progress",),
    ),
)
