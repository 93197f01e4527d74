"""Files that state the terms of a movement contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.federation.content_file import CONTENT_EXAMPLE
from anabranch.federation.contract_file import EXAMPLE
from anabranch.federation.plan_file import PLANS_EXAMPLE, load_terms
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.content_contracts import ContentContract, Payment, Tier
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.plan_contracts import MovementContract, Plan, plan_defects


def written(folder: Path, *changes: tuple[str, str], text: str = PLANS_EXAMPLE) -> Path:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "contract.yaml"
    path.write_text(text)
    return path


def test_the_example_is_a_contract(tmp_path: Path) -> None:
    found = load_terms(written(tmp_path))
    assert isinstance(found, MovementContract)
    assert list(plan_defects(found)) == []
    plain = Plan((), "north", "speeds", Payment.MESSAGE, (Tier(999_000, 50),), 3_000, 1_000)
    assert found == MovementContract(
        contract_id="north-billing-plans",
        version=1,
        sender="north",
        receiver="billing",
        pipeline="billing",
        bucket_ms=100,
        valid_from_ms=1_796_083_200_000,
        valid_to_ms=1_803_859_200_000,
        plans=(
            plain,
            replace(
                plain,
                at_sender=("slow",),
                pipeline="billing",
                stream="slow",
                tiers=(Tier(999_000, 90), Tier(900_000, 60)),
                delay_ms_max=5_000,
            ),
        ),
        settle_ms=60_000,
        notice_ms=86_400_000,
        proposal_ms=10_000,
        deadline_ms=120_000,
        min_hold_ms=60_000,
        gain_permille=50,
    )


def test_a_file_has_the_kind_that_its_keys_say(tmp_path: Path) -> None:
    assert isinstance(load_terms(written(tmp_path, text=CONTENT_EXAMPLE)), ContentContract)
    assert isinstance(load_terms(written(tmp_path, text=EXAMPLE)), Contract)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("sender: north ", "sender: North ", "contract.yaml:2: sender: participant name"),
        ("receiver: billing", "receiver: north", "sender and receiver are the same participant"),
        ("at_sender: [slow]", "at_sender: [fast]", "plan 1: billing.slow is paid"),
        ("at_sender: []", "at_sender: [slow]", "the first is the plain one"),
        ("at_sender: [slow]", "at_sender: 7", "plans[1].at_sender"),
        ("name: slow", "nme: slow", "plans[1].stream"),
        ("payment: message", "payment: row", "plans[0].payment: 'row' is not known"),
        ("price: 60", "price: 95", "plan 1: tiers: they go from the highest"),
        ("price: 60", "price: 1.5", "plans[1].tiers[1].price: an integer"),
        ("tiers: [{availability_ppm: 999000, price: 50}]", "tiers: 50", "plans[0].tiers: a list"),
        ("bucket: 100ms", "bucket: 7s", "no multiple of the bucket"),
        ("proposal: 10s", "proposal: 10", "proposal: 10 has no unit"),
        ("deadline: 2m", "", "deadline"),
        ("gain_permille: 50", "gain_permille: 10001", "gain_permille"),
        ("min_hold: 1m", "hold: 1m", "unknown key"),
    ],
)
def test_a_mistake_is_reported_with_its_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_terms(written(tmp_path, (old, new)))
    assert says in str(raised.value)


@pytest.mark.parametrize("text", ["plans: 7", "plans: []", "query: [", "plans: [7]"])
def test_what_is_no_contract_is_reported(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"contract\.yaml"):
        load_terms(written(tmp_path, text=text))
