"""A rate comes with its interval."""

from __future__ import annotations

import pytest

from chaos.rate import in_words, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 0, 0, 1),
        (0, 10, 0, 0.2775),
        (10, 10, 0.7225, 1),
        (20, 20, 0.8389, 1),
        (17, 20, 0.6396, 0.9476),
        (1, 1, 0.2065, 1),
    ],
)
def test_the_interval_is_wilsons(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)


def test_what_was_not_clean_is_reported_by_seed() -> None:
    text = in_words({7: "", 8: "2 wrong", 9: "not judged: too slow", 10: ""})
    assert text.splitlines() == [
        "seed 7: clean",
        "seed 8: 2 wrong",
        "seed 9: not judged: too slow",
        "seed 10: clean",
        "nothing was wrong in 3 of 4 runs: 30% to 95% of such runs are (95 %)",
        "2 of 4 runs were clean: 15% to 85% of such runs are (95 %)",
    ]
