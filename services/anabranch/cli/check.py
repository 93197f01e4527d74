"""The command ``anabranch check``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from anabranch.cli.options import (
    KAFKA_VARIABLE,
    STORE_VARIABLE,
    File,
    Offers,
    need_spark,
    pipeline_file,
)
from anabranch.cli.work_display import WorkDisplay, run_shown
from anabranch.local import state_file

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline


def check(
    file: File = None,
    offers: Offers = None,
    no_plan: Annotated[
        bool,
        typer.Option(
            "--no-plan",
            help="Check the file only; do not start Spark to check the stages' plans.",
        ),
    ] = False,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR",
            envvar=KAFKA_VARIABLE,
            help="Compare the bindings with the catalog on this broker, HOST:PORT.",
        ),
    ] = None,
) -> None:
    """Find mistakes in a pipeline file and in the functions that it names, without running it.

    Every mistake is one line: `FILE:LINE: key: what; how to fix`. Exit code 2 if there is any.

    With `--kafka` the command also looks up the streams of other participants, on this broker and
    on the other clusters that the file names. A stream that is not in its catalog, or has changed
    since it was looked up, is a mistake. Exit code 1 if a cluster does not answer.

    If the file says `k_safety: 1`, the command proves that the loss of any one process, disk or
    broker neither loses results nor stops them, or says what falls short. For disks it takes the
    store that `ANABRANCH_CHECKPOINT_STORE` names; for brokers it needs `--kafka`.

        anabranch check

        anabranch check -f elsewhere/pipeline.yaml --no-plan

        anabranch check -f billing.yaml --kafka broker-1:9092 --no-plan

        anabranch check -f north.yaml --offers south.yaml    # at south, which north's file names
    """
    named = pipeline_file(file)
    pipeline = _loaded(named, offers, kafka)
    parts = (
        (len(pipeline.sources), "source"),
        (len(pipeline.bindings), "binding"),
        (len(pipeline.stages), "stage"),
        (len(pipeline.outputs), "output"),
    )
    counted = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in parts if count]
    typer.echo(f"{named}: pipeline {pipeline.name}: {', '.join(counted)}")
    is_safe = pipeline.k_safety < 1 or _show_k_safety(pipeline, named, kafka)
    if no_plan:
        if not is_safe:
            raise typer.Exit(2)
        return
    need_spark()
    # In a process of its own, because it starts Spark and imports the user's code: neither belongs
    # into the process of the command line, which also supervises services.
    files = [str(path) for path in (named, offers) if path is not None]
    code = run_shown(
        [sys.executable, "-m", "anabranch.operating.check", *files],
        "starting Spark and checking the stages' plans",
    )
    if code != 0 or not is_safe:
        raise typer.Exit(2 if code in (0, 2) else 1)


def _show_k_safety(pipeline: Pipeline, file: Path, kafka: str | None) -> bool:
    """Print what is known of the losses that the file claims to survive. Return whether nothing
    falls short.
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.operating.k_safety import examine

    proof = examine(
        pipeline,
        store=os.environ.get(STORE_VARIABLE) or None,
        state_dir=state_file.directory_of(None, file),
        log=None if kafka is None else KafkaEventLog(kafka),
    )
    for line in (*proof.proven, *(f"error: {text}" for text in proof.short)):
        typer.echo(line)
    return not proof.short


def _loaded(file: Path, offers: Path | None, kafka: str | None) -> Pipeline:
    """Load the pipeline file; with ``kafka``, after comparing its bindings with the catalogs."""
    from anabranch.pipeline.file import load

    if kafka is None:
        return load(file, offers)
    from anabranch.adapters.connect import other_cluster
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.federation.binding_lookup import BindingLookup, check_kept
    from anabranch.pipeline.clusters import check_own

    lookup = BindingLookup(KafkaEventLog(kafka), SystemClock(), other_cluster)
    with WorkDisplay(Console(), "looking up bindings") as display:
        pipeline = check_kept(file, offers, lookup)
        check_own(pipeline, kafka)
        for line in lookup.unreadable_logs(pipeline):
            display.print(f"note: {line}")
    return pipeline
