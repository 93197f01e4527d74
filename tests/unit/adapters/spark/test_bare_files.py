"""``adapters.spark.bare_files``: the jar is the one that was checked, or Spark is told
nothing of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.adapters.spark import bare_files
from anabranch.adapters.system.cache import cache_dir
from anabranch.protocol.errors import ConfigurationError

CONTENT = b"a jar"


class Repository:
    """Stands for Maven Central."""

    def __init__(self, folder: Path) -> None:
        self.downloads = 0
        self.content: bytes | None = CONTENT
        self._file = folder / "downloaded.jar"

    def fetched(self, groups: Sequence[Sequence[str]], cache: Path) -> dict[tuple[str, str], Path]:
        assert cache == cache_dir()
        self.downloads += 1
        if self.content is None:
            raise ConfigurationError("could not be downloaded (no network)")
        self._file.write_bytes(self.content)
        organisation, artefact, _ = groups[0][0].split(":")
        return {(organisation, artefact): self._file}


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Repository:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bare_files, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    repository = Repository(tmp_path)
    monkeypatch.setattr(bare_files, "fetched", repository.fetched)
    return repository


def test_the_jar_is_fetched_once_and_spark_uses_it(repository: Repository) -> None:
    assert bare_files.settings() == {}
    bare_files.fetch()
    bare_files.fetch()
    assert repository.downloads == 1
    found = bare_files.jar()
    assert found is not None
    assert found.read_bytes() == CONTENT
    assert bare_files.settings()["spark.driver.extraClassPath"] == str(found)


def test_without_a_network_spark_runs_without_and_the_log_says_why(repository: Repository) -> None:
    repository.content = None
    with pytest.raises(ConfigurationError, match=r"no network.*fork a chmod"):
        bare_files.fetch()
    assert bare_files.settings() == {}


def test_a_jar_that_is_another_is_not_taken(repository: Repository) -> None:
    repository.content = b"another jar"
    with pytest.raises(ConfigurationError, match="not the jar that was checked"):
        bare_files.fetch()
    assert list(cache_dir().glob("*.jar")) == []
    assert bare_files.settings() == {}


def test_a_jar_that_was_changed_in_the_cache_is_fetched_again(repository: Repository) -> None:
    bare_files.fetch()
    found = bare_files.jar()
    assert found is not None
    found.write_bytes(b"changed")
    assert bare_files.settings() == {}
    bare_files.fetch()
    assert repository.downloads == 2
    assert found.read_bytes() == CONTENT
