"""A machine without any Java, or without one of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from anabranch.adapters.system import java

_PROGRAMS: Final = {"java", "javac", "jcmd", "keytool"}


def hide_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process find no Java, neither the machine's nor the package's."""
    monkeypatch.setattr(java, "_candidates", lambda: [("on PATH", None)])


def environment_without_java(folder: Path) -> dict[str, str]:
    """Return the environment of a machine that has all programs of this one but Java's.

    ``folder`` must exist; it gets a link to each program.
    """
    for place in os.get_exec_path():
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name not in _PROGRAMS and not link.exists() and not link.is_symlink():
                link.symlink_to(program)
    environment = {**os.environ, "PATH": str(folder)}
    environment.pop("JAVA_HOME", None)
    return environment
