"""The texts of movement contracts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.federation.content_contracts import Tier, content_defects
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.plan_contracts import PLANS_MAX, STAGES_MAX, plan_defects
from harness.plans import ALL, PLAIN, PLANS, SLOW, plans


def test_a_plan_has_the_terms_of_a_content_contract() -> None:
    assert list(plan_defects(PLANS)) == []
    assert (PLANS.buyer, PLANS.seller, PLANS.ends_after_ms) == ("billing", "north", 60_000)
    assert [PLANS.party(name) for name in ("billing", "north", "south")] == [
        Side.BUYER,
        Side.SELLER,
        None,
    ]
    assert PLANS.query == ("slow", "tolls")
    assert PLANS.delay_ms_max == 3_000
    found = [PLANS.content(plan) for plan in range(PLANS.plan_count)]
    assert [(each.pipeline, each.stream, each.entity) for each in found] == [
        ("north", "north.speeds", "speeds"),
        ("billing", "north.slow", "slow"),
        ("billing", "north.tolls", "tolls"),
    ]
    assert [each.delay_ms_max for each in found] == [2_000, 3_000, 3_000]
    assert [list(content_defects(each)) for each in found] == [[], [], []]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"plans": (PLAIN,)}, "plans: 1, not between 2"),
        ({"plans": ()}, "plans: 0, not between 2"),
        ({"plans": (PLAIN, *[SLOW] * PLANS_MAX)}, "plans: 9, not between 2"),
        ({"plans": (SLOW, ALL)}, "the first is the plain one"),
        ({"plans": (PLAIN, PLAIN)}, "two have the same stages"),
        ({"plans": (PLAIN, SLOW, replace(SLOW, tiers=(Tier(0, 1),)))}, "two have the same stages"),
        ({"plans": (PLAIN, replace(SLOW, stream="tolls"))}, "plan 1: billing.tolls is paid"),
        ({"plans": (PLAIN, replace(SLOW, pipeline="north"))}, "plan 1: north.slow is paid"),
        ({"plans": (replace(PLAIN, pipeline="billing"), SLOW)}, "is not a stream of north's"),
        ({"plans": (PLAIN, replace(ALL, at_sender=("tolls", "slow")))}, "plan 1: at_sender: not"),
        (
            {"plans": (PLAIN, replace(ALL, at_sender=("tolls",) * (STAGES_MAX + 1)))},
            "plan 1: at_sender: 17 stages",
        ),
        ({"plans": (PLAIN, replace(SLOW, at_sender=("S low", "slow")))}, "S low"),
        ({"plans": (PLAIN, replace(SLOW, tiers=()))}, "plan 1: tiers: 0"),
        ({"plans": (replace(PLAIN, delay_ms_max=0), SLOW)}, "plan 0: delay_ms_max: 0"),
        ({"pipeline": "no good"}, "pipeline"),
        ({"receiver": "north"}, "same participant"),
        ({"proposal_ms": 0}, "proposal_ms: 0, not above 0"),
        ({"deadline_ms": -1}, "deadline_ms: -1, not above 0"),
        ({"min_hold_ms": -1}, "min_hold_ms: -1, not a length"),
        ({"gain_permille": 10_001}, "gain_permille: 10001"),
        ({"settle_ms": 150}, "no multiple of the bucket"),
    ],
)
def test_mc1_mc2_what_no_contract_is(changes: dict[str, Any], text: str) -> None:
    assert any(text in each for each in list(plan_defects(plans(**changes))))


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [
        ({"version": 2, "plans": (replace(PLAIN, tiers=(Tier(0, 1),)), SLOW, ALL)}, True),
        ({"gain_permille": 1, "min_hold_ms": 9, "valid_to_ms": 99}, True),
        ({"plans": (PLAIN, SLOW)}, False),
        ({"plans": (replace(PLAIN, delay_ms_max=1), SLOW, ALL)}, False),
        ({"plans": (replace(PLAIN, stream="other"), SLOW, ALL)}, False),
        ({"sender": "south"}, False),
        ({"pipeline": "other"}, False),
        ({"settle_ms": 20_000}, False),
        ({"bucket_ms": 50}, False),
    ],
)
def test_mc3_what_all_versions_have_in_common(changes: dict[str, Any], is_one: bool) -> None:
    assert plans(**changes).is_version_of(PLANS) is is_one
