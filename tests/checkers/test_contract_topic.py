"""The judge of a contract's topic sees what it is for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pytest

from anabranch.protocol.federation.ledger import Metered, Posting, Settled
from anabranch.protocol.federation.movements import Ended, EndReason, Placed, Withdrawn
from anabranch.protocol.federation.offers import AcceptedTask
from anabranch.protocol.federation.statements import Signature, Statement, signed_bytes
from checkers import contract_topic
from checkers.contract_topic import Book, Entry, Work
from harness.markets import CONTRACT, answer, signature, started, verify

TEXT: Final = replace(
    CONTRACT, min_hold_ms=2_000, audit=replace(CONTRACT.audit, meter_ms=1_000, settle_ms=2_000)
)
NAME: Final = "north-south:1/north.a"
VIOLATION: Final = TEXT.penalty.violation_micro * 1_000


def is_signed(statement: Any, given: Signature, participant: str) -> bool:
    return given.participant == participant and verify(given, signed_bytes(statement))


def record(at_ms: int, statement: Statement, by: str = "") -> Entry:
    return Entry(at_ms, statement, signature(statement, by or str(getattr(statement, "by", ""))))


def start(at_ms: int = 1_500, number: int = 1, price: int = 900) -> Entry:
    return record(at_ms, started(answer(number, AcceptedTask("north.a", 10, price))))


def end(
    at_ms: int, name: str = NAME, by: str = "north", why: EndReason = EndReason.RECALLED
) -> Entry:
    return record(at_ms, Ended("north-south", name, by, 0, why))


def metered(at_ms: int, slot: int, units: int, by: str = "south", name: str = NAME) -> Entry:
    return record(at_ms, Metered("north-south", name, by, slot, units))


def read(*entries: Entry) -> Book:
    return contract_topic.read(entries, TEXT, is_signed)


def text_of(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def test_a_movement_runs_from_the_log_s_time_of_its_start_to_that_of_its_end() -> None:
    ran = read(start(), end(3_000)).ran[NAME]
    assert (ran.started_ms, ran.ended_ms, ran.price, ran.units) == (1_500, 3_000, 900, 10)
    assert [ran.overlap_ms(slot * 1_000, slot * 1_000 + 1_000) for slot in range(4)] == [
        0,
        500,
        1_000,
        0,
    ]


def place(at_ms: int, number: int, node: str, by: str = "south") -> Entry:
    return record(at_ms, Placed("north-south", NAME, by, 0, number, node))


def test_the_words_of_the_seller_count_each_once() -> None:
    words = (place(1, 1, "west.0"), place(2, 1, "east.0"), place(3, 2, "south.0"))
    others = (place(4, 3, "north.0"), place(4, 3, "west"), place(4, 3, "west.0", by="north"))
    assert read(start(0), *words, *others).ran[NAME].words == ["west.0", "south.0"]
    assert read(start(0), end(1), *words).ran[NAME].words == []


def test_what_is_sold_on_has_come_and_ends_with_what_it_came_under() -> None:
    def found(source: Book, book: Book, now_ms: int = 9_000, quiet_ms: int = 0) -> str:
        return text_of(contract_topic.sold_on(source, book, now_ms, quiet_ms, 1_000))

    assert "has not come" in found(read(), read(start(2_000)))
    assert "has not come" in found(read(start(3_000)), read(start(2_000)))
    assert not found(read(start(1_000)), read(start(2_000)))
    over = read(start(1_000), end(3_000))
    assert not found(over, read(start(2_000), end(4_000)))
    assert "ends at 4001" in found(over, read(start(2_000), end(4_001)))
    assert not found(over, read(start(2_000), end(4_001)), quiet_ms=3_001)
    assert "ends at None" in found(over, read(start(2_000)))
    assert not found(over, read(start(2_000)), now_ms=4_000)
    assert not found(over, read(start(3_500), end(4_500)))


@pytest.mark.parametrize(
    "entry",
    [
        start(price=TEXT.fixed_price + 1),
        start(price=TEXT.fixed_price - TEXT.delta - 1),
        record(1, replace(started(answer()), by="south")),
        record(1, started(answer()), by="mallory"),
        record(1, replace(started(answer()), signature=signature(answer(), "mallory"))),
        record(1, replace(started(answer()), movement_id="north-south:2/north.a")),
        record(1, started(answer(1, AcceptedTask("north.z", 10, 900)), "north.z")),
        record(1, started(answer(version=2))),
    ],
)
def test_a_start_that_the_contract_does_not_allow_starts_nothing(entry: Entry) -> None:
    assert read(entry).ran == {}


def test_what_was_withdrawn_never_runs_and_what_is_over_is_over() -> None:
    withdrawn = record(1, Withdrawn("north-south", NAME, "south", 0))
    assert read(withdrawn, start()).ran == {}
    assert read(start(), end(2_000), end(4_000)).ran[NAME].ended_ms == 2_000
    assert read(start(), end(2_000), start(3_000)).ran[NAME].started_ms == 1_500


def test_two_movements_of_one_task_at_one_time_are_paid_twice() -> None:
    book = read(start(), end(3_000), start(3_000, number=2))
    assert text_of(contract_topic.paid_once(book)) == ""
    assert read(start(), start(2_000, number=2)).ran.keys() == {NAME}
    second = "north-south:2/north.a"
    book.ran[second].started_ms = 2_999
    assert f"paid under {NAME} and {second} at 2999" in text_of(contract_topic.paid_once(book))
    del book.ran[second]
    book.ran["open"] = replace(book.ran[NAME], name="open", started_ms=0, ended_ms=None)
    assert "paid under open and" in text_of(contract_topic.paid_once(book))


def test_an_honest_start_out_of_the_bound_is_told() -> None:
    assert text_of(contract_topic.starts([start(), start(2, 2, 801)], TEXT)) == ""
    assert "starts it at 1001" in text_of(contract_topic.starts([start(price=1_001)], TEXT))


def settled(at_ms: int, period: int, due: int) -> Entry:
    return record(at_ms, Settled("north-south", "south", period, due))


def test_a_period_is_settled_once_with_what_both_measured() -> None:
    entries = (start(), metered(2_000, 1, 10), metered(2_000, 1, 12, "north"))
    due = 900 * 10 * 500
    assert read(*entries, settled(4_000, 0, due)).paid == {0: due}
    assert read(*entries, settled(3_999, 0, due)).paid == {}
    assert read(*entries, settled(4_000, 0, due + 1)).paid == {}
    late = metered(4_001, 1, 99, "south"), settled(4_002, 0, due)
    assert read(*entries, settled(4_000, 0, due), *late).paid == {0: due}


@pytest.mark.parametrize(
    ("says", "counts"),
    [
        ({"north": 7}, 7),
        ({"south": 7}, 7),
        ({"south": 99}, 10),
        ({"south": 103, "north": 100}, 103),
        ({"south": 300, "north": 100}, 100),
        ({"south": 100, "north": 300}, 100),
        ({}, 0),
    ],
)
def test_the_units_that_count(says: dict[str, int], counts: int) -> None:
    assert contract_topic.units_of(says, read(start()).ran[NAME], TEXT) == counts


def test_a_measurement_counts_once_after_its_slot_and_of_what_ran() -> None:
    book = read(
        start(),
        metered(1_999, 1, 5),
        metered(2_000, 1, 6),
        metered(2_001, 1, 7),
        metered(2_001, 0, 8),
        metered(3_000, 2, -1),
    )
    assert book.metered == {(NAME, 1): {"south": 6}}


def test_a_reader_with_other_sums_is_told() -> None:
    due = 900 * 10 * 500
    book = read(start(), metered(2_000, 1, 10), settled(4_000, 0, due))
    right = [Posting("north", "south", due, "period 0")]
    assert text_of(contract_topic.agrees(book, right, {"north": -due, "south": due})) == ""
    assert "the topic says" in text_of(contract_topic.agrees(book, right * 2, {}))
    assert "the balances are" in text_of(contract_topic.agrees(book, right, {"north": 1}))


def test_a_seller_is_paid_for_what_its_node_made() -> None:
    due = 900 * 10 * 500
    for measured in ((), (metered(2_000, 1, 10, "north"),)):
        book = read(start(), metered(2_000, 1, 10), *measured, settled(4_000, 0, due))
        for rows, wrong in ((5, False), (4, True)):
            found = contract_topic.payments(book, TEXT, lambda *_, rows=rows: Work(rows, 500))
            assert bool(list(found)) is (wrong and bool(measured)), "else the seller is believed"


def test_a_side_that_measures_something_else_is_told() -> None:
    entries = [start(), metered(2_000, 1, 10)]
    book = read(*entries)
    for work, wrong in ((Work(5, 500), False), (Work(5, 250), False), (Work(6, 500), True)):
        found = contract_topic.measurements(
            entries,
            book,
            TEXT,
            lambda *_, work=work: work,
            ["south"],
        )
        assert bool(list(found)) is wrong
    assert not list(contract_topic.measurements(entries, book, TEXT, lambda *_: Work(9, 1), []))


def test_who_ends_too_early_pays_and_a_seller_for_silence_alone() -> None:
    early = read(start(), end(2_000))
    fine = Posting("north", "south", VIOLATION, f"ended before its time: {NAME}")
    assert text_of(contract_topic.penalties(early, [fine], TEXT)) == ""
    assert "costs []" in text_of(contract_topic.penalties(early, [], TEXT))
    blamed = read(start(), metered(4_000, 3, 5), end(11_000, why=EndReason.SILENT))
    assert blamed.ran[NAME].silent_ms == 7_000
    assert text_of(contract_topic.penalties(blamed, [], TEXT)) == ""
    cost = VIOLATION + TEXT.penalty.silent_micro_per_s * 7_001
    silent = read(start(), end(8_501, why=EndReason.SILENT))
    owed = Posting("south", "north", cost, f"silent 7001 ms: {NAME}")
    assert text_of(contract_topic.penalties(silent, [owed], TEXT)) == ""
    assert "not [('south'" in text_of(contract_topic.penalties(silent, [], TEXT))
    assert "not []" in text_of(contract_topic.penalties(blamed, [owed], TEXT))


def test_what_an_audit_found_costs_its_seller_once_whether_before_or_after_the_end() -> None:
    fine = Posting("south", "north", VIOLATION, f"wrong results: {NAME}")
    early = Posting("north", "south", VIOLATION, f"ended before its time: {NAME}")
    for why in EndReason:
        book = read(start(), end(4_000, why=why))
        assert text_of(contract_topic.penalties(book, [fine], TEXT, {NAME: 0})) == ""
        assert "costs []" in text_of(contract_topic.penalties(book, [], TEXT, {NAME: 2}))
        assert "costs [(" in text_of(contract_topic.penalties(book, [fine] * 2, TEXT, {NAME: 0}))
        assert "not []" in text_of(contract_topic.penalties(book, [fine], TEXT))
    book = read(start(), end(3_000))
    assert text_of(contract_topic.penalties(book, [early, fine], TEXT, {NAME: 2})) == ""
    assert text_of(contract_topic.penalties(book, [fine], TEXT, {NAME: 0})) == ""
    assert "costs" in text_of(contract_topic.penalties(book, [fine], TEXT, {NAME: 2}))
    idle = Posting("south", "north", VIOLATION, f"made nothing: {NAME}")
    book = read(start(), end(4_000, why=EndReason.SILENT))
    assert text_of(contract_topic.penalties(book, [idle], TEXT, {NAME: 2})) == ""


def test_an_answer_takes_a_task_only_with_the_seller_s_signature() -> None:
    given = answer()
    right, forged = record(1, given, "south"), record(1, given, "mallory")
    assert contract_topic.takes(right, "north.a", TEXT, is_signed)
    assert not contract_topic.takes(right, "north.b", TEXT, is_signed)
    assert not contract_topic.takes(forged, "north.a", TEXT, is_signed)
    assert not contract_topic.takes(start(), "north.a", TEXT, is_signed)
