"""The process of a replica that leads: what its dropped branches leave behind."""

from __future__ import annotations

from unittest.mock import Mock

from structlog.testing import capture_logs

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.processing.primary import Primary
from harness import outputs


def test_a_branch_whose_directory_cannot_be_removed_ends_nothing() -> None:
    """It runs on a thread of its own, and an error there would end the node."""
    clock, pipeline = VirtualClock(), outputs.pipeline("p")
    context = outputs.context(
        LocalEventLog(clock), pipeline, clock, SeededEntropy(1), "processing", "north.0"
    )
    runner, branch = Mock(), Mock()
    runner.stopped.side_effect = OSError("Device or resource busy")
    own = Mock(stage_name="totals", label="totals.0")
    with capture_logs() as lines:
        Primary(context, own, Mock(), Mock(), runner, Mock())._end_branch("t", branch)
    branch.stop.assert_called_once()
    assert [(line["event"], line["branch"]) for line in lines] == [("directory_not_removed", "t")]
