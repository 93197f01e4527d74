"""The command ``anabranch version``."""

from __future__ import annotations

import importlib.metadata

import typer


def version() -> None:
    """Print the version, as `anabranch --version` does."""
    typer.echo(version_text())


def print_version(wanted: bool) -> None:
    """Print the version and end the command, if the option ``--version`` is ``wanted``."""
    if wanted:
        typer.echo(version_text())
        raise typer.Exit


def version_text() -> str:
    """Return the version of the installed package."""
    try:
        return importlib.metadata.version("anabranch")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (run from a checkout)"
