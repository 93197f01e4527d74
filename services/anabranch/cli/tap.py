"""The command ``anabranch tap``."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Annotated

import typer

from anabranch.cli.completion import streams
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker


def tap(
    stream: Annotated[
        str,
        typer.Argument(
            metavar="STREAM",
            help="Name of a source, of a stage, or of a binding in the pipeline file.",
            autocompletion=streams,
        ),
    ],
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Least event time (default: as far back as there are rows).",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="Largest event time (default: the last stable result)."
        ),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql",
            metavar="QUERY",
            help="Show what this query makes of the rows; the stream is a table of its name.",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after N lines.")
    ] = None,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Show the recent history of any stream, inside the pipeline too: one row per line, as JSON,
    with its `event_time`. What follows later is not shown; nothing in the pipeline changes.

    Only stable rows are shown. Rows are deleted when all readers of the stream have passed them;
    with `history: 1h` in the pipeline file, a source or stage keeps those of the last hour for this
    command.

    The query is SQL as polars has it: SELECT with joins, groups and windows. Its table is in memory
    as a whole, 1 GiB at most.

    A TIME is ISO 8601 (UTC where it names no zone), or ms since 1970.

        anabranch tap speeds --from 2026-05-01T14:00:00Z | jq .segment

        anabranch tap reports --sql "SELECT car, count(*) AS n FROM reports GROUP BY car"

    In Python, as a table of Arrow or pandas:

        from anabranch.client.history import history

        history("pipeline.yaml", "speeds", kafka="localhost:9092").to_pandas()
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.client.history import joined
    from anabranch.operating.tap import lines_of, open_tap, queried
    from anabranch.pipeline.file import load
    from anabranch.pipeline.times import format_time, parse_time_ms

    named, address = file_and_broker(file, state_dir, kafka)
    from_ms = None if from_time is None else parse_time_ms("--from", from_time)
    to_ms = None if to_time is None else parse_time_ms("--to", to_time)
    there, tables = open_tap(KafkaEventLog(address), load(named), stream, from_ms, to_ms)
    if from_ms is not None and from_ms <= there.after_ms:
        typer.echo(
            f"{stream}: rows up to {format_time(there.after_ms)} are deleted; `history` in the"
            " pipeline file keeps them for longer",
            err=True,
        )
    if sql is not None:
        tables = iter([queried(stream, joined(stream, tables), sql)])
    for line in islice(lines_of(tables), count):
        sys.stdout.write(f"{line}\n")
