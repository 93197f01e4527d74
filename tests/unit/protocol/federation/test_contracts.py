"""The text of a contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.federation.contracts import (
    PRICE_MICRO_MAX,
    TASKS_MAX,
    TIME_MS_MAX,
    LoadUnit,
    Side,
    defects,
)
from harness.markets import CONTRACT, contract


def test_a_good_one_has_no_defects() -> None:
    assert list(defects(CONTRACT)) == []
    assert list(defects(contract(delta=0))) == []
    assert list(defects(contract(delta=1_000, fixed_price=1_000))) == []
    assert list(defects(contract(tasks=tuple(f"t{n:04}" for n in range(TASKS_MAX))))) == []


def test_the_floor_and_the_sides() -> None:
    assert CONTRACT.floor == 800
    assert [CONTRACT.party(name) for name in ("north", "south", "east")] == [
        Side.BUYER,
        Side.SELLER,
        None,
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"contract_id": "North"}, "contract name 'North'"),
        ({"buyer": ""}, "buyer name"),
        ({"seller": "so uth"}, "seller name"),
        ({"seller": "north"}, "same participant"),
        ({"tasks": ()}, "names none"),
        ({"tasks": tuple(f"t{n:04}" for n in range(TASKS_MAX + 1))}, "1001 names"),
        ({"tasks": ("b", "a")}, "not sorted"),
        ({"tasks": ("a", "a")}, "stands twice"),
        ({"unit": LoadUnit("", 1)}, "names no reference"),
        ({"unit": LoadUnit("core", 0)}, "unit: 0 parts"),
        ({"unit": LoadUnit("core", 1_000_001)}, "unit: 1000001 parts"),
        ({"version": 0}, "version: 0"),
        ({"valid_from_ms": -1}, "not a time"),
        ({"valid_to_ms": 0}, "not a time"),
        ({"valid_to_ms": TIME_MS_MAX + 1}, "not a time"),
        ({"fixed_price": 0, "delta": 0}, "fixed_price: 0"),
        ({"fixed_price": PRICE_MICRO_MAX + 1}, "fixed_price"),
        ({"delta": -1}, "delta: -1"),
        ({"delta": 1_001}, "delta: 1001"),
        ({"min_hold_ms": -1}, "min_hold_ms: -1"),
    ],
)
def test_each_defect_is_named(changes: dict[str, Any], text: str) -> None:
    found = list(defects(contract(**changes)))
    assert len(found) == 1
    assert text in found[0]


@pytest.mark.parametrize(
    ("clauses", "field", "value"),
    [
        ("moving", "deadline_ms", 0),
        ("quality", "delay_ms_max", -1),
        ("ending", "notice_ms", -1),
        ("ending", "drain_ms", -1),
        ("penalty", "violation_micro", -1),
        ("penalty", "silent_micro_per_s", PRICE_MICRO_MAX + 1),
        ("audit", "tolerance_ppm", 1_000_001),
        ("audit", "sample_ppm", -1),
        ("audit", "settle_ms", 60_001),
    ],
)
def test_each_defect_of_a_clause_is_named(clauses: str, field: str, value: int) -> None:
    found = list(
        defects(contract(**{clauses: replace(getattr(CONTRACT, clauses), **{field: value})}))
    )
    assert len(found) == 1
    assert f"{clauses}.{field}: {value}" in found[0]


@pytest.mark.parametrize("field", ["meter_ms", "settle_ms"])
def test_an_interval_of_no_length_is_named(field: str) -> None:
    found = list(defects(contract(audit=replace(CONTRACT.audit, **{field: 0}))))
    assert found == [f"audit.{field}: 0, not above 0"]
