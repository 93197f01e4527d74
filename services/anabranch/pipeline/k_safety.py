"""The word ``k_safety`` of a pipeline file: the claim that any one loss is survived, as far as the
file itself decides it (``protocol.control.k_safety``). The store of checkpoints and the topics'
copies are no part of the file; ``anabranch check`` looks at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.control.k_safety import ProtectedStage, Restart, gaps, unsafe_nodes

if TYPE_CHECKING:
    from anabranch.pipeline.document import Document
    from anabranch.pipeline.model import HaMode, Pipeline

K_SAFETY_MAX: Final = 1
"""Largest ``k_safety``: no rule and no test is about two losses at once."""

_RESTART: Final[dict[HaMode, Restart]] = {
    "active": Restart.CHECKPOINT,
    "passive": Restart.CHECKPOINT,
    "upstream_backup": Restart.INPUT,
    "amnesia": Restart.NOTHING,
}


def protected_stages(pipeline: Pipeline) -> list[ProtectedStage]:
    """Return the properties of each stage that decide what a loss does to it, as the file places
    its processes.
    """
    places = {label: node for node, labels in pipeline.nodes().items() for label in labels}
    return [
        ProtectedStage(
            stage.name,
            stage.participant,
            tuple(places[label] for label in stage.placed().labels()),
            _RESTART[stage.ha],
        )
        for stage in pipeline.stages.values()
    ]


def pool_of(pipeline: Pipeline) -> list[str]:
    """Return the nodes that take over the replicas of a lost one."""
    return [] if pipeline.scaling is None else pipeline.scaling.pool


def check_k_safety(document: Document, pipeline: Pipeline) -> None:
    """Report each stage that a loss stops or leaves incomplete, where the file claims
    ``k_safety: 1``.
    """
    if pipeline.k_safety < 1:
        return
    stages = protected_stages(pipeline)
    for found in (*unsafe_nodes(stages, pool_of(pipeline)), *gaps(stages)):
        document.mistake(("stages", found.subject), found.text)
