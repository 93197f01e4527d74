"""Any interleaving of heartbeats, wishes, deaths and pauses of replicas and manager: the invariants of ``protocol.staggering``."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.protocol.limits import (
    FAILURE_AFTER_MS,
    GRANT_LONGEST_MS,
    GRANT_MARGIN_MS,
    GRANT_MS,
    GRANT_TURN_MS,
    GRANT_WAIT_MS,
    HEARTBEAT_EVERY_MS,
    OBSERVED_STEP_MS,
)
from anabranch.protocol.staggering import Why
from harness.staggered import TICK_MS, ManagerProcess, StaggeredStage

SETTLED_MS = GRANT_WAIT_MS + GRANT_MS + GRANT_MARGIN_MS + FAILURE_AFTER_MS
"""After the last death, start, stop or waking of anybody, until the manager has the word again."""

Fault = tuple[str, int]
FAULTS = st.tuples(
    st.sampled_from(
        ["want", "want", "done", "kill", "start", "stop", "go", "stick", "deafen", "deafen", "hear", "kill manager", "start manager",
         "stop manager", "go manager", "deafen manager", "start second", "kill second"],
    ),
    st.integers(0, 2),
)  # fmt: skip
STEPS = st.lists(st.tuples(FAULTS, st.integers(0, 30) | st.integers(0, 400), st.permutations(["manager", "0", "1", "2"])), max_size=25)
"""(what happens, ticks until the next, who acts first in them)."""


def manage(stage: StaggeredStage, what: str) -> None:
    """Something happens to a manager."""
    match what.split():
        case ["kill", "manager"]:
            stage.kill_manager()
        case ["start", who]:
            stage.start_manager(second=who == "second")
        case ["kill", "second"]:
            stage.second = ManagerProcess()
        case ["deafen", _]:
            stage.manager.deaf = True
        case [word, _]:
            stage.manager.runs = word == "go"


def apply(stage: StaggeredStage, fault: Fault) -> bool:
    """Whether it was about who lives or hears, not about who wants."""
    what, number = fault
    name = stage.names[number % len(stage.names)]
    replica = stage.replicas.get(name)
    if what.endswith(("manager", "second")):
        manage(stage, what)
    elif what == "start":
        stage.start(name)
    elif replica is None:
        pass
    elif what == "kill":
        stage.kill(name)
    elif what in ("stop", "go"):
        stage.stop(name, runs=what == "go")
    elif what in ("deafen", "hear"):
        replica.deaf = what == "deafen"
    elif what == "stick":
        replica.stuck = True
    elif replica.runs:
        stage.want(name, what == "want")
        return False
    return True


def check(stage: StaggeredStage, settled_ms: int) -> None:
    """What holds at any moment (G1, G3), and what holds once the manager has the word."""
    holders = [name for name, why in stage.why().items() if why is Why.GRANTED]
    assert len(holders) <= 1, f"G1: {holders} hold a grant together"
    for replica in stage.replicas.values():
        assert not (replica.gate.wants_grant and replica.gate.corrects)
        assert replica.wants or not replica.gate.corrects, "nobody corrects who has nothing to correct"
    if stage.serves() and stage.now_ms - settled_ms > SETTLED_MS:
        assert len(stage.look_again()) <= 1, f"G1: {stage.why()}"


@settings(max_examples=150, deadline=None)
@given(
    replicas=st.integers(1, 3), manager=st.booleans(), wanting=st.booleans(), skews=st.tuples(*[st.integers(-400, 400)] * 3), steps=STEPS
)
def test_g1_g3_never_two_and_g2_never_none(
    replicas: int, manager: bool, wanting: bool, skews: tuple[int, int, int], steps: list[tuple[Fault, int, list[str]]]
) -> None:
    stage = StaggeredStage(replicas, manager=manager)
    settled_ms = stage.now_ms
    for name, skew_ms in zip(stage.names, skews, strict=False):
        stage.replicas[name].skew_ms = skew_ms
        stage.want(name, wanting)
    order: list[str] | None = None
    for fault, ticks, order in steps:
        if apply(stage, fault):
            settled_ms = stage.now_ms
        for _ in range(ticks):
            stage.tick(order)
            check(stage, settled_ms)
    # G2: whoever lives and wants is served, one after the other, whether or not there is a manager.
    running = [name for name, replica in stage.replicas.items() if replica.runs and not replica.stuck]
    for name in running:
        stage.replicas[name].deaf = False
        stage.want(name)
    for replica in stage.replicas.values():
        replica.runs &= not replica.stuck
    patience = GRANT_LONGEST_MS + GRANT_WAIT_MS + GRANT_MS + GRANT_MARGIN_MS + FAILURE_AFTER_MS + GRANT_TURN_MS * (replicas + 1)
    served: list[str] = []
    while len(served) < len(running):
        waited_ms = 0
        while not (opened := [name for name in stage.open() if name not in served]):
            assert waited_ms <= patience, f"G2: {stage.why()} wait for each other after {waited_ms} ms"
            stage.tick(order)
            waited_ms += TICK_MS
            check(stage, settled_ms)
        for name in opened:
            served.append(name)
            stage.want(name, False)


@settings(max_examples=100, deadline=None)
@given(replicas=st.integers(2, 3), wishes=st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 30)), max_size=20))
def test_g1_with_a_healthy_manager_never_two_at_any_moment(replicas: int, wishes: list[tuple[int, bool, int]]) -> None:
    stage = StaggeredStage(replicas)
    for _ in range(FAILURE_AFTER_MS // TICK_MS):
        stage.tick()
    for number, wants, ticks in wishes:
        stage.want(stage.names[number % replicas], wants)
        for _ in range(ticks):
            stage.tick()
            assert len(stage.open()) <= 1
    for name in stage.names:
        stage.want(name)
    for _ in range(2 * (HEARTBEAT_EVERY_MS + OBSERVED_STEP_MS) // TICK_MS):
        stage.tick()
    assert len(stage.open()) == 1, "and it wastes no time"


@settings(max_examples=100, deadline=None)
@given(kill_at=st.integers(0, 40), start_at=st.integers(0, 200))
def test_g4_numbers_grow_over_restarts_of_the_manager(kill_at: int, start_at: int) -> None:
    stage = StaggeredStage(2)
    stage.want("0")
    stage.want("1")
    for tick in range(300):
        if tick == kill_at:
            stage.kill_manager()
        if tick == kill_at + start_at:
            stage.start_manager()
        stage.tick()
        for name in stage.open():
            if tick % 50 == 0:
                stage.want(name, False)
    numbers = [grant.number for grant in stage.granted()]
    assert numbers == sorted(set(numbers))


@settings(max_examples=80, deadline=None)
@given(skew_ms=st.integers(-GRANT_MARGIN_MS, GRANT_MARGIN_MS), mute_at=st.integers(4, 60), deaf_after=st.integers(-5, 25))
def test_g5_no_two_hold_a_grant_even_if_one_is_mute_and_deaf_and_its_clock_is_wrong(skew_ms: int, mute_at: int, deaf_after: int) -> None:
    """The worst case is one that is silent until its last renewal, hears that one, and nothing after it."""
    stage = StaggeredStage(2)
    first = stage.replicas["0"]
    first.skew_ms = skew_ms
    stage.want("0")
    stage.want("1")
    for tick in range(200):
        first.mute |= tick >= mute_at
        first.deaf |= tick >= mute_at + deaf_after
        stage.tick()
        check(stage, stage.now_ms)
