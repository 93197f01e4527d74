"""The command ``anabranch reset``."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.confirmation import confirm
from anabranch.cli.options import (
    KAFKA_VARIABLE,
    STORE_VARIABLE,
    File,
    StateDir,
    deployment_of,
    pipeline_file,
)
from anabranch.cli.work_display import WorkDisplay
from anabranch.local import state_file


def reset(
    file: File = None,
    state_dir: StateDir = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR",
            envvar=KAFKA_VARIABLE,
            help="The cluster on which it ran, HOST:PORT (default: that of the last `up`).",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete everything that a pipeline has made, so that the next `up` begins anew: its internal
    topics, its outputs, its state, and its checkpoints in the store that ANABRANCH_CHECKPOINT_STORE
    names.

    For development, or to begin again on purpose: all results are lost. Topics that the pipeline
    reads are kept, unless they are on the embedded broker, which is deleted as a whole. The
    pipeline must not run. The command lists what it would delete, and asks.

        anabranch down && anabranch reset

        anabranch reset --kafka broker-1:9092 --yes

    Exit codes: 0 deleted, or there is nothing, 1 no broker, 2 not confirmed, or wrong usage.
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.redis.index import RedisIndex
    from anabranch.operating import reset as work
    from anabranch.pipeline.file import load
    from anabranch.pipeline.topic_names import index_prefix

    named = pipeline_file(file)
    pipeline = load(named)
    directory = state_file.directory_of(state_dir, named)
    if kafka is None:
        known = deployment_of(named, state_dir)
        embedded = known is None or any(row.service == "kafka" for row in known.processes)
        kafka = None if known is None or embedded else known.kafka
    log = None if kafka is None else KafkaEventLog(kafka)
    plan = work.plan(pipeline, directory, log, os.environ.get(STORE_VARIABLE))
    url = os.environ.get("ANABRANCH_REDIS")
    if not plan.in_words() and url is None:
        typer.echo("there is nothing to delete")
        return
    for line in plan.in_words():
        typer.echo(line)
    if log is not None:
        typer.echo(f"({work.ELSEWHERE})")
    confirm(f"Delete all this of pipeline {pipeline.name}?", yes)
    index = None if url is None else RedisIndex(url)
    with WorkDisplay(Console(soft_wrap=True), "deleting") as display:
        work.carry_out(
            plan,
            directory,
            log,
            index,
            index_prefix(pipeline.name),
            display.print,
            display.count,
        )
