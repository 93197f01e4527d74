"""Environment variables in values of the pipeline file."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.pipeline.document import Place
from anabranch.pipeline.environment import fill_in

_SET = {"A": "x", "EMPTY": "", "N": "7", "YES": "true", "LIST": "[1, 2]", "COLON": "a: b"}


def filled(value: object) -> tuple[Any, list[tuple[Place, str]]]:
    root, mistakes = {"k": value}, []
    fill_in(root, _SET, lambda at, text: mistakes.append((at, text)))
    return root["k"], mistakes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "x"),
        ("a-${A}-${N}", "a-x-7"),
        ("${N}", 7),
        ("${YES}", True),
        ("${NO:-2.5}", 2.5),
        ("${NO:-}", ""),
        ("${EMPTY:-y}", "y"),
        ("${EMPTY}", ""),
        ("${LIST}", "[1, 2]"),
        ("${COLON}", "a: b"),
        ("$${A}", "${A}"),
        ("$A", "$A"),
        (["${A}", {"deep": "${N}"}], ["x", {"deep": 7}]),
        (5, 5),
    ],
)
def test_what_becomes_of_a_value(text: object, value: object) -> None:
    assert filled(text) == (value, [])


@pytest.mark.parametrize("text", ["${", "${A", "${1}", "${A:+b}", "${A-b}", "x ${ A }"])
def test_what_is_no_variable_is_a_mistake(text: str) -> None:
    ((at, why),) = filled(text)[1]
    assert at == ("k",)
    assert "write ${NAME} or ${NAME:-DEFAULT}" in why


def test_a_variable_that_is_not_set_is_one_with_its_place() -> None:
    assert filled([1, "${NO}"])[1] == [
        (("k", 1), "the environment variable NO is not set; set it, or write ${NO:-DEFAULT}")
    ]


def test_an_alias_is_filled_in_once() -> None:
    shared = ["$${A}"]
    root = {"a": shared, "b": shared, "c": {}}
    root["c"] = root
    fill_in(root, _SET, lambda *_: None)
    assert shared == ["${A}"]
