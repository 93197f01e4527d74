"""Generator of the auction stream: the number of an event and the seed decide all of it.

Of fifty events in a row one is a person who registers, three are auctions that open and 46 are
bids. Events are equally spaced in time. An auction's seller and a bid's bidder are among the
persons who registered last, a bid's auction is among those that opened last. Some of each are hot:
half of the bids go to one auction of every hundred, three of four auctions belong to one seller of
every hundred, three of four bids come from one bidder of every hundred. A few sellers and auctions
are named before their own event has come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.linear_road.draws import draw

VERSION: Final = 1
"""Version of the stream: the same seed gives the same events within it."""

ROUND: Final = 50
"""Number of consecutive events that hold one person, three auctions and 46 bids."""
_AUCTIONS: Final = 3
FIRST_ID: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
_HOT_EVERY: Final = 100
"""Distance of hot auctions, sellers and bidders, in ids."""
_ACTIVE_PERSONS: Final = 1_000
"""Number of the newest persons who sell and bid."""
_OPEN_AUCTIONS: Final = 100
"""Number of the newest auctions that are bid on."""
_AHEAD: Final = 10
"""Number of ids that are named before their own events."""
_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES: Final = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah")
_LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones")
_CHANNELS: Final = ("apple", "google", "facebook", "baidu")
_FILLER: Final = "the quick brown fox jumps over the lazy dog while five wizards box " * 10
_FILLER_MAX: Final = {"person": 60, "auction": 300, "bid": 60}
"""Maximum length of the text ``extra`` of each kind, in characters."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a stream."""

    events: int
    start_ms: int
    """Event time of the first event."""
    rate: int = 10_000
    """Events of one second of event time."""
    seed: int = 1

    @property
    def longest_auction_ms(self) -> int:
        """Longest time for which an auction is open: twice what a hundred auctions take."""
        return max(1, 2 * _OPEN_AUCTIONS * ROUND * 1_000 // (_AUCTIONS * self.rate))


@dataclass(frozen=True, slots=True)
class Events:
    """A whole stream, a table for each kind with the column ``number``, which orders them all."""

    persons: pl.DataFrame
    auctions: pl.DataFrame
    bids: pl.DataFrame


def _last_person(number: Numbers) -> Numbers:
    """Return the ordinal of the last person up to an event."""
    return number // ROUND


def _last_auction(number: Numbers) -> Numbers:
    """Return the ordinal of the last auction up to an event, -1 before the first."""
    in_round = np.clip(number % ROUND, 0, _AUCTIONS)
    return number // ROUND * _AUCTIONS + in_round - 1


def _pick(names: tuple[str, ...], drawn: Numbers) -> pl.Series:
    return pl.Series(names).gather(drawn % len(names))


class _Draws:
    """Draws for the events of one kind."""

    def __init__(self, plan: Plan, kind: str, number: Numbers) -> None:
        self._plan = plan
        self._kind = kind
        self._number = number

    def of(self, purpose: str) -> Numbers:
        return draw(self._plan.seed, f"{self._kind}.{purpose}", self._number, 0)

    def recent(self, purpose: str, last: Numbers, active: int, hot_of: int) -> Numbers:
        """Draw ids of persons or auctions near the ordinals ``last``: all but one in ``hot_of`` are
        the hot one.
        """
        first = np.maximum(last - active + 1, 0)
        any_recent = first + self.of(purpose) % (last - first + 1 + _AHEAD)
        hot = last // _HOT_EVERY * _HOT_EVERY
        is_hot = self.of(f"{purpose}.hot") % hot_of > 0
        return np.where(is_hot, hot, any_recent) + FIRST_ID

    def price(self, purpose: str) -> Numbers:
        """Draw prices in cents, as many below 10 dollars as between 10 and 100, and so on."""
        scale = 10 ** (self.of(f"{purpose}.scale") % 6)
        digits = 1_000_000 + self.of(purpose) % 9_000_000
        prices: Numbers = digits * scale // 10_000
        return prices

    def extra(self) -> pl.Series:
        length = pl.Series(self.of("extra") % _FILLER_MAX[self._kind])
        return pl.select(pl.lit(_FILLER).str.slice(0, length).alias("extra")).to_series()


def _persons(plan: Plan, number: Numbers) -> pl.DataFrame:
    draws = _Draws(plan, "person", number)
    first, last = (
        _pick(_FIRST_NAMES, draws.of("first name")),
        _pick(_LAST_NAMES, draws.of("last name")),
    )
    card = pl.Series(draws.of("card") % 10**16).cast(pl.String).str.zfill(16)
    return pl.DataFrame(
        {
            "id": _last_person(number) + FIRST_ID,
            "name": first + " " + last,
            "email": first.str.to_lowercase() + "@" + last.str.to_lowercase() + ".com",
            "credit_card": card,
            "city": _pick(_CITIES, draws.of("city")),
            "state": _pick(_STATES, draws.of("state")),
            "extra": draws.extra(),
        }
    )


def _auctions(plan: Plan, number: Numbers, at: Numbers) -> pl.DataFrame:
    draws = _Draws(plan, "auction", number)
    id_ = _last_auction(number) + FIRST_ID
    initial = draws.price("initial")
    return pl.DataFrame(
        {
            "id": id_,
            "item": pl.Series(id_).cast(pl.String) + " items",
            "initial_bid": initial,
            "reserve": initial + draws.price("reserve"),
            "expires": at + 1 + draws.of("length") % plan.longest_auction_ms,
            "seller": draws.recent("seller", _last_person(number), _ACTIVE_PERSONS, 4),
            "category": FIRST_CATEGORY + draws.of("category") % CATEGORIES,
            "extra": draws.extra(),
        }
    )


def _bids(plan: Plan, number: Numbers) -> pl.DataFrame:
    draws = _Draws(plan, "bid", number)
    bidder = draws.recent("bidder", _last_person(number), _ACTIVE_PERSONS, 4)
    return pl.DataFrame(
        {
            "auction": draws.recent("auction", _last_auction(number), _OPEN_AUCTIONS, 2),
            "bidder": bidder,
            "price": draws.price("price"),
            "channel": _pick(_CHANNELS, draws.of("channel")),
            "extra": draws.extra(),
        }
    )


def generate(plan: Plan, first: int = 0) -> Events:
    """Make the events from number ``first`` up to the last one of the plan."""
    number = np.arange(first, plan.events, dtype=np.int64)
    in_round = number % ROUND
    tables = []
    for kind, chosen in (
        ("person", in_round == 0),
        ("auction", (in_round > 0) & (in_round <= _AUCTIONS)),
        ("bid", in_round > _AUCTIONS),
    ):
        numbers = number[chosen]
        at = plan.start_ms + numbers * 1_000 // plan.rate
        match kind:
            case "person":
                table = _persons(plan, numbers)
            case "auction":
                table = _auctions(plan, numbers, at)
            case _:
                table = _bids(plan, numbers)
        place = pl.DataFrame({"number": numbers, "at": at})
        tables.append(pl.concat([place, table], how="horizontal"))
    return Events(*tables)


def lines(events: Events) -> list[str]:
    """Return the events as JSON objects in their order, each with its body under its kind."""
    kinds = (("person", events.persons), ("auction", events.auctions), ("bid", events.bids))
    parts = []
    for kind, table in kinds:
        body = pl.struct(pl.exclude("number", "at")).alias(kind)
        line = pl.struct("at", body).struct.json_encode().alias("line")
        parts.append(table.select("number", line))
    return pl.concat(parts).sort("number")["line"].to_list()


def end_line(time_ms: int) -> str:
    """Return a record without a body: it moves time on, so that the last windows end."""
    return f'{{"at":{time_ms}}}'
