"""``anabranch version``."""

from __future__ import annotations

import importlib.metadata

import typer


def version() -> None:
    """Print the version, as `anabranch --version` does."""
    typer.echo(version_text())


def print_version(wanted: bool) -> None:
    """Callback of the option ``--version``, which ends the command."""
    if wanted:
        typer.echo(version_text())
        raise typer.Exit


def version_text() -> str:
    """The version of the package that runs."""
    try:
        return importlib.metadata.version("anabranch")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (run from a checkout)"
