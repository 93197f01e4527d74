"""``ingestion.event_time``: times of the broker's clock and of the producers'."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.ingestion import event_time
from anabranch.protocol.limits import EVENT_TIME_MS_MAX


def test_timestamps_of_the_broker() -> None:
    arrived = event_time.arrivals(np.array([5, -1, EVENT_TIME_MS_MAX + 1]), 3, EVENT_TIME_MS_MAX)
    timed = event_time.from_arrivals(arrived)
    assert timed.event_time_ms.tolist() == [5, 0, 0]
    assert timed.bad is not None
    assert timed.bad.tolist() == [False, True, True]
    assert event_time.from_arrivals(np.array([5])).bad is None


@given(st.lists(st.integers(1, 40), min_size=1), st.integers(0, 40), st.integers(1, 40))
def test_arrivals_never_run_backwards(stamps: list[int], last_ms: int, limit_ms: int) -> None:
    """IN17."""
    newest_ms, expected = last_ms, list[int]()
    for stamp in stamps:
        newest_ms = max(newest_ms, min(stamp, limit_ms))
        expected.append(newest_ms)
    found = event_time.arrivals(np.array(stamps, dtype=np.int64), last_ms, limit_ms).tolist()
    assert found == expected == sorted(found)
    assert found[0] >= last_ms
    assert max(found) <= max(limit_ms, last_ms)
