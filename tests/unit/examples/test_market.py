"""The market's demo: its files, its contract, and its words."""

from __future__ import annotations

from pathlib import Path

from anabranch.pipeline.contract_file import load_contract
from anabranch.pipeline.file import load
from anabranch.protocol.federation.costs import QueueCost
from anabranch.protocol.federation.stage_moves import reason_against
from examples.market.demo import TERMS, ended_well, gains, in_words, waiting_micro

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "market"


def test_both_may_trade_under_the_contract(tmp_path: Path) -> None:
    terms = tmp_path / "terms.yaml"
    terms.write_text(TERMS.format(begins="2026-12-01T00:00:00Z", ends="2026-12-02T00:00:00Z"))
    contract = load_contract(terms)
    north, south = (load(EXAMPLES / f"{name}.yaml") for name in ("north", "south"))
    assert north.federation is not None
    assert south.federation is not None
    assert list(south.federation.hosts) == [north.name]
    assert reason_against(contract, "north", {"south": ["north.speeds"]}, ()) == ""
    assert reason_against(contract, "south", {}, ["north.speeds"]) == ""
    for region, policy in (("north", north.federation.agent), ("south", south.federation.agent)):
        assert policy is not None
        cost = QueueCost(policy.capacity_units, policy.scale_micro)
        assert [waiting_micro(region, units) for units in (0, 50, 400)] == [
            cost(units) for units in (0, 50, 400)
        ]


def test_lines_of_agents_logs_become_sentences() -> None:
    offer = {
        "event": "message_sent",
        "what": "offer",
        "detail": "north.speeds: 9 units, up to 20",
    }
    assert in_words("north", offer) == "north: offer: north.speeds: 9 units, up to 20"
    moves = {"event": "moves", "stage": "speeds.0", "to": "south.0"}
    assert in_words("north", moves) == "north: its stage goes to node south.0"
    entry = {"event": "recorded", "what": "started", "movement": "m", "by": "north"}
    assert in_words("north", entry) == "ledger: m has started, says north"
    assert in_words("south", entry) == ""


def test_a_movement_pays_where_both_sides_gain() -> None:
    assert gains({"units": 400, "price_micro": 10}) == (4_000, 3_606)
    north, south = gains({"units": 400, "price_micro": 20})
    assert (north, south) == (0, 7_606)
    assert min(gains({"units": 100, "price_micro": 6})) < 0, "at home it costs less than that"
    assert gains({"units": 450, "price_micro": 10})[0] > 10_000, "more than there is room for"


def test_one_movement_may_end_in_silence_under_load_and_the_others_are_recalled() -> None:
    recalled, silent, returned = ({"why": why} for why in ("recalled", "silent", "returned"))
    assert ended_well([recalled])
    assert ended_well([silent, recalled])
    assert ended_well([silent])
    assert not ended_well([])
    assert not ended_well([silent, silent])
    assert not ended_well([recalled, returned])
    assert not ended_well([recalled, {"why": None}])
