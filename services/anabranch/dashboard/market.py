"""Follower of a federation's market for the page: contracts, offers, movements, balances.

It reads the topics that this principal may see, once a second. After a crash it reads them anew;
only older offers are lost, which are not kept anywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from anabranch.codec import federation_records
from anabranch.dashboard.page import TEXT_MAX
from anabranch.federation.tables import (
    amount_in_words,
    contracts_of,
    ledgers_of,
    movements_of,
    read_book,
)
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import EventLog, TopicPartition
from anabranch.protocol.errors import AnabranchError, DataMissing, RemoteProtocolError
from anabranch.protocol.federation.contract_log import VerifyAt
from anabranch.protocol.federation.offers import OfferAnswer, ReturnRequest, TaskOffer
from anabranch.protocol.federation.statements import is_signed

if TYPE_CHECKING:
    from anabranch.dashboard.feed import PageFeed
    from anabranch.dashboard.topics import Connect
    from anabranch.federation.log_reader import FederationReader
    from anabranch.pipeline.model import Federation

_EVERY_S: Final = 1.0
_OFFERS_MAX: Final = 30
_RECORDS_AT_ONCE: Final = 500
_WAIT_MS: Final = 200
_KINDS: Final = {TaskOffer: "offer", OfferAnswer: "answer", ReturnRequest: "wants to give back"}
_ROWS_MAX: Final = 200
"""Maximum number of contracts and of movements on the page; older ones are left out."""


class MarketFollower:
    """Follower of a federation's market. Runs in the thread that calls ``work``."""

    def __init__(self, federation: Federation, connect: Connect, feed: PageFeed) -> None:
        """Prepare the follower without contacting the broker."""
        self._federation = federation
        self._connect = connect
        self._feed = feed

    def work(self) -> None:
        """Show the market of one broker, until the broker's address changes or the page ends.

        Raises:
            AnabranchError: the broker does not answer, or the beginning of a log was deleted.
        """
        address, log = self._connect()
        try:
            with (
                closing(read_book(log, self._federation)) as book,
                closing(
                    Offers(log, FederationTopics(self._federation.name), book.verify)
                ) as offers,
            ):
                while not self._feed.stopping.is_set() and self._connect()[0] == address:
                    book.read_to_end()
                    offers.read(book.contracts)
                    shown = market_of(book, self._feed.clock.now_ms()) | {"offers": offers.shown()}
                    with self._feed.page() as page:
                        page.show_market(shown)
                    self._feed.stopping.wait(_EVERY_S)
        except AnabranchError as error:
            with self._feed.page() as page:
                page.show_market({"error": str(error)[:TEXT_MAX]})
            raise


class Offers:
    """Newest offers, answers and return requests under all contracts.

    A statement is shown only if its author's key has signed it: any principal with write access to
    the topic could write statements in another's name.
    """

    def __init__(self, log: EventLog, topics: FederationTopics, verify: VerifyAt) -> None:
        """Open a reader, without reading yet. ``verify`` checks a signature at a time."""
        self._reader = log.reader(committed=False, headers=False)
        self._admin = log.admin()
        self._topics, self._verify = topics, verify
        self._next: dict[TopicPartition, int] = {}
        self._offers: deque[dict[str, Any]] = deque(maxlen=_OFFERS_MAX)

    def read(self, contracts: Collection[str]) -> None:
        """Read the new statements under ``contracts``, and the last few of contracts that are new.

        Raises:
            AdapterError: the broker does not answer.
        """
        wanted = [self._topics.offers(contract) for contract in contracts]
        for topic in self._admin.partitions(wanted):
            at = TopicPartition(topic, 0)
            if at not in self._next:
                first, end = self._reader.offsets(at)
                self._next[at] = max(first, end - _OFFERS_MAX)
                self._reader.assign(self._next)
        if not self._next:
            return
        try:
            chunks = self._reader.fetch(_RECORDS_AT_ONCE, _WAIT_MS)
        except DataMissing:
            # Retention has deleted statements before they were read. The next call begins again
            # near the ends.
            self._next.clear()
            return
        for chunk in chunks:
            self._next[chunk.at] = chunk.offset_next
            _, contract = self._topics.owner_of(chunk.at.topic)
            for value, time_ms in zip(chunk.values, chunk.timestamps_ms, strict=True):
                row = self._row(value, contract, time_ms)
                if row is not None:
                    self._offers.append(row)

    def _row(self, value: bytes | None, contract: str, time_ms: int) -> dict[str, Any] | None:
        """Return the row of a record; None: it holds no statement with a valid signature."""
        try:
            signed = federation_records.decode(value)
        except RemoteProtocolError:
            return None
        statement = signed.statement
        if not isinstance(statement, (TaskOffer, OfferAnswer, ReturnRequest)):
            return None
        author = statement.buyer if isinstance(statement, TaskOffer) else statement.seller
        if statement.contract_id != contract or not is_signed(
            statement,
            author,
            signed.signature,
            lambda signature, message: self._verify(signature, message, time_ms),
        ):
            return None
        return {
            "at_ms": time_ms,
            "contract": contract,
            "by": author,
            "what": _KINDS[type(statement)],
            "text": _summary(statement)[:TEXT_MAX],
        }

    def shown(self) -> list[dict[str, Any]]:
        """Return the rows, newest first."""
        return sorted(self._offers, key=lambda row: row["at_ms"])[::-1]

    def close(self) -> None:
        """Close the reader. Idempotent."""
        self._reader.close()
        self._admin.close()


def _summary(statement: TaskOffer | OfferAnswer | ReturnRequest) -> str:
    """Return the content of a statement, for people."""
    if isinstance(statement, TaskOffer):
        return "; ".join(
            f"{t.name}: {t.units} units, up to {t.reserve_price}" for t in statement.tasks
        )
    if isinstance(statement, OfferAnswer):
        taken = (f"{t.name}: {t.units} units at {t.price}" for t in statement.tasks)
        return "; ".join(taken) or f"nothing: {statement.reason}"
    return statement.movement_id


def market_of(book: FederationReader, now_ms: int) -> dict[str, Any]:
    """Return the market section of the page.

    Balances are texts, because JavaScript's numbers would round them.
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
