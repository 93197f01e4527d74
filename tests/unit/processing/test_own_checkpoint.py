"""When a replica's checkpoint is stored for a partner's node that stands by."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.processing.own_checkpoint import OwnCheckpoint
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import LONG_SILENT_MS
from anabranch.protocol.stage.owners_checkpoint import StoreUse, Transfer
from anabranch.protocol.stage.transfer import FEED_MOVE_EVERY_MS, STORE_EVERY_MS


class World:
    """The replica, whose disk is a list of what was stored, and whose syncs take no time."""

    def __init__(self, owner: str, transfer: Transfer = Transfer.CHECKPOINT) -> None:
        self.clock, self.stored = VirtualClock(), list[str]()
        log = LocalEventLog(self.clock)
        log.admin().create([TopicSettings("p.s.boundaries", 1)])
        self.use = StoreUse.NONE
        threads = SimpleNamespace(begin=self._run)
        context = SimpleNamespace(clock=self.clock, log=log, threads=threads)
        stage = SimpleNamespace(
            backup_horizon_ms=1_000,
            transfer=transfer,
            participant="north",
            process_ids=lambda: ["0"],
        )
        own = SimpleNamespace(
            stage_name="s",
            process="0",
            is_passive=False,
            node_owner=owner,
            stage=stage,
            log_topic="p.s.boundaries",
        )
        self.report = SimpleNamespace(status=SimpleNamespace(detail={}), bucket=100)
        self.runner = SimpleNamespace(synced_bucket=0, sync=self._sync)
        disks = SimpleNamespace(of=self._open)
        self.made = OwnCheckpoint(
            cast("Any", context), cast("Any", own), cast("Any", disks), cast("Any", self.report)
        )
        self.made.open()

    def _open(self, *_: object, store_use: StoreUse, **__: object) -> object:
        self.use = store_use
        return SimpleNamespace(has_store=store_use is not StoreUse.NONE, store=self._store)

    def _store(self, name: str) -> bool:
        self.stored.append(name)
        return True

    @staticmethod
    def _run(_: str, body: Callable[[], None]) -> object:
        body()
        return SimpleNamespace(is_alive=lambda: False)

    def _sync(self, store: Callable[[str], bool]) -> None:
        if store("timeline"):
            self.runner.synced_bucket = self.report.bucket

    def passes(self, ms: int, *, stands_by: bool, left: int = 0) -> int:
        """Let time pass, in steps. Return how often the checkpoint was stored in it. ``left``: last
        bucket in the checkpoint that the process which stands by has left when it ran the stage.
        """
        before = len(self.stored)
        for _ in range(ms // 500):
            self.clock.advance(500)
            if stands_by:
                beat = Heartbeat("standby", "s", "0", -1, "standby", 0, 0, checkpoint_bucket=left)
                self.made.receive(beat)
            self.made.sync_if_due(cast("Any", self.runner))
        return len(self.stored) - before


def test_the_owners_node_stores_while_a_process_stands_by() -> None:
    world = World("north")
    assert world.use is StoreUse.OFFERS
    assert world.passes(3 * STORE_EVERY_MS, stands_by=False) == 0
    assert world.passes(2_000, stands_by=True) == 1, "at once, although nothing was read since"
    assert world.passes(STORE_EVERY_MS, stands_by=True) <= 1
    for _ in range(3):
        world.report.bucket += 1
        assert world.passes(FEED_MOVE_EVERY_MS, stands_by=True) == 1
    assert world.passes(LONG_SILENT_MS, stands_by=False) <= 1
    assert world.passes(3 * STORE_EVERY_MS, stands_by=False) == 0
    assert world.passes(2_000, stands_by=True, left=50) == 1, "again for the next one"


@pytest.mark.parametrize(
    ("owner", "transfer", "use"),
    [
        ("south", Transfer.CHECKPOINT, StoreUse.TAKES),
        ("north", Transfer.REBUILD, StoreUse.NONE),
    ],
)
def test_who_does_not_store_for_others_syncs_as_ever(
    owner: str, transfer: Transfer, use: StoreUse
) -> None:
    world = World(owner, transfer)
    assert world.use is use
    assert world.passes(STORE_EVERY_MS, stands_by=True) == 1, "the disk decides what that means"
