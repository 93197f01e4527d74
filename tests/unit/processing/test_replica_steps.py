"""Steps of a replica's start whose failure does not end it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.processing.replica_environment import HostProcess
from anabranch.processing.replica_steps import ReplicaSteps
from anabranch.protocol.log.timeline import Clean


def test_checkpoints_that_cannot_be_removed_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """They fill the disk, and nothing else would say why."""

    def clean(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "checkpoints/e1-0")

    disk: Any = SimpleNamespace(clean=clean)
    rules: Any = SimpleNamespace(ha="upstream_backup", horizon_buckets=0, restated_after=None)
    boundary: Any = None
    steps = ReplicaSteps(boundary, disk, HostProcess(VirtualClock()), rules)
    assert steps.carry_out(Clean(1)) is None
    assert "not removed" in caplog.text
    assert "checkpoints/e1-0" in caplog.text
