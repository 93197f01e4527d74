"""The commands ``anabranch move`` and ``remove``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.cli.work_display import WorkDisplay
from anabranch.protocol.errors import AnabranchError

Replica = Annotated[
    str,
    typer.Argument(
        metavar="STAGE.REPLICA", help="As `anabranch status` shows it beneath its node."
    ),
]
NodeName = Annotated[
    str, typer.Argument(metavar="NODE", help="The node to run it: one of the same participant.")
]
Wait = Annotated[
    int,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="How long to wait until the replica runs there; 0: do not wait.",
    ),
]


def move(
    replica: Replica,
    node: NodeName,
    wait: Wait = 120,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Move a replica of a stage to another node, while everything runs.

    The new node starts the replica while the old one still runs it. When the new one has caught up,
    it becomes the primary, and the old one ends. Results are the same as without the move. If the
    new node dies before that, or cannot reach a checkpoint, the old one continues, and withdraws
    the move when it has made no progress for five minutes; a move to the old node cancels it at
    once. The new place survives a restart of everything.

    Exit codes: 0 the replica runs there (with `--wait 0`: the move is recorded), 1 not within
    `--wait`, withdrawn, or no broker, 2 it cannot be moved there.

        anabranch status                                          # which replicas are on which node

        anabranch move clean.0 north.1

        anabranch move clean.0 north.1 --wait 0 -f p.yaml --kafka broker-1:9092
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.move import MoveCommand
    from anabranch.pipeline.file import load

    named, address = file_and_broker(file, state_dir, kafka)
    command = MoveCommand(KafkaEventLog(address), load(named), replica, node, SystemClock())
    command.do()
    left = command.runs_on
    if left not in ("", node):
        typer.echo(
            f"{replica}: from node {left} to node {node}; {left} runs it until {node} has become"
            " the primary"
        )
    with WorkDisplay(Console(), f"waiting until {replica} runs on {node}"):
        is_done = not wait or command.is_done(wait * 1_000)
    if not is_done:
        back = f"; `anabranch move {replica} {left}` cancels it" if left else ""
        raise AnabranchError(
            f"{replica} does not run on {node} after {wait} s; `anabranch status` shows what {node}"
            f" waits for. The move remains in force{back}"
        )
    typer.echo(f"{replica}: runs on node {node}" if wait else f"{replica}: will run on node {node}")


def remove(
    replica: Replica, file: DeploymentFile = None, state_dir: StateDir = None, kafka: Kafka = None
) -> None:
    """Remove a replica of a stage, while everything runs; the stage's other replicas continue.

    The replica ends on its node, and is not started again until `anabranch move STAGE.REPLICA NODE`
    adds it to a node. There it continues from its own checkpoint, or from a peer's. Its input is
    kept for a day.

    Exit codes: 0 removed, 1 no broker, 2 there is no such replica, or it is its stage's last.

        anabranch remove clean.1

        anabranch move clean.1 north.2                               # it is added there
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.move import MoveCommand
    from anabranch.pipeline.file import load

    named, address = file_and_broker(file, state_dir, kafka)
    MoveCommand(KafkaEventLog(address), load(named), replica, "", SystemClock()).do()
    typer.echo(f"{replica}: removed")
