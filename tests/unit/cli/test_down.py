"""``anabranch down``: stop a deployment that may be ending anyway."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.local.state_file import Lock


def test_a_deployment_that_another_command_has_just_stopped_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    holders = [ended.pid]
    monkeypatch.setattr(Lock, "holder", lambda _: holders.pop() if holders else None)
    result = CliRunner().invoke(app, ["down", "--state-dir", str(tmp_path)])
    assert result.exit_code == 0, result.exception
    assert result.output.endswith("stopped\n")
