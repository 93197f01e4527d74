"""The command ``anabranch``. Exit codes: 0 ok, 2 wrong usage or a wrong file, 1 anything else."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from anabranch.local import access_command, drill_commands, give_up_command
from anabranch.protocol.addresses import holds_password
from anabranch.protocol.errors import AnabranchError, ConfigurationError

if TYPE_CHECKING:
    from types import FrameType

    from anabranch.local.status import Row

app = typer.Typer(
    name="anabranch",
    help="Fault-tolerant stream processing on Kafka, Redis and Spark: results that are right, each exactly once.\n\n"
    "A first run:  anabranch doctor  ·  anabranch check pipeline.yaml  ·  anabranch up pipeline.yaml",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DOWN_WAIT_MS: Final = 25_000
"""An orderly stop takes 15 s at most."""
_KAFKA_VARIABLE: Final = "ANABRANCH_KAFKA"
_KAFKA_LOGGER: Final = "anabranch.adapters.kafka"
_TABLE_WIDTH_MAX: Final = 500
_STATE_STYLES: Final = {
    "running": "green",
    "waiting": "yellow",
    "starting": "cyan",
    "restarting": "yellow",
    "silent": "red",
    "failed": "red",
    "paused": "magenta",
}

PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")]
StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="DIR", help="Where its state is kept (default: `.anabranch` next to the pipeline file)."),
]
PipelineOption = Annotated[Path | None, typer.Option("--pipeline", metavar="FILE", help="The same as FILE.")]
OptionalFile = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="The pipeline file; without it: the deployment of the current folder.")
]

Replication = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=7,
        help="Copies of each topic that is created (default: the cluster's own default; 1 on the embedded broker). "
        "Use 3 where nothing may be lost.",
    ),
]


def main() -> None:
    """Entry point: turns this project's errors into one message and an exit code."""
    console = Console(stderr=True, soft_wrap=True)
    # The client tells every attempt to reach a broker, several a second; what a person needs is in the error that a command ends with.
    logging.getLogger(_KAFKA_LOGGER).setLevel(logging.CRITICAL + 1)
    try:
        app()
    except ConfigurationError as error:
        console.print(escape(str(error)), style="red", highlight=False)
        sys.exit(2)
    except AnabranchError as error:
        console.print(f"{type(error).__name__}: {escape(str(error))}", style="red", highlight=False)
        sys.exit(1)


@contextmanager
def _stop_events() -> Iterator[tuple[threading.Event, threading.Event]]:
    """(stop, stop now): the first signal sets one, the second the other."""
    stopping, stop_now = threading.Event(), threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        (stop_now if stopping.is_set() else stopping).set()

    before = {number: signal.signal(number, on_signal) for number in _STOP_SIGNALS}
    try:
        yield stopping, stop_now
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(_version())
        raise typer.Exit


def _version() -> str:
    try:
        return importlib.metadata.version("anabranch")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (run from a checkout)"


@app.callback()
def _anabranch(
    _version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")] = False,
) -> None:
    pass


def _one_file(file: Path | None, pipeline: Path | None) -> Path | None:
    """FILE, which other commands take as --pipeline FILE."""
    if file is not None and pipeline is not None:
        raise ConfigurationError("the pipeline file is given twice: as FILE and with --pipeline")
    return file if file is not None else pipeline


def _state_directory(state_dir: Path | None, pipeline_file: Path | None) -> Path:
    from anabranch.local import state_file

    return state_file.directory_of(state_dir, pipeline_file)


@app.command()
def up(
    context: typer.Context,
    file: PipelineFile,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR",
            envvar=_KAFKA_VARIABLE,
            help="Bootstrap address of a Kafka cluster, HOST:PORT. Where neither option nor variable is set a real broker is started here.",
        ),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="redis://HOST:PORT/DB, or rediss:// with TLS (also ANABRANCH_REDIS). Without it a Redis is started here."
        ),
    ] = None,
    state_dir: StateDir = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE", help="Run these only, e.g. `ingestion` or `processing/local.0`, a node; may be repeated."),
    ] = None,
    kafka_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the embedded broker; 0: that of last time, or any free one.")
    ] = 0,
    replication: Replication = None,
    drills: Annotated[
        bool,
        typer.Option("--drills", help="Put a proxy between each service and the embedded broker, for `cut` and `heal`; costs CPU time."),
    ] = False,
) -> None:
    """Run a pipeline on this machine: every service as a process, restarted when it dies.

    Prints a line that begins with `ready` when all services are, with the addresses to use. Ctrl-C stops everything within 15 s;
    the next `up` goes on where this one stopped. Logs are in `<state-dir>/logs`.

    Try it:

        anabranch up pipeline.yaml

        anabranch up pipeline.yaml --kafka broker-1:9092 --redis redis://cache:6379/0 --replication 3

        anabranch up pipeline.yaml --kafka broker-1:9092 --only delivery/tolls

        anabranch up pipeline.yaml --drills         # then, elsewhere: anabranch cut ingestion/reports --for 20s
    """
    from anabranch.local.up import up as run_up

    console = Console(soft_wrap=True)
    source = context.get_parameter_source("kafka")
    given = source is not None and source.name == "ENVIRONMENT"
    if kafka is not None and kafka_port:
        how = f"unset {_KAFKA_VARIABLE}, which names a cluster" if given else "leave it out with --kafka"
        raise ConfigurationError(f"--kafka-port is for the embedded broker; {how}")
    if kafka is not None:
        typer.echo(f"Kafka: the cluster at {kafka}{f', as {_KAFKA_VARIABLE} says' if given else ''}")
    if redis is not None and holds_password(redis):
        raise ConfigurationError(
            "--redis holds a password, which others see on a command line: set ANABRANCH_REDIS, or ANABRANCH_REDIS_PASSWORD_FILE"
        )
    with _stop_events() as (stopping, stop_now):
        run_up(
            file,
            state_dir=_state_directory(state_dir, file),
            say=lambda text: console.print(text, highlight=False, markup=False),
            stopping=stopping,
            stop_now=stop_now,
            kafka=kafka,
            redis=redis if redis is not None else os.environ.get("ANABRANCH_REDIS"),
            only=only or (),
            kafka_port=kafka_port,
            replication=replication,
            drills=drills,
        )


@app.command()
def down(file: OptionalFile = None, state_dir: StateDir = None, pipeline: PipelineOption = None) -> None:
    """Stop what `up` started, and wait until it is gone.

    anabranch down pipeline.yaml
    """
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.local.state_file import Lock, nothing_runs

    directory = _state_directory(state_dir, _one_file(file, pipeline))
    lock = Lock(directory)
    holder = lock.holder()
    if holder is None:
        typer.echo(nothing_runs(directory))
        return
    os.kill(holder, signal.SIGTERM)
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + _DOWN_WAIT_MS
    while lock.holder() == holder:
        if clock.monotonic_ms() >= deadline_ms:
            typer.echo(f"process {holder} has not stopped within {_DOWN_WAIT_MS // 1_000} s; end it with: kill -9 {holder}", err=True)
            raise typer.Exit(1)
        clock.sleep_ms(50)
    typer.echo("stopped")


@app.command()
def status(
    file: OptionalFile = None,
    state_dir: StateDir = None,
    pipeline: PipelineOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of objects, one per process.")] = False,
) -> None:
    """What runs: per process, and per replica on a node, its state, last bucket, lag and restarts, what it makes results without, and what it waits for.

    Exit code 1 when nothing runs. A process that is `silent` is there but does not answer: it is very busy. `paused`: somebody stopped it.

        anabranch status pipeline.yaml

        anabranch status --json | jq '.[] | select(.state == "failed") | .error'

        anabranch status --json | jq '.[].detail.stages[]? | {stage, replica, state, lag_ms, error}'
    """
    from anabranch.local.state_file import nothing_runs
    from anabranch.local.status import rows_of

    directory = _state_directory(state_dir, _one_file(file, pipeline))
    rows = rows_of(directory)
    if as_json:
        typer.echo(json.dumps(rows or [], indent=1))
    elif rows is None:
        typer.echo(nothing_runs(directory), err=True)
    else:
        # Never narrower than its content: a cut-off process id or error is of no use, in a pipe least of all.
        table = _status_table(rows)
        wide = Console(width=_TABLE_WIDTH_MAX)
        needed = Measurement.get(wide, wide.options, table).maximum
        Console(width=max(Console().width, needed)).print(table)
        if told := _slowest_hop(directory, rows):
            typer.echo(told)
    if rows is None:
        raise typer.Exit(1)


def _slowest_hop(directory: Path, rows: list[Row]) -> str:
    """In words; empty where the pipeline file has changed, or nothing is known yet."""
    from anabranch.local import state_file
    from anabranch.local.status import hops_of, slowest_in_words
    from anabranch.pipeline.file import load

    found = state_file.read(directory)
    try:
        return "" if found is None else slowest_in_words(hops_of(load(found.pipeline), rows))
    except ConfigurationError:
        return ""


def _status_table(rows: list[Row]) -> Table:
    from anabranch.local.status import stages_of

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("service", "name", "state", "last bucket", "lag", "restarts", "pid", "port", ""):
        table.add_column(title, justify="right" if title in ("lag", "restarts", "pid", "port") else "left", no_wrap=title != "")
    for row in rows:
        stages = stages_of(row)
        # What a node waits for, or failed with, is said of its replicas.
        told = () if stages else _told(row)
        table.add_row(*_cells(str(row["service"]), row, told or (str(row["cut"] or ""),)))
        for stage in stages:
            shown = {**stage, "name": f"  {stage['stage']}.{stage['replica']}", "pid": None, "metrics_port": None}
            table.add_row(*_cells("", shown, _told(shown)))
    return table


def _told(row: Row) -> tuple[str, ...]:
    """What a person should know: what is unusual, then why, or what it waits for, or where it is."""
    from anabranch.local.status import detail_in_words

    waiting = f"waits for {row['waiting_for']}" if row["waiting_for"] else ""
    return detail_in_words(row), str(row.get("cut") or row["error"] or waiting or row.get("address") or "").partition("\n")[0]


def _cells(service: str, row: Row, told: tuple[str, ...]) -> tuple[str, ...]:
    """A line of the table."""
    state = str(row["state"])
    style = _STATE_STYLES.get(state, "")
    return (
        service,
        str(row["name"]),
        f"[{style}]{state}[/]" if style else escape(state),
        _time(row["last_bucket_ms"]),
        _lag(row["lag_ms"]),
        str(row["restarts"]),
        _or_dash(row["pid"]),
        _or_dash(row["metrics_port"]),
        escape("; ".join(filter(None, told))),
    )


def _time(moment_ms: object) -> str:
    """UTC, to the millisecond; small numbers (simulated time) as seconds."""
    if not isinstance(moment_ms, int):
        return "-"
    if moment_ms < 10**11:
        return f"{moment_ms / 1_000:g} s"
    try:
        return datetime.fromtimestamp(moment_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(moment_ms)


def _lag(lag_ms: object) -> str:
    return f"{lag_ms / 1_000:.1f} s" if isinstance(lag_ms, int) else "-"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


@app.command()
def check(
    file: PipelineFile,
    no_plan: Annotated[
        bool, typer.Option("--no-plan", help="Check the file only; do not start Spark to look at the stages' plans.")
    ] = False,
) -> None:
    """Look for mistakes in a pipeline file and in the functions that it names, without running it.

    Every mistake is one line: `FILE:LINE: key: what; how to fix`. Exit code 2 if there is any.

        anabranch check pipeline.yaml
    """
    from anabranch.pipeline.file import load

    pipeline = load(file)
    typer.echo(
        f"{file}: pipeline {pipeline.name}: {len(pipeline.sources)} sources, {len(pipeline.stages)} stages, {len(pipeline.outputs)} outputs"
    )
    if no_plan:
        return
    # In a process of its own: it starts Spark and imports the user's code, and what starts services does not import them.
    if not (Path(__file__).parent / "processing" / "check.py").exists():
        typer.echo("the plans of the stages were not checked: this version cannot")
        return
    done = subprocess.run([sys.executable, "-m", "anabranch.processing.check", str(file)], check=False)
    if done.returncode != 0:
        raise typer.Exit(2 if done.returncode == 2 else 1)


@app.command()
def topics(
    file: PipelineFile,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of objects.")] = False,
    create: Annotated[bool, typer.Option("--create", help="Create those that are missing; needs --kafka.")] = False,
    kafka: Annotated[str | None, typer.Option(metavar="ADDR", envvar=_KAFKA_VARIABLE, help="Where to create them, HOST:PORT.")] = None,
    replication: Replication = None,
) -> None:
    """List the topics of a pipeline with their settings: those you write, those you read, and the internal ones.

    anabranch topics pipeline.yaml

    anabranch topics pipeline.yaml --create --kafka broker-1:9092 --replication 3
    """
    from anabranch.local.topics import prepare, topics_of
    from anabranch.pipeline.file import load

    found = topics_of(load(file), replication=replication)
    if create:
        from anabranch.adapters.kafka.log import KafkaEventLog

        if kafka is None:
            raise ConfigurationError(f"--create needs --kafka ADDR, or {_KAFKA_VARIABLE}")
        for name in prepare(KafkaEventLog(kafka), found, create_inputs=True, say=typer.echo):
            typer.echo(f"created {name}")
        return
    if as_json:
        typer.echo(json.dumps([{"kind": topic.kind, "owner": topic.owner, **asdict(topic.settings)} for topic in found], indent=1))
        return
    whose = {"input": "you write", "output": "you read", "internal": "internal"}
    width = max(len(topic.settings.name) for topic in found)
    typer.echo(f"{'topic':<{width}}  {'whose':<9}  {'kind':<12}  partitions  settings")
    for topic in found:
        settings = " ".join(f"{name}={value}" for name, value in topic.settings.config.items())
        name, partitions = topic.settings.name, topic.settings.partitions
        typer.echo(f"{name:<{width}}  {whose[topic.owner]:<9}  {topic.kind:<12}  {partitions:>10}  {settings}")


@app.command()
def tail(
    output: Annotated[str, typer.Argument(help="Name of an output in the pipeline file.")],
    live: Annotated[bool, typer.Option("--live", help="The live topic instead of the corrected one.")] = False,
    pipeline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The pipeline file (default: that of the running deployment).")
    ] = None,
    state_dir: StateDir = None,
    kafka: Annotated[
        str | None,
        typer.Option(metavar="ADDR", envvar=_KAFKA_VARIABLE, help="The broker, HOST:PORT (default: that of the running deployment)."),
    ] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="All that is there, then what comes.")] = False,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N records (default: go on until Ctrl-C).")] = None,
    with_id: Annotated[bool, typer.Option("--with-id", help="Before each value: its id, its time in ms, and its key.")] = False,
) -> None:
    """Show an output as it grows: one value per line. Values that are not text (Avro) are shown as base64.

    With --live each line begins with what it is: insertion, tentative, undo (what is tentative above is void), rec_done (all is corrected).

    anabranch tail tolls

    anabranch tail tolls --live

    anabranch tail tolls --from-beginning --count 10 --with-id
    """
    from anabranch.adapters.kafka.log import KafkaEventLog
    from anabranch.local import state_file
    from anabranch.local.tail import follow, sink_of
    from anabranch.pipeline.file import load

    directory = _state_directory(state_dir, pipeline)
    running = state_file.read(directory)
    if running is None and (kafka is None or pipeline is None):
        raise ConfigurationError(f"{state_file.nothing_runs(directory)}; for one that runs elsewhere give --pipeline and --kafka")
    file = pipeline if pipeline is not None else Path(running.pipeline) if running is not None else None
    address = kafka if kafka is not None else running.kafka if running is not None else None
    if file is None or address is None:
        raise ConfigurationError("give --pipeline and --kafka")
    topic = sink_of(load(file), output, live=live).topic
    with _stop_events() as (stopping, _):
        shown = 0
        for record in follow(KafkaEventLog(address), topic, stopping, from_beginning=from_beginning):
            if live and record.repeated:
                continue
            sys.stdout.write(f"{record.line(with_id=with_id, live=live)}\n")
            sys.stdout.flush()
            shown += 1
            if shown == count:
                break


@app.command()
def doctor(
    kafka: Annotated[
        str | None,
        typer.Option(metavar="ADDR", envvar=_KAFKA_VARIABLE, help="Check this broker too: version and clock (writes one record)."),
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Check what this machine needs, and say what to do about what is missing. Exit code 1 if anything is bad.

    anabranch doctor

    anabranch doctor --kafka broker-1:9092
    """
    from anabranch.local.doctor import examine

    console = Console(soft_wrap=True, highlight=False)
    checks = examine(kafka, _state_directory(state_dir, None))
    for one in checks:
        mark = "[green]ok [/]" if one.good else "[red]bad[/]"
        console.print(f"{mark} {one.name:<13} {escape(one.found)}")
        if one.remedy:
            console.print(f"    {'':<13} {escape(one.remedy)}")
    if not all(one.good for one in checks):
        raise typer.Exit(1)


@app.command()
def classes() -> None:
    """Keep Spark's and Kafka's classes as Java has loaded them, once per machine and version: nodes then start with half of the processor time.

    It also downloads a small jar with which Spark writes checkpoints without a forked command for each file.

    anabranch classes
    """
    from anabranch.adapters.spark import bare_files, class_archive
    from anabranch.local import kafka_classes

    try:
        bare_files.fetch()
    except ConfigurationError as error:
        typer.echo(f"note: {error}", err=True)
    made = class_archive.make()
    typer.echo(f"{'made' if made else 'there already:'} {class_archive.place().archive}")
    made = kafka_classes.make()
    typer.echo("made that of the embedded broker" if made else "there already: that of the embedded broker")


@app.command()
def version() -> None:
    """Print the version, as `anabranch --version` does."""
    typer.echo(_version())


drill_commands.add_to(app)
access_command.add_to(app)
give_up_command.add_to(app)


if __name__ == "__main__":
    main()
