"""The stream of Nexmark: its shape, and that a seed and a number decide an event."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from benchmarks.nexmark.generator import Events, Plan, generate

PLAN = Plan(20_000, 1_700_000_040_000)


@pytest.fixture(scope="module")
def events() -> Events:
    return generate(PLAN)


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(events: Events) -> None:
    heights = events.persons.height, events.auctions.height, events.bids.height
    assert heights == (400, 1_200, 18_400)
    numbers = pl.concat(
        [events.persons["number"], events.auctions["number"], events.bids["number"]]
    )
    assert numbers.sort().to_list() == list(range(20_000))
    assert set(events.persons["number"] % 50) == {0}
    assert set(events.auctions["number"] % 50) == {1, 2, 3}


def test_the_number_of_an_event_decides_it(events: Events) -> None:
    tail = generate(PLAN, first=15_000)
    chosen = pl.col("number") >= 15_000
    assert_frame_equal(tail.bids, events.bids.filter(chosen))
    assert_frame_equal(tail.auctions, events.auctions.filter(chosen))
    assert_frame_equal(tail.persons, events.persons.filter(chosen))


@pytest.mark.parametrize(
    ("table", "column", "share", "newest_per_event"),
    [("bids", "auction", 0.5, 3), ("bids", "bidder", 0.75, 1), ("auctions", "seller", 0.75, 1)],
)
def test_hot_ids_have_their_share(
    events: Events, table: str, column: str, share: float, newest_per_event: int
) -> None:
    rows = getattr(events, table).filter(pl.col("number") >= 10_000)
    newest = rows["number"] // 50 * newest_per_event + 1_000
    is_hot = rows[column] % 100 == 0
    # Every other id of the newest is hot by chance in one of a hundred cases.
    assert is_hot.mean() == pytest.approx(share, abs=0.04)
    assert (rows[column] <= newest + newest_per_event + 12).all()


def test_auctions_are_open_for_a_while_and_no_longer_than_said(events: Events) -> None:
    length = events.auctions["expires"] - events.auctions["at"]
    assert int(length.min()) >= 1  # type: ignore[arg-type]
    assert 300 < int(length.max()) <= PLAN.longest_auction_ms == 333  # type: ignore[arg-type]
