"""Files that state the terms of a contract for streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.federation.contract_file import EXAMPLE
from anabranch.federation.stream_file import PLANS_EXAMPLE, STREAM_EXAMPLE, load_terms
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.stream_contracts import (
    Payment,
    StreamContract,
    StreamTerms,
    Tier,
    stream_defects,
)

PLAIN = StreamTerms((), "north", "speeds", Payment.MESSAGE, (Tier(999_000, 50),), 3_000, 1_000)
STREAM = StreamContract(
    contract_id="north-billing",
    version=1,
    sender="north",
    receiver="billing",
    bucket_ms=100,
    valid_from_ms=1_796_083_200_000,
    valid_to_ms=1_803_859_200_000,
    plans=(replace(PLAIN, tiers=(Tier(999_000, 50), Tier(900_000, 30))),),
    settle_ms=60_000,
    notice_ms=86_400_000,
)
SLOW = replace(
    PLAIN,
    at_sender=("slow",),
    pipeline="billing",
    stream="slow",
    tiers=(Tier(999_000, 90), Tier(900_000, 60)),
    delay_ms_max=5_000,
)
PLANS = replace(
    STREAM,
    contract_id="north-billing-plans",
    plans=(PLAIN, SLOW),
    pipeline="billing",
    proposal_ms=10_000,
    deadline_ms=120_000,
    min_hold_ms=60_000,
    gain_permille=50,
)


def written(folder: Path, *changes: tuple[str, str], text: str = STREAM_EXAMPLE) -> Path:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "contract.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "says"), [(STREAM_EXAMPLE, STREAM), (PLANS_EXAMPLE, PLANS)])
def test_each_example_is_a_contract(tmp_path: Path, text: str, says: StreamContract) -> None:
    found = load_terms(written(tmp_path, text=text))
    assert found == says
    assert list(stream_defects(says)) == []


def test_a_file_is_for_streams_if_it_has_a_sender_a_receiver_or_plans(tmp_path: Path) -> None:
    assert isinstance(load_terms(written(tmp_path, text=EXAMPLE)), Contract)
    with pytest.raises(ConfigurationError, match="sender"):
        load_terms(written(tmp_path, ("sender: north ", "# ")))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("sender: north ", "sender: North ", "contract.yaml:2: sender: participant name"),
        ("receiver: billing", "receiver: north", "sender and receiver are the same participant"),
        (", name: speeds", "", "plans[0].stream.name"),
        ("bucket: 100ms", "bucket: 7s", "settle_ms: 60000 is no multiple of the bucket, 7000"),
        ("payment: message ", "payment: row ", "payment: 'row' is not known; use message, second"),
        ("price: 30", "price: 60", "none costs more than the one before"),
        ("price: 30", "cost: 30", "unknown key"),
        ("price: 30", "price: 1.5", ":11: plans[0].tiers[1].price: an integer"),
        ("delay: 3s", "delay: 3", "delay: 3 has no unit"),
        ("rate_max: 1000", "rate_max: 0", "rate_max: 0, not within 1"),
        ("settle: 1m", "", "settle"),
        ("from: 2026-12-01T00:00:00Z", "from: soon", "valid.from: 'soon' is not a time"),
        ("- stream", "- at_sender: [speeds]\n  stream", "the only one has a stage at the sender"),
        ("settle: 1m", "settle: 1m\nquery: {pipeline: a}", "query.proposal"),
    ],
)
def test_a_mistake_is_reported_with_its_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_terms(written(tmp_path, (old, new)))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("at_sender: [slow]", "at_sender: [fast]", "plan 1: billing.slow is paid"),
        ("- stream", "- at_sender: [slow]\n  stream", "the first is the plain one"),
        ("at_sender: [slow]", "at_sender: 7", "plans[1].at_sender"),
        ("name: slow", "nme: slow", "plans[1].stream"),
        ("price: 60", "price: 95", "plan 1: tiers: they go from the highest"),
        ("tiers: [{availability_ppm: 999000, price: 50}]", "tiers: 50", "plans[0].tiers: a list"),
        ("proposal: 10s", "proposal: 10", "proposal: 10 has no unit"),
        ("deadline: 2m", "", "query.deadline"),
        ("gain_permille: 50", "gain_permille: 10001", "gain_permille"),
        ("min_hold: 1m", "hold: 1m", "unknown key"),
    ],
)
def test_a_mistake_in_a_plan_is_reported_with_its_key(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_terms(written(tmp_path, (old, new), text=PLANS_EXAMPLE))
    assert says in str(raised.value)


def test_plans_to_switch_to_need_a_query(tmp_path: Path) -> None:
    text = PLANS_EXAMPLE[: PLANS_EXAMPLE.index("query:")]
    with pytest.raises(ConfigurationError, match="pipeline name"):
        load_terms(written(tmp_path, text=text))


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "sender: north", "plans: 7", "plans: []", "plans: [7]"]
)
def test_what_is_no_contract_is_reported(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"contract\.yaml"):
        load_terms(written(tmp_path, text=text))
