"""Judgement of a run of a federation: everything that may be wrong with any run, and the fate of
the stage for sale, and of the money.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from anabranch.codec import control_records, federation_records
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.federation.contract_book import Change, ContractChange
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.movements import Ended, EndReason, Placed, Started
from anabranch.protocol.federation.offers import TaskOffer
from anabranch.protocol.federation.stage_moves import node_of
from anabranch.protocol.federation.statements import Signature, signed_bytes
from anabranch.protocol.log.records import EpochStarted
from checkers import audits, contract_topic, streams
from checkers.audits import Findings, Made
from checkers.contract_topic import Book, Entry, Ran, Work
from simulation import evidence, sold_results, workload
from simulation.decoding import decoded_once
from simulation.dishonest import AUDITOR_CHOOSES, MAKES_UP_EPOCHS
from simulation.evidence import labelled
from simulation.faults import EVERYTHING
from simulation.intake import source_replay, source_streams
from simulation.market import AUDITOR, FEDERATION, SELLER, STRANGER, THIRD, MarketOptions
from simulation.participants import FederatedWorld, Reader
from simulation.raw_logs import Blocks, appended_ms, appends, boundary_log, records
from simulation.silences import speaks_in_time
from simulation.workload import BASE_MS
from simulation.world import Run

AFTER_FAULTS_MS: Final = 10_000
"""From the end of all faults, or from when its input is there, until a bucket of the stage is made:
a silent node is waited for, an offer runs out, the stage comes home and begins anew.
"""
WITHOUT_FAULTS_MS: Final = 1_000
"""The same where nothing fails: a movement is a pause, no longer than that of a restart."""
AUDITED_WITHIN_MS: Final = 1_500
"""Maximum time from a movement's entry in the ledger until a number's hash, in ms, without
faults.
"""
HOME_MS: Final = 2_500
"""Maximum time from an audit's finding until the stage is home, in ms, without faults."""
UNHEARD_MS: Final = 4_500
"""Maximum time from the epoch of a node whose heartbeats do not count until another node's, in
ms.
"""
_READ_WITHIN_MS: Final = 10_000
"""After a fault that ends by then, at the latest."""
_CLOCKS: Final = frozenset({"clock", "clock back"})
"""Faults that are no reason to pay a penalty."""
_NUMBERS_LOST: Final = frozenset({"disk", "double", "zombie", "pause"})
"""Faults after which numbers may be lost: two processes write one file."""


@dataclass(frozen=True)
class _Deal:
    """A contract, and what its topics say."""

    text: Contract
    entries: list[Entry]
    book: Book
    found: Findings
    nodes: dict[str, frozenset[str]]
    """Nodes that count for each movement."""

    @property
    def own(self) -> str:
        """The node of its seller."""
        return node_of(self.text.seller)


@decoded_once()
def judge(world: FederatedWorld, run: Run) -> list[str]:
    """Everything, in words, each with the checker that tells it."""
    options = world.options
    wrong = evidence.judge(run)
    signed = _Signatures(options)
    deals = [_deal(run, options, text, signed) for text in options.contracts()]
    work = _Works(run, options)
    for deal in deals:
        readers = [each for each in world.readers if each.contract_id == deal.text.contract_id]
        wrong += _money(run, options, deal, readers, work, signed)
        wrong += labelled("handovers", _handovers(run, options, deal))
        _note(run, deal.book, deal.found)
    wrong += _audits(run, options, deals)
    for source, deal in itertools.pairwise(deals):
        wrong += labelled("resales", _resales(run, options, source, deal))
    wrong += labelled("answers", _moves_without_answer(run, options, deals, signed))
    wrong += labelled("runners", _gaps(run, options))
    wrong += labelled("heard", _kept_unheard(run, options))
    return wrong


def _deal(run: Run, options: MarketOptions, text: Contract, signed: _Signatures) -> _Deal:
    entries = list(_entries(run, FederationTopics(FEDERATION).contract(text.contract_id)))
    book = contract_topic.read(entries, text, signed)
    found = audits.read(entries, book, text, options.auditor, signed)
    partners = set(options.new_nodes.values())
    nodes = {
        name: frozenset({node_of(text.seller), *partners.intersection(ran.words)})
        for name, ran in book.ran.items()
    }
    return _Deal(text, entries, book, found, nodes)


def _money(
    run: Run,
    options: MarketOptions,
    deal: _Deal,
    readers: list[Reader],
    work: _Works,
    signed: _Signatures,
) -> list[str]:
    """Judge the measurements and payments under one contract."""
    book, text = deal.book, deal.text
    seller = text.seller
    kinds = {fault.kind for fault in run.faults}
    wrong = labelled("paid once", contract_topic.paid_once(book))
    honest = [name for name in (text.buyer, seller) if not options.dishonest.startswith(name)]
    believed = [entry for entry in deal.entries if _is_signed_by(entry, honest, signed)]
    made = lambda ran, slot: work(ran, slot, deal.nodes[ran.name])  # noqa: E731
    wrong += labelled("prices", contract_topic.starts(believed, text))
    wrong += labelled("payments", contract_topic.payments(book, text, made))
    lines = contract_topic.measurements(believed, book, text, made, honest)
    wrong += labelled("measurements", lines)
    for reader in readers:
        lines = contract_topic.agrees(book, reader.postings, reader.balances)
        wrong += labelled("ledger", (f"{reader.name}: {line}" for line in lines))
        lines = contract_topic.penalties(book, reader.postings, text, deal.found.convicted())
        wrong += labelled("penalties", lines)
        if not kinds - _CLOCKS and not options.dishonest.startswith((seller, THIRD)):
            fines = [each for each in reader.postings if each.payer == seller]
            wrong += labelled("penalties", (f"{seller} works, and pays {each}" for each in fines))
        if reader.movements != {
            each.name: (each.price, each.ended_ms) for each in book.ran.values()
        }:
            wrong += labelled("ledger", [f"{reader.name} has other movements: {reader.movements}"])
    return wrong


def _note(run: Run, book: Book, found: Findings) -> None:
    """Note what came about."""
    reached = run.history.reached
    for term in found.terms:
        if term.number is not None:
            reached("number of an audit revealed")
        for finding in term.findings:
            reached(f"audit found: {finding.fault.value}")
    for ran in book.ran.values():
        reached("stage sold")
        for node in ran.words:
            reached(f"named to run there: {node}")
        if ran.ended_ms is not None:
            reached(f"stage back: {ran.why}, by {ran.ended_by}")
    if any(book.paid.values()):
        reached("period paid")


def _resales(run: Run, options: MarketOptions, source: _Deal, deal: _Deal) -> Iterator[str]:
    """Judge what a seller resells."""
    for ran in deal.book.ran.values():
        run.history.reached("stage sold on")
        if ran.ended_ms is not None:
            run.history.reached(f"sold on and back: {ran.why}, by {ran.ended_by}")
    yield from contract_topic.sold_on(
        source.book,
        deal.book,
        BASE_MS + run.ended_ms,
        BASE_MS + (options.heal_ms if run.faults else 0),
        AFTER_FAULTS_MS if run.faults else HOME_MS,
    )


def _audits(run: Run, options: MarketOptions, deals: list[_Deal]) -> list[str]:
    """Whom the auditor blames, and what comes of that."""
    if not options.auditor:
        return []
    stage = options.sold
    blocks = {stream: Blocks(run, stream) for stream in run.pipeline.streams()}
    replays = {source: source_replay(run, source, blocks[source]) for source in options.sources}
    answer = workload.answers(options, source_streams(run, replays))[stage]
    reading = _read(run, stage)
    made = sold_results.made(run, stage, reading, answer, blocks[stage])
    lines = [line for deal in deals for line in _blames(run, options, deal, made)]
    return labelled("audits", lines) + labelled("partners", _partners_wrong(run, options, made))


def _blames(
    run: Run, options: MarketOptions, deal: _Deal, made: Mapping[int, Made]
) -> Iterator[str]:
    """Judge the blames under one contract."""
    book, text = deal.book, deal.text
    found = deal.found
    by_movement = dict.fromkeys(book.ran, made)
    yield from audits.blames(found.terms, by_movement, deal.nodes)
    yield from audits.misses(found.terms, book, text, by_movement, deal.nodes)
    is_calm, picks = not run.faults, options.dishonest == AUDITOR_CHOOSES
    struck = {fault.kind for fault in run.faults if fault.target.startswith("auditor/")}
    if not picks:
        yield from found.strange
        yield from audits.uncovered(found.terms, book)
    if run.is_complete and not picks and not struck & _NUMBERS_LOST:
        yield from audits.kept(found.terms, book)
    if is_calm:
        now_ms = BASE_MS + run.ended_ms
        yield from audits.unaudited(found.terms, book, now_ms, AUDITED_WITHIN_MS)
    if not options.dishonest.startswith(text.buyer):
        quiet_ms = BASE_MS + (0 if is_calm else options.heal_ms)
        within_ms = HOME_MS if is_calm else AFTER_FAULTS_MS
        yield from audits.homecoming(found, book, quiet_ms, within_ms)
        if run.is_complete:
            yield from _not_suspended(run, options, deal)


def _partners_wrong(run: Run, options: MarketOptions, made: Mapping[int, Made]) -> Iterator[str]:
    """Check that a node reports a partner's bucket as wrong only if it is."""
    for event in run.history.events:
        if event.what == "partner wrong":
            _, bucket, node = event.facts
            run.history.reached("partner wrong")
            each = made.get(int(bucket or 0))
            if each is None or each.is_right or (each.node, node) != (options.spoiler,) * 2:
                yield f"{event.who} says that {node} made bucket {bucket} wrong, which is {each}"


def _not_suspended(run: Run, options: MarketOptions, deal: _Deal) -> Iterator[str]:
    """Check that a convicted seller sells nothing any more: the buyer suspends the contract."""
    text, book = deal.text, deal.book
    found, signed = deal.found, _Signatures(options)
    topics = FederationTopics(FEDERATION)
    guilty = [
        name
        for name in found.convicted()
        if book.ran[name].ended_ms is not None and book.ran[name].why is not EndReason.SILENT
    ]
    suspended = [
        entry.at_ms
        for entry in deal.entries
        if isinstance(entry.statement, ContractChange)
        and entry.statement.change is Change.SUSPENDED
        and signed(entry.statement, entry.signature, text.buyer)
    ]
    if guilty and not suspended:
        yield f"{guilty[0]} was wrong, and the contract is not suspended"
    for entry in _entries(run, topics.offers(text.contract_id)):
        if (
            suspended
            and isinstance(entry.statement, TaskOffer)
            and entry.at_ms > suspended[0] + _READ_WITHIN_MS
            and signed(entry.statement, entry.signature, text.buyer)
        ):
            yield f"{entry.statement} is made, and the contract is suspended since {suspended[0]}"


class _Signatures:
    """Checks signatures by the keys of the seed, with nothing in between."""

    def __init__(self, options: MarketOptions) -> None:
        self._keys = {
            name: Ed25519PublicKey.from_public_bytes(options.key(name).public)
            for name in (*options.traders, STRANGER, AUDITOR)
        }

    def __call__(self, statement: object, signature: Signature, participant: str) -> bool:
        """Whether it is the participant's signature of the statement."""
        if (signature.participant, signature.key_id) != (participant, "1"):
            return False
        try:
            self._keys[participant].verify(signature.value, signed_bytes(statement))  # type: ignore[arg-type]
        except InvalidSignature:
            return False
        return True


def _is_signed_by(entry: Entry, names: list[str], signed: _Signatures) -> bool:
    by = str(getattr(entry.statement, "by", ""))
    return by in names and signed(entry.statement, entry.signature, by)


def _entries(run: Run, topic: str) -> Iterator[Entry]:
    for _, _, record in records(run, topic):
        with contextlib.suppress(RemoteProtocolError):
            statement, signature = federation_records.decode(record.value)
            yield Entry(record.timestamp_ms, statement, signature)


class _Works:
    """Work of nodes, slot by slot."""

    def __init__(self, run: Run, options: MarketOptions) -> None:
        self._task, self._width_ms = options.task, options.bucket_ms
        self._meter_ms = options.contracts()[0].audit.meter_ms
        self._rows: dict[int, int] = {}
        for stream in run.pipeline.inputs(options.sold):
            for writer in _read(run, stream).writers.values():
                for bucket, parts in writer.closed_parts.items():
                    self._rows[bucket] = self._rows.get(bucket, 0) + sum(p.rows for p in parts)
        self._made_by = sold_results.nodes_of(run, options.sold)

    def __call__(self, ran: Ran, slot: int, nodes: frozenset[str]) -> Work:
        """Return the work of a slot."""
        assert ran.task == self._task
        width_ms, meter_ms = self._width_ms, self._meter_ms
        buckets = [
            bucket
            for bucket in range(slot * meter_ms // width_ms, (slot + 1) * meter_ms // width_ms + 1)
            if slot * meter_ms <= bucket * width_ms < (slot + 1) * meter_ms
            and self._made_by.get(bucket) in nodes
        ]
        rows = sum(self._rows.get(bucket, 0) for bucket in buckets)
        return Work(rows, len(buckets) * width_ms)


def _read(run: Run, stream: str) -> streams.Reading:
    return streams.read(boundary_log(run, stream), run.pipeline.stream_writers(stream))


def _gaps(run: Run, options: MarketOptions) -> Iterator[str]:
    """Buckets of the stage that nobody made for too long, from when all faults were over."""
    if not run.is_complete:
        return
    free_ms = options.heal_ms if run.faults else 0
    is_calm = not run.faults and options.is_honest and speaks_in_time(run)
    bound_ms = WITHOUT_FAULTS_MS if is_calm else AFTER_FAULTS_MS
    inputs = [_closed(run, stream) for stream in run.pipeline.inputs(options.sold)]
    made = _closed(run, options.sold, sold_results.FIRST_BUCKETS)
    for bucket in sorted(set.intersection(*map(set, inputs))):
        there_ms = max(free_ms, *(closed[bucket] for closed in inputs))
        if made.get(bucket, run.ended_ms) > there_ms + bound_ms:
            yield (
                f"bucket {bucket} of {options.sold} is there at {there_ms} ms, and made at"
                f" {made.get(bucket)} ms"
            )


def _kept_unheard(run: Run, options: MarketOptions) -> Iterator[str]:
    """Stays of the stage at a node whose heartbeats name an epoch that the log does not have, for
    longer than a silent node keeps it. Not where something befell an agent, a node, or the broker.
    """
    befell = {fault.target.partition("/")[0] for fault in run.faults}
    is_struck = not befell.isdisjoint(("agent", "processing", EVERYTHING))
    if options.dishonest != MAKES_UP_EPOCHS or options.is_resale or is_struck:
        return
    times = appended_ms(run, run.pipeline.topic_names.boundaries(options.sold))
    since_ms, at_node = 0, ""
    begun = [
        (times[offset], entry.node)
        for offset, entry in boundary_log(run, options.sold)
        if isinstance(entry, EpochStarted) and offset in times
    ]
    for at_ms, node in (*begun, (run.ended_ms, "")):
        if node == at_node:
            continue
        if at_node == node_of(SELLER) and at_ms - since_ms > UNHEARD_MS:
            yield f"{at_node} ran the stage from {since_ms} to {at_ms} ms, and was not to be heard"
        since_ms, at_node = at_ms, node


def _closed(run: Run, stream: str, first: int = 0) -> dict[int, int]:
    """When each bucket of a stream was closed, in virtual time, from its second record on, and the
    last ``first`` buckets of its first record.
    """
    times = appended_ms(run, run.pipeline.topic_names.boundaries(stream))
    found: dict[int, int] = {}
    upto = at_ms = 0
    (writer,) = _read(run, stream).writers.values()
    for offset, record in writer.accepted:
        at_ms = times.get(offset, at_ms)
        for bucket in range((upto or record.closed - first) + 1, record.closed + 1):
            found[bucket] = at_ms
        upto = max(upto, record.closed)
    return found


def _handovers(run: Run, options: MarketOptions, deal: _Deal) -> Iterator[str]:
    """Check that an honest buyer with one agent at a time writes that a movement has begun when the
    seller's node runs the stage, and that it has ended when none of its nodes does. Of two agents
    each may sell the stage, and end what the other began.
    """
    buyer = deal.text.buyer
    if options.dishonest.startswith(buyer) or any(
        fault.target == f"agent/{buyer}" and fault.kind in ("double", "zombie", "pause")
        for fault in run.faults
    ):
        return
    order, names = appends(run), run.pipeline.topic_names
    boundaries = names.boundaries(options.sold)
    nodes = [
        (order[boundaries, 0, offset], entry.node)
        for offset, entry in boundary_log(run, options.sold)
        if isinstance(entry, EpochStarted)
    ]
    topic = FederationTopics(FEDERATION).contract(deal.text.contract_id)
    for partition, offset, record in records(run, topic):
        place = order.get((topic, partition, offset))
        if place is None:
            continue  # somebody has repeated it
        statement = federation_records.decode(record.value).statement
        if not isinstance(statement, Started | Ended) or statement.by != buyer:
            continue
        name = statement.movement_id
        runs_on = max((each for each in nodes if each[0] < place), default=((0, 0), ""))[1]
        if name not in deal.book.ran:
            continue
        begins = isinstance(statement, Started)
        is_there = runs_on == deal.own if begins else runs_on in deal.nodes[name]
        if is_there != begins:
            yield f"at {place[1]} ms {statement} is written, and the stage runs on {runs_on}"


def _moves_without_answer(
    run: Run, options: MarketOptions, deals: list[_Deal], signed: _Signatures
) -> Iterator[str]:
    """Check that the stage moves to a seller's node only after that one has signed that it takes
    it; if it is resold, also after the reseller has named that node.
    """
    order, names = appends(run), FederationTopics(FEDERATION)
    allowed: dict[str, list[list[tuple[int, int]]]] = {}
    named: list[tuple[tuple[int, int], Placed]] = []
    for deal in deals:
        text = deal.text
        for partition, offset, record in records(run, names.contract(text.contract_id)):
            place = order.get((names.contract(text.contract_id), partition, offset))
            with contextlib.suppress(RemoteProtocolError):
                word, signature = federation_records.decode(record.value)
                is_word = isinstance(word, Placed) and word.by == text.seller
                if place is not None and is_word and signed(word, signature, text.seller):
                    named.append((place, word))
        taken = []
        topic = names.offers(text.contract_id)
        for partition, offset, record in records(run, topic):
            with contextlib.suppress(RemoteProtocolError):
                statement, signature = federation_records.decode(record.value)
                entry = Entry(record.timestamp_ms, statement, signature)
                place = order.get((topic, partition, offset))  # None: somebody has repeated it
                if place is not None and contract_topic.takes(entry, options.task, text, signed):
                    taken.append(place)
        allowed[deal.own] = [taken]
    for deal in deals[1:]:
        allowed[deal.own].append([place for place, word in named if word.node == deal.own])
    placement = run.pipeline.topic_names.placement()
    for partition, offset, record in records(run, placement):
        move = control_records.decode(record.value)
        if isinstance(move, Move) and move.node in options.new_nodes.values():
            moved = order[placement, partition, offset]
            for places in allowed[move.node]:
                if not any(each < moved for each in places):
                    what = "nobody took it" if places is allowed[move.node][0] else "nobody said so"
                    yield f"{move.stage} is moved to {move.node} at {moved[1]} ms, and {what}"
