"""The tree of the commands, which the tests of all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import typer.testing
from typer.main import get_command


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> Iterator[None]:
    """Let ``CliRunner`` keep what it builds of an application. Otherwise it builds all commands for
    each call of one, from the annotations of their parameters, which takes longer than most calls.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer.testing, "_get_command", cache(get_command))
        yield
