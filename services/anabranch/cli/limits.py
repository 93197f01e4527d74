"""The command ``anabranch limits``: prints the limits of ``protocol.limits``."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer
from rich.console import Console

from anabranch.cli.tables import print_whole, table
from anabranch.protocol import limits as protocol_limits

_DECLARED: Final = re.compile(
    r'^([A-Z][A-Z0-9_]*): Final = [^"\n]*\n"""(.*?)"""', re.MULTILINE | re.DOTALL
)
"""A constant with the docstring under it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit; its name ends with its unit."""

    name: str
    value: int
    text: str
    """Text of what the limit bounds, and what goes wrong beyond it."""


def shared_limits() -> list[Limit]:
    """Return the limits of ``protocol.limits`` in the order of the module.

    Values come from the loaded module, and texts from its source: Python keeps no docstrings of
    constants.
    """
    return [
        Limit(name, getattr(protocol_limits, name), " ".join(text.replace("``", "`").split()))
        for name, text in _DECLARED.findall(inspect.getsource(protocol_limits))
    ]


def limits(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="List only limits that have all of these words.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the limits that hold for several services, with value, what each bounds, and what goes
    wrong beyond it.

        anabranch limits

        anabranch limits record bytes

        anabranch limits --json | jq '.[] | select(.name | contains("BYTES"))'
    """
    found = [
        limit
        for limit in shared_limits()
        if all(word.lower() in f"{limit.name} {limit.text}".lower() for word in words or ())
    ]
    if as_json:
        typer.echo(json.dumps([asdict(limit) for limit in found], indent=1))
        return
    if not found:
        typer.echo("no limit has all of these words; `anabranch limits` lists all")
        return
    shown = table(
        ("limit", "value", "what it bounds, and why"),
        [(each.name, f"{each.value:,}".replace(",", " "), each.text) for each in found],
    )
    if Console().is_terminal:
        Console().print(shown)  # long texts go over several lines
    else:
        print_whole(shown)
