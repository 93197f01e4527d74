"""``anabranch produce``."""

from __future__ import annotations

import json
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from anabranch.cli.completion import sources
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.cli.signals import stop_events
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.operating.produce import Input, Lines, Target

_STDIN: Final = "-"
_GENERATED: Final = 10
_AT_ONCE: Final = 1_000


def produce(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Name of a source in the pipeline file.", autocompletion=sources
        ),
    ],
    rows: Annotated[
        str | None,
        typer.Argument(metavar="[ROWS]", help="A file of JSON lines; `-`: standard input."),
    ] = None,
    generate: Annotated[
        bool,
        typer.Option(
            "--generate", help="Make rows up from the schema, with the present as their event time."
        ),
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help=f"Make so many (default: {_GENERATED}; with --every: no end)."
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Make one after the other with this time between, e.g. `200ms`."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed makes the same rows.")] = 0,
    now: Annotated[
        bool, typer.Option("--now", help="Move the event times so that the newest is the present.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="The record's key, which chooses the partition (default: none)."
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which topic of the source (default: its first)."),
    ] = None,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Send records to a source: JSON lines from a file or from standard input, or made up from the
    schema.

    Each line is checked against the source's schema first: of a file with a mistake nothing is
    sent, of standard input nothing from the mistake on. A source in Avro gets Avro. To send the
    same lines twice gives the pipeline two records each.

        anabranch produce readings tests/sample/readings.jsonl

        anabranch produce readings --generate --every 200ms

        echo '{"at":0,"sensor":"roof","celsius":21.5}' | anabranch produce readings - --now
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.operating.produce import Lines, Target, registered_id, source_of
    from anabranch.pipeline.durations import parse_ms
    from anabranch.pipeline.file import load

    if generate == (rows is not None):
        raise ConfigurationError(
            "give a file of JSON lines, or - for standard input, or --generate; one of them"
        )
    if (count is not None or every is not None) and not generate:
        raise ConfigurationError("--count and --every are for --generate")
    named, address = file_and_broker(file, state_dir, kafka)
    pipeline = load(named)
    wanted, schema_id = source_of(pipeline, source), None
    if pipeline.schema_registry is not None and wanted.format == "avro":
        from anabranch.adapters.schema_registry import ConfluentRegistry

        schema_id = registered_id(ConfluentRegistry(pipeline.schema_registry), wanted, topic)
    lines = Lines(wanted, key, schema_id)
    pause_ms = 0
    if every is not None:
        try:
            pause_ms = parse_ms(every)
        except ValueError as error:
            raise ConfigurationError(f"--every {every}: {error}") from error
    shift = _checked(Path(rows), lines, now) if rows not in (None, _STDIN) else 0
    target = Target(KafkaEventLog(address), pipeline, source, topic)
    try:
        with stop_events() as (stopping, _):
            if generate:
                sent = _made(
                    target,
                    lines,
                    seed,
                    count or (None if every else _GENERATED),
                    pause_ms,
                    stopping,
                )
            elif rows == _STDIN:
                sent = _from_stdin(target, lines, now)
            else:
                sent = _from_file(Path(rows or ""), target, lines, shift)
    finally:
        target.close()
    typer.echo(f"sent {sent} records to topic {target.topic}")


def _checked(path: Path, lines: Lines, now: bool) -> int:
    """What is to be added to the event times of the file, all of whose lines are records."""
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.produce import read_lines

    newest: int | None = None
    try:
        with path.open("rb") as file:
            for first, some in read_lines(file):
                if wrong := lines.mistake(some):
                    raise ConfigurationError(
                        f"{path}:{first + wrong[0]}: {wrong[1]}; nothing was sent"
                    )
                newest = (
                    max(filter(None, (newest, lines.newest(some))), default=None) if now else None
                )
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    return 0 if newest is None else lines.now(SystemClock().now_ms()) - newest


def _from_file(path: Path, target: Target, lines: Lines, shift: int) -> int:
    from anabranch.operating.produce import read_lines

    with path.open("rb") as file:
        return sum(target.send(lines.records(some, shift)) for _, some in read_lines(file))


def _from_stdin(target: Target, lines: Lines, now: bool) -> int:
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.produce import read_lines

    sent, clock = 0, SystemClock()
    for first, some in read_lines(cast("Input", sys.stdin.buffer)):
        wrong = lines.mistake(some)
        good = some if wrong is None else some[: wrong[0]]
        newest = lines.newest(good) if now and good else None
        sent += target.send(
            lines.records(good, 0 if newest is None else lines.now(clock.now_ms()) - newest)
        )
        if wrong is not None:
            raise ConfigurationError(
                f"standard input:{first + wrong[0]}: {wrong[1]}; the {sent} records before it were"
                " sent"
            )
    return sent


def _made(
    target: Target,
    lines: Lines,
    seed: int,
    count: int | None,
    pause_ms: int,
    stopping: threading.Event,
) -> int:
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.made_rows import rows

    sent, clock, made = 0, SystemClock(), islice(rows(target.source, seed), count)
    field = target.source.event_time.field
    while not stopping.is_set():
        own = {} if field is None else {field: lines.shown(lines.now(clock.now_ms()))}
        some = [json.dumps(own | row).encode() for row in islice(made, 1 if pause_ms else _AT_ONCE)]
        if not some:
            break
        sent += target.send(lines.records(some))
        stopping.wait(pause_ms / 1_000)
    return sent
