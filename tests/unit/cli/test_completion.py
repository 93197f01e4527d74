"""The names that a shell suggests after a TAB."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.local import state_file
from anabranch.local.state_file import Deployment, ProcessRow

FILE = Path(__file__).parents[3] / "examples" / "toll_road" / "pipeline.yaml"


def offered(words: str) -> list[str]:
    variables = {
        "_ANABRANCH_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    return CliRunner().invoke(app, [], prog_name="anabranch", env=variables).output.split()


def test_names_of_the_pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(FILE.parent)
    assert offered("anabranch dr") == ["drill"]
    assert offered("anabranch drill c") == ["cut"]
    assert offered("anabranch produce rep") == ["reports_0", "reports_1", "reports_2"]
    assert offered("anabranch tail ") == ["tolls"]
    assert offered("anabranch tail --rejected rep") == ["reports_0", "reports_1", "reports_2"]
    assert offered("anabranch give-up reports_2") == ["reports_2"]
    monkeypatch.chdir(tmp_path)
    assert offered("anabranch produce rep") == [], "no file, and no error"
    assert offered(f"anabranch produce -f {FILE} rep") == ["reports_0", "reports_1", "reports_2"]


def test_names_of_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("logs", "restart", "drill kill"):
        assert offered(f"anabranch {command} ") == []
    (tmp_path / ".anabranch").mkdir()
    rows = (
        ProcessRow("kafka", "kafka"),
        ProcessRow("ingestion", "a"),
        ProcessRow("ingestion", "b"),
    )
    state_file.write(tmp_path / ".anabranch", Deployment(1, "p.yaml", "k:1", None, True, rows))
    for command in ("logs", "restart", "drill kill", "drill heal"):
        assert offered(f"anabranch {command} ing") == ["ingestion/a", "ingestion/b"]
