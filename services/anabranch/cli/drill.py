"""The commands ``anabranch drill kill``, ``pause``, ``resume``, ``cut`` and ``heal``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from anabranch.adapters.system.clock import SystemClock
from anabranch.cli.completion import processes
from anabranch.cli.options import File, StateDir
from anabranch.local import state_file
from anabranch.local.drill_links import Cut, Direction
from anabranch.local.drills import Drill
from anabranch.pipeline.durations import parse_ms
from anabranch.protocol.errors import AnabranchError, ConfigurationError

app = typer.Typer(
    help=(
        "Break a running deployment on purpose, and see that its results stay right: crashes,"
        " hangs, lost networks.\n\n"
        "For processes that `anabranch up` runs on this machine; `cut` and `heal` need `anabranch"
        " up --drills`. What to expect of each drill: docs/drills.md.\n\n"
        "    anabranch drill kill processing/local.0\n\n"
        "    anabranch drill cut ingestion/reports_2 --for 20s\n\n"
        "Exit codes, here and below: 0 done, 1 the process does not run now or did not react, 2"
        " there is no such process, or nothing runs."
    ),
    no_args_is_help=True,
)

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="SERVICE/NAME...",
        help="As `anabranch status` shows them, e.g. `ingestion/reports_2`.",
        autocompletion=processes,
    ),
]
Duration = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="TIME",
        help="Undo it after this time, e.g. `20s`; the command waits. Ctrl-C undoes it too.",
    ),
]


@app.command()
def kill(names: Names, file: File = None, state_dir: StateDir = None) -> None:
    """Kill processes and their children (a node's Java and Python workers) with SIGKILL, as a crash
    would.

    The supervisor starts them again after half a second, or later if it happens often. What to see:
    `anabranch status` counts a restart, and the output topics still get each result once; with a
    second replica of a stage no result is late.

        anabranch drill kill processing/local.0

        anabranch drill kill kafka/kafka        # the embedded servers too: kafka/kafka, redis/redis
    """
    drill = _drill(state_dir, file, names)
    for name in names:
        typer.echo(f"killed {name}: processes {_listed(drill.kill(name))}; it is started again")


@app.command()
def pause(
    names: Names, file: File = None, state_dir: StateDir = None, duration: Duration = None
) -> None:
    """Stop processes and their children with SIGSTOP: they exist and do nothing, as on a machine
    that hangs.

    A paused process is not restarted, unlike a killed one. After `resume` it continues with its old
    state; a stage or a delivery that was replaced meanwhile notices that it is fenced. What to see:
    `status` shows it as `paused`.

        anabranch drill pause processing/local.0 --for 20s

        anabranch drill pause ingestion/reports_2; anabranch drill resume ingestion/reports_2
    """
    drill = _drill(state_dir, file, names)

    def undo(name: str) -> None:
        drill.resume(name)
        typer.echo(f"resumed {name}")

    with _UndoAfter(duration, lambda: _each(names, undo)) as wait:
        for name in names:
            typer.echo(f"paused {name}: processes {_listed(drill.pause(name))}")
        wait()


@app.command()
def resume(names: Names, file: File = None, state_dir: StateDir = None) -> None:
    """Continue processes that `anabranch drill pause` stopped. Others are not affected.

    What to see: the process catches up, `status` no longer shows it as `paused`, and no result
    appears twice.

        anabranch drill resume processing/local.0
    """
    drill = _drill(state_dir, file, names)
    _each(
        names, lambda name: typer.echo(f"resumed {name}: processes {_listed(drill.resume(name))}")
    )


@app.command()
def cut(
    names: Names,
    file: File = None,
    state_dir: StateDir = None,
    direction: Annotated[
        Direction,
        typer.Option(
            help=(
                "`to`: its requests do not reach Kafka; `from`: they do, but Kafka's answers are"
                " lost."
            )
        ),
    ] = Direction.BOTH,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Slow the link instead: delay all bytes, each way, by this time, e.g. `100ms`.",
        ),
    ] = None,
    reset: Annotated[
        bool,
        typer.Option(
            "--reset",
            help="Close its connections and refuse new ones, instead of dropping bytes.",
        ),
    ] = False,
    duration: Duration = None,
) -> None:
    """Cut services off from Kafka, as a lost network does: no byte passes, no connection is closed.
    Needs `anabranch up --drills`.

    Cut a source off and watch the outputs. For `max_delay` no results appear; then the live topic
    continues with tentative results, made without that source. After `heal`: one undo, the
    corrections, and the corrected topic is as if nothing had happened.

        anabranch drill cut ingestion/reports_2 --for 20s

        anabranch drill cut ingestion/reports_2; anabranch tail tolls --live

        anabranch drill cut delivery/tolls --direction from      # its writes succeed unnoticed

        anabranch drill cut ingestion/reports_2 --delay 100ms --for 20s      # not cut: slow
    """
    drill = _drill(state_dir, file, names)
    if delay is not None and reset:
        raise ConfigurationError(
            "--delay and --reset exclude each other: a link is slow, or it is closed"
        )
    wanted = Cut(direction, reset, 0 if delay is None else _milliseconds("--delay", delay))

    def undo(name: str) -> None:
        drill.heal(name)
        typer.echo(f"healed {name}")

    with _UndoAfter(duration, lambda: _each(names, undo)) as wait:
        for name in names:
            drill.cut(name, wanted)
            typer.echo(f"cut {name}: {wanted.in_words()}")
        wait()


@app.command()
def heal(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SERVICE/NAME...]",
            help="As `anabranch status` shows them; none: all that are cut.",
            autocompletion=processes,
        ),
    ] = None,
    file: File = None,
    state_dir: StateDir = None,
) -> None:
    """End a cut: services that `anabranch drill cut` has cut off reach Kafka again.

    Data that the cut held back arrives now. What to see after a cut longer than `max_delay`: on the
    live topic one undo, the corrections, then rec_done; the corrected topic continues as if nothing
    had happened.

        anabranch drill heal ingestion/reports_2

        anabranch drill heal                 # all that are cut
    """
    drill = _drill(state_dir, file, names or ())
    chosen = names or list(drill.cuts())

    def undo(name: str) -> None:
        drill.heal(name)
        typer.echo(f"healed {name}")

    _each(chosen, undo)
    if not chosen:
        typer.echo("nothing is cut")


class _UndoAfter:
    """Block that undoes a drill at its end, also when it ends by Ctrl-C, if a duration was given.

    The block gets a function that waits for the duration. Without a duration the drill remains.
    """

    def __init__(self, duration: str | None, undo: Callable[[], None]) -> None:
        """Prepare the block; fail if ``duration`` is not a duration."""
        self._duration_ms = None if duration is None else _milliseconds("--for", duration)
        self._undo = undo

    def __enter__(self) -> Callable[[], None]:
        return self._wait

    def _wait(self) -> None:
        if self._duration_ms is not None:
            SystemClock().sleep_ms(self._duration_ms)

    def __exit__(self, *_: object) -> None:
        if self._duration_ms is not None:
            self._undo()


def _each(names: Sequence[str], undo: Callable[[str], None]) -> None:
    """Call ``undo`` for each name, also after it has failed for one; then raise the first error."""
    errors: list[AnabranchError] = []
    for name in names:
        try:
            undo(name)
        except AnabranchError as error:
            errors.append(error)
    for other in errors[1:]:
        typer.echo(str(other), err=True)
    if errors:
        raise errors[0]


def _milliseconds(option: str, duration: str) -> int:
    """Return the duration given to ``option``, in ms."""
    try:
        return parse_ms(duration)
    except ValueError as error:
        raise ConfigurationError(f"{option} {duration}: {error}") from error


def _drill(state_dir: Path | None, file: Path | None, names: Sequence[str]) -> Drill:
    """Return the drills of a deployment; fail if it does not have all processes in ``names``."""
    drill = Drill(state_file.directory_of(state_dir, file))
    drill.check(names)
    return drill


def _listed(pids: list[int]) -> str:
    return " ".join(map(str, sorted(pids)))
