"""The market of a federation, for the page: contracts, offers as they pass, who runs whose stages,
who owes whom.

Read from the topics that this principal may see, every few seconds. A crash loses nothing but the
older offers, which nobody keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from anabranch.codec import federation_records
from anabranch.dashboard.page import TEXT_MAX
from anabranch.operating.contract_book import (
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
from anabranch.protocol.federation.offers import Answer, Offer, ReturnRequest
from anabranch.protocol.federation.statements import is_signed

if TYPE_CHECKING:
    from anabranch.dashboard.feed import Feed
    from anabranch.dashboard.topics import Connect
    from anabranch.pipeline.model import Federation
    from anabranch.runtime.federation_reader import FederationReader

_EVERY_S: Final = 1.0
_OFFERS_MAX: Final = 30
_RECORDS_AT_ONCE: Final = 500
_WAIT_MS: Final = 200
_KINDS: Final = {Offer: "offer", Answer: "answer", ReturnRequest: "wants to give back"}
_ROWS_MAX: Final = 200
"""Of contracts and of movements; the newest."""


class MarketFollower:
    """Runs in the thread that calls ``work``."""

    def __init__(self, federation: Federation, connect: Connect, feed: Feed) -> None:
        """Nothing is contacted yet."""
        self._federation = federation
        self._connect = connect
        self._feed = feed

    def work(self) -> None:
        """Follow the contracts at one broker, until another is named or the end.

        Raises:
            AnabranchError: it does not answer, or a log does not begin at its beginning.
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
    """The newest of what the parties of contracts say to each other. Only that counts which its
    speaker's key has signed: whoever may write a topic may write anything into it.
    """

    def __init__(self, log: EventLog, topics: FederationTopics, verify: VerifyAt) -> None:
        """Nothing is read yet."""
        self._reader = log.reader(committed=False, headers=False)
        self._admin = log.admin()
        self._topics, self._verify = topics, verify
        self._next: dict[TopicPartition, int] = {}
        self._offers: deque[dict[str, Any]] = deque(maxlen=_OFFERS_MAX)

    def read(self, contracts: Collection[str]) -> None:
        """What is new under these contracts; of those that are new themselves a few earlier
        messages, too.

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
            self._next.clear()  # it was slower than the topic keeps messages
            return
        for chunk in chunks:
            self._next[chunk.at] = chunk.offset_next
            _, contract = self._topics.owner_of(chunk.at.topic)
            for value, time_ms in zip(chunk.values, chunk.timestamps_ms, strict=True):
                row = self._row(value, contract, time_ms)
                if row is not None:
                    self._offers.append(row)

    def _row(self, value: bytes | None, contract: str, time_ms: int) -> dict[str, Any] | None:
        try:
            signed = federation_records.decode(value)
        except RemoteProtocolError:
            return None
        statement = signed.statement
        if not isinstance(statement, (Offer, Answer, ReturnRequest)):
            return None
        speaker = statement.buyer if isinstance(statement, Offer) else statement.seller
        if statement.contract_id != contract or not is_signed(
            statement,
            speaker,
            signed.signature,
            lambda signature, message: self._verify(signature, message, time_ms),
        ):
            return None
        return {
            "at_ms": time_ms,
            "contract": contract,
            "by": speaker,
            "what": _KINDS[type(statement)],
            "text": _in_words(statement)[:TEXT_MAX],
        }

    def shown(self) -> list[dict[str, Any]]:
        """The newest first."""
        return sorted(self._offers, key=lambda row: row["at_ms"])[::-1]

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()
        self._admin.close()


def _in_words(statement: Offer | Answer | ReturnRequest) -> str:
    if isinstance(statement, Offer):
        return "; ".join(
            f"{t.name}: {t.units} units, up to {t.reserve_price}" for t in statement.tasks
        )
    if isinstance(statement, Answer):
        taken = (f"{t.name}: {t.units} units at {t.price}" for t in statement.tasks)
        return "; ".join(taken) or f"nothing: {statement.reason}"
    return statement.movement_id


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
