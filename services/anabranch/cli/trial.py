"""The command ``anabranch test``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.options import File, Offers, need_spark, pipeline_file
from anabranch.cli.work_display import run_shown


def trial(
    cases: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CASE...]", help="Folders in `tests` (default: all)."),
    ] = None,
    file: File = None,
    offers: Offers = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--tests",
            metavar="DIR",
            help="Folder of the cases (default: `tests` next to the pipeline file).",
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Write the stages' rows into the files of expected rows that there are, also empty"
            " ones; check them before you keep them.",
        ),
    ] = False,
) -> None:
    """Run the stages' functions on sample rows, on real Spark and without a broker, and compare
    their rows with the expected ones.

    For writing a function, and for CI. A case is a folder: `tests/CASE/SOURCE.jsonl` has the
    records of a source (of a binding: rows with their `event_time` in ms), and
    `tests/CASE/STAGE.expected.jsonl` has the rows that a stage makes of them, in any order. A
    missing row is shown with `-`, an unexpected one with `+`.

        anabranch test

        anabranch test sample --update       # from now on, expect the rows that the stages give

    Exit codes: 0 all rows as expected, 1 some differ or a function failed, 2 a mistake in a file.
    """
    named = pipeline_file(file)
    place = folder if folder is not None else named.resolve().parent / "tests"
    need_spark()
    # In a process of its own, because it starts Spark and imports the user's code: neither belongs
    # into the process of the command line, which also supervises services.
    own = ["--offers", str(offers)] if offers is not None else []
    words = [str(named), str(place), *own, *(["--update"] if update else []), *(cases or [])]
    code = run_shown(
        [sys.executable, "-m", "anabranch.operating.trial", *words],
        "starting Spark and running the stages",
    )
    if code != 0:
        raise typer.Exit(2 if code == 2 else 1)
