"""Archives of classes, written and used by each Java of this machine."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from anabranch.adapters.system import java
from anabranch.adapters.system.java import Java, find_java
from anabranch.adapters.system.java_archive import options_to_use, options_to_write, suffix
from anabranch.protocol.errors import ConfigurationError


def _run(of: Java, *options: str) -> str:
    """Return what Java prints, but whether it shares classes; it must end with 0."""
    ran = subprocess.run(
        [str(of.executable), *options, "-version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return (ran.stdout + ran.stderr).replace(", sharing", "")


def _packaged(monkeypatch: pytest.MonkeyPatch) -> Java:
    """Return the Java of the package, which came without a class-data archive."""
    program = java._packaged()
    assert program is not None
    monkeypatch.setattr(java, "_candidates", lambda: [("in the package", program)])
    return find_java()


def test_the_packaged_java_writes_an_archive_and_starts_from_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packaged = _packaged(monkeypatch)
    archive = tmp_path / f"classes{suffix(packaged)}"
    _run(packaged, *options_to_write(packaged, archive))
    assert archive.stat().st_size > 1_000_000
    use = options_to_use(packaged, archive)
    plain = _run(packaged)
    assert _run(packaged, *use) == plain, "it says nothing more"
    assert f"Opened AOT cache {archive}" in _run(packaged, use[0], "-Xlog:aot")


@pytest.mark.parametrize("content", [None, b"", b"not an archive"])
def test_an_archive_that_does_not_fit_is_ignored_without_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    javas = [_packaged(monkeypatch)]
    monkeypatch.undo()
    with contextlib.suppress(ConfigurationError):  # the machine has no other
        javas.append(find_java())
    for each in javas:
        archive = tmp_path / f"other{suffix(each)}"
        if content is not None:
            archive.write_bytes(content)
        assert _run(each, *options_to_use(each, archive)) == _run(each)


def test_the_kind_follows_from_the_version() -> None:
    old, new = (Java(Path("java"), major, Path()) for major in (24, 25))
    assert (suffix(old), suffix(new)) == (".jsa", ".aot")
    assert options_to_write(old, Path("a.jsa")) == ["-XX:ArchiveClassesAtExit=a.jsa"]
    assert options_to_write(new, Path("a.aot"))[0] == "-XX:AOTCacheOutput=a.aot"
