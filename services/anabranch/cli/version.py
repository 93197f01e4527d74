"""``anabranch version``."""

from __future__ import annotations

import importlib.metadata

import typer


def version() -> None:
    """Print the version, as `anabranch --version` does."""
    typer.echo(_version())


def print_version(wanted: bool) -> None:
    """Callback of the option ``--version``, which ends the command."""
    if wanted:
        typer.echo(_version())
        raise typer.Exit


def _version() -> str:
    try:
        return importlib.metadata.version("anabranch")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (run from a checkout)"
