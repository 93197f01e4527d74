"""``adapters.spark.session``: what can be said about it without Spark."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from anabranch.adapters.spark import session
from anabranch.adapters.spark.settings import Compilers
from anabranch.adapters.system.java import find_java
from anabranch.adapters.system.scratch import Scratch
from anabranch.protocol.errors import ConfigurationError
from harness.missing_java import hide_java


@pytest.mark.parametrize("compilers", ["quick", "full"])
def test_java_accepts_the_choice_of_compilers(compilers: Compilers) -> None:
    options = [*shlex.split(session._COMPILERS[compilers]), "-XX:+PrintFlagsFinal"]
    found = subprocess.run(
        [str(find_java().executable), *options, "-version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    (level,) = re.findall(r"TieredStopAtLevel\s+= (\d)", found.stdout)
    assert int(level) == {"quick": 1, "full": 4}[compilers]


def test_without_java_a_session_says_so_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark would wait, and end with JAVA_GATEWAY_EXITED and a traceback."""
    hide_java(monkeypatch)
    with pytest.raises(ConfigurationError, match="no java on PATH"):
        session.start_session(
            "x",
            master="local[1]",
            memory="512m",
            state_partitions=1,
            import_roots=[],
            scratch=Scratch(tmp_path / "scratch"),
        )
