"""Bugs planted in what becomes of a stage that was sold on. Seeds of the family of ``market`` with
a third participant find them.
"""

from __future__ import annotations

from typing import Final

from simulation.dishonest import NAMES_THE_OWNER, WEST_COMPUTES_WRONG
from simulation.planting import FEDERATION, RESALE, Mutant

RESALES: Final = (
    Mutant(
        "resale_outlives_its_source",
        "protocol.federation.agent:Agent.recorded",
        "if event is TaskEvent.GONE and holding.went is not None:",
        "if event is TaskEvent.LAPSED and holding.went is not None:",
        "FA6",
        (RESALE,),
        scenario=FEDERATION,
        by=("resales",),
    ),
    Mutant(
        "owners_node_is_paid_for",
        "protocol.federation.stage_moves:nodes_of",
        "(node for node in movement.nodes if node in allowed)",
        "movement.nodes",
        "FZ4",
        (NAMES_THE_OWNER,),
        scenario=FEDERATION,
        by=("measurements", "payments"),
    ),
    Mutant(
        "anothers_movement_is_withdrawn",
        "protocol.federation.movements:MovementLog.add",
        "if isinstance(entry, Withdrawn) and not is_own:",
        "if False:",
        "FM2",
        (NAMES_THE_OWNER,),
        scenario=FEDERATION,
        by=("ends",),
    ),
    Mutant(
        "sold_on_is_not_metered",
        "protocol.federation.slot_figures:slot_figure",
        "nodes_of(movement, contract.seller, allowed)",
        "nodes_of(movement, contract.seller, ())",
        "FZ4",
        (RESALE,),
        scenario=FEDERATION,
        by=("measurements",),
    ),
    Mutant(
        "sold_on_is_not_audited",
        "auditor.service:AuditorService._sold",
        "seller, allowed)",
        "seller, ())",
        "FZ4",
        (WEST_COMPUTES_WRONG,),
        scenario=FEDERATION,
        by=("audits",),
    ),
)
