from __future__ import annotations

import pytest

from anabranch.protocol.control.replica_states import ReplicaState


@pytest.mark.parametrize("state", list(ReplicaState))
def test_a_state_is_heard_as_it_was_said(state: ReplicaState) -> None:
    assert ReplicaState.heard(state.value) is state


@pytest.mark.parametrize("text", ["", "running", "STABLE"])
def test_who_says_nothing_that_is_understood_is_in_failure(text: str) -> None:
    assert ReplicaState.heard(text) is ReplicaState.FAILURE
