"""The mean of measurements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.load_average import LoadAverage


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20), st.integers(1, 1_000_000))
def test_fw1_the_mean_is_among_the_measurements(measured: list[int], weight_ppm: int) -> None:
    average = LoadAverage.of(measured[0])
    for units in measured[1:]:
        average = average.measured(units, weight_ppm)
    assert min(measured) * 1_000_000 <= average.millionths <= max(measured) * 1_000_000


@given(st.integers(0, 10_000), st.integers(1, 10_000), st.integers(100_000, 1_000_000))
def test_fw2_it_becomes_what_is_measured_again_and_again(
    first: int, units: int, weight_ppm: int
) -> None:
    average = LoadAverage.of(first)
    for _ in range(300):
        average = average.measured(units, weight_ppm)
    assert average == LoadAverage.of(units)
    assert average.units == units


def test_a_weight_is_a_share() -> None:
    average = LoadAverage.of(100).measured(200, 300_000)
    assert average.units == 130
    assert average.measured(0, 1_000_000).units == 1, "what runs has a unit at least"
