"""Asking before what cannot be taken back."""

from __future__ import annotations

import typer

from anabranch.protocol.errors import ConfigurationError


def confirm(question: str, yes: bool) -> None:
    """Return if the person at the terminal agrees, or gave ``--yes``.

    Raises:
        ConfigurationError: they do not agree, or nobody is there to answer.
    """
    if yes:
        return
    try:
        agreed = typer.confirm(f"{question} This cannot be taken back.")
    except typer.Abort:
        typer.echo()
        agreed = False
    if not agreed:
        raise ConfigurationError("not confirmed, nothing was changed; --yes does not ask")
