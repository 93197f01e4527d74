"""How long a correction waits, whatever its batches take and whatever the reason is."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.protocol.stage.correction_floor import (
    BEHIND_PARTS,
    BEHIND_TARGETS,
    OVERLOAD_PARTS,
    OVERLOAD_WAIT_MS,
    CorrectionFloor,
)

WAIT_MS, PARTS = 1_000, 4

Step = tuple[int, bool, int]
"""Time since the request before, whether there is a reason to wait, and what a batch takes."""

steps = st.lists(
    st.tuples(
        st.integers(1, 400), st.booleans() | st.just(value=True), st.integers(0, 30 * WAIT_MS)
    ),
    min_size=1,
    max_size=80,
)


def history(made: CorrectionFloor, taken: list[Step]) -> list[tuple[int, int]]:
    """Return for how long the correction has waited, and its batches have run, by each request."""
    now_ms = waited_ms = ran_ms = 0
    had_to_wait, found = False, []
    for since_ms, reason, batch_ms in taken:
        now_ms += since_ms
        waited_ms += since_ms if had_to_wait else 0
        found.append((waited_ms, ran_ms))
        had_to_wait = made.must_wait(now_ms, reason=reason)
        assert reason or not had_to_wait
        if not had_to_wait:
            made.ran(batch_ms)
            now_ms += batch_ms
            ran_ms += batch_ms
    return found


@example(
    taken=[
        (1, True, 0),
        (80, True, 0),
        (378, False, 0),
        (1, True, 0),
        (378, True, 0),
        (165, True, 0),
        (378, True, 0),
    ]
)
@given(taken=steps)
def test_cf1_over_any_time_it_waits_no_longer_than_by_its_batches(taken: list[Step]) -> None:
    found = history(CorrectionFloor(WAIT_MS, PARTS), taken)
    most_ms = WAIT_MS + max(since_ms for since_ms, _, _ in taken)
    for number, (waited_ms, ran_ms) in enumerate(found):
        for later_waited_ms, later_ran_ms in found[number:]:
            assert later_waited_ms - waited_ms <= most_ms + PARTS * (later_ran_ms - ran_ms)


@given(taken=steps)
def test_cf2_after_a_batch_of_any_length_it_waits_no_longer_than_the_most(
    taken: list[Step],
) -> None:
    found = history(CorrectionFloor(WAIT_MS, PARTS), [(gap, True, took) for gap, _, took in taken])
    most_ms = WAIT_MS + max(since_ms for since_ms, _, _ in taken)
    since_last = {ran_ms: waited_ms for waited_ms, ran_ms in reversed(found)}
    assert all(waited_ms - since_last[ran_ms] <= most_ms for waited_ms, ran_ms in found)


@given(waits_ms=st.lists(st.integers(1, 400), max_size=40))
def test_cf3_before_that_it_runs_only_without_a_reason(waits_ms: list[int]) -> None:
    made, now_ms = CorrectionFloor(WAIT_MS, PARTS), 0
    assert made.must_wait(now_ms, reason=True)
    for wait_ms in waits_ms:
        now_ms += wait_ms
        assert made.must_wait(now_ms, reason=True) == (now_ms < WAIT_MS)
    assert not made.must_wait(now_ms, reason=False)


def test_it_runs_until_its_batches_have_taken_their_part() -> None:
    made = CorrectionFloor(WAIT_MS, PARTS)
    made.must_wait(0, reason=True)
    assert not made.must_wait(WAIT_MS, reason=True)
    made.ran(WAIT_MS // PARTS - 1)
    assert not made.must_wait(2 * WAIT_MS, reason=True)
    made.ran(1)
    assert made.must_wait(3 * WAIT_MS, reason=True)


def test_time_in_which_there_is_no_reason_is_no_wait() -> None:
    made = CorrectionFloor(WAIT_MS, PARTS)
    for now_ms in range(0, 20 * WAIT_MS, WAIT_MS):
        assert made.must_wait(now_ms, reason=True)
        assert not made.must_wait(now_ms + 1, reason=False)


def test_the_floors_of_both_reasons() -> None:
    for made, wait_ms, parts in (
        (CorrectionFloor.of_overload(), OVERLOAD_WAIT_MS, OVERLOAD_PARTS),
        (CorrectionFloor.of_behind(1_000), BEHIND_TARGETS * 1_000, BEHIND_PARTS),
    ):
        made.must_wait(0, reason=True)
        assert made.must_wait(wait_ms - 1, reason=True)
        assert not made.must_wait(wait_ms, reason=True)
        made.ran(wait_ms // parts - 1)
        assert made.is_open
        made.ran(1)
        assert made.must_wait(wait_ms + 1, reason=True)
