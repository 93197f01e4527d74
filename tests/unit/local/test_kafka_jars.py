"""Whether the broker's jars are there. That they can be had: ``tests/integration``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.local import kafka_jars


def test_jars_are_there_once_all_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path))
    assert not kafka_jars.is_downloaded()
    (tmp_path / "a.jar").touch()
    kafka_jars._listing(tmp_path).write_text(json.dumps(["a.jar", "b.jar"]))
    assert not kafka_jars.is_downloaded(), "someone has removed one"
    (tmp_path / "b.jar").touch()
    assert kafka_jars.is_downloaded()
    assert kafka_jars.kafka_classpath() == [tmp_path / "a.jar", tmp_path / "b.jar"]
