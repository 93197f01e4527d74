"""Files that state the terms of a contract for load."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.federation.contract_file import EXAMPLE, contract_of
from anabranch.pipeline.yaml_text import read_yaml
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contracts import Contract, MoveClauses, defects
from anabranch.protocol.federation.workload import ROW_PER_SECOND
from anabranch.protocol.stage.owners_checkpoint import Transfer
from harness.markets import CONTRACT

BEGIN = "from: 2026-12-01T00:00:00Z, to: 2027-03-01T00:00:00Z"


def written(folder: Path, *changes: tuple[str, str], text: str = EXAMPLE) -> Path:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "contract.yaml"
    path.write_text(text)
    return path


def load(path: Path) -> Contract:
    return contract_of(path, read_yaml(path, "contract"))


def test_the_example_is_a_contract(tmp_path: Path) -> None:
    found = load(written(tmp_path))
    assert list(defects(found)) == []
    assert (found.contract_id, found.buyer, found.seller) == ("north-south", "north", "south")
    assert (found.version, found.fixed_price, found.floor) == (1, 1_000, 800)
    assert (found.valid_from_ms, found.valid_to_ms) == (1_796_083_200_000, 1_803_859_200_000)
    assert found.tasks == ("north.tolls", "north.volumes")
    assert found.moving == MoveClauses(Transfer.REBUILD, 120_000)
    assert found.unit == ROW_PER_SECOND, "in which agents trade"
    for clauses in ("quality", "ending", "penalty", "audit", "min_hold_ms"):
        assert getattr(found, clauses) == getattr(CONTRACT, clauses)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("contract: north-south", "contract: North", "contract.yaml:1: contract: contract name"),
        ("buyer: north ", "buyerr: north ", "unknown key; did you mean 'buyer'"),
        ("price: {fixed: 1000, delta: 200}", "price: {fixed: 1000}", ":5: price.delta: an integer"),
        ("delta: 200", "delta: 1001", "delta: 1001, not within 0 and the fixed price"),
        ("delta: 200", "delta: 2.5", "an integer from 0"),
        ("min_hold: 10s", "min_hold: 10", "min_hold: 10 has no unit"),
        ("transfer: rebuild", "transfer: post", "moving.transfer: 'post' is not known"),
        (BEGIN, "from: tomorrow, to: 2027-03-01", "valid.from: 'tomorrow' is not a time"),
        (BEGIN, "from: 2027-03-01T00:00:00Z, to: 2026-12-01T00:00:00Z", "not a time that begins"),
        ("settle: 1m", "settle: 1500ms", "audit.settle_ms: 1500 is no multiple of meter_ms"),
        (
            "tasks: [north.tolls, north.volumes]",
            "tasks: []",
            "tasks: is empty; name at least one task",
        ),
        ("tasks: [north.tolls, north.volumes]", "tasks: [a, a]", "task a is there twice"),
        ("seller: south", "seller: north", "buyer and seller are the same participant"),
        ("share_ppm: 1000000", "share_ppm: 0", "0 parts per million of the reference"),
        ("ending: {notice: 1d, drain: 1m}", "", "ending: is missing"),
        ("ending: {notice: 1d, drain: 1m}", "ending: 3", "ending: a mapping is wanted"),
    ],
)
def test_a_mistake_is_reported_with_its_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, (old, new)))
    assert says in str(raised.value)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, ("min_hold: 10s", "min_hold: x"), ("meter: 1s", "meter: y")))
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\ttab", "contract: north-south"])
def test_what_is_no_contract_is_reported(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"contract\.yaml"):
        load(written(tmp_path, text=text))


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the contract cannot be read"):
        load(tmp_path / "none.yaml")
