"""The command ``anabranch up``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.options import KAFKA_VARIABLE, File, Offers, Replication, StateDir, pipeline_file
from anabranch.cli.signals import stop_events
from anabranch.cli.work_display import WorkDisplay
from anabranch.local import state_file
from anabranch.pipeline.addresses import holds_password
from anabranch.protocol.errors import ConfigurationError


def up(
    context: typer.Context,
    file: File = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR",
            envvar=KAFKA_VARIABLE,
            help=(
                "Bootstrap address of a Kafka cluster, HOST:PORT. Without option and variable, a"
                " real broker is started on this machine."
            ),
        ),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=(
                "redis://HOST:PORT/DB, or rediss:// with TLS (also ANABRANCH_REDIS). Without it, a"
                " Redis is started on this machine."
            ),
        ),
    ] = None,
    state_dir: StateDir = None,
    offers: Offers = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE",
            help=(
                "Run only this service, e.g. `ingestion`, or this process, e.g. the node"
                " `processing/local.0`; may be repeated."
            ),
        ),
    ] = None,
    kafka_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_535,
            help="Port of the embedded broker; 0: the last one, or any free one.",
        ),
    ] = 0,
    replication: Replication = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", "-d", help="Return when all is ready; it runs on in the background."
        ),
    ] = False,
    drills: Annotated[
        bool,
        typer.Option(
            "--drills",
            help=(
                "Put a proxy between each service and the embedded broker, for `drill cut` and"
                " `heal`; costs CPU time."
            ),
        ),
    ] = False,
) -> None:
    """Run a pipeline on this machine: every service as a process, restarted when it dies.

    Prints a line that begins with `ready` when all services are ready, with the addresses to use.
    Ctrl-C stops everything within 15 s; the next `up` continues where this one stopped. Logs are in
    `<state-dir>/logs`. A mistake that a process finds while it starts, such as a stage that cannot
    be analysed, ends the deployment with the message of `anabranch check` and exit code 2.

        anabranch up

        anabranch up -d && anabranch status         # in the background, until `anabranch down`

        anabranch up --kafka broker-1:9092 --redis redis://cache:6379/0 --replication 3

        anabranch up --kafka broker-1:9092 --only delivery/tolls

        anabranch up -f north.yaml --offers south.yaml --kafka broker-1:9092 --state-dir for-north

        anabranch up --drills    # then, elsewhere: anabranch drill cut ingestion/reports --for 20s
    """
    from anabranch.local import detached
    from anabranch.local.deployment import up as run_up

    console, named = Console(soft_wrap=True), pipeline_file(file)
    source = context.get_parameter_source("kafka")
    given = source is not None and source.name == "ENVIRONMENT"
    if kafka is not None and kafka_port:
        how = (
            f"unset {KAFKA_VARIABLE}, which names a cluster"
            if given
            else "leave it out with --kafka"
        )
        raise ConfigurationError(f"--kafka-port is for the embedded broker; {how}")
    if redis is not None and holds_password(redis):
        raise ConfigurationError(
            "--redis holds a password, which others see on a command line: set ANABRANCH_REDIS, or"
            " ANABRANCH_REDIS_PASSWORD_FILE"
        )
    if kafka is not None:
        _keep_missing(named, offers, kafka, console)
    directory = state_file.directory_of(state_dir, named)
    with stop_events() as (stopping, stop_now), WorkDisplay(console, "starting") as display:
        if detach:
            options = _background_options(
                named, directory, kafka, redis, only, kafka_port, replication, drills, offers
            )
            code = detached.start(options, directory, display.say, stopping, progress=display.count)
            if code:
                raise typer.Exit(max(code, 1))
            display.say(
                "it runs in the background: `anabranch status`, `anabranch logs -f`, `anabranch"
                " down`"
            )
            return
        if kafka is not None:
            display.say(
                f"Kafka: the cluster at {kafka}{f', as {KAFKA_VARIABLE} says' if given else ''}"
            )
        run_up(
            named,
            state_dir=directory,
            say=display.say,
            stopping=stopping,
            stop_now=stop_now,
            kafka=kafka,
            redis=redis if redis is not None else os.environ.get("ANABRANCH_REDIS"),
            only=only or (),
            kafka_port=kafka_port,
            replication=replication,
            drills=drills,
            offers=offers,
            progress=display.count,
        )


def _keep_missing(file: Path, offers: Path | None, kafka: str, console: Console) -> None:
    """Look up the bindings that are not kept yet, and keep them beside the pipeline file."""
    from anabranch.adapters.connect import other_cluster
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.federation.binding_lookup import BindingLookup, keep_missing

    lookup = BindingLookup(KafkaEventLog(kafka), SystemClock(), other_cluster)
    with WorkDisplay(console, "looking up bindings") as display:
        for line in keep_missing(file, offers, lookup):
            display.print(line)


def _background_options(
    file: Path,
    state_dir: Path,
    kafka: str | None,
    redis: str | None,
    only: list[str] | None,
    kafka_port: int,
    replication: int | None,
    drills: bool,
    offers: Path | None = None,
) -> list[str]:
    """Return the options of this command for the process in the background.

    The addresses of this machine's environment are not among them: the process inherits it.
    """
    given = {
        "--kafka": kafka,
        "--redis": redis,
        "--kafka-port": kafka_port or None,
        "--replication": replication,
        "--offers": offers,
    }
    words = [
        word
        for option, value in given.items()
        if value is not None
        for word in (option, str(value))
    ]
    words += [word for service in only or () for word in ("--only", service)]
    return [
        "--file",
        str(file),
        "--state-dir",
        str(state_dir),
        *words,
        *(["--drills"] if drills else []),
    ]
