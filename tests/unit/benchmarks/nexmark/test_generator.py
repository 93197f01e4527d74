"""A seed and a number decide an event of Nexmark's stream."""

from __future__ import annotations

import polars as pl
from polars.testing import assert_frame_equal

from benchmarks.nexmark.generator import Plan, generate


def test_the_number_of_an_event_decides_it() -> None:
    plan = Plan(20_000, 1_700_000_040_000)
    events, tail = generate(plan), generate(plan, first=15_000)
    chosen = pl.col("number") >= 15_000
    assert_frame_equal(tail.bids, events.bids.filter(chosen))
    assert_frame_equal(tail.auctions, events.auctions.filter(chosen))
    assert_frame_equal(tail.persons, events.persons.filter(chosen))
