"""The command ``anabranch produce``."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer
from rich.console import Console

from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.cli.completion import sources
from anabranch.cli.options import DeploymentFile, Kafka, StateDir, file_and_broker
from anabranch.cli.signals import stop_events
from anabranch.cli.work_display import WorkDisplay
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.operating.produce import Input, Lines, Target

_STDIN: Final = "-"
# Rows that --generate makes where --count does not say how many.
_GENERATED: Final = 10
# Generated rows that are sent together where --every asks for no pause.
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
            "--generate", help="Generate rows that fit the schema, with the event time now."
        ),
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help=f"Rows (default: {_GENERATED}; with --every: no end)."
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Generate one row at a time, this far apart, e.g. `200ms`."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed generates the same rows.")] = 0,
    now: Annotated[
        bool, typer.Option("--now", help="Shift the event times so that the newest is now.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Field of the record's key, which determines the partition (default: no key).",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Topic of the source (default: its first)."),
    ] = None,
    file: DeploymentFile = None,
    state_dir: StateDir = None,
    kafka: Kafka = None,
) -> None:
    """Send records to a source: JSON lines from a file or from standard input, or rows generated
    from the schema.

    Each line is checked against the source's schema first. If a file has a mistake, nothing is
    sent; of standard input the lines before the mistake are sent. Records of an Avro source are
    written in Avro. Lines that are sent twice become two records each.

        anabranch produce readings tests/sample/readings.jsonl

        anabranch produce readings --generate --every 200ms

        echo '{"at":0,"sensor":"roof","celsius":21.5}' | anabranch produce readings - --now
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.operating.produce import Lines, Target, registering, source_of
    from anabranch.pipeline.file import load

    if generate == (rows is not None):
        raise ConfigurationError(
            "give a file of JSON lines, or - for standard input, or --generate; one of them"
        )
    if (count is not None or every is not None) and not generate:
        raise ConfigurationError("--count and --every are for --generate")
    named, address = file_and_broker(file, state_dir, kafka)
    pipeline = load(named)
    wanted, register = source_of(pipeline, source), None
    if pipeline.schema_registry is not None:
        from anabranch.adapters.schema_registry import ConfluentRegistry

        register = registering(ConfluentRegistry(pipeline.schema_registry), wanted, topic)
    lines = Lines(wanted, key, register)
    pause_ms = 0 if every is None else _pause_ms(every)
    # No display while the user types rows into the terminal: it would redraw over the input.
    quiet = rows == _STDIN and sys.stdin.isatty()
    with WorkDisplay(Console(quiet=quiet), f"reading {rows}" if rows else "connecting") as display:
        path = Path(rows) if rows not in (None, _STDIN) else None
        total, shift = (None, 0) if path is None else _checked(path, lines, now, display.count)
        target = Target(KafkaEventLog(address), pipeline, source, topic)
        try:
            with stop_events() as (stopping, _):
                if generate:
                    total = count or (None if every else _GENERATED)
                sender = _Sender(target, lines, display.now, display.count, total)
                display.now("sending")
                if generate:
                    sender.send_generated(seed, pause_ms, stopping)
                elif path is None:
                    sender.send_stdin(now)
                else:
                    sender.send_file(path, shift)
        finally:
            target.close()
    typer.echo(f"sent {sender.sent} records to topic {target.topic}")


def _pause_ms(every: str) -> int:
    """Return the duration given to ``--every``, in ms."""
    from anabranch.pipeline.durations import parse_ms

    try:
        return parse_ms(every)
    except ValueError as error:
        raise ConfigurationError(f"--every {every}: {error}") from error


def _checked(path: Path, lines: Lines, now: bool, progress: Progress) -> tuple[int, float]:
    """Check all lines of a file, and return (their number, the shift of their event times).

    The shift makes the newest event time the present if ``now`` is true; else it is 0. Fails at the
    first line that is no record.
    """
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.operating.produce import read_lines

    newest: float | None = None
    total = 0
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            for first, some in read_lines(file):
                total += len(some)
                progress("bytes are read", file.tell(), size)
                if wrong := lines.mistake(some):
                    raise ConfigurationError(
                        f"{path}:{first + wrong[0]}: {wrong[1]}; nothing was sent"
                    )
                if now and (of_these := lines.newest(some)) is not None:
                    newest = of_these if newest is None else max(newest, of_these)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    return total, 0 if newest is None else lines.now(SystemClock().now_ms()) - newest


class _Sender:
    """Sender of rows from a file, from standard input or from the generator."""

    def __init__(
        self,
        target: Target,
        lines: Lines,
        note: Callable[[str], None],
        progress: Progress = unwatched,
        total: int | None = None,
    ) -> None:
        """Send to ``target`` by way of ``lines``.

        ``progress`` receives how many of ``total`` records are sent. Where the total is not known,
        ``note`` receives a text with their number instead.
        """
        self._target = target
        self._lines = lines
        self._note = note
        self._progress = progress
        self._total = total
        self.sent = 0
        """Number of records that are in the topic."""

    def send_file(self, path: Path, shift: float) -> None:
        """Send the lines of a checked file, with ``shift`` added to their event times."""
        from anabranch.operating.produce import read_lines

        with path.open("rb") as file:
            for _, some in read_lines(file):
                self._send(some, shift)

    def send_stdin(self, now: bool) -> None:
        """Send the lines of standard input as they come, until it ends.

        ``now`` shifts the event times of the lines that come together so that their newest is now.

        Raises:
            ConfigurationError: a line is no record of the source; the lines before it are sent.
        """
        from anabranch.adapters.system.clock import SystemClock
        from anabranch.operating.produce import read_lines

        lines, clock = self._lines, SystemClock()
        for first, some in read_lines(cast("Input", sys.stdin.buffer)):
            wrong = lines.mistake(some)
            good = some if wrong is None else some[: wrong[0]]
            newest = lines.newest(good) if now and good else None
            self._send(good, 0 if newest is None else lines.now(clock.now_ms()) - newest)
            if wrong is not None:
                raise ConfigurationError(
                    f"standard input:{first + wrong[0]}: {wrong[1]}; the {self.sent} records before"
                    " it were sent"
                )

    def send_generated(self, seed: int, pause_ms: int, stopping: threading.Event) -> None:
        """Send generated rows, with a pause between them, until the total or ``stopping``."""
        from anabranch.adapters.system.clock import SystemClock
        from anabranch.operating.made_rows import rows

        lines, clock = self._lines, SystemClock()
        made = islice(rows(self._target.source, seed), self._total)
        while not stopping.is_set():
            time = lines.now(clock.now_ms())
            some = [
                json.dumps(lines.timed(row, time)).encode()
                for row in islice(made, 1 if pause_ms else _AT_ONCE)
            ]
            if not some:
                break
            self._send(some, 0)
            stopping.wait(pause_ms / 1_000)

    def _send(self, some: list[bytes], shift: float) -> None:
        """Send lines, wait until they are in the topic, and show how many are."""
        self.sent += self._target.send(self._lines.records(some, shift))
        if self._total is None:
            self._note(f"sent {self.sent} records")
        else:
            self._progress("records", self.sent, self._total)
