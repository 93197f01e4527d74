"""What counts as the silence of another one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.control.silence import Silence
from anabranch.protocol.limits import OBSERVED_STEP_MS


def came_back(*times_ms: int) -> Silence:
    made = Silence()
    for now_ms in times_ms:
        made.came_back(now_ms)
    return made


def test_it_is_counted_from_one_of_the_own_news_to_the_next() -> None:
    assert came_back().ms == 0
    assert came_back(5_000).ms == 0, "how long nothing was heard before is not known"
    assert came_back(5_000, 5_250, 5_500).ms == 500
    assert came_back(0, OBSERVED_STEP_MS).ms == OBSERVED_STEP_MS


def test_sl2_a_sign_of_life_ends_it() -> None:
    made = came_back(0, 250, 500)
    made.broken(600)
    assert made.ms == 0
    made.came_back(750)
    assert made.ms == 150, "what came before the sign of life is not counted"


def test_sl2_a_gap_begins_it_anew() -> None:
    made = came_back(0, 250, 500)
    made.came_back(500 + OBSERVED_STEP_MS + 1)
    assert made.ms == 0
    made.came_back(500 + OBSERVED_STEP_MS + 251)
    assert made.ms == 250


def test_a_clock_that_is_set_back_begins_it_anew() -> None:
    assert came_back(1_000, 1_250, 900).ms == 0
    made = came_back(1_000, 1_250)
    made.broken(1_400)
    made.came_back(1_300)
    assert made.ms == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["came_back", "broken"]), st.integers(0, 2 * OBSERVED_STEP_MS))
    )
)
def test_sl1_sl3_it_is_a_part_of_the_time_since_the_last_gap_and_the_last_sign(
    steps: list[tuple[str, int]],
) -> None:
    made, now_ms, begun_ms, before_ms = Silence(), 0, 0, -1
    for what, pause_ms in steps:
        now_ms += pause_ms
        getattr(made, what)(now_ms)
        if what == "broken":
            begun_ms = now_ms
        else:
            if before_ms < 0 or now_ms - before_ms > OBSERVED_STEP_MS:
                begun_ms = now_ms
            before_ms = now_ms
            assert made.ms == now_ms - begun_ms
        assert made.ms <= now_ms - begun_ms
