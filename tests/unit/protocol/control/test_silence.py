"""What counts as the silence of another one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.control.silence import Silence
from anabranch.protocol.limits import HEARTBEAT_SEND_MS, OBSERVED_STEP_MS

GAP_MS = OBSERVED_STEP_MS + 1


def came_back(*times_ms: int) -> Silence:
    made = Silence()
    for now_ms in times_ms:
        made.came_back(now_ms)
    return made


def test_sl1_it_is_counted_from_one_of_the_own_news_to_the_next() -> None:
    assert came_back().ms == 0
    assert came_back(5_000).ms == 0, "how long nothing was heard before is not known"
    assert came_back(5_000, 5_250, 5_500).ms == 500
    assert came_back(0, OBSERVED_STEP_MS).ms == OBSERVED_STEP_MS


def test_sl1_who_has_not_heard_itself_yet_was_not_cut_off() -> None:
    made = Silence()
    made.broken(0)
    made.came_back(10 * GAP_MS)
    assert made.ms == 0


def test_sl2_a_sign_of_life_ends_it() -> None:
    made = came_back(0, 250, 500)
    made.broken(600)
    assert made.ms == 0
    made.came_back(750)
    assert made.ms == 150, "what came before the sign of life is not counted"
    made = came_back(0)
    made.broken(GAP_MS - 100)
    made.came_back(GAP_MS)
    assert made.ms == 100, "the way was open, for the other one was heard"


def test_sl3_after_a_gap_the_other_one_has_the_time_to_write_again() -> None:
    made = came_back(0, 250, 500, 500 + GAP_MS)
    assert made.ms == -HEARTBEAT_SEND_MS
    made.came_back(500 + GAP_MS + 250)
    assert made.ms == 250 - HEARTBEAT_SEND_MS
    made.broken(3_000)
    assert made.ms == 0


def test_sl3_where_every_way_is_long_silence_grows_nevertheless() -> None:
    made = came_back(*range(0, 4 * GAP_MS, GAP_MS))
    assert made.ms == 2 * OBSERVED_STEP_MS - HEARTBEAT_SEND_MS
    made.broken(3 * GAP_MS)
    made.came_back(4 * GAP_MS)
    assert made.ms == -HEARTBEAT_SEND_MS, "that it was heard means that the way was open"


@given(
    st.lists(
        st.tuples(st.sampled_from(["came_back", "broken"]), st.integers(0, 2 * OBSERVED_STEP_MS))
    )
)
def test_sl3_sl4_it_is_at_most_the_time_since_the_last_sign_less_the_gaps(
    steps: list[tuple[str, int]],
) -> None:
    made, now_ms = Silence(), 0
    since_ms: int | None = None
    gaps, open_ms = 0, 0
    for what, pause_ms in steps:
        now_ms += pause_ms
        getattr(made, what)(now_ms)
        if what == "broken":
            gaps = open_ms = 0
        elif since_ms is not None:
            is_gap = now_ms - since_ms > OBSERVED_STEP_MS
            gaps += is_gap
            open_ms = 0 if is_gap and gaps == 1 else open_ms + min(now_ms - since_ms, 1_000)
        if what == "came_back" or since_ms is not None:
            since_ms = now_ms
        assert made.ms == open_ms - (HEARTBEAT_SEND_MS if gaps else 0)
