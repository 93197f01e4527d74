"""The command ``anabranch compose``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from anabranch.cli.options import File, pipeline_file
from anabranch.cli.version import version_text
from anabranch.protocol.errors import ConfigurationError

_OUTPUT: Final = Path("docker-compose.yml")


def compose(
    file: File = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The file to write, which must not exist; `-`: standard output.",
        ),
    ] = _OUTPUT,
    image: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Image of the services (default: anabranch:VERSION)."),
    ] = None,
    build: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Let Compose build the image in this folder, from this project's Dockerfile.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the Compose project (default: the pipeline's)."),
    ] = None,
) -> None:
    """Write a Docker Compose file for a pipeline: a broker, Redis, and one container for each
    process.

    anabranch compose && docker compose up --detach --wait

    anabranch compose -f examples/toll_road/pipeline.yaml -o -
    """
    from anabranch.operating.compose import text
    from anabranch.pipeline.file import load

    named = pipeline_file(file)
    # Relative to the folder of the Compose file: Compose resolves paths from there.
    place = Path.cwd() if str(output) == "-" else output.resolve().parent
    folder = named.resolve().parent
    shown = f"./{folder.relative_to(place)}" if folder.is_relative_to(place) else str(folder)
    written = text(
        load(named),
        folder=shown if shown != "./." else ".",
        image=image or f"anabranch:{version_text()}",
        build=build,
        name=name,
    )
    if str(output) == "-":
        typer.echo(written, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as target:
            target.write(written)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{output} exists already: remove it, or name another file with -o PATH"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{output}: cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {output}")
