"""The command ``anabranch graph``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.options import File, pipeline_file
from anabranch.protocol.errors import ConfigurationError


def graph(
    file: File = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", metavar="PATH", help="Write a picture to this file; `-`: standard output."
        ),
    ] = None,
) -> None:
    """Draw a pipeline: its sources, stages and outputs, and which reads which.

    anabranch graph

    anabranch graph --svg pipeline.svg
    """
    from anabranch.pipeline import drawing
    from anabranch.pipeline.file import load

    pipeline = load(pipeline_file(file))
    if svg is None:
        for line in drawing.text(pipeline):
            typer.echo(line)
    elif str(svg) == "-":
        typer.echo(drawing.svg(pipeline), nl=False)
    else:
        try:
            svg.write_text(drawing.svg(pipeline), encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{svg}: cannot be written: {error.strerror}") from error
