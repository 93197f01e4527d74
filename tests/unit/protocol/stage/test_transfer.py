"""How often a checkpoint is stored, and when a move is withdrawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.failure_detector import REPLICA_SERVICE, STANDBY_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import LONG_SILENT_MS
from anabranch.protocol.stage.owners_checkpoint import StoreUse
from anabranch.protocol.stage.standby import LEADING
from anabranch.protocol.stage.transfer import (
    FEED_MOVE_EVERY_MS,
    FEED_STANDBY_EVERY_MS,
    MOVE_MS_MAX,
    MOVE_STALLED_MS,
    STORE_AGAIN_MS,
    STORE_EVERY_MS,
    CheckpointFeed,
    MoveDeadline,
)

NODE = "north.1"


def coming(bucket: int = 0, fetched_bytes: int = 0, process: str = "0") -> Heartbeat:
    return Heartbeat(
        STANDBY_SERVICE,
        "s",
        process,
        -1,
        "standby",
        0,
        0,
        checkpoint_bucket=bucket,
        fetched_bytes=fetched_bytes,
    )


def fed(
    *beats: Heartbeat, is_passive: bool = False, use: StoreUse = StoreUse.WHOLE
) -> CheckpointFeed:
    feed = CheckpointFeed("s", "0", is_passive=is_passive, use=use)
    for beat in beats:
        feed.receive(beat, 0)
    feed.look(0)
    return feed


def interval_ms(
    feed: CheckpointFeed,
    now_ms: int = 0,
    stored: int = 5,
    read: int = 9,
    *,
    has_store: bool = True,
    has_failed: bool = False,
) -> int:
    return feed.interval_ms(now_ms, stored, read, has_store=has_store, has_failed=has_failed)


def test_tr1_while_a_replica_moves_here_what_is_new_is_stored_every_second() -> None:
    assert interval_ms(fed()) == STORE_EVERY_MS, "nobody copies it"
    assert interval_ms(fed(coming())) == FEED_MOVE_EVERY_MS
    assert interval_ms(fed(coming(5))) == FEED_MOVE_EVERY_MS, "it has what is stored"
    assert interval_ms(fed(coming()), read=5) == STORE_EVERY_MS, "nothing is new"


def test_tr1_for_a_standby_on_another_machine_it_is_stored_less_often() -> None:
    assert interval_ms(fed(coming(process="1"), is_passive=True)) == FEED_STANDBY_EVERY_MS


@pytest.mark.parametrize("is_passive", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        {"service": REPLICA_SERVICE},
        {"name": "t"},
        {"state": LEADING},
    ],
)
def test_tr1_others_copy_nothing_of_it(*, is_passive: bool, other: dict[str, str]) -> None:
    beat = replace(coming(process="1" if is_passive else "0"), **other)  # type: ignore[arg-type]
    assert interval_ms(fed(beat, is_passive=is_passive)) == STORE_EVERY_MS


def test_tr1_a_peer_has_its_own_and_nobody_stands_by_for_himself() -> None:
    assert interval_ms(fed(coming(process="1"))) == STORE_EVERY_MS
    assert interval_ms(fed(coming(process="0"), is_passive=True)) == STORE_EVERY_MS


def test_tr2_who_is_ahead_of_what_is_stored_reads_the_directory() -> None:
    assert interval_ms(fed(coming(6))) == STORE_EVERY_MS
    both = fed(coming(6, process="1"), coming(4, process="2"), is_passive=True)
    assert interval_ms(both) == FEED_STANDBY_EVERY_MS, "the other one does not"


def test_tr6_where_nobody_shares_the_directory_who_is_ahead_has_state_of_before() -> None:
    feed = fed(coming(6), use=StoreUse.OFFERS)
    assert interval_ms(feed) == FEED_MOVE_EVERY_MS
    feed.stored(is_whole=False)
    assert interval_ms(feed) == FEED_MOVE_EVERY_MS
    feed.stored(is_whole=True)
    assert interval_ms(feed) == STORE_EVERY_MS
    feed.look(LONG_SILENT_MS)
    feed.receive(coming(6), LONG_SILENT_MS)
    assert interval_ms(feed, LONG_SILENT_MS) == FEED_MOVE_EVERY_MS, "again for the next one"
    assert interval_ms(fed(use=StoreUse.OFFERS)) == STORE_EVERY_MS


@pytest.mark.parametrize("use", StoreUse)
def test_tr6_who_offers_its_checkpoint_stores_none_that_nobody_awaits(use: StoreUse) -> None:
    assert fed(coming(), use=use).stores
    assert fed(use=use).stores is (use is not StoreUse.OFFERS)


def test_nobody_copies_what_is_not_stored() -> None:
    assert interval_ms(fed(coming()), has_store=False) == STORE_EVERY_MS
    assert interval_ms(fed(coming(), use=StoreUse.TAKES)) == STORE_EVERY_MS


def test_tr3_a_store_that_fails_is_not_tried_every_second() -> None:
    assert interval_ms(fed(coming()), has_failed=True) == STORE_AGAIN_MS
    assert interval_ms(fed(), has_failed=True) == STORE_EVERY_MS


def test_tr4_who_is_silent_is_gone() -> None:
    feed = fed(coming())
    assert interval_ms(feed, LONG_SILENT_MS - 1) == FEED_MOVE_EVERY_MS
    assert interval_ms(feed, LONG_SILENT_MS) == STORE_EVERY_MS
    assert feed.alive(LONG_SILENT_MS - 1) == [coming()]
    assert feed.alive(LONG_SILENT_MS) == []


class Moving:
    """A move to ``NODE``, seen at once."""

    def __init__(self) -> None:
        self.deadline, self.now_ms = MoveDeadline(), 7
        assert not self.after(0)

    def after(
        self, ms: int, beat: Heartbeat | None = None, node: str = NODE, trouble: str = ""
    ) -> str:
        self.now_ms += ms
        return self.deadline.withdrawn(self.now_ms, node, beat, trouble)


def test_tr5_a_node_that_does_not_stand_by() -> None:
    made = Moving()
    assert not made.after(MOVE_STALLED_MS - 1)
    assert made.after(1) == f"node {NODE} did not stand by for 5 minutes: check that it runs"


@pytest.mark.parametrize("further", [coming(1), coming(0, 1)])
def test_tr5_a_copy_that_gets_further_has_time(further: Heartbeat) -> None:
    made = Moving()
    assert not made.after(MOVE_STALLED_MS - 1, coming())
    assert not made.after(MOVE_STALLED_MS - 1, further)
    assert not made.after(MOVE_STALLED_MS - 1, further)
    assert "got no further for 5 minutes: its status" in made.after(1, further)


def test_tr5_the_reason_names_what_is_wrong_with_the_store() -> None:
    made = Moving()
    assert not made.after(0, coming(), trouble="the store is full")
    assert made.after(MOVE_STALLED_MS, coming(), trouble="the store is full").endswith(
        "5 minutes: the store is full"
    )


def test_tr5_no_move_takes_for_ever() -> None:
    made = Moving()
    for bucket in range(MOVE_MS_MAX // 60_000 - 1):
        assert not made.after(60_000, coming(bucket))
    assert "within 60 minutes" in made.after(60_000, coming(99))


def test_tr5_each_move_has_its_own_time() -> None:
    made = Moving()
    assert not made.after(MOVE_STALLED_MS - 1, coming())
    assert not made.after(1, coming(), node="north.2")
    assert not made.after(MOVE_STALLED_MS, node=""), "there is none"
    assert not made.after(MOVE_STALLED_MS, coming())
    assert not made.after(MOVE_STALLED_MS - 1, coming())
