from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from anabranch.pipeline.document import MISSING, Document, shown, words


def document(text: str) -> Document:
    return Document(Path("f.yaml"), YAML(typ="rt", pure=True).load(text))


def test_mistakes_carry_the_line_of_their_key_and_come_in_the_order_of_the_file() -> None:
    found = document("a:\n  b: 1\nc:\n  - x\n  - {d: 2}\n")
    found.mistake(("c", 1, "d"), "late")
    found.mistake(("a", "b"), "early")
    found.mistake(("a", "b"), "early")
    found.mistake(("a", "missing", "deeper"), "at its parent")
    found.mistake((), "of the whole")
    assert found.sorted_mistakes() == [
        "f.yaml:1: a.missing.deeper: at its parent",
        "f.yaml:1: of the whole",
        "f.yaml:2: a.b: early",
        "f.yaml:5: c[1].d: late",
    ]


def test_a_merged_key_has_the_line_of_its_mapping() -> None:
    found = document("x: &x {k: 1}\ny:\n  <<: *x\n")
    found.mistake(("y", "k"), "wrong")
    assert len(found.sorted_mistakes()) == 1


def test_values_are_taken_as_they_are_meant() -> None:
    found = document("{}")
    assert found.mapping({"a": 1}, (), ("a",)) == {"a": 1}
    assert found.text("x", ()) == "x"
    assert found.choice("b", (), ("a", "b")) == "b"
    assert found.integer(3, (), 1, 3) == 3
    assert found.duration("2s", (), 1, 5_000) == 2_000
    assert found.duration("never", (), word="never") is None
    assert found.texts("x", ("k",), "thing") == [("x", ("k",))]
    assert found.texts(["x", "y"], ("k",), "thing") == [("x", ("k", 0)), ("y", ("k", 1))]
    assert found.name("ab-1", (), "stage") == "ab-1"
    assert found.mistakes == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda d: d.mapping(7, ("k",), ("a", "b")), "a mapping is wanted with keys a, b, not 7"),
        (lambda d: d.mapping([], ("k",), None), "a mapping is wanted, not a list"),
        (lambda d: d.mapping({1: 2}, ("k",), None), "the key 1 is not a text"),
        (lambda d: d.mapping({"alpah": 2}, ("k",), ("alpha",)), "did you mean 'alpha'?"),
        (lambda d: d.mapping({"zzz": 2}, ("k",), ("alpha",)), "known are alpha"),
        (lambda d: d.text("  ", ("k",)), "is empty"),
        (lambda d: d.text(MISSING, ("k",)), "is missing; add it, k: VALUE"),
        (lambda d: d.choice("jsn", ("k",), ("json", "avro")), "did you mean 'json'?"),
        (lambda d: d.choice({}, ("k",), ("json", "avro")), "use json, avro"),
        (lambda d: d.integer(True, ("k",), 1, 3), "from 1 to 3"),
        (lambda d: d.integer(4, ("k",), 1, 3), "not 4"),
        (lambda d: d.duration(5, ("k",), word="never"), "or 'never'"),
        (lambda d: d.duration("1ms", ("k",), 10, 20), "from 10ms to 20ms"),
        (lambda d: d.duration("1ms", ("k",), 10), "at least 10ms"),
        (lambda d: d.texts(MISSING, ("k",), "topic"), "name at least one topic"),
        (lambda d: d.texts([], ("k",), "topic"), "is empty; name at least one topic"),
        (lambda d: d.texts(7, ("k",), "topic"), "a list of topics is wanted, not 7"),
        (lambda d: d.texts(["a", "a"], ("k",), "topic"), "topic a is there twice"),
        (lambda d: d.texts([3], ("k",), "topic"), "a text is wanted, not 3; put it in quotes"),
        (lambda d: d.text([], ("k",)), "a text is wanted, not a list"),
        (lambda d: d.texts("", ("k",), "topic"), "is empty"),
        (lambda d: d.name("A b", ("k",), "stage"), "lower case letters"),
        (lambda d: d.name(None, ("k",), "stage"), "is empty"),
    ],
)
def test_each_wrong_value_is_one_mistake(call: object, says: str) -> None:
    found = document("{}")
    call(found)  # type: ignore[operator]
    assert len(found.mistakes) == 1
    assert says in found.mistakes[0][1]


def test_values_are_shown_short() -> None:
    assert shown("x" * 100).endswith("...")
    assert (shown(None), shown({}), shown([1])) == ("nothing", "a mapping", "a list")
    assert words([]) == "none"
