"""The command ``anabranch tail``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from anabranch.cli.completion import outputs_and_sources
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.cli.signals import stop_events
from anabranch.protocol.errors import ConfigurationError


def tail(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of an output in the pipeline file; with --rejected also of a source.",
            autocompletion=outputs_and_sources,
        ),
    ],
    live: Annotated[
        bool, typer.Option("--live", help="Show the live topic instead of the corrected one.")
    ] = False,
    rejected: Annotated[
        bool,
        typer.Option(
            "--rejected",
            help="Show rejected records of a source (dead letters), or rejected results.",
        ),
    ] = False,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Show existing records first.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Stop after N records (default: at Ctrl-C)."),
    ] = None,
    with_id: Annotated[
        bool,
        typer.Option("--with-id", help="Show id, event time in ms and key before each value."),
    ] = False,
) -> None:
    """Show an output as it grows: one value per line, until Ctrl-C. Values that are not text (Avro)
    are shown as base64.

    With `--live` each line begins with its kind: insertion, tentative, undo (the tentative lines
    above are void), rec_done (everything is corrected).

    With `--rejected` a line has the reason, the place of the record (topic[partition] offset), its
    value, and the error.

        anabranch tail tolls

        anabranch tail tolls --live

        anabranch tail tolls --from-beginning --count 10 --with-id

        anabranch tail reports_0 --rejected --from-beginning
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.operating.tail import follow, rejected_topic_of, sink_of
    from anabranch.pipeline.file import load

    if live and rejected:
        raise ConfigurationError("--live and --rejected are different topics: give one of them")
    named, address = file_and_broker(file, state_dir, kafka)
    pipeline = load(named)
    topic = (
        rejected_topic_of(pipeline, name) if rejected else sink_of(pipeline, name, live=live).topic
    )
    with stop_events() as (stopping, _):
        shown = 0
        for record in follow(
            KafkaEventLog(address), topic, stopping, from_beginning=from_beginning
        ):
            if live and record.repeated:
                continue
            line = (
                record.rejected_line(with_id=with_id)
                if rejected
                else record.line(with_id=with_id, live=live)
            )
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            shown += 1
            if shown == count:
                break
