"""Which checkpoint of its owner a partner's node begins from, and when it begins from the input."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.log.stateful_plan import StatefulOperator, StatefulPlan
from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.owners_checkpoint import (
    TRANSFER_FIRST_MS,
    TRANSFER_MS_MAX,
    TRANSFER_STALLED_MS,
    Announced,
    OwnersCheckpoint,
    StoreUse,
    Transfer,
    store_use,
)

PLAN = StatefulPlan((StatefulOperator("aggregate", (("per", ("sensor",)),)),))
OTHER_PLAN = StatefulPlan((StatefulOperator("aggregate", (("per", ("place",)),)),))
STEP_MS = TRANSFER_STALLED_MS - 1


def made() -> OwnersCheckpoint:
    return OwnersCheckpoint(PLAN, lambda node: node.startswith("north."))


def beat(epoch: int = 7, stored: str = "ab") -> Heartbeat:
    return Heartbeat("processing", "speeds", "0", epoch, "running", 10, 0, stored=stored)


@pytest.mark.parametrize(
    ("transfer", "rebuilds", "is_owners", "use"),
    [
        (Transfer.REBUILD, False, True, StoreUse.WHOLE),
        (Transfer.REBUILD, True, True, StoreUse.NONE),
        (Transfer.CHECKPOINT, True, True, StoreUse.OFFERS),
        (Transfer.CHECKPOINT, True, False, StoreUse.TAKES),
    ],
)
def test_partners_store_nothing(
    transfer: Transfer, rebuilds: bool, is_owners: bool, use: StoreUse
) -> None:
    assert store_use(transfer, rebuilds=rebuilds, is_owners=is_owners) is use


def test_oc1_only_what_the_process_of_the_newest_epoch_has_announced_is_read() -> None:
    assert made().announced("north.0", 7, beat()) == Announced("ab", 7, PLAN)
    assert made().announced("north.0", 8, beat()) is None, "it was replaced"
    assert made().announced("north.0", 7, beat(stored="")) is None
    assert made().announced("north.0", 7, None) is None


def test_oc1_nothing_of_a_partner_is_read() -> None:
    assert made().announced("south.0", 7, beat()) is None


@pytest.mark.parametrize(
    ("digest", "epoch", "plan", "why"),
    [
        ("ab", 7, PLAN, ""),
        ("ac", 7, PLAN, "not the one that the owner's node has announced"),
        ("ab", 8, PLAN, "of another epoch"),
        ("ab", 7, OTHER_PLAN, "another function has made its state: aggregate, per: place"),
    ],
)
def test_oc2_nothing_else_is_read(digest: str, epoch: int, plan: StatefulPlan, why: str) -> None:
    found = Announced("ab", 7, PLAN).refusal(digest, timeline_name(epoch, 0), plan)
    assert found.startswith(why) or why in found
    assert bool(found) == bool(why)


def waiting(*, is_announced: bool = True) -> OwnersCheckpoint:
    wait = made()
    wait.announced("north.0", 7, beat() if is_announced else beat(stored=""))
    return wait


def test_oc3_a_process_waits_while_the_copy_gets_further() -> None:
    waits = waiting()
    for step, (bucket, read_bytes) in enumerate(((0, 0), (0, 1), (0, 2), (4, 2))):
        assert not waits.look(step * STEP_MS, "north.0", bucket, read_bytes, "")
    assert waits.look(4 * STEP_MS + 1, "north.0", 4, 2, "the store is away")
    assert waits.failed == "no progress for 15 s: the store is away"
    assert waits.look(5 * STEP_MS, "north.0", 5, 3, ""), "it keeps to that"
    assert waits.failed == "no progress for 15 s: the store is away"


def test_oc3_the_first_checkpoint_may_take_the_owner_long() -> None:
    """Its node stores the whole state, of which it had stored nothing."""
    waits = waiting(is_announced=False)
    assert not waits.look(0, "north.0", 0, 0, "")
    assert not waits.look(TRANSFER_FIRST_MS - 1, "north.0", 0, 0, "")
    waits.announced("north.0", 7, beat())
    assert not waits.look(TRANSFER_FIRST_MS, "north.0", 0, 0, "")
    assert not waits.look(TRANSFER_FIRST_MS + STEP_MS, "north.0", 0, 0, "")
    waits.announced("north.0", 8, beat())
    assert not waits.look(TRANSFER_FIRST_MS + STEP_MS + 1, "north.0", 0, 0, ""), "another process"


def test_oc3_it_does_not_wait_for_ever_for_the_first() -> None:
    waits = waiting(is_announced=False)
    assert not waits.look(0, "north.0", 0, 0, "")
    assert waits.look(TRANSFER_FIRST_MS, "north.0", 0, 0, "")
    assert waits.failed == "none was announced for 60 s"


def test_oc3_it_does_not_wait_for_ever() -> None:
    waits = waiting()
    for now_ms in range(0, TRANSFER_MS_MAX, STEP_MS):
        assert not waits.look(now_ms, "north.0", 0, now_ms, "")
    assert waits.look(TRANSFER_MS_MAX, "north.0", 0, TRANSFER_MS_MAX, "")
    assert waits.failed == "not near enough within 120 s"


def test_oc3_where_a_partner_runs_the_stage_there_is_nothing_to_wait_for() -> None:
    waits = made()
    assert waits.look(0, "south.0", 0, 0, "")
    assert waits.failed == "", "that is how it comes home"
    assert waits.look(1, "north.0", 0, 0, "")
    assert waits.failed == ""
