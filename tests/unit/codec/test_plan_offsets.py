"""Plans as offsets of a query."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from anabranch.codec.plan_offsets import (
    INITIAL,
    kept_of,
    kind_of,
    least_kept,
    missing_of,
    offset_of,
    position_fields,
    position_of,
    rows_of,
    shed_of,
    taken_by_stream,
    taken_of,
)
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from anabranch.protocol.log.records import BoundaryKind, Part
from anabranch.protocol.stage.planner import Plan, QueryPosition, TakenBucket

TAKEN: tuple[TakenBucket, ...] = (
    (4, "0", (Part(4, 0, "aa", 2, 10, 12, 5, 2**64 - 1), Part(4, 1, "aa", 1, 3, 4, 2, 7))),
    (6, "1", (Part(6, 0, "bb", 1, 12, 13, 1, 0),)),
)
PLAN = Plan(
    QueryPosition(2, 3, has_rows=True),
    QueryPosition(3, 6, has_rows=True),
    (("a", TAKEN), ("b", ())),
    8,
)
TENTATIVE = replace(PLAN, kind=BoundaryKind.TENTATIVE, missing=("a", "b"))


SHED = replace(TENTATIVE, kept=300, inputs_shed=500)
PLANS = [PLAN, TENTATIVE, replace(TENTATIVE, missing=()), SHED, replace(SHED, kept=1_000)]


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_comes_back_from_its_offset(plan: Plan) -> None:
    offset = json.loads(json.dumps(offset_of(plan, "a")))
    assert position_of(offset) == plan.after
    assert tuple(taken_of(offset)) == TAKEN
    assert rows_of([offset]) == plan.rows
    assert (kind_of(offset), missing_of(offset)) == (plan.kind, plan.missing)
    assert kept_of(offset) == kept_of(offset_of(plan, "b")) == plan.kept
    assert shed_of(offset) == shed_of(offset_of(plan, "b")) == plan.shed
    assert (taken_of(offset_of(plan, "b")), rows_of([offset_of(plan, "b")])) == ([], 0)


def test_an_input_that_is_a_source_with_shards_takes_all_of_its_streams() -> None:
    (first, second) = TAKEN
    plan = replace(PLAN, inputs=(("a.0", (first,)), ("b", (first, second)), ("a.1", (second,))))
    offset = json.loads(json.dumps(offset_of(plan, "a")))
    assert taken_by_stream(offset) == {"a.0": [first], "a.1": [second]}
    assert taken_of(offset) == [first, second]
    assert rows_of([offset]) == 8
    assert taken_by_stream(offset_of(plan, "b")) == {"b": [first, second]}


def test_rows_of_an_input_that_is_read_twice_count_once() -> None:
    plan = replace(PLAN, inputs=(("a", TAKEN), ("b", TAKEN[:1])))
    assert rows_of([offset_of(plan, name) for name in ("a", "b", "a")]) == 8 + 7


def test_sources_of_one_input_must_take_the_same_rows() -> None:
    offsets = [offset_of(replace(PLAN, inputs=(("a", TAKEN[:n]),)), "a") for n in (1, 2)]
    with pytest.raises(LocalProtocolError, match="take different rows of a"):
        rows_of(offsets)


def test_all_inputs_of_a_tentative_plan_say_the_same_of_it() -> None:
    for name in ("a", "b"):
        offset = offset_of(TENTATIVE, name)
        assert (kind_of(offset), missing_of(offset), position_of(offset)) == (
            BoundaryKind.TENTATIVE,
            ("a", "b"),
            PLAN.after,
        )


def test_an_offset_of_a_stable_plan_is_as_it_was_before_there_were_others() -> None:
    """Logs of queries outlive the software that wrote them."""
    assert set(offset_of(PLAN, "a")) == {"sequence", "bucket", "has_rows", "taken"}
    assert (kind_of(INITIAL), missing_of(INITIAL)) == (BoundaryKind.STABLE, ())
    assert (kept_of(INITIAL), shed_of(INITIAL)) == (1_000, 0)
    assert least_kept([]) == least_kept([INITIAL]) == 1_000
    assert {"kept", "shed"}.isdisjoint(offset_of(TENTATIVE, "a"))


def test_the_fields_of_a_position_are_enough_to_ask_for_the_next_plan() -> None:
    for plan in (PLAN, TENTATIVE):
        fields = position_fields(offset_of(plan, "a"))
        assert set(fields) == {"sequence", "bucket", "has_rows"}
        assert position_of(fields) == plan.after
    assert position_of(INITIAL) == QueryPosition()


def test_what_an_earlier_version_left_is_rejected_with_what_to_do() -> None:
    """It may have been read and not closed: its results would be missing."""
    with pytest.raises(ConfigurationError, match=r"earlier version of anabranch.*remove"):
        position_of(INITIAL | {"sequence": 3, "bucket": 6, "closed": 5})


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "provisional"},
        {"kept": 1_001},
        {"taken": [[4, "0", "parts"]]},
        {"taken": [[4, "0", [["aa"], [4, 0, 7]]]]},
    ],
)
def test_a_damaged_offset_is_not_taken_for_another(damage: dict[str, object]) -> None:
    offset = offset_of(PLAN, "a") | damage
    with pytest.raises((ValueError, RemoteProtocolError, LocalProtocolError)):
        print(kind_of(offset), kept_of(offset), taken_of(offset))
