"""Seeds of the scenario ``scaled``, in which the manager moves a replica by itself: the pool, and
the size of its node.

The node of the replica has one core and that of the pool four, so a busy replica is relieved there.
"""

from __future__ import annotations

from typing import Final

from anabranch.pipeline.model import Scaling
from simulation.options import ON_NEW, Options
from simulation.scenarios import SCALED, SPLIT

ABOVE_PERMILLE: Final = 250
FOR_MS: Final = 4_000
REST_MS: Final = 1_500
NODE_LOST_MS: Final = 2_500
"""In place of the real one: a run is short."""
BEGIN_MS_MAX: Final = 9_000
"""In place of the real one; longer than a standby waits for one that is silent."""
NODE_START_MS: Final = 20_000
"""In place of the real one."""
IDLE_FOR_MS: Final = 700
"""In place of the real one."""
LATE_MS: Final = 1_500
"""A scaler reads records at most so late, but where its own heartbeats are as late."""


def section(options: Options) -> Scaling | None:
    """Return the section of the file; None where nothing scales."""
    if not options.is_scaled:
        return None
    return Scaling(
        pool=list(options.new_nodes.values()),
        above_permille=ABOVE_PERMILLE,
        for_ms=FOR_MS,
        rest_ms=REST_MS,
        parallel=2 if options.recovers_in_parallel else 1,
    )


def nodes(options: Options) -> dict[str, list[str]]:
    """Return the nodes that the file names: those of the pool."""
    has_pool = options.scenario in (SCALED, SPLIT)
    return {node: [] for node in options.new_nodes.values()} if has_pool else {}


def participant(options: Options, stage: str) -> str:
    """Return the participant of a stage. Those that are not moved are of another one, as their
    processes here are no nodes that could report or take part.
    """
    is_other = options.scenario in (SCALED, SPLIT) and stage != options.moved.partition(".")[0]
    return "south" if is_other else "north"


def cores(options: Options, key: str) -> int:
    """Return the cores of the engine of a service."""
    if options.scenario == SCALED:
        return 4 if key.endswith(ON_NEW) else 1
    name = key.removeprefix("processing/").partition(".")[0]
    return next((stage.cores for stage in options.stages if stage.name == name), 2)
