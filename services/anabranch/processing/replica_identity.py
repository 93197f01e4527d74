"""Identity of one process of a replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline, Stage


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Stage, replica and node of one process, as the pipeline file names them."""

    label: str
    """Name of the process, ``STAGE.PROCESS``."""
    stage_name: str
    process: str
    """Id of the process. A passive stage has several processes for its one replica."""
    replica: str
    """Replica under whose id the process writes."""
    peers: tuple[str, ...]
    """Ids of the stage's other replicas."""
    stage: Stage
    reads: tuple[str, ...]
    """Streams that the stage reads."""
    log_topic: str
    """Topic of the stage's boundary log."""
    node: str
    """Node on which the process runs."""
    node_owner: str
    """Participant that runs the node."""
    may_run_elsewhere: bool
    """Whether another node may be running the replica: it was moved, or has run before."""
    has_place: bool
    """Whether the replica's place is this node."""

    @classmethod
    def of(
        cls, pipeline: Pipeline, label: str, node: str, *, may_run_elsewhere: bool, has_place: bool
    ) -> Self:
        """Return the identity of process ``label`` on ``node``."""
        stage_name, _, process = label.rpartition(".")
        writers = pipeline.stream_writers(stage_name)
        replica = process if process in writers else writers[0]
        return cls(
            label,
            stage_name,
            process,
            replica,
            tuple(other for other in writers if other != replica),
            pipeline.stages[stage_name],
            tuple(pipeline.inputs(stage_name)),
            pipeline.topic_names.boundaries(stage_name),
            node,
            pipeline.places().owner_of(node),
            may_run_elsewhere,
            has_place,
        )

    @property
    def is_passive(self) -> bool:
        """Whether processes stand by while one of them runs the stage."""
        return self.stage.ha == "passive"
