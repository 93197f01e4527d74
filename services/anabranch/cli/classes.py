"""The command ``anabranch classes``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.work_display import WorkDisplay
from anabranch.protocol.errors import ConfigurationError


def classes(
    broker: Annotated[
        bool,
        typer.Option(
            "--broker/--no-broker",
            help="Also for the broker that `up` starts. An image for nodes does not need that.",
        ),
    ] = True,
) -> None:
    """Make an archive of Spark's and Kafka's classes, with which Java starts faster: nodes then
    take half of the processor time to start. Optional; once per machine and version.

    The command also downloads a small jar, with which Spark writes checkpoints without starting a
    process for each file.

        anabranch classes
    """
    from anabranch.adapters.spark import bare_files, class_archive
    from anabranch.local import kafka_class_training
    from anabranch.local.kafka_jars import kafka_classpath

    with WorkDisplay(Console(soft_wrap=True), "fetching a small jar for Spark") as display:
        try:
            bare_files.fetch()
        except ConfigurationError as error:
            typer.echo(f"note: {error}", err=True)
        display.now("archiving Spark's classes: half a minute, once on this machine")
        made = class_archive.make(display.count)
        display.say(f"{'made' if made else 'exists already:'} {class_archive.place().archive}")
        if not broker:
            return
        display.now("fetching the embedded broker")
        kafka_classpath(display.count)
        display.now("archiving the classes of the embedded broker")
        made = kafka_class_training.make()
        display.say(
            "made the archive of the embedded broker"
            if made
            else "exists already: the archive of the embedded broker"
        )
