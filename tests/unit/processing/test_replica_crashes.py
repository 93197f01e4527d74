"""A story of two failures, told to processes that crash, or are overtaken, at every step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import AnabranchError
from anabranch.protocol.stage.planner import PlanTraits
from harness.replica_bench import STATEFUL, STATELESS
from harness.replica_world import Relay, World

pytestmark = (
    pytest.mark.no_cover
)  # the same lines a thousand times, each of which a test of its own covers


class Story(Relay):
    """Two failures of ``a``, the second while the first is being corrected, told to one
    process after the other.
    """

    def __init__(self, traits: PlanTraits) -> None:
        super().__init__(World("ab", traits, rows_max=2))

    def tell(self) -> None:
        close = self.world.close
        chapters: list[tuple[Callable[[], None], int]] = [
            (lambda: (close("a", 5, 2, 5), close("b", 5, 3))[0], 300),
            (lambda: close("b", 9, 6, 9), 1_600),
            (lambda: close("b", 12, 10, 12), 600),
            (lambda: close("a", 7, 6, 7), 1_800),
            (lambda: close("a", 14, 8, 9, 13), 100),
            (lambda: close("b", 14, 13), 400),
            (lambda: (close("a", 16, 15), close("b", 16, 16))[0], 500),
        ]
        for event, ms in chapters:
            event()
            self.wait(ms)
        self.rest()

    def check(self) -> None:
        assert self.world.log_state().upto == 16
        assert self.world.stable_rows() == self.world.expected(16)
        branches = [r.branch for r in self.world.records() if r.branch is not None]
        assert branches == sorted(branches), "RE3"
        assert not self.world.log_state().has_branch("0"), "whoever died, it has ended"


@pytest.mark.parametrize(
    "traits",
    [STATELESS, STATEFUL, PlanTraits(is_stateful=True, is_batch_safe=False)],
    ids=["map", "sum", "by_bucket"],
)
def test_the_story_without_faults(traits: PlanTraits) -> None:
    story = Story(traits)
    story.tell()
    story.check()
    branches = {r.branch for r in story.world.records() if r.branch is not None}
    assert len(branches) == 2, "a second fork while correcting"
    assert {
        "copy",
        "write",
        "written",
        "last_commit",
        "remove",
        "processing.fork_decided",
        "processing.fork_written",
        "processing.branch_dropped",
    } <= set(story.seen)
    process = story.process
    assert process is not None
    assert process.runner.state is ReplicaState.STABLE


def points(traits: PlanTraits) -> int:
    story = Story(traits)
    story.tell()
    return story.points


def check_at(story: Story, at: int) -> None:
    """Tell it, and say at which point something happened if it goes wrong."""
    try:
        story.tell()
        story.check()
    except (AssertionError, AnabranchError) as error:
        message = (
            f"at point {at} ({', '.join(story.seen[at - 1 : at + 4])} ...): {type(error).__name__}"
            f" {error}"
        )
        raise AssertionError(message) from error


@pytest.mark.parametrize(
    ("traits", "again"),
    [
        (STATEFUL, 0),
        *(
            pytest.param(traits, again, marks=pytest.mark.nightly)
            for traits, again in ((STATELESS, 0), (STATEFUL, 3))
        ),
    ],
)
def test_a_crash_at_any_step_leaves_something_to_go_on_from(traits: PlanTraits, again: int) -> None:
    """Once, and once more ``again`` steps after: in the middle of the next process's start."""
    for at in range(1, points(traits) + 1):
        story = Story(traits)
        story.at[at] = story.crash
        if again:
            story.at[at + again] = story.crash
        check_at(story, at)


def test_a_process_overtaken_at_any_step_spoils_nothing() -> None:
    for at in range(1, points(STATEFUL) + 1):
        story = Story(STATEFUL)
        story.at[at] = story.overtake
        check_at(story, at)
