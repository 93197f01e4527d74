"""OS1 to OS3: what a stage that is offered takes, for whom, and from which streams."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.federation.offered_stages import (
    NUMBER_MAX,
    OFFERED_CHARACTERS_MAX,
    Parameter,
    ParameterKind,
    Terms,
    arguments,
    rejection,
    wrong_columns,
)

BELOW = Parameter(ParameterKind.INTEGER, 40, 1, 200)
SHARE = Parameter(ParameterKind.NUMBER)
NAME = Parameter(ParameterKind.TEXT, None, 2, 4)
EXACT = Parameter(ParameterKind.BOOLEAN, default=False)
TERMS = Terms(
    version=1,
    reads={"cars": {"speed": "long", "note": "string or null"}},
    gives={"segment": "long"},
    parameters={"below": BELOW},
    rows_per_s=500,
)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (BELOW, 1),
        (BELOW, 200),
        (SHARE, 0.5),
        (SHARE, -(10**15)),
        (NAME, "ab"),
        (NAME, "abcd"),
        (Parameter(ParameterKind.TEXT), "x" * OFFERED_CHARACTERS_MAX),
        (EXACT, True),
        (EXACT, False),
    ],
)
def test_what_is_of_the_type_and_within_the_bounds_is_taken(
    parameter: Parameter, value: object
) -> None:
    assert parameter.taken(value) == value


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (BELOW, 0),
        (BELOW, 201),
        (BELOW, 40.0),
        (BELOW, "40"),
        (BELOW, True),
        (BELOW, None),
        (BELOW, [40]),
        (SHARE, NUMBER_MAX + 1),
        (SHARE, -NUMBER_MAX - 1),
        (SHARE, math.nan),
        (SHARE, math.inf),
        (SHARE, False),
        (NAME, "a"),
        (NAME, "abcde"),
        (NAME, 12),
        (NAME, False),
        (Parameter(ParameterKind.TEXT, high=10**9), "x" * (OFFERED_CHARACTERS_MAX + 1)),
        (EXACT, 1),
        (EXACT, "true"),
    ],
)
def test_nothing_else_is_taken(parameter: Parameter, value: object) -> None:
    assert parameter.taken(value) is None


def test_a_number_comes_as_one_and_an_integer_stays_one() -> None:
    assert repr(SHARE.taken(2)) == "2.0"
    assert repr(BELOW.taken(2)) == "2"


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (BELOW, "an integer from 1 to 200, 40 if left out"),
        (SHARE, "a number"),
        (Parameter(ParameterKind.NUMBER, low=0.5), f"a number from 0.5 to {NUMBER_MAX}"),
        (NAME, "a text of 2 to 4 characters"),
        (EXACT, "true or false, False if left out"),
    ],
)
def test_it_says_what_it_takes(parameter: Parameter, words: str) -> None:
    assert parameter.in_words() == words


def test_what_is_left_out_has_its_default() -> None:
    wanted = {"below": BELOW, "exact": EXACT, "name": NAME}
    assert arguments(wanted, {"name": "abc"}) == (
        {"below": 40, "exact": False, "name": "abc"},
        {},
    )
    assert arguments(wanted, {"name": "abc", "below": 7})[0]["below"] == 7


def test_each_parameter_that_is_wrong_is_named() -> None:
    _, wrong = arguments({"below": BELOW, "name": NAME}, {"below": 0, "above": 3})
    assert wrong == {
        "above": "the offer has no parameter above; its parameters are below, name",
        "below": "an integer from 1 to 200 is wanted",
        "name": "is missing; the offer wants a text of 2 to 4 characters",
    }
    assert "its parameters are none" in arguments({}, {"x": 1})[1]["x"]


def test_an_offer_that_is_as_it_was_is_run_for_whom_it_is_offered_to() -> None:
    assert rejection(TERMS, TERMS, "north", None) == ""
    assert rejection(TERMS, TERMS, "north", ["west", "north"]) == ""
    assert rejection(TERMS, TERMS, "north", ["west"]) == "it is not offered to north"
    assert rejection(TERMS, TERMS, "north", []) == "it is not offered to north"


def test_one_that_was_withdrawn_is_rejected() -> None:
    assert rejection(TERMS, None, "north", None) == "it is not offered, or not any more"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"version": 2}, "version is 2, and was 1"),
        ({"rows_per_s": 9}, "rows_per_s is 9, and was 500"),
        ({"gives": {"segment": "int"}}, "column segment is int, and was long"),
        ({"gives": {}}, "column segment is gone"),
        ({"gives": {"segment": "long", "n": "long"}}, "column n is new"),
        (
            {"reads": {"cars": {"speed": "int", "note": "string or null"}}},
            "column cars.speed is int, and was long",
        ),
        ({"reads": {"cars": TERMS.reads["cars"], "b": {}}}, "it reads cars, b, and read cars"),
        ({"parameters": {}}, "parameter below is gone"),
        (
            {"parameters": {"below": replace(BELOW, default=None, high=100)}},
            (
                "parameter below is an integer from 1 to 100,"
                " and was an integer from 1 to 200, 40 if left out"
            ),
        ),
    ],
)
def test_a_change_of_any_term_is_named(changed: dict[str, Any], says: str) -> None:
    found = rejection(TERMS, replace(TERMS, **changed), "north", ["north"])
    assert found == f"it has changed since north got its terms: {says}"


def test_a_stream_is_read_that_has_the_columns() -> None:
    wanted = TERMS.reads["cars"]
    assert wrong_columns(wanted, {"speed": "long", "note": "string or null", "more": "int"}) == []
    assert wrong_columns(wanted, {"speed": "long", "note": "string"}) == []
    assert wrong_columns(wanted, {"speed": "long or null", "note": "int"}) == [
        "its column speed is long or null; long is wanted",
        "its column note is int; string or null is wanted",
    ]
    assert wrong_columns(wanted, {"speed": "long"}) == [
        "it has no column note; string or null is wanted"
    ]
