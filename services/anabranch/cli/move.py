"""The command ``anabranch move``."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.protocol.errors import AnabranchError

Replica = Annotated[str, typer.Argument(metavar="STAGE.REPLICA", help="As `anabranch status` shows it beneath its node.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Where it is to run: a node of the same participant.")]
Wait = Annotated[
    int, typer.Option("--wait", metavar="SECONDS", min=0, help="So long the command waits until the replica runs there; 0: not at all.")
]


def move(
    replica: Replica, node: NodeName, wait: Wait = 120, file: DeploymentFile = None, state_dir: StateDir = None, kafka: Kafka = None
) -> None:
    """Move a replica of a stage to another node, while everything runs.

    The new node starts it beside the one that runs, warm. When it can go on from where that one is, it takes over, and the old one ends. Results
    are the same as without. If the new node dies before that, or cannot reach a checkpoint, the old one goes on; a move back to the old node
    takes the move back. The place is kept when everything is started again.

    Exit codes: 0 it runs there (with `--wait 0`: the move is written), 1 not within `--wait`, or no broker, 2 it cannot be moved there.

        anabranch status                                             # which replicas are on which node

        anabranch move clean.0 north.1

        anabranch move clean.0 north.1 --wait 0 -f p.yaml --kafka broker-1:9092
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.local.move import Moving
    from anabranch.pipeline.file import load

    named, address = file_and_broker(file, state_dir, kafka)
    command = Moving(KafkaEventLog(address), load(named), replica, node, SystemClock())
    left = command.do()
    if command.is_done:
        typer.echo(f"{replica}: moved from node {left} to node {node}")
        return
    typer.echo(f"{replica}: from node {left} to node {node}; {left} goes on with it until {node} has taken over")
    if wait and not command.has_begun(wait * 1_000):
        raise AnabranchError(
            f"{replica} does not run on {node} after {wait} s: what {node} waits for is in `anabranch status`; the move stays written, and "
            f"`anabranch move {replica} {left}` takes it back"
        )
    if wait:
        typer.echo(f"{replica}: runs on node {node}")
