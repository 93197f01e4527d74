"""The command ``anabranch init``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import checked_name


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new folder, or an empty one.")
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the pipeline (default: the folder's)."),
    ] = None,
) -> None:
    """Write a first pipeline, ready to run: its file, a schema, a stage, sample data and a test.

    anabranch init sensors && cd sensors && anabranch test
    """
    from anabranch.operating.new_pipeline import write

    if name is None:
        name = re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-_") or "pipeline"
        name = name if name[0].isalpha() else f"p-{name}"
    else:
        try:
            checked_name("pipeline", name)
        except ConfigurationError as error:
            raise ConfigurationError(f"--name: {error}") from error
    for path in write(folder, name):
        typer.echo(f"wrote {path}")
    go = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    typer.echo(f"next: {go}anabranch test && anabranch up -d")
