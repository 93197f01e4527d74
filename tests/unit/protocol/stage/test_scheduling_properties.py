"""Any interleaving of heartbeats, wishes, deaths and pauses of replicas: the invariants of
``protocol.stage.scheduling``.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.limits import FAILURE_AFTER_MS, HEARTBEAT_EVERY_MS
from anabranch.protocol.stage.scheduling import CORRECTION_STALL_MS, CORRECTION_TURN_MS
from harness.correcting_stage import TICK_MS, CorrectingStage
from harness.examples import examples

HEARD_MS = HEARTBEAT_EVERY_MS + 2 * TICK_MS
"""In this time everybody who hears has heard what everybody says."""

Fault = tuple[str, int]
FAULTS = st.tuples(
    st.sampled_from(
        [
            "want",
            "want",
            "done",
            "kill",
            "start",
            "stop",
            "go",
            "stick",
            "deafen",
            "deafen",
            "hear",
            "mute",
        ]
    ),
    st.integers(0, 2),
)
STEPS = st.lists(
    st.tuples(FAULTS, st.integers(0, 30) | st.integers(0, 400), st.permutations(["0", "1", "2"])),
    max_size=25,
)
"""(what happens, ticks until the next, who acts first in them)."""


def apply(stage: CorrectingStage, fault: Fault) -> bool:
    """Whether it was about who lives, hears or speaks, not about who wants."""
    what, number = fault
    name = stage.names[number % len(stage.names)]
    replica = stage.replicas.get(name)
    if what == "start":
        stage.start(name)
    elif replica is None:
        pass
    elif what == "kill":
        stage.kill(name)
    elif what in ("stop", "go"):
        stage.stop(name, runs=what == "go")
    elif what in ("deafen", "hear"):
        replica.deaf = what == "deafen"
    elif what == "mute":
        replica.mute = True
    elif what == "stick":
        replica.stuck = True
    elif replica.runs:
        stage.want(name, what == "want")
        return False
    return True


class Watch:
    """For how long more than one has been open (CO1)."""

    def __init__(self, stage: CorrectingStage) -> None:
        self._stage = stage
        self._since_ms = stage.now_ms
        self.settled_ms = stage.now_ms

    def tick(self, order: list[str] | None = None) -> None:
        """``TICK_MS`` pass."""
        stage = self._stage
        stage.tick(order)
        for replica in stage.replicas.values():
            assert replica.wants or not replica.gate.corrects, (
                "nobody corrects who has nothing to correct"
            )
        if len(stage.open()) <= 1:
            self._since_ms = stage.now_ms
        if any(
            replica.deaf or replica.mute or replica.stuck for replica in stage.replicas.values()
        ):
            self.settled_ms = stage.now_ms
        heard_since_ms = max(self._since_ms, self.settled_ms + FAILURE_AFTER_MS)
        assert stage.now_ms - heard_since_ms <= HEARD_MS, f"CO1: {stage.why()}"


@examples(150)
@given(
    replicas=st.integers(1, 3),
    wanting=st.booleans(),
    skews=st.tuples(*[st.integers(-400, 400)] * 3),
    steps=STEPS,
)
def test_co1_never_two_and_co2_never_none(
    replicas: int,
    wanting: bool,
    skews: tuple[int, int, int],
    steps: list[tuple[Fault, int, list[str]]],
) -> None:
    stage = CorrectingStage(replicas)
    watch = Watch(stage)
    for name, skew_ms in zip(stage.names, skews, strict=False):
        stage.replicas[name].skew_ms = skew_ms
        stage.want(name, wanting)
    order: list[str] | None = None
    for fault, ticks, order in steps:
        if apply(stage, fault):
            watch.settled_ms = stage.now_ms
        for _ in range(ticks):
            watch.tick(order)
    # CO2: whoever lives and wants is served, one after the other, whatever was said before, and
    # whoever is gone or hangs.
    running = [
        name for name, replica in stage.replicas.items() if replica.runs and not replica.stuck
    ]
    for name in running:
        stage.replicas[name].deaf = stage.replicas[name].mute = False
        stage.want(name)
    served: list[str] = []
    while len(served) < len(running):
        waited_ms = 0
        while not (
            opened := [name for name in stage.open() if name in running and name not in served]
        ):
            patience_ms = (
                replicas * CORRECTION_STALL_MS + FAILURE_AFTER_MS + CORRECTION_TURN_MS + HEARD_MS
            )
            assert waited_ms <= patience_ms, (
                f"CO2: {stage.why()} wait for each other after {waited_ms} ms"
            )
            watch.tick(order)
            waited_ms += TICK_MS
        for name in opened:
            served.append(name)
            stage.want(name, False)


@examples(100)
@given(
    replicas=st.integers(2, 3),
    wishes=st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 30)), max_size=20),
)
def test_where_all_are_well_the_first_begins_at_once(
    replicas: int, wishes: list[tuple[int, bool, int]]
) -> None:
    stage = CorrectingStage(replicas)
    watch = Watch(stage)
    for _ in range(FAILURE_AFTER_MS // TICK_MS):
        watch.tick()
    for number, wants, ticks in wishes:
        stage.want(stage.names[number % replicas], wants)
        for _ in range(ticks):
            watch.tick()
    for name in stage.names:
        stage.want(name, False)
    for _ in range(HEARD_MS // TICK_MS):
        watch.tick()
    for name in stage.names:
        stage.want(name)
    watch.tick()
    assert stage.open() == ["0"]
