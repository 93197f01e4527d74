"""Confirmation by the user before a command does what cannot be undone."""

from __future__ import annotations

import typer

from anabranch.protocol.errors import ConfigurationError


def confirm(question: str, yes: bool) -> None:
    """Ask the user at the terminal to agree, unless ``yes`` is true (``--yes``).

    Raises:
        ConfigurationError: the user does not agree, or there is no terminal.
    """
    if yes:
        return
    try:
        agreed = typer.confirm(f"{question} This cannot be undone.")
    except typer.Abort:
        typer.echo()
        agreed = False
    if not agreed:
        raise ConfigurationError(
            "not confirmed: nothing was changed; with --yes the command does not ask"
        )
