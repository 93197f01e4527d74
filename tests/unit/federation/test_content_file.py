"""Files that state the terms of a contract for a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.federation.content_file import CONTENT_EXAMPLE, load_content
from anabranch.federation.contract_file import EXAMPLE
from anabranch.federation.plan_file import load_terms
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.content_contracts import (
    ContentContract,
    Payment,
    Tier,
    content_defects,
)
from anabranch.protocol.federation.contracts import Contract


def written(folder: Path, *changes: tuple[str, str], text: str = CONTENT_EXAMPLE) -> Path:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "contract.yaml"
    path.write_text(text)
    return path


def test_the_example_is_a_contract(tmp_path: Path) -> None:
    found = load_content(written(tmp_path))
    assert list(content_defects(found)) == []
    assert found == ContentContract(
        contract_id="north-billing",
        version=1,
        sender="north",
        receiver="billing",
        stream="north.speeds",
        pipeline="north",
        bucket_ms=100,
        valid_from_ms=1_796_083_200_000,
        valid_to_ms=1_803_859_200_000,
        payment=Payment.MESSAGE,
        tiers=(Tier(999_000, 50), Tier(900_000, 30)),
        delay_ms_max=3_000,
        rate_max=1_000,
        settle_ms=60_000,
        notice_ms=86_400_000,
    )


def test_a_file_is_for_a_stream_if_it_has_a_sender_or_a_receiver(tmp_path: Path) -> None:
    assert isinstance(load_terms(written(tmp_path)), ContentContract)
    assert isinstance(load_terms(written(tmp_path, text=EXAMPLE)), Contract)
    with pytest.raises(ConfigurationError, match="sender"):
        load_terms(written(tmp_path, ("sender: north ", "# ")))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("sender: north ", "sender: North ", "contract.yaml:2: sender: participant name"),
        ("receiver: billing", "receiver: north", "sender and receiver are the same participant"),
        ("name: speeds, ", "", "stream.name"),
        ("bucket: 100ms", "bucket: 7s", "settle_ms: 60000 is no multiple of the bucket, 7000"),
        ("payment: message ", "payment: row ", "payment: 'row' is not known; use message, second"),
        ("price: 30", "price: 60", "none costs more than the one before"),
        ("price: 30", "cost: 30", "unknown key"),
        ("price: 30", "price: 1.5", ":9: tiers[1].price: an integer"),
        ("delay: 3s", "delay: 3", "delay: 3 has no unit"),
        ("rate_max: 1000", "rate_max: 0", "rate_max: 0, not within 1"),
        ("settle: 1m", "", "settle"),
        ("from: 2026-12-01T00:00:00Z", "from: soon", "valid.from: 'soon' is not a time"),
    ],
)
def test_a_mistake_is_reported_with_its_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_content(written(tmp_path, (old, new)))
    assert says in str(raised.value)


def test_tiers_are_a_list(tmp_path: Path) -> None:
    head, tail = CONTENT_EXAMPLE[: CONTENT_EXAMPLE.index("tiers:")], "tiers: 50\n"
    with pytest.raises(ConfigurationError, match="tiers: a list of"):
        load_content(written(tmp_path, text=head + tail))


@pytest.mark.parametrize("text", ["", "[]", "a: [", "sender: north"])
def test_what_is_no_contract_is_reported(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"contract\.yaml"):
        load_terms(written(tmp_path, text=text))
