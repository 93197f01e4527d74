"""How far the start and the end of a deployment are, by what its processes print and whether they
run. A whole one: ``tests/spark``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from anabranch.adapters.system.progress import Step
from demo import deployment as module
from demo.deployment import Deployment

UP = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
def stop(*_):
    until({stopping!r})
    child.kill()
    child.wait()
    sys.exit()
def until(path):
    os.read(os.open(path, os.O_RDONLY), 1)  # of a pipe: waits for the test
signal.signal(signal.SIGINT, stop)
for line in ("created 3 topics", "ingestion/a is running (pid 1)", "kafka is running (pid 2)"):
    print(line, flush=True)
until({counted!r})
print("delivery/b is running (pid 3)", flush=True)
print("ready  kafka k:1", flush=True)
signal.pause()
"""
STATUS = """
import json
rows = [("kafka", "kafka"), ("ingestion", "a"), ("delivery", "b")]
print(json.dumps([{"service": s, "name": n, "state": "starting"} for s, n in rows]))
"""


def test_how_far_start_and_end_are_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, stopping = tmp_path / "counted", tmp_path / "stopping"
    for pipe in (counted, stopping):
        os.mkfifo(pipe)
    up = UP.format(counted=str(counted), stopping=str(stopping))
    program = f"import sys; exec({up!r} if sys.argv[1] == 'up' else {STATUS!r})"
    monkeypatch.setattr(module, "_anabranch", lambda: [sys.executable, "-c", program])
    deployment = Deployment(tmp_path / "p.yaml", tmp_path / "state", tmp_path / "up.log")
    steps: list[Step] = []

    def started_so_far(what: str, done: int, total: int) -> None:
        steps.append(Step(what, done, total))
        starts.write(b".")

    def ended_so_far(what: str, done: int, total: int) -> None:
        steps.append(Step(what, done, total))
        stops.write(b".")

    # Open for both directions, a pipe waits for no reader.
    with (
        counted.open("r+b", buffering=0) as starts,
        stopping.open("r+b", buffering=0) as stops,
    ):
        try:
            deployment.wait_ready(60, progress=started_so_far)
        finally:
            left = deployment.stop(set(), ended_so_far)
    assert left == []
    started = [step for step in steps if step.what == "processes ready"]
    assert set(started) == {Step("processes ready", 1, 2)}, "the broker is no service"
    stopped = [step for step in steps if step.what == "processes stopped"]
    assert stopped[0] == Step("processes stopped", 0, 2), "its own, and another"
