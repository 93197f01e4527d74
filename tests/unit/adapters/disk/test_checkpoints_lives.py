"""Checkpoints of another life of a stage's log, whose epochs were higher: on the own disk, on a
peer's, in the store.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from anabranch.adapters.disk.checkpoint_store import stored_replicas
from anabranch.adapters.disk.checkpoints import ReplicaDisks, ReplicaFolder
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.timeline import Timeline, epoch_of, timeline_name
from anabranch.protocol.stage.owners_checkpoint import StoreUse
from harness import spark_files
from harness.checkpoint_world import fail_over

FORMER_EPOCH: Final = 70_000


class Lives:
    """Replica 0 of stage s, beside replica 1, over two lives of its log."""

    def __init__(self, folder: Path, *, has_store: bool = False) -> None:
        self.folder = folder
        self.life, self.chain = "first", set[BatchId]()
        self.trimmed = False
        """Whether the inputs from their beginning are deleted."""
        self.stored = None
        if has_store:
            (folder / "store").mkdir()
            self.stored = stored_replicas(f"file://{folder}/store", "p")

    def disk(self, replica: str = "0") -> ReplicaFolder:
        disks = ReplicaDisks(self.folder / "state", stored=self.stored)
        return disks.of(
            "s", replica, ["1" if replica == "0" else "0"], life=self.life, store_use=StoreUse.WHOLE
        )

    def begin(self, epoch: int, replica: str = "0", batches: int = 5) -> Timeline:
        """Start a process of ``epoch`` that runs ``batches``."""
        disk = self.disk(replica)

        def missing(batch: int) -> str:
            return "the inputs are trimmed" if self.trimmed and batch < 0 else ""

        timeline = fail_over(disk, epoch, self.chain, missing)
        directory = disk.directory(timeline.name)
        spark_files.write(directory / "metadata", b'{"id": "0a"}')
        for batch in range(timeline.start_batch + 1, timeline.start_batch + 1 + batches):
            spark_files.log_batch(directory, batch)
            spark_files.commit_batch(directory, batch, partitions=0)
            self.chain.add(BatchId(timeline.name, batch))
        disk.sync(timeline.name)
        assert disk.store(timeline.name), "what was synced counts for trimming"
        return timeline

    def made_anew(self) -> None:
        """Make the topic of the stage's log anew; disks and store stay."""
        self.life, self.chain = "second", set()


@pytest.mark.parametrize("has_store", [False, True])
def test_a_former_life_is_never_the_newest(tmp_path: Path, has_store: bool) -> None:
    lives = Lives(tmp_path, has_store=has_store)
    lives.begin(FORMER_EPOCH)
    lives.made_anew()
    assert lives.begin(1).start_batch == -1
    lives.trimmed = True
    assert lives.begin(9).start_batch == 4, "goes on from its own checkpoint"
    assert lives.begin(17).start_batch == 9
    newest = lives.disk().newest()
    assert newest is not None
    assert epoch_of(newest.name) == 17


@pytest.mark.parametrize("has_store", [False, True])
def test_a_former_life_is_cleaned_up(tmp_path: Path, has_store: bool) -> None:
    lives = Lives(tmp_path, has_store=has_store)
    lives.begin(FORMER_EPOCH)
    lives.begin(FORMER_EPOCH + 1, "1")
    lives.made_anew()
    lives.begin(1)
    places = [tmp_path / "state" / "s.0"] + [tmp_path / "store" / "p" / "s.0"] * has_store
    for place in places:
        assert [path.name for path in place.iterdir()] == ["life-second"]
    assert [path.name for path in (tmp_path / "state" / "s.1").iterdir()] == ["life-first"], (
        "a peer's is left to the peer"
    )


@pytest.mark.parametrize("has_store", [False, True])
def test_a_process_that_outlives_its_log_removes_nothing_of_the_life_after_it(
    tmp_path: Path, has_store: bool
) -> None:
    lives = Lives(tmp_path, has_store=has_store)
    former = lives.begin(FORMER_EPOCH)
    old = lives.disk()
    lives.made_anew()
    newer = lives.begin(1)
    shutil.copytree(lives.disk().directory(newer.name), old.directory(former.name))
    old.write(former)
    old.clean(FORMER_EPOCH)
    assert old.store(former.name)
    assert lives.disk().newest() == newer
    shutil.rmtree(tmp_path / "state" / "s.0" / "life-second")
    restored = lives.disk().newest()
    assert restored == (newer if has_store else None)


def test_what_a_store_cannot_list_is_removed_by_a_later_process(tmp_path: Path) -> None:
    lives = Lives(tmp_path, has_store=True)
    lives.begin(FORMER_EPOCH)
    lives.made_anew()
    place = tmp_path / "store" / "p" / "s.0"
    place.rename(tmp_path / "away")
    place.write_text("no folder")
    disk = lives.disk()
    place.unlink()
    (tmp_path / "away").rename(place)
    timeline = lives.begin(1)
    disk.store(timeline.name)
    assert [path.name for path in place.iterdir()] == ["life-second"]


def test_a_stored_checkpoint_of_a_former_life_is_not_restored(tmp_path: Path) -> None:
    lives = Lives(tmp_path, has_store=True)
    lives.begin(FORMER_EPOCH)
    lives.begin(FORMER_EPOCH + 1, "1")
    shutil.rmtree(tmp_path / "state")
    lives.made_anew()
    disk = lives.disk()
    assert disk.newest() is None
    assert disk.peers() == []


def test_a_peer_of_a_former_life_is_no_source_and_no_reach(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.begin(FORMER_EPOCH, "1")
    lives.made_anew()
    disk = lives.disk()
    assert disk.peers() == []
    assert not disk.copy_peer("1", timeline_name(FORMER_EPOCH, 0), timeline_name(1, 0))
    assert disk.within_reach().bucket == 0
