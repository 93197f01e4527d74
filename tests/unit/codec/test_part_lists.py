"""Parts as lists for JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from anabranch.codec.part_lists import parts_from_json, parts_to_json
from anabranch.protocol.errors import RemoteProtocolError
from harness.boundary_entries import PART


def test_parts_survive_json() -> None:
    parts = (PART, dataclasses.replace(PART, attempt="b"), dataclasses.replace(PART, bucket=2**40))
    found = json.loads(json.dumps(parts_to_json(parts)))
    assert parts_from_json(found) == parts
    assert parts_from_json(parts_to_json(())) == ()
    assert found[0] == ["00ff", "b"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        {},
        "x",
        [["a"], [1]],
        [["a"], [1, 2, 5, 0, 0, 0, 0, "0", 0]],
        [["a"], [1, 2, 0, 0, 0, 0, 0, "z", 0]],
        [["a"], ["x", 2, 0, 0, 0, 0, 0, "0", 0]],
        [["a"], [1, 2, 0, 9, 0, 0, 0, "0", 0]],
        [["a"], [1, 2, 0, 0, 0, 0, 0, "1" * 17, 0]],
        [["a"], [1, 2, 0, 0, 0, 1, 0, "0", -1]],
        [["a"], [1, 2, 0, 0, 0, 1, 0, "0"]],
        [[7], [1, 2, 0, 0, 0, 0, 0, "0", 0]],
    ],
)
def test_what_is_not_a_list_of_parts_is_rejected(value: object) -> None:
    with pytest.raises(RemoteProtocolError):
        parts_from_json(value)
