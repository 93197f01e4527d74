"""Proof that a pipeline survives any one loss: that of a process or its node, of a disk, or of a
broker.

Theory of operation. Hwang et al. (ICDE 2005) call a system k-safe if no k failures at once lose
anything. Here the word is stronger, and only for k = 1: the loss of any one process, disk or broker
neither loses a result nor stops results until a person replaces what was lost. A loss is for good.
Each rule goes through all losses of its kind, and names whatever one of them would lose or stop,
with what to change. A pipeline for which no rule names anything is safe.

A node takes along every replica that it runs. A stage continues if another node runs a replica or a
standby of it, or if a node of a pool takes over what was lost (``protocol.control.scaling``). The
processes of sources and outputs, and the consistency manager, have nothing on a disk: whoever runs
them starts them again, anywhere, and they continue from Kafka. So no rule is about them.

A disk takes along the checkpoints on it. The state directory counts as one disk, since replicas
and standbys find each other's checkpoints there. Trimming deletes input that every reader has
stored, so without another copy a stage could not make its state again.

A broker takes along one copy of each topic that it has. An acknowledged record must be on a second
broker, and the brokers that are left must be enough to acknowledge the next one.

Invariants:
    KS1 for every node: each stage with a process there has one on another node, or its participant
        has a node of the pool that is not lost.
    KS2 for every disk: each stage that continues from a checkpoint has a second one on another
        disk, and no stage continues after a gap.
    KS3 for every broker: each topic acknowledges a record only when two copies have it, does so
        with one copy less, and elects no leader that lacks an acknowledged record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Final

COPIES_MIN: Final = 3
"""Least number of copies of a topic of which any one may be lost: two must have a record before it
counts, also when one is away.
"""

IN_SYNC_MIN: Final = 2
"""Least number of copies that must have a record before it counts: with one, the loss of its broker
loses the record.
"""


class Restart(StrEnum):
    """Source of a stage's state after a restart without its disk."""

    CHECKPOINT = auto()
    """Another copy of its checkpoint; input below is deleted. Only such a stage may have a second
    process beside the first.
    """
    INPUT = auto()
    """Input, of which enough is kept."""
    NOTHING = auto()
    """No state survives: the stage continues after a gap in its results."""


@dataclass(frozen=True, slots=True)
class ProtectedStage:
    """Properties of a stage that decide what a loss does to it."""

    name: str
    participant: str
    nodes: tuple[str, ...]
    """Node of each of its processes: replicas, or a primary and its standbys."""

    restart: Restart


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """Settings of a topic that decide what the loss of a broker does to it."""

    name: str
    copies: int
    """Least number of copies of a partition."""

    in_sync_min: int
    """Number of copies that must have a record before it is acknowledged."""

    elects_unclean: bool = False
    """Whether a copy that lacks acknowledged records may become the leader."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Loss that the pipeline does not survive."""

    subject: str
    """Stage or topic that the loss stops or leaves incomplete; empty: several, which ``text``
    names.
    """

    text: str
    """Loss, consequence and remedy, for people."""


def unsafe_nodes(stages: Sequence[ProtectedStage], pool: Sequence[str]) -> Iterator[Shortfall]:
    """Yield what the loss of each node would stop (KS1). ``pool``: nodes that take over the
    replicas of a lost node, named by their participant.
    """
    for node in sorted({node for stage in stages for node in stage.nodes}):
        for stage in stages:
            takes_over = any(
                spare != node and spare.partition(".")[0] == stage.participant for spare in pool
            )
            if set(stage.nodes) != {node} or takes_over:
                continue
            remedy = f"a pool: scaling: {{nodes: [{stage.participant}.7]}}"
            if stage.restart is Restart.CHECKPOINT:
                remedy = f"it replicas: 2, or the pipeline {remedy}"
            else:
                remedy = f"the pipeline {remedy}, or the stage ha: active and replicas: 2"
            yield Shortfall(
                stage.name,
                f"k_safety is 1, but without node {node} stage {stage.name} stops; give {remedy}",
            )


def gaps(stages: Iterable[ProtectedStage]) -> Iterator[Shortfall]:
    """Yield the stages that continue after a gap when they lose their disk (KS2)."""
    for stage in stages:
        if stage.restart is Restart.NOTHING:
            yield Shortfall(
                stage.name,
                f"k_safety is 1, but without its disk stage {stage.name} leaves out results, as ha"
                " is amnesia; use ha: upstream_backup, which needs no more than the same"
                " state_horizon",
            )


def unsafe_disk(stages: Iterable[ProtectedStage], *, has_store: bool) -> Iterator[Shortfall]:
    """Yield what the loss of the disk of the state directory would stop (KS2); at most one.
    ``has_store``: whether checkpoints are stored on another disk, too.
    """
    alone = [stage.name for stage in stages if stage.restart is Restart.CHECKPOINT]
    if alone and not has_store:
        yield Shortfall(
            "",
            "without the disk of the state directory, whose checkpoints are nowhere else, these"
            f" stages wait for input that is deleted: {', '.join(alone)}; set"
            " ANABRANCH_CHECKPOINT_STORE to a store on another disk, or use ha: upstream_backup",
        )


def unsafe_brokers(topics: Iterable[CopiedTopic]) -> Iterator[Shortfall]:
    """Yield the topics that the loss of one broker would cut short or stop (KS3)."""
    for topic in topics:
        if topic.copies < COPIES_MIN:
            what = (
                "is lost"
                if topic.copies == 1
                else "loses what one broker acknowledged alone, or takes no more records"
            )
            yield Shortfall(
                topic.name,
                f"without one broker topic {topic.name} {what}, as it has {topic.copies} of"
                f" {COPIES_MIN} copies; make topics with --replication 3, an existing one with"
                " kafka-reassign-partitions.sh",
            )
        elif not IN_SYNC_MIN <= topic.in_sync_min < topic.copies:
            what = (
                "may lose what one broker acknowledged alone"
                if topic.in_sync_min < IN_SYNC_MIN
                else "takes no more records"
            )
            yield Shortfall(
                topic.name,
                f"without one broker topic {topic.name} {what}, as it has"
                f" min.insync.replicas={topic.in_sync_min} of {topic.copies} copies; set it to"
                f" {IN_SYNC_MIN} with kafka-configs.sh",
            )
        if topic.elects_unclean:
            yield Shortfall(
                topic.name,
                f"without one broker topic {topic.name} may lose acknowledged records, as it has"
                " unclean.leader.election.enable=true; set it to false with kafka-configs.sh",
            )
