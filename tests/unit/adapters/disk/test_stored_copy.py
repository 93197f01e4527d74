"""Copy of a replica's stored checkpoint on a machine that shares nothing but the store."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.adapters.disk.checkpoint_store import StoredReplica, stored_replicas
from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.ports import Reach
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.stateful_plan import NO_PLAN, StatefulOperator, StatefulPlan
from anabranch.protocol.log.timeline import Timeline, timeline_name
from anabranch.protocol.stage.owners_checkpoint import Announced, StoreUse
from harness import spark_files

ONE, TWO = (timeline_name(epoch, 0) for epoch in (1, 2))
SIZE = 50_000


class Machines:
    """The replica runs on the machine ``old``, and moves to ``new``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "store"
        self.store.mkdir()
        self.old = self.disk("old")
        self.old.create(ONE)
        self.old.write(Timeline.fresh(1))
        self.batches = 0

    def disk(self, machine: str, store_use: StoreUse = StoreUse.WHOLE) -> ReplicaFolder:
        stored = stored_replicas(f"file://{self.store}", "p")
        place = self.folder / machine / "s.0"
        return ReplicaFolder(place, stored=stored, store_use=store_use)

    def runs(self, batches: int, name: str = ONE, disk: ReplicaFolder | None = None) -> None:
        """Run that many further batches, each with a large file of state, then store the result."""
        disk = self.old if disk is None else disk
        for batch in range(self.batches, self.batches + batches):
            spark_files.log_batch(disk.directory(name), batch)
            spark_files.commit_batch(disk.directory(name), batch, partitions=1)
            large = disk.directory(name) / "state" / "0" / f"{batch}.large"
            large.write_bytes(os.urandom(SIZE))
        self.batches += batches
        assert disk.store(name)


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


@pytest.fixture
def owners(machines: Machines) -> Machines:
    """Return machines of which ``old`` is the owner's, and stores for a partner's node."""
    machines.old = machines.disk("old", StoreUse.OFFERS)
    return machines


def announced(machines: Machines, epoch: int = 1, plan: StatefulPlan = NO_PLAN) -> Announced:
    return Announced(machines.old.announces, epoch, plan)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "metadata" not in path.name
    }


def test_the_copy_follows_and_reads_only_what_is_new(machines: Machines) -> None:
    new = machines.disk("new")
    new.fetch()
    assert new.within_reach().bucket == 0, "nothing is stored"
    machines.runs(4)
    new.fetch()
    first = new.within_reach()
    assert (first.bucket, first.rest_bytes) == (40, 0)
    assert first.read_bytes > 4 * SIZE
    machines.runs(1)
    new.fetch()
    second = new.within_reach()
    assert second.bucket == 50
    assert SIZE < second.read_bytes - first.read_bytes < 2 * SIZE
    assert second.linked_bytes >= 4 * SIZE
    new.fetch()
    assert new.within_reach() == second, "nothing is new"
    newest = new.newest()
    assert newest is not None
    assert newest.name == ONE
    assert contents(new.directory(ONE)) == contents(machines.old.directory(ONE))
    assert new.last_commit(ONE) == 4


def test_the_next_process_reads_nothing_again(machines: Machines) -> None:
    machines.runs(4)
    machines.disk("new").fetch()
    machines.runs(1)
    again = machines.disk("new")
    again.fetch()
    assert again.within_reach().read_bytes < 2 * SIZE


def test_what_the_machine_has_from_before_is_linked(machines: Machines) -> None:
    """The replica ran there, went away, and comes back."""
    machines.runs(6)
    shutil.copytree(machines.folder / "old", machines.folder / "new")
    machines.runs(1)
    new = machines.disk("new")
    assert new.within_reach().bucket == 60
    new.fetch()
    reach = new.within_reach()
    assert reach.bucket == 70
    assert reach.read_bytes < 2 * SIZE
    assert reach.linked_bytes >= 6 * SIZE
    newest = new.newest()
    assert newest is not None
    assert new.last_commit(newest.name) == 6


def test_an_older_checkpoint_of_an_earlier_stay_gives_way(machines: Machines) -> None:
    """The timeline's name decides, not the number of batches."""
    machines.runs(3)
    new = machines.disk("new")
    assert new.newest() is not None
    machines.old.create(TWO)
    machines.old.write(Timeline.fresh(2))
    machines.batches = 0
    machines.runs(1, TWO)
    assert machines.disk("new").newest() == new.newest(), "nobody has fetched anything"
    new.fetch()
    newest = new.newest()
    assert newest is not None
    assert (newest.name, new.last_commit(TWO)) == (TWO, 0)


def test_what_is_further_here_is_left_alone(machines: Machines) -> None:
    """Both nodes have one directory: the one that runs lives there."""
    machines.runs(3)
    sharing = machines.disk("old")
    spark_files.log_batch(machines.old.directory(ONE), 3)
    spark_files.commit_batch(machines.old.directory(ONE), 3, partitions=1)
    before = sorted(machines.folder.rglob("*"))
    sharing.fetch()
    sharing.newest()
    assert sharing.within_reach().bucket == 40
    assert sharing.within_reach().read_bytes == 0
    assert sorted(machines.folder.rglob("*")) == before


def test_a_store_that_goes_away_leaves_what_was_read(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.runs(4)
    new = machines.disk("new")
    fetch = StoredReplica.fetch

    def breaks(self: StoredReplica, places: list[object], *rest: object) -> bool:
        fetch(self, places[:-1], *rest)  # type: ignore[arg-type]
        raise Unavailable("the store is away")

    monkeypatch.setattr(StoredReplica, "fetch", breaks)
    with pytest.raises(Unavailable):
        new.fetch()
    broken = new.within_reach()
    assert broken.bucket == 0
    assert 0 < broken.rest_bytes < SIZE
    monkeypatch.setattr(StoredReplica, "fetch", fetch)
    new.fetch()
    whole = new.within_reach()
    assert (whole.bucket, whole.rest_bytes) == (40, 0)
    assert whole.read_bytes == broken.read_bytes + broken.rest_bytes


def test_a_pack_that_is_missing_costs_one_round(machines: Machines) -> None:
    machines.runs(4)
    (pack,) = (machines.store / "p" / "s.0").glob("*.pack")
    content = pack.read_bytes()
    pack.unlink()
    new = machines.disk("new")
    new.fetch()
    assert (new.within_reach().bucket, new.newest()) == (0, None)
    pack.write_bytes(content)
    new.fetch()
    assert new.within_reach().bucket == 40


@pytest.mark.parametrize("point", ["checkpoint.fetched", "checkpoint.taking_fetched"])
def test_a_crash_in_the_middle_costs_nothing(machines: Machines, point: str) -> None:
    machines.runs(4)

    def crash(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    stored = stored_replicas(f"file://{machines.store}", "p")
    dies = ReplicaFolder(machines.folder / "new" / "s.0", stored=stored, crash_point=crash)

    def adopts() -> None:
        dies.fetch()
        dies.newest()

    with pytest.raises(KeyboardInterrupt):
        adopts()
    new = machines.disk("new")
    assert new.within_reach().bucket == 0
    new.fetch()
    newest = new.newest()
    assert newest is not None
    assert contents(new.directory(newest.name)) == contents(machines.old.directory(ONE))
    assert new.within_reach().read_bytes == 0


def test_who_has_begun_has_no_copy_any_more(machines: Machines) -> None:
    machines.runs(4)
    new = machines.disk("new")
    new.fetch()
    newest = new.newest()
    assert newest is not None
    new.copy(newest.name, TWO)
    new.write(newest.copied(TWO, 3))
    new.clean(2)
    assert not (machines.folder / "new" / "s.0" / "stored" / "s.0").exists()
    machines.runs(1)
    new.fetch()
    assert not (machines.folder / "new" / "s.0" / "stored" / "s.0").exists()
    assert new.within_reach().bucket == 40


def test_a_copy_that_is_removed_while_it_is_read_stays_away(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.runs(4)
    new = machines.disk("new")
    fetch, waits, ends = StoredReplica.fetch, threading.Event(), threading.Event()

    def slow(self: StoredReplica, *rest: object) -> bool:
        waits.set()
        assert ends.wait(60)
        return fetch(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(StoredReplica, "fetch", slow)
    reader = threading.Thread(target=new.fetch)
    reader.start()
    assert waits.wait(60)
    new.clean(2)
    ends.set()
    reader.join(60)
    assert not (machines.folder / "new" / "s.0" / "stored" / "s.0" / "checkpoints").exists()
    assert new.within_reach().bucket == 0


def test_what_is_within_reach_is_copied_for_a_rehearsal_and_stays_as_it_is(
    machines: Machines,
) -> None:
    new = machines.disk("new")
    assert not new.copy_within_reach(TWO), "nothing is here"
    machines.runs(4)
    new.fetch()
    reach = new.within_reach()
    assert new.copy_within_reach(TWO)
    assert new.last_commit(TWO) == 3
    new.cut_back(TWO, 2, keep_plan=False)
    assert new.within_reach() == reach
    new.remove(TWO)
    newest = new.newest()
    assert newest is not None
    assert (newest.name, new.last_commit(newest.name)) == (ONE, 3)
    machines.runs(1)
    assert new.copy_within_reach(TWO)
    assert new.last_commit(TWO) == 3, "its own is as far as what it has fetched"
    new.fetch()
    assert new.copy_within_reach(TWO)
    assert new.last_commit(TWO) == 4
    assert new.last_commit(ONE) == 3


def test_a_fetched_checkpoint_that_is_gone_is_not_copied(machines: Machines) -> None:
    machines.runs(2)
    new = machines.disk("new")
    new.fetch()
    shutil.rmtree(machines.folder / "new" / "s.0" / "stored")
    assert not new.copy_within_reach(TWO)


@pytest.mark.parametrize("is_rehearsed", [False, True])
def test_what_was_checked_when_it_was_fetched_or_rehearsed_is_not_checked_again(
    machines: Machines, *, is_rehearsed: bool
) -> None:
    machines.runs(2)
    new = machines.disk("new")
    new.fetch()
    machines.runs(1)
    new.fetch()
    if is_rehearsed:
        assert new.copy_within_reach(TWO)
        assert new.whole(TWO, new.batches(TWO)) == 2
        new.remove(TWO)
    newest = new.newest()
    assert newest is not None
    for path in new.directory(ONE).glob("state/**/*.changelog"):
        facts = path.stat()
        path.write_bytes(b"x" * facts.st_size)
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert new.whole(ONE, new.batches(ONE)) == 2, "it knows them by inode, time and size"


def test_a_partner_copies_what_is_announced(owners: Machines) -> None:
    partner = owners.disk("partner", StoreUse.TAKES)
    assert owners.old.announces == ""
    owners.runs(4)
    partner.fetch(announced(owners))
    assert partner.within_reach().bucket == 40
    owners.runs(1)
    partner.fetch(announced(owners))
    assert SIZE < partner.within_reach().read_bytes - 4 * SIZE < 3 * SIZE, "what is new"
    partner.fetch(announced(owners))
    newest = partner.newest()
    assert newest is not None
    assert contents(partner.directory(ONE)) == contents(owners.old.directory(ONE))
    partner.fetch(announced(owners))
    assert partner.announces == ""


def test_a_partner_reads_nothing_that_is_not_announced(owners: Machines) -> None:
    owners.runs(4)
    partner = owners.disk("partner", StoreUse.TAKES)
    partner.fetch()
    assert partner.newest() is None
    files = sorted(owners.store.rglob("*"))
    assert partner.peers() == []
    partner.create(ONE)
    partner.write(Timeline.fresh(1))
    assert partner.store(ONE), "it need not be stored"
    assert sorted(owners.store.rglob("*")) == files


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"start_batch":-1', '"start_batch":-2'),
        lambda text: text.replace('"version":1', '"version":2'),
        lambda text: text.replace('"operators":', '"operators":[[]],"was":'),
        lambda text: "{",
        lambda text: "[" * 100_000,
        lambda text: text.replace(",0,", ",Infinity,"),
    ],
)
def test_another_manifest_than_the_announced_one_is_refused(
    owners: Machines, change: Callable[[str], str]
) -> None:
    """Whoever writes it can give every file a digest that is right, or do harm by being parsed."""
    owners.runs(4)
    (manifest,) = owners.store.rglob("*.json")
    text = manifest.read_text()
    assert change(text) != text
    manifest.write_text(change(text))
    partner = owners.disk("partner", StoreUse.TAKES)
    with pytest.raises(Unavailable, match="none is the one that the owner's node has announced"):
        partner.fetch(announced(owners))
    assert partner.within_reach() == Reach(0)
    manifest.write_text(text)
    partner.fetch(announced(owners))
    assert partner.within_reach().bucket == 40


def test_no_byte_is_read_of_state_that_another_function_has_made(owners: Machines) -> None:
    owners.runs(4)
    partner = owners.disk("partner", StoreUse.TAKES)
    own = StatefulPlan((StatefulOperator("aggregate", (("per", ("place",)),)),))
    with pytest.raises(Unavailable, match="another function has made its state"):
        partner.fetch(announced(owners, plan=own))
    with pytest.raises(Unavailable, match="another epoch"):
        partner.fetch(announced(owners, epoch=2))
    assert partner.within_reach().read_bytes == 0


@pytest.mark.parametrize("tears", [True, False])
def test_torn_and_foreign_bytes_of_state_are_not_used(owners: Machines, tears: bool) -> None:
    owners.runs(4)
    (pack,) = owners.store.rglob("*.pack")
    content = pack.read_bytes()
    middle = len(content) // 2
    pack.write_bytes(content[:middle] if tears else content[:-1] + bytes([content[-1] ^ 1]))
    partner = owners.disk("partner", StoreUse.TAKES)
    with pytest.raises(Unavailable, match="damaged, or gone"):
        partner.fetch(announced(owners))
    assert partner.newest() is None
    pack.write_bytes(content)
    partner.fetch(announced(owners))
    assert partner.newest() is not None


def test_what_is_announced_and_not_stored_is_not_found(owners: Machines) -> None:
    owners.runs(4)
    found = announced(owners)
    shutil.rmtree(owners.store / "p")
    partner = owners.disk("partner", StoreUse.TAKES)
    with pytest.raises(Unavailable, match="none is the one"):
        partner.fetch(found)
    partner.clean(1)
    partner.fetch(found)


def test_without_a_store_nothing_is_announced(tmp_path: Path) -> None:
    disk = ReplicaFolder(tmp_path / "s.0", store_use=StoreUse.OFFERS)
    disk.fetch(Announced("ab", 1, NO_PLAN))
    assert (disk.announces, disk.newest()) == ("", None)
