"""Bugs planted in the shell of replicas and nodes: threads, starts, moves, ends."""

from __future__ import annotations

from typing import Final

from simulation.planting import FEDERATION, Mutant

_PRIMARY: Final = "processing.primary:Primary"

PROCESSES: Final = (
    Mutant(
        "sync_ends_the_node",
        "processing.checkpoint_sync:CheckpointSync._sync",
        "except BaseException as error:",
        "except ZeroDivisionError as error:",
        "an error of a replica ends no other replica of its node",
        ("zombie", "double", "race"),
        by=("run",),
    ),
    Mutant(
        "branch_ends_its_replica",
        f"{_PRIMARY}.step",
        "if not self.runner.failed(timeline, error):",
        "if True:",
        "RE7",
        scenario="branch fails",
        by=("ends",),
    ),
    Mutant(
        "needs_no_sync",
        f"{_PRIMARY}._unneeded_upto",
        "self.runner.synced_bucket",
        "closed",
        "rule 18",
        ("power",),
        by=("ends", "progress", "streams", "run"),
    ),
    Mutant(
        "lets_go_at_once",
        "processing.node:Node._leave",
        "action is AfterMove.STAY: self._kept.add(label)"
        " elif action is AfterMove.STOP or self._made[label].begin_right.withdraw()",
        "True",
        "PC5",
        scenario="moved",
        by=("moves",),
    ),
    Mutant(
        "stops_what_is_about_to_begin",
        "protocol.control.placement:BeginRight.withdraw",
        "return self._is_withdrawn",
        "return True",
        "PC8",
        scenario=FEDERATION,
        by=("moves",),
    ),
    Mutant(
        "held_while_the_store_is_away",
        "processing.checkpoint_sync:CheckpointSync._sync",
        "runner.sync(self._store)",
        "runner.sync(lambda _: True)",
        "rule 18, TI6",
        ("store",),
        by=("disk",),
    ),
    Mutant(
        "held_before_it_is_stored",
        "processing.replica:ReplicaRunner.sync",
        "self._started().synced(query, position)",
        "self._started().synced(query, self._started().position(query))",
        "rule 18, TI6",
        ("store",),
        by=("disk",),
    ),
    Mutant(
        "nothing_is_stored",
        "processing.own_checkpoint:OwnCheckpoint.open",
        "store_use=self._store_use",
        "store_use=type(self._store_use).NONE",
        "TI6",
        ("store",),
        by=("progress", "ends"),
    ),
    Mutant(
        "checkpoint_of_an_earlier_life_counts",
        "processing.own_checkpoint:OwnCheckpoint.open",
        "life=self.life",
        'life=""',
        "TI1",
        scenario="made anew",
        by=("streams", "progress", "ends", "disk"),
    ),
)
