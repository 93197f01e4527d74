"""The command ``anabranch topics``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from anabranch.cli.options import KAFKA_VARIABLE, File, Replication, pipeline_file
from anabranch.protocol.errors import ConfigurationError


def topics(
    file: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of objects.")] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create missing topics; needs --kafka.")
    ] = False,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR", envvar=KAFKA_VARIABLE, help="The broker for --create, HOST:PORT."
        ),
    ] = None,
    replication: Replication = None,
) -> None:
    """List the topics of a pipeline with their settings: topics that you write, topics that you
    read, and internal topics.

    anabranch topics

    anabranch topics --create --kafka broker-1:9092 --replication 3
    """
    from anabranch.local.topic_creation import prepare, topics_of
    from anabranch.pipeline.file import load

    found = topics_of(load(pipeline_file(file)), replication=replication)
    if create:
        from anabranch.adapters.kafka.log import KafkaEventLog

        if kafka is None:
            raise ConfigurationError(f"--create needs --kafka ADDR, or {KAFKA_VARIABLE}")
        for name in prepare(KafkaEventLog(kafka), found, create_inputs=True, say=typer.echo):
            typer.echo(f"created {name}")
        return
    if as_json:
        typer.echo(
            json.dumps(
                [
                    {"kind": topic.kind, "owner": topic.owner, **asdict(topic.settings)}
                    for topic in found
                ],
                indent=1,
            )
        )
        return
    whose = {"input": "you write", "output": "you read", "internal": "internal"}
    width = max(len(topic.settings.name) for topic in found)
    typer.echo(f"{'topic':<{width}}  {'whose':<9}  {'kind':<12}  partitions  settings")
    for topic in found:
        settings = " ".join(f"{name}={value}" for name, value in topic.settings.config.items())
        name, partitions = topic.settings.name, topic.settings.partitions
        typer.echo(
            f"{name:<{width}}  {whose[topic.owner]:<9}  {topic.kind:<12}  {partitions:>10} "
            f" {settings}"
        )
