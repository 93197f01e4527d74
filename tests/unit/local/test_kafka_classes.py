"""Tests of the path of the archive of the broker's classes: another Java or other jars have
another.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.system.java import Java
from anabranch.adapters.system.java_archive import options_to_use
from anabranch.local import kafka_classes


def test_an_archive_is_for_one_java_and_one_set_of_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path))
    paths = [tmp_path / name for name in ("java", "other", "a.jar", "b.jar")]
    for path in paths:
        path.write_text(path.name)
    java, other = (Java(path, 17, tmp_path) for path in paths[:2])
    jar, more = paths[2:]
    places = [
        kafka_classes.archive(*given)
        for given in ((java, [jar]), (other, [jar]), (java, [more]), (java, [jar, more]))
    ]
    assert len(set(places)) == 4
    assert kafka_classes.archive(java, [jar]) == places[0]
    jar.write_text("another content")
    assert kafka_classes.archive(java, [jar]) != places[0]


def test_a_broker_without_an_archive_starts_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path))
    (tmp_path / "java").touch()
    java = Java(tmp_path / "java", 17, tmp_path)
    assert kafka_classes.options(java, []) == []
    kafka_classes.archive(java, []).touch()
    archive = kafka_classes.archive(java, [])
    assert kafka_classes.options(java, []) == options_to_use(java, archive)
