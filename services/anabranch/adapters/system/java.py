"""Finding the Java that runs the embedded broker (and Spark)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.protocol.errors import ConfigurationError

JAVA_MAJOR_MIN: Final = 17
"""Kafka 4 brokers and Spark 4 need it."""

_ANSWER_S: Final = 30
_HOW: Final = (
    f"install a Java {JAVA_MAJOR_MIN} or newer runtime (Debian, Ubuntu: apt install"
    f" openjdk-{JAVA_MAJOR_MIN}-jre-headless; Fedora: dnf install"
    f" java-{JAVA_MAJOR_MIN}-openjdk-headless) and put it on PATH or name its folder in JAVA_HOME"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its executable and major version."""

    executable: Path
    major: int


def find_java() -> Java:
    """The Java in ``JAVA_HOME``, else the one on ``PATH``.

    Raises:
        ConfigurationError: there is none, it does not run, or it is older than ``JAVA_MAJOR_MIN``;
            the text says how to get one.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        message = f"no java {where}: {_HOW}"
        raise ConfigurationError(message)
    try:
        answer = subprocess.run(
            [found, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{found} does not run ({error}): {_HOW}"
        raise ConfigurationError(message) from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        message = (
            f"{found} -version does not tell a version ({answer.stderr.strip()[:200]}): {_HOW}"
        )
        raise ConfigurationError(message)
    major = int(match.group(1))
    if major < JAVA_MAJOR_MIN:
        message = f"{found} is Java {major}: {_HOW}"
        raise ConfigurationError(message)
    return Java(Path(found), major)
