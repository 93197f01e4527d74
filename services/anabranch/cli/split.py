"""The command ``anabranch split``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.completion import stages
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.cli.work_display import WorkDisplay
from anabranch.protocol.errors import AnabranchError

Shard = Annotated[
    str,
    typer.Argument(
        metavar="STAGE.SHARD",
        help="The shard, as `anabranch status` shows it without its replica; of a stage that began"
        " with one shard, the stage.",
        autocompletion=stages,
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="NODE",
        help="The node for replica 0 of the upper half (default: where the shard is).",
    ),
]
Wait = Annotated[
    int,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="How long to wait until the halves have taken over; 0: do not wait.",
    ),
]


def split(
    shard: Shard,
    to: To = "",
    wait: Wait = 600,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Split a shard of a stage into its two halves, while everything runs.

    Each half takes the rows of half of the shard's keys. The halves begin one `state_horizon` of
    input before the shard's last result, run beside it, and nobody reads them. When they together
    have made what the shard made, in at least eight buckets, the shard ends and the halves take
    over at the next bucket. Results are the same as without the split, and none pauses. If a bucket
    differs, the function does not compute each key from the rows of this key alone: the split is
    withdrawn, an alarm names the bucket, and nothing has changed. It is withdrawn, too, when the
    halves make no progress for five minutes.

    The stage needs `halvings` in the pipeline file. A half may be moved before the split, as
    replicas are: `anabranch move STAGE.SHARD.REPLICA NODE --wait 0`.

    Exit codes: 0 the halves have taken over (with `--wait 0`: the split is recorded), 1 not within
    `--wait`, withdrawn, or no broker, 2 it cannot be split.

        anabranch split volumes.0 --to local.7

        anabranch split volumes.0 --wait 0 -f p.yaml --kafka broker-1:9092
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.split import SplitCommand
    from anabranch.pipeline.file import load
    from anabranch.protocol.stage.splitting import halves_of

    named, address = file_and_broker(file, state_dir, kafka)
    command = SplitCommand(KafkaEventLog(address), load(named), shard, to, SystemClock())
    command.do()
    halves = " and ".join(halves_of(shard))
    with WorkDisplay(Console(), f"waiting until {halves} have taken over from {shard}"):
        is_done = not wait or command.is_done(wait * 1_000)
    if not is_done:
        raise AnabranchError(
            f"{halves} have not taken over from {shard} after {wait} s; `anabranch status` shows"
            " how far they are. The split remains in force"
        )
    typer.echo(f"{shard}: split into {halves}" if wait else f"{shard}: will be split into {halves}")
