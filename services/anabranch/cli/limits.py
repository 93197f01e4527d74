"""The command ``anabranch limits``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.tables import print_whole, table
from anabranch.operating import limit_table


def limits(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="List only limits that have all of these words.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List every limit in force, with its value, its unit, what it bounds, and what goes wrong
    beyond it.

        anabranch limits

        anabranch limits record bytes

        anabranch limits --json | jq '.[] | select(.unit == "bytes")'
    """
    found = [
        limit
        for limit in limit_table.limits()
        if all(word.lower() in str(asdict(limit)).lower() for word in words or ())
    ]
    if as_json:
        typer.echo(json.dumps([asdict(limit) for limit in found], indent=1))
        return
    shown = table(
        ("limit", "value", "where", "what it bounds, and why"),
        [(each.name, each.shown(), each.module, each.text) for each in found],
    )
    if Console().is_terminal:
        Console().print(shown)  # long texts go over several lines
    else:
        print_whole(shown)
