"""docs/cli.md has every command and every option, as the parser has them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer

from anabranch import cli
from deploy.cli_reference import PAGE, described, written


def paths(group: typer.core.TyperGroup, path: str) -> Iterator[tuple[str, set[str]]]:
    """(path, long options) of each command."""
    for name, command in group.commands.items():
        yield (
            f"{path} {name}",
            {
                option
                for each in command.params
                for option in (*each.opts, *each.secondary_opts)
                if option.startswith("--")
            },
        )
        if isinstance(command, typer.core.TyperGroup):
            yield from paths(command, f"{path} {name}")


def test_the_page_is_what_the_commands_make_of_it() -> None:
    assert PAGE.read_text() == written(), "write it anew: make cli-reference"


def test_no_heading_stands_twice() -> None:
    headings = re.findall(r"^#+ .+$", PAGE.read_text(), re.MULTILINE)
    assert len(set(headings)) == len(headings)


def test_every_command_has_a_section_with_its_options_and_no_other() -> None:
    sections = dict(
        re.findall(r"^### (.+)\n((?:(?!#).*\n)*)", PAGE.read_text() + "\n", re.MULTILINE)
    )
    app = typer.main.get_command(cli.app)
    assert isinstance(app, typer.core.TyperGroup)
    commands = dict(paths(app, "anabranch"))
    assert len(commands) > 40
    assert set(sections) == set(commands)
    for command, options in commands.items():
        shown = re.findall(r"^\| `([^`]*)`", sections[command], re.MULTILINE)
        assert set(re.findall(r"--[\w-]+", " ".join(shown))) == options - {"--help"}, command
        assert command == "anabranch version" or f"\n{command}" in sections[command], (
            f"the help of {command} has an example"
        )


def test_what_a_person_would_type_is_one_block() -> None:
    text = "Does it,\nand more.\n\nanabranch a\n\n    anabranch b -f x\n\nThe end."
    assert described(text) == (
        "Does it,\nand more.\n\n```\nanabranch a\nanabranch b -f x\n```\n\nThe end."
    )
