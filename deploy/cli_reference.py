"""Generator of the command line's reference, docs/cli.md: every command with its arguments and
options, from the parser and its help texts.

``python -m deploy.cli_reference`` writes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import typer

from anabranch import cli

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs/cli.md"

_PROGRAM: Final = "anabranch"
_HEAD: Final = """\
# Commands

Every command of `anabranch`, with its arguments and options, as `anabranch COMMAND --help` shows
them. `make cli-reference` writes this page from the commands themselves. What they are used for:
[tutorial.md](tutorial.md), [operations.md](operations.md), [drills.md](drills.md),
[federation.md](federation.md).

Commands act on `pipeline.yaml` in the current folder; `-f FILE` names another. Exit codes: 0 done,
2 wrong usage or a wrong file, 1 anything else. `-h` and `--help` of any command print its help;
`anabranch --install-completion` completes commands and options in your shell.
"""
_TYPES: Final = {"int": "N", "float": "N", "str": "TEXT"}
"""Placeholder for a value whose option does not name it, by type."""


def written() -> str:
    """Return the content of docs/cli.md."""
    app = typer.main.get_command(cli.app)
    assert isinstance(app, typer.core.TyperGroup)
    context = app.make_context(_PROGRAM, [], resilient_parsing=True)
    panels: dict[str, list[str]] = {}
    for name, command in app.commands.items():
        panel = str(getattr(command, "rich_help_panel", ""))
        panels.setdefault(panel, [f"## {panel}\n"]).extend(_sections(name, command, context))
    return "\n".join([_HEAD, *chain.from_iterable(panels.values())])


def _sections(name: str, command: Any, parent: Any) -> Iterator[str]:
    """Yield the sections of a command and of its subcommands. ``parent``: the context of the
    command above.
    """
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield f"### {context.command_path}\n"
    yield f"{described(command.help or '')}\n"
    rows = list(_parameters(command, context))
    if rows:
        yield "| | |\n|---|---|\n" + "".join(f"| `{what}` | {text} |\n" for what, text in rows)
    if isinstance(command, typer.core.TyperGroup):
        for below, each in command.commands.items():
            yield from _sections(below, each, context)


def _parameters(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield (syntax, help) of each argument and option except ``--help``."""
    for each in command.get_params(context):
        record = each.get_help_record(context)
        if record is None or each.name == "help":
            continue
        what, text = record
        if each.param_type_name == "argument":
            what = (each.metavar or each.name or "").upper()
        what = re.sub(r" <(\w+)[^>]*>", lambda found: f" {_TYPES.get(found[1], 'VALUE')}", what)
        yield what.replace("|", "\\|"), " ".join(text.replace("|", "\\|").split())


def described(text: str) -> str:
    """Return the help of a command as Markdown, with what a user would type as one block of
    code.
    """
    parts: list[tuple[bool, str]] = []
    for part in text.split("\n\n"):
        is_code = part.startswith((f"{_PROGRAM} ", "    "))
        lines = "\n".join(line.strip() for line in part.strip().splitlines())
        if parts and is_code and parts[-1][0]:
            parts[-1] = True, f"{parts[-1][1]}\n{lines}"
        else:
            parts.append((is_code, lines))
    return "\n\n".join(f"```\n{lines}\n```" if is_code else lines for is_code, lines in parts)


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
