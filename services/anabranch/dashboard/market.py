"""The market of a federation, for the page: contracts, who runs whose stages, who owes whom.

Read from the topics that this principal may see, every few seconds. A crash loses nothing.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from anabranch.dashboard.page import TEXT_MAX
from anabranch.operating.contract_book import (
    amount_in_words,
    contracts_of,
    ledgers_of,
    movements_of,
    read_book,
)
from anabranch.protocol.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch.dashboard.feed import Feed
    from anabranch.dashboard.topics import Connect
    from anabranch.pipeline.model import Federation
    from anabranch.runtime.federation_reader import FederationReader

_EVERY_S: Final = 3.0
_ROWS_MAX: Final = 200
"""Of contracts and of movements; the newest."""


class MarketFollower:
    """Runs in the thread that calls ``work``."""

    def __init__(self, federation: Federation, connect: Connect, feed: Feed) -> None:
        """Nothing is contacted yet."""
        self._federation, self._connect, self._feed = federation, connect, feed

    def work(self) -> None:
        """Follow the contracts at one broker, until another is named or the end.

        Raises:
            AnabranchError: it does not answer, or a log does not begin at its beginning.
        """
        address, log = self._connect()
        try:
            with closing(read_book(log, self._federation)) as book:
                while not self._feed.stopping.is_set() and self._connect()[0] == address:
                    book.read_to_end()
                    shown = market_of(book, self._feed.clock.now_ms())
                    with self._feed.page() as page:
                        page.show_market(shown)
                    self._feed.stopping.wait(_EVERY_S)
        except AnabranchError as error:
            with self._feed.page() as page:
                page.show_market({"error": str(error)[:TEXT_MAX]})
            raise


def market_of(book: FederationReader, now_ms: int) -> dict[str, Any]:
    """What the market's part of the page shows. Amounts are texts: JavaScript's numbers would round
    them.
    """
    ledgers = ledgers_of(book)
    contracts = contracts_of(book, now_ms)[-_ROWS_MAX:]
    participants = {party for row in contracts for party in (row["buyer"], row["seller"])}
    movements = movements_of(book)
    moved = [row for row in movements if row["to"] is None]
    return {
        "contracts": [
            {
                key: row[key]
                for key in (
                    "contract",
                    "version",
                    "state",
                    "buyer",
                    "seller",
                    "price_lowest_micro",
                    "price_highest_micro",
                    "valid_to",
                    "waits_for_signature_of",
                )
            }
            for row in contracts
        ],
        "movements": movements[-_ROWS_MAX:][::-1],
        "participants": [
            {
                "participant": party,
                "runs_for_others": sum(row["units"] for row in moved if row["moved_to"] == party),
                "runs_elsewhere": sum(row["units"] for row in moved if row["of"] == party),
                "balance": amount_in_words(ledgers["balances_nano"].get(party, 0)),
            }
            for party in sorted(participants | ledgers["balances_nano"].keys())
        ],
        "disputes": sum(row["disputes"] for row in ledgers["contracts"]),
        "ignored": sum(ledgers["ignored"].values()),
    }
