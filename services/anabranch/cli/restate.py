"""The command ``anabranch restate``."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.completion import stages
from anabranch.cli.confirmation import confirm
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker

Stage = Annotated[
    str,
    typer.Argument(
        metavar="STAGE",
        help="Name of a stage, with the changed function in the pipeline file.",
        autocompletion=stages,
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help=(
            "Take the input after this time (default: one `state_horizon` before the last result,"
            " or what is retained)."
        ),
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def restate(
    stage: Stage,
    from_time: From = None,
    yes: Yes = False,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Let a stage begin anew with a function that computes its state otherwise.

    Such a function does not go on from the state of the one before: its replica ends, and says what
    differs. After this command it begins with empty state, recomputes from the input that is
    retained, and takes over from the version before at one bucket, once it has caught up. Each
    bucket is of one function, and no result is there twice.

    Give the changed function a higher `version` in the pipeline file first, and the stage its
    `state_horizon`: the command takes input from that long before the last result, so that no
    result of the new function lacks any. Where so much input is not retained any more, the results
    that would lack some are left out: their buckets are empty, and their records name the inputs as
    missing. The command says which, and asks.

    Results that are there do not change. Replicas of the version before go on where they run; where
    there is none, results wait until the new one has caught up. Restart the replicas then, one
    after the other. The command may be given again.

    A TIME is ISO 8601 (UTC where it names no zone), or ms since 1970.

        anabranch restate tolls

        anabranch restate tolls --from 2026-05-01T14:00:00Z --yes

    Exit codes: 0 decided, 1 no broker, 2 not confirmed, or it cannot be.
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.restate import Restating, describe
    from anabranch.pipeline.file import load
    from anabranch.pipeline.times import parse_time_ms

    named, address = file_and_broker(file, state_dir, kafka)
    loaded = load(named)
    from_ms = None if from_time is None else parse_time_ms("--from", from_time)
    command = Restating(KafkaEventLog(address), loaded, stage, from_ms, SystemClock())
    planned = command.plan()
    version, width_ms = loaded.stages[stage].version, loaded.bucket_ms
    describe(stage, version, planned, width_ms, typer.echo)
    confirm("Let it begin anew?", yes)
    decided = command.do()
    if decided != planned:
        describe(stage, version, decided, width_ms, typer.echo)
    typer.echo(f"decided: restart the replicas of {stage}, and version {version} begins")
