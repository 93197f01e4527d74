"""The process of a replica that leads: what its dropped branches leave behind, stuck queries."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.processing.primary import Primary
from anabranch.protocol.errors import Unavailable
from harness import outputs


def of(runner: Mock) -> Primary:
    """Return a primary that runs the queries of ``runner``."""
    clock, pipeline = VirtualClock(), outputs.pipeline("p")
    context = outputs.context(
        LocalEventLog(clock), pipeline, clock, SeededEntropy(1), "processing", "north.0"
    )
    own = Mock(stage_name="totals", label="totals.0")
    return Primary(context, own, Mock(), Mock(), runner, Mock())


@pytest.mark.parametrize("is_branch", [True, False])
def test_a_stuck_query_ends_itself_or_the_replica(is_branch: bool) -> None:
    runner, query = Mock(), Mock()
    runner.orders.return_value = []
    runner.check_query.side_effect = Unavailable("stuck")
    runner.failed.return_value = is_branch
    query.ended.return_value = False
    primary = of(runner)
    primary._running["t"] = query
    with capture_logs() as lines:
        if is_branch:
            primary.step()
        else:
            with pytest.raises(Unavailable, match="stuck"):
                primary.step()
    assert [(line["event"], line["error"]) for line in lines] == (
        [("branch_failed", "stuck")] if is_branch else []
    )


def test_a_branch_whose_directory_cannot_be_removed_ends_nothing() -> None:
    """It runs on a thread of its own, and an error there would end the node."""
    runner, branch = Mock(), Mock()
    runner.stopped.side_effect = OSError("Device or resource busy")
    with capture_logs() as lines:
        of(runner)._end_branch("t", branch)
    branch.stop.assert_called_once()
    assert [(line["event"], line["branch"]) for line in lines] == [("directory_not_removed", "t")]
