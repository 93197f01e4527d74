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
    str,
    typer.Option(
        "--from",
        metavar="TIME",
        help=(
            "Nothing before this time is given up: rejected where the source is not complete up to"
            " there."
        ),
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Give up what lies up to here (default: now)."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def give_up(
    source: Source,
    from_time: From,
    until: Until = None,
    yes: Yes = False,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Let results go on without a source that never returns: close its buckets as known to be
    missing.

    A source that falls silent holds back every stable result, for good or bad: the live topic goes
    on without it, the corrected one waits. If what it owes will never come, say so. Its buckets
    from the place where it stands up to now are closed with what was read of them; the stages then
    correct, and what lacks the source names it in the header `anabranch-missing`. This cannot be
    taken back: what comes of these buckets later is late (a dead letter, or reassigned). The source
    may come back at any time and goes on after them; while it stays away results wait again, until
    the next such command. For a source that is gone for ever, change the stages that read it.

    TIME is ISO 8601 (UTC where it names no zone), or ms since 1970. Running ingestion of the source
    restarts once, by itself. Exit codes: 0 given up, 1 no broker, 2 not confirmed, wrong
    usage, or nothing to give up.

        anabranch status                                             # last bucket of ingestion/reports: where it stands

        anabranch give-up reports --from 2026-05-01T14:00:00Z

        anabranch give-up reports --from 2026-05-01T14:00:00Z --until 2026-05-01T16:30:00Z --yes
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.adapters.system.entropy import SystemEntropy
    from anabranch.operating.give_up import GiveUp, describe, time_of, until_when
    from anabranch.pipeline.file import load
    from anabranch.protocol.log.given_up import Times

    named, address = file_and_broker(file, state_dir, kafka)
    loaded, clock = load(named), SystemClock()
    times = Times(time_of("--from", from_time), until_when(loaded, source, until, clock.now_ms()))
    command = GiveUp(KafkaEventLog(address), loaded, source, times, clock, SystemEntropy())
    describe(source, command.plan(), loaded.bucket_ms, typer.echo)
    confirm("Give it up?", yes)
    done = command.do()
    typer.echo(f"given up: {done.last - done.first + 1} buckets")
