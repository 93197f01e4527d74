"""The command ``anabranch give-up``."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.completion import sources
from anabranch.cli.confirmation import confirm
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Name of a source in the pipeline file; of one with shards, SOURCE.SHARD.",
        autocompletion=sources,
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help=(
            "The time up to which you know the source to be complete. If it is not, nothing is"
            " given up, and the exit code is 2."
        ),
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Give up input up to here (default: now)."),
]
Missing = Annotated[
    bool,
    typer.Option(
        "--missing",
        help=(
            "Continue after missing input: records that were deleted before they were read, or a"
            " topic that was created again."
        ),
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def give_up(
    source: Source,
    from_time: From = None,
    until: Until = None,
    missing: Missing = False,
    yes: Yes = False,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Let results continue without a source that does not come back: close its buckets as missing.

    One idle source holds back all stable results: the live topic continues without it, the
    corrected topic waits. If the missing records will never come, give the source up. Its buckets
    up to `--until` are then closed with the records that were read of them. Stages compute their
    stable results without the rest, and each such result names the source in the header
    `anabranch-missing`.

    This cannot be undone: a record that arrives later for one of these buckets is late (a dead
    letter, or reassigned). The source may come back at any time and continues after these buckets.
    While it stays idle, results soon wait again, until the next such command. If it never returns,
    change the stages that read it.

    The command prints what it would give up, and asks. Ingestion of the source, if it runs,
    restarts once, by itself.

    `--missing` is for a source that is active, but part of whose input is gone: its topic's
    retention deleted records before ingestion had read them, or the topic was deleted and created
    again. Ingestion then waits, and `anabranch status` shows which offsets are missing. The command
    closes no bucket: ingestion continues with the next record that exists, and the results of the
    buckets that are open now, up to `--until`, name the source in `anabranch-missing`.

    A TIME is ISO 8601 (UTC where it names no zone), or ms since 1970.

        anabranch status             # the last bucket of ingestion/reports: complete up to there

        anabranch give-up reports --from 2026-05-01T14:00:00Z

        anabranch give-up reports --from 2026-05-01T14:00:00Z --until 2026-05-01T16:30:00Z --yes

        anabranch give-up reports --missing

    Exit codes: 0 given up, 1 no broker, 2 not confirmed, wrong usage, or nothing to give up.
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.adapters.system.entropy import SystemEntropy
    from anabranch.operating.give_up import (
        GiveUp,
        GiveUpMissing,
        describe,
        describe_missing,
        until_when,
    )
    from anabranch.pipeline.file import load
    from anabranch.pipeline.times import parse_time_ms
    from anabranch.protocol.errors import ConfigurationError
    from anabranch.protocol.log.given_up import Times

    if missing == (from_time is not None):
        raise ConfigurationError("give one of --from TIME and --missing")
    named, address = file_and_broker(file, state_dir, kafka)
    loaded, clock = load(named), SystemClock()
    log, entropy = KafkaEventLog(address), SystemEntropy()
    until_ms = until_when(loaded, source, until, clock.now_ms())
    if from_time is None:
        of_missing = GiveUpMissing(log, loaded, source, until_ms, clock, entropy)
        describe_missing(source, of_missing.find(), typer.echo)
        confirm("Give it up?", yes)
        given_up = of_missing.do_missing()
        buckets = given_up.last - given_up.first + 1
        typer.echo(
            f"given up: {source} continues, and {buckets} buckets may lack some of its input"
        )
        return
    times = Times(parse_time_ms("--from", from_time), until_ms)
    command = GiveUp(log, loaded, source, times, clock, entropy)
    describe(source, command.plan(), loaded.bucket_ms, typer.echo)
    confirm("Give it up?", yes)
    done = command.do()
    typer.echo(f"given up: {done.last - done.first + 1} buckets")
