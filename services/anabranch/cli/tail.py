"""``anabranch tail``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from anabranch.cli.completion import outputs
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.cli.signals import stop_events


def tail(
    output: Annotated[
        str, typer.Argument(help="Name of an output in the pipeline file.", autocompletion=outputs)
    ],
    live: Annotated[
        bool, typer.Option("--live", help="The live topic instead of the corrected one.")
    ] = False,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="All that is there, then what comes.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Stop after N records (default: go on until Ctrl-C)."
        ),
    ] = None,
    with_id: Annotated[
        bool,
        typer.Option("--with-id", help="Before each value: its id, its time in ms, and its key."),
    ] = False,
) -> None:
    """Show an output as it grows: one value per line. Values that are not text (Avro) are shown as
    base64.

    With --live each line begins with what it is: insertion, tentative, undo (what is tentative
    above is void), rec_done (all is corrected).

    anabranch tail tolls

    anabranch tail tolls --live

    anabranch tail tolls --from-beginning --count 10 --with-id
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.operating.tail import follow, sink_of
    from anabranch.pipeline.file import load

    named, address = file_and_broker(file, state_dir, kafka)
    topic = sink_of(load(named), output, live=live).topic
    with stop_events() as (stopping, _):
        shown = 0
        for record in follow(
            KafkaEventLog(address), topic, stopping, from_beginning=from_beginning
        ):
            if live and record.repeated:
                continue
            sys.stdout.write(f"{record.line(with_id=with_id, live=live)}\n")
            sys.stdout.flush()
            shown += 1
            if shown == count:
                break
