from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import app


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_exit_with_1_comes_with_its_reason(tmp_path: Path, form: list[str]) -> None:
    result = CliRunner().invoke(app, ["status", "--state-dir", str(tmp_path), *form])
    assert result.exit_code == 1
    assert result.stderr.startswith("nothing runs in ")
    assert result.stdout == ("[]\n" if form else "")
