"""``anabranch ui`` before it serves anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.protocol.errors import ConfigurationError
from harness.page_scenes import TOLL_ROAD


@pytest.mark.parametrize(
    "given",
    ["delivery/tolls", "delivery/tolls=host", "tolls=host:1", "a/b=:1", "a/b=host:x", "=host:1"],
)
def test_a_process_that_is_not_named_whole_is_a_mistake(tmp_path: Path, given: str) -> None:
    found = CliRunner().invoke(
        app, ["ui", "-f", str(TOLL_ROAD), "--state-dir", str(tmp_path), "--process", given]
    )
    assert isinstance(found.exception, ConfigurationError)
    assert "SERVICE/NAME=HOST:PORT" in str(found.exception)


def test_an_address_that_is_none_is_a_mistake_and_the_token_is_not_repeated(
    tmp_path: Path,
) -> None:
    arguments = ["ui", "-f", str(TOLL_ROAD), "--state-dir", str(tmp_path), "--host", "192.0.2.1"]
    found = CliRunner().invoke(app, arguments, env={"ANABRANCH_UI_TOKEN": "secret"})
    assert isinstance(found.exception, ConfigurationError)
    assert "--host 192.0.2.1" in str(found.exception)
    assert "secret" not in found.output
    found = CliRunner().invoke(app, arguments, env={"ANABRANCH_UI_TOKEN": ""})
    assert found.output.startswith("token: ")
