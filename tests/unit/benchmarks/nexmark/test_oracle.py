"""The oracle of Nexmark, on streams that a person can answer, and its verdicts on wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
import pytest

from benchmarks.nexmark import oracle
from benchmarks.nexmark.generator import Events, Plan, generate
from benchmarks.nexmark.oracle import ORACLES
from benchmarks.nexmark.verdict import judge, parse

PERSONS = [
    # id, name, city, state, at
    (1, "Ada", "Bend", "OR", 1_000),
    (2, "Bob", "Kent", "WA", 2_000),
    (3, "Cay", "Boise", "ID", 9_999),
]
AUCTIONS = [
    # id, category, seller, at, expires
    (123, 10, 1, 1_500, 3_000),
    (124, 10, 2, 2_500, 5_000),
    (125, 11, 3, 10_000, 12_000),
    (126, 10, 3, 10_500, 10_600),
]
BIDS = [
    # auction, bidder, price, at
    (123, 2, 100, 1_499),  # before its auction
    (123, 2, 501, 1_500),
    (123, 3, 400, 3_000),  # at the last moment
    (123, 3, 900, 3_001),  # too late
    (124, 1, 300, 4_000),
    (125, 1, 900, 10_000),
    (125, 2, 900, 11_999),
]


def table(rows: Sequence[tuple[object, ...]], names: str) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=names.split(), orient="row").with_row_index("number")


EVENTS = Events(
    table(PERSONS, "id name city state at"),
    table(AUCTIONS, "id category seller at expires"),
    table(BIDS, "auction bidder price at"),
)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("q0", [(a, b, p, at) for a, b, p, at in BIDS]),
        (
            "q1",
            [
                (123, 2, "90.800", 1_499),
                (123, 2, "454.908", 1_500),
                (123, 3, "363.200", 3_000),
                (123, 3, "817.200", 3_001),
                (124, 1, "272.400", 4_000),
                (125, 1, "817.200", 10_000),
                (125, 2, "817.200", 11_999),
            ],
        ),
        ("q2", [(123, 100), (123, 501), (123, 400), (123, 900)]),
        ("q3", [("Ada", "Bend", "OR", 123), ("Cay", "Boise", "ID", 126)]),
        ("q4", [(10, 0, 400), (11, 10_000, 900)]),
        (
            "q5",
            [
                (123, 2, 2_000),
                *((123, 4, ends) for ends in (4_000, 6_000, 8_000, 10_000)),
                # the window from 2 000 has two bids of each
                (123, 2, 12_000),
                (125, 2, 12_000),
                *((125, 2, ends) for ends in (14_000, 16_000, 18_000, 20_000)),
            ],
        ),
        ("q7", [(123, 3, 900, 3_001), (125, 1, 900, 10_000), (125, 2, 900, 11_999)]),
        ("q8", [(1, "Ada", 0), (2, "Bob", 0)]),
    ],
)
def test_an_answer_derived_by_hand(query: str, rows: list[tuple[object, ...]]) -> None:
    assert sorted(ORACLES[query](EVENTS).rows()) == sorted(rows)


@pytest.fixture(scope="module")
def events() -> Events:
    return generate(Plan(30_000, 1_700_000_045_000, rate=2_500))


MUTANTS: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "one is missing": lambda rows: rows.slice(1),
    "one is there twice": lambda rows: pl.concat([rows, rows.tail(1)]),
    "none is there": lambda rows: rows.clear(),
    "one column of one row differs": lambda rows: pl.concat(
        [rows.slice(1), rows.head(1).with_columns(pl.nth(-1).shift(1, fill_value=None))]
    ),
    "one is there twice instead of another": lambda rows: pl.concat([rows.slice(1), rows.tail(1)]),
}


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("query", ORACLES)
def test_a_wrong_answer_is_found(events: Events, query: str, mutant: str) -> None:
    right = ORACLES[query](events)
    assert judge(right, right.sample(fraction=1, shuffle=True, seed=1)).is_right
    verdict = judge(right, MUTANTS[mutant](right))
    assert not verdict.is_right
    assert verdict.example


@pytest.mark.parametrize(
    ("rule", "value", "queries"),
    [
        ("WINDOW_MS", 8_000, {"q4", "q5", "q7", "q8"}),
        ("SLIDE_MS", 5_000, {"q5"}),
        ("_STATES", ("OR", "ID"), {"q3"}),
        ("_CATEGORY", 11, {"q3"}),
        ("_EVERY_AUCTION", 124, {"q2"}),
        ("_EURO_THOUSANDTHS", 907, {"q1"}),
    ],
)
def test_a_query_with_another_rule_gives_other_answers(
    events: Events,
    rule: str,
    value: object,
    queries: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = {query: answers(events) for query, answers in ORACLES.items()}
    monkeypatch.setattr(oracle, rule, value)
    wrong = {q for q, answers in ORACLES.items() if not judge(right[q], answers(events)).is_right}
    assert wrong == queries


def test_answers_are_parsed_with_the_types_of_the_right_ones() -> None:
    right = ORACLES["q2"](EVENTS)
    values = [b'{"auction":123,"price":%d,"more":true}' % price for price in (100, 501, 400, 900)]
    assert judge(right, parse(right, values)).is_right
    assert judge(right, parse(right, [])).missing == 4
