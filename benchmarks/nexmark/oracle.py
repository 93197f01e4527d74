"""Right answers of the queries, computed over the whole stream at once with polars.

Each has the published meaning of its query; docs/experiments/nexmark.md says where that is a form
with windows. In particular nothing here bounds a join in time: an answer that a bounded join loses
is found missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl

from benchmarks.nexmark.generator import Events

WINDOW_MS: Final = 10_000
SLIDE_MS: Final = 2_000
_STATES: Final = ("OR", "ID", "CA")
_CATEGORY: Final = 10
_EVERY_AUCTION: Final = 123
_EURO_THOUSANDTHS: Final = 908


def _start(time: str) -> pl.Expr:
    return pl.col(time) // WINDOW_MS * WINDOW_MS


def q0(events: Events) -> pl.DataFrame:
    """Return the bids as they are."""
    return events.bids.select("auction", "bidder", "price", "at")


def q1(events: Events) -> pl.DataFrame:
    """Return the bids with prices in thousandths of a euro cent, written as a decimal text."""
    exact = pl.col("price") * _EURO_THOUSANDTHS
    whole = (exact // 1_000).cast(pl.String)
    fraction = (exact % 1_000).cast(pl.String).str.zfill(3)
    return events.bids.select("auction", "bidder", (whole + "." + fraction).alias("euro"), "at")


def q2(events: Events) -> pl.DataFrame:
    """Return the bids on each auction whose id is divisible by 123."""
    return events.bids.filter(pl.col("auction") % _EVERY_AUCTION == 0).select("auction", "price")


def q3(events: Events) -> pl.DataFrame:
    """Return who sells in category 10 and lives in one of three states, with each auction."""
    sellers = events.persons.filter(pl.col("state").is_in(_STATES))
    auctions = events.auctions.filter(pl.col("category") == _CATEGORY)
    both = auctions.join(sellers, left_on="seller", right_on="id", suffix="_of_seller")
    return both.select("name", "city", "state", pl.col("id").alias("auction"))


def q4(events: Events) -> pl.DataFrame:
    """Return the average closing price by category of the auctions that opened in each window."""
    bids = events.bids.select("auction", "price", pl.col("at").alias("bid_at"))
    valid = events.auctions.join(bids, left_on="id", right_on="auction").filter(
        pl.col("bid_at").is_between(pl.col("at"), pl.col("expires"))
    )
    closing = valid.group_by("id", "category", "at").agg(pl.col("price").max())
    return (
        closing.group_by("category", _start("at").alias("starts"))
        .agg((pl.col("price").sum() // pl.len()).alias("average"))
        .select("category", "starts", "average")
    )


def q5(events: Events) -> pl.DataFrame:
    """Return the auctions with most bids in each sliding window."""
    # A window is five slides: counting the bids of a slide once is an order of magnitude faster.
    slides = events.bids.group_by(
        "auction", (pl.col("at") // SLIDE_MS * SLIDE_MS).alias("slide")
    ).agg(pl.len().cast(pl.Int64).alias("bids"))
    shifts = range(SLIDE_MS, WINDOW_MS + 1, SLIDE_MS)
    counts = (
        pl.concat(slides.with_columns((pl.col("slide") + by).alias("ends")) for by in shifts)
        .group_by("auction", "ends")
        .agg(pl.col("bids").sum())
    )
    hottest = counts.filter(pl.col("bids") == pl.col("bids").max().over("ends"))
    return hottest.select("auction", "bids", "ends")


def q7(events: Events) -> pl.DataFrame:
    """Return the highest bids of each window."""
    bids = events.bids.with_columns((_start("at") + WINDOW_MS).alias("ends"))
    highest = bids.filter(pl.col("price") == pl.col("price").max().over("ends"))
    return highest.select("auction", "bidder", "price", "at")


def q8(events: Events) -> pl.DataFrame:
    """Return who registered and opened an auction in the same window."""
    starts = _start("at").alias("starts")
    persons = events.persons.select("id", "name", starts)
    sellers = events.auctions.select(pl.col("seller").alias("id"), starts).unique()
    return persons.join(sellers, on=["id", "starts"]).select("id", "name", "starts")


ORACLES: Final[dict[str, Callable[[Events], pl.DataFrame]]] = {
    "q0": q0,
    "q1": q1,
    "q2": q2,
    "q3": q3,
    "q4": q4,
    "q5": q5,
    "q7": q7,
    "q8": q8,
}
