"""Bugs that were thought of, by where they are planted."""

from __future__ import annotations

from typing import Final

from simulation.planted_bugs.control import CONTROL
from simulation.planted_bugs.logs import LOGS
from simulation.planted_bugs.lost_logs import LOST_LOGS
from simulation.planted_bugs.outputs import OUTPUTS
from simulation.planted_bugs.participants import PARTICIPANTS
from simulation.planted_bugs.processes import PROCESSES
from simulation.planted_bugs.resales import RESALES
from simulation.planted_bugs.scaling import SCALING
from simulation.planted_bugs.sources import SOURCES
from simulation.planted_bugs.split_services import SPLIT_SERVICES
from simulation.planted_bugs.splits import SPLITS
from simulation.planted_bugs.stages import STAGES

MUTANTS: Final = (
    *LOGS,
    *LOST_LOGS,
    *SOURCES,
    *STAGES,
    *OUTPUTS,
    *CONTROL,
    *SCALING,
    *PARTICIPANTS,
    *RESALES,
    *PROCESSES,
    *SPLITS,
    *SPLIT_SERVICES,
)
