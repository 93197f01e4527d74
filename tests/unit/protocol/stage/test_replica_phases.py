"""The table of a replica's phases."""

from __future__ import annotations

import re
from itertools import product

import pytest

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.stage import replica_phases
from anabranch.protocol.stage.replica_phases import (
    TRANSITIONS,
    Phase,
    PhaseChange,
    advertised,
    next_phase,
)


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, PhaseChange)))
def test_rf1_nothing_happens_but_what_the_table_has(phase: Phase, event: PhaseChange) -> None:
    if event in TRANSITIONS[phase]:
        assert next_phase(phase, event) is TRANSITIONS[phase][event]
        return
    with pytest.raises(LocalProtocolError, match=rf"{event.name} cannot happen .* {phase.name}"):
        next_phase(phase, event)


def test_the_table_in_the_text_is_the_one_that_runs() -> None:
    text = str(replica_phases.__doc__)
    rows = re.findall(r"^([A-Z]+) +([A-Z_]+) +([A-Z]+) {2}", text, re.MULTILINE)
    assert rows == [
        (phase.name, event.name, follows.name)
        for phase in Phase
        for event in (
            PhaseChange.CORRECTS,
            PhaseChange.STANDS,
            PhaseChange.YIELDS,
            PhaseChange.FORKED,
            PhaseChange.CAUGHT_UP,
            PhaseChange.ABANDONED,
        )
        if (follows := TRANSITIONS[phase].get(event)) is not None
    ]


def test_each_phase_is_come_to_and_left_again() -> None:
    reached = {Phase.ALONE}
    for _ in Phase:
        reached |= {follows for phase in reached for follows in TRANSITIONS[phase].values()}
    assert reached == set(Phase)
    assert all(Phase.ALONE in TRANSITIONS[phase].values() for phase in Phase)


def test_rf4_what_is_advertised_follows_from_the_phase() -> None:
    assert [advertised(phase, in_time=in_time) for phase in Phase for in_time in (True, False)] == [
        ReplicaState.STABLE,
        ReplicaState.FAILURE,
        *[ReplicaState.UP_FAILURE] * 2,
        *[ReplicaState.STABILIZATION] * 2,
    ]
