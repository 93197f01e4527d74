"""A run ends what it began, whatever fails on the way."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from anabranch.local import state_file
from chaos import run
from chaos.__main__ import parse
from chaos.nemesis import Nemesis
from demo import consuming
from demo.machine_watch import MachineWatch
from demo.process_tree import TreeMeter

NO_THREAD = "can't start new thread"


class StubDeployment:
    """Deployment that is ready at once."""

    pid = os.getpid()

    def __init__(self, *_: object, **__: object) -> None:
        self.stops = 0

    def wait_ready(self, _timeout_s: float) -> None:
        """Return at once."""

    def stop(self, seen: Collection[object]) -> list[int]:
        """Count the stops."""
        del seen
        self.stops += 1
        return []


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> StubDeployment:
    made = StubDeployment()
    known = SimpleNamespace(kafka="broker:1", processes=[])
    monkeypatch.setattr(run, "Deployment", lambda *_, **__: made)
    monkeypatch.setattr(state_file, "read", lambda _: known)
    monkeypatch.setattr(run, "TrafficWriter", Mock())
    monkeypatch.setattr(consuming, "TopicReader", Mock())
    monkeypatch.setattr(run, "draw", lambda *_, **__: [])
    monkeypatch.setattr(Nemesis, "run", lambda _: None)
    monkeypatch.setattr(run.Run, "_look", lambda *_: None)
    monkeypatch.setattr(run.Run, "_generate", lambda *_: None)
    return made


def fails(*_: object) -> None:
    raise RuntimeError(NO_THREAD)


@pytest.mark.parametrize("kind", [Nemesis, MachineWatch, TreeMeter])
def test_a_thread_that_cannot_start_leaves_no_deployment_running(
    deployment: StubDeployment, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run.Run(parse([]), tmp_path, lambda _: None)
    monkeypatch.setattr(kind, "start", fails)
    with pytest.raises(RuntimeError, match=NO_THREAD):
        made.run()
    assert deployment.stops == 1


@pytest.mark.parametrize("kind", [Nemesis, MachineWatch, TreeMeter])
def test_a_thread_that_cannot_be_ended_leaves_no_deployment_running(
    deployment: StubDeployment, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run.Run(parse([]), tmp_path, lambda _: None)
    stops = kind.stop

    def stop(each: Any) -> None:
        stops(each)
        fails()

    monkeypatch.setattr(kind, "stop", stop)
    with pytest.raises(RuntimeError, match=NO_THREAD):
        made.run()
    assert deployment.stops == 1
