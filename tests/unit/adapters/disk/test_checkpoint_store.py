"""Checkpoints in a store that other machines can read, here a folder."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

import pytest

from anabranch.adapters.disk import checkpoint_store, checkpoints
from anabranch.adapters.disk.checkpoint_store import StoredReplica, open_store, stored_replicas
from anabranch.adapters.disk.checkpoints import ReplicaDisks, ReplicaFolder
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.log.timeline import Timeline, timeline_name
from anabranch.protocol.stage.owners_checkpoint import StoreUse

ONE, TWO = (timeline_name(epoch, 0) for epoch in (1, 2))


class Machines:
    """Two machines that share nothing but the store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.store.mkdir()

    @property
    def kept(self) -> Path:
        return self.store / "p" / "s.0"

    def disk(self, machine: str, replica: str = "0", *peers: str) -> ReplicaFolder:
        root = self.folder / machine
        return ReplicaFolder(
            root / f"s.{replica}",
            {peer: root / f"s.{peer}" for peer in peers},
            stored=stored_replicas(f"file://{self.store}", "p"),
        )

    def names(self) -> list[str]:
        return sorted(path.name for path in self.kept.iterdir())


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


class GrowsWhenRead:
    """Pack that is written while Spark still writes the file `growing`."""

    def __init__(self, pack: BinaryIO, growing: Path) -> None:
        self.pack, self.growing = pack, growing

    def write(self, piece: bytes) -> None:
        self.pack.write(piece)
        if piece == b"first half, ":
            with self.growing.open("ab") as file:
                file.write(b"second half")


def begin(disk: ReplicaFolder, name: str = ONE, batches: int = 1) -> None:
    disk.create(name)
    disk.write(Timeline(name=name, start_batch=-1, start_tip=None, floor=-1))
    for batch in range(batches):
        commit(disk, name, batch)


def commit(disk: ReplicaFolder, name: str, batch: int, size: int = 100) -> None:
    for kind in ("offsets", "commits", "state/0/0"):
        path = disk.directory(name) / kind / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{kind} {batch} ".encode().ljust(size, b"."))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_replica_goes_on_on_another_machine(machines: Machines) -> None:
    old = machines.disk("a")
    begin(old, batches=3)
    assert old.store(ONE)

    new = machines.disk("b")
    assert new.newest() == old.newest()
    assert contents(new.directory(ONE)) == contents(old.directory(ONE))
    assert list((machines.folder / "a").glob("*/storing-*")) == []


def test_only_who_has_a_use_for_the_store_writes_to_it(machines: Machines) -> None:
    stored = stored_replicas(f"file://{machines.store}", "p")
    disks = ReplicaDisks(machines.folder / "a", stored=stored)
    for process, store_use in (("0", StoreUse.WHOLE), ("1", StoreUse.NONE)):
        disk = disks.of("s", process, [], life="a", store_use=store_use)
        begin(disk)
        assert disk.store(ONE)
    assert [path.name for path in (machines.store / "p").iterdir()] == ["s.0"]


def test_its_own_disk_counts_where_it_has_a_checkpoint(machines: Machines) -> None:
    disk = machines.disk("a")
    begin(disk)
    assert disk.store(ONE)
    begin(disk, TWO)
    newest = machines.disk("a").newest()
    assert newest is not None
    assert newest.name == TWO


def test_a_new_replica_goes_on_from_a_stored_checkpoint_of_a_peer(machines: Machines) -> None:
    peer = machines.disk("a", "1")
    begin(peer, batches=2)
    assert peer.store(ONE)

    new = machines.disk("b", "0", "1", "2")
    assert new.newest() is None
    assert [(replica, timeline.name) for replica, timeline in new.peers()] == [("1", ONE)]
    assert new.peer_commit("1", ONE)[0] == 1
    assert new.copy_peer("1", ONE, TWO)
    assert contents(new.directory(TWO)) == contents(peer.directory(ONE))
    assert new.within_reach().bucket == 0, "only what is on the machine is"


def test_a_later_checkpoint_of_a_peer_replaces_the_one_before(machines: Machines) -> None:
    peer, new = machines.disk("a", "1"), machines.disk("b", "0", "1")
    begin(peer)
    assert peer.store(ONE)
    assert new.peers()
    commit(peer, ONE, 1)
    assert peer.store(ONE)
    assert new.peers()
    assert new.peer_commit("1", ONE)[0] == 1
    begin(peer, TWO, batches=3)
    assert peer.store(TWO)
    assert [timeline.name for _, timeline in new.peers()] == [TWO]
    assert new.peer_commit("1", TWO)[0] == 2
    stored = machines.folder / "b" / "s.0" / "stored" / "s.1"
    assert [path.name for path in (stored / "checkpoints").iterdir()] == [TWO]
    assert [path.name for path in (stored / "timelines").iterdir()] == [f"{TWO}.json"]


def test_what_the_machine_has_of_a_peer_counts_before_the_store(machines: Machines) -> None:
    peer = machines.disk("a", "1")
    begin(peer)
    assert peer.store(ONE)
    begin(peer, TWO)
    assert [timeline.name for _, timeline in machines.disk("a", "0", "1").peers()] == [TWO]


def test_a_file_is_stored_once(machines: Machines) -> None:
    disk = machines.disk("a")
    begin(disk, batches=5)
    assert disk.store(ONE)
    commit(disk, ONE, 5)
    assert disk.store(ONE)
    first, second = [name for name in machines.names() if name.endswith(".pack")]
    assert (machines.kept / first).stat().st_size == 5 * 3 * 100
    assert (machines.kept / second).stat().st_size == 3 * 100
    assert disk.store(ONE), "nothing is new"
    assert [name for name in machines.names() if name.endswith(".pack")] == [first, second]


def test_packs_of_which_most_is_purged_are_written_anew(machines: Machines) -> None:
    """Otherwise the store would grow with the length of the stream."""
    disk = machines.disk("a")
    begin(disk, batches=4)
    for batch in range(4, 40):
        commit(disk, ONE, batch)
        for kind in ("offsets", "commits", "state/0/0"):
            (disk.directory(ONE) / kind / str(batch - 4)).unlink()
        assert disk.store(ONE)
        stored = sum(path.stat().st_size for path in machines.kept.glob("*.pack"))
        assert stored <= 2 * 2 * 4 * 3 * 100 + 3 * 100
    assert len([name for name in machines.names() if name.endswith(".json")]) == 2
    new = machines.disk("b")
    assert new.newest() is not None
    assert contents(new.directory(ONE)) == contents(disk.directory(ONE))


def test_a_file_that_was_written_anew_is_stored_anew(machines: Machines) -> None:
    disk = machines.disk("a")
    begin(disk, batches=2)
    assert disk.store(ONE)
    path = disk.directory(ONE) / "offsets" / "1"
    path.unlink()
    path.write_bytes(b"another plan".ljust(100, b"!"))
    assert disk.store(ONE)
    new = machines.disk("b")
    assert new.newest() is not None
    assert (new.directory(ONE) / "offsets" / "1").read_bytes() == path.read_bytes()


def test_a_file_that_is_still_written_is_stored_when_it_is_whole(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = machines.disk("a")
    begin(disk, batches=2)
    growing = disk.directory(ONE) / "state" / "0" / "0" / "growing.sst"
    growing.write_bytes(b"first half, ")
    append_file = checkpoint_store._append_file

    def append_while_it_grows(stream: BinaryIO, relative: str, path: Path) -> object:
        return append_file(cast("BinaryIO", GrowsWhenRead(stream, growing)), relative, path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_store, "_append_file", append_while_it_grows)
        assert disk.store(ONE)
    assert growing.read_bytes() == b"first half, second half"
    machine = machines.disk("b")
    assert machine.newest() is not None
    assert contents(machine.directory(ONE)).keys() == contents(disk.directory(ONE)).keys() - {
        "state/0/0/growing.sst"
    }, "no committed batch refers to it"

    commit(disk, ONE, 2)
    assert disk.store(ONE)
    machine = machines.disk("c")
    assert machine.newest() is not None
    assert contents(machine.directory(ONE)) == contents(disk.directory(ONE))


@pytest.mark.parametrize("damaged", ["", "{", "[" * 100_000, '{"files":{"x":["",Infinity,0,""]}}'])
def test_the_first_save_of_a_process_leaves_the_checkpoint_before(
    machines: Machines, damaged: str
) -> None:
    old = machines.disk("a")
    begin(old)
    for batch in range(1, 4):
        commit(old, ONE, batch)
        assert old.store(ONE)
    manifests = [name for name in machines.names() if name.endswith(".json")]
    if damaged:
        (machines.kept / manifests[-1]).write_text(damaged)
    new = machines.disk("b")
    assert new.newest() is not None
    begin(new, TWO)
    assert new.store(TWO)
    [before] = [name for name in machines.names() if name.endswith(".json") and ONE in name]
    assert before == manifests[-2 if damaged else -1]
    newest = max(machines.kept.glob("*.pack"))
    newest.write_bytes(newest.read_bytes()[:-20])
    third = machines.disk("c")
    assert third.newest() is not None
    assert third.last_commit(ONE) == (2 if damaged else 3)


def test_what_a_manifest_names_is_durable_before_the_manifest(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, list[str]]] = []

    def synced(path: Path) -> None:
        name = path.name if path.is_file() else str(path.relative_to(machines.store))
        steps.append((name, machines.names()))

    monkeypatch.setattr(checkpoint_store, "sync_file", synced)
    monkeypatch.setattr(checkpoint_store, "sync_folder", synced)
    disk = machines.disk("a")
    begin(disk)
    assert disk.store(ONE)
    pack, manifest = f"{ONE}-000000001.pack", f"{ONE}-000000001.json"
    folders = ["p/s.0", "p", "."]
    assert [name for name, _ in steps] == [pack, *folders, manifest, *folders]
    assert [manifest in there for _, there in steps] == [False] * 4 + [True] * 4


def test_a_directory_that_may_have_become_a_branch_is_not_stored(machines: Machines) -> None:
    disk = machines.disk("a")
    begin(disk)
    begin(disk, TWO)
    assert not disk.store(ONE)
    assert not machines.kept.exists()


def test_a_process_that_was_replaced_removes_nothing_of_a_newer_one(machines: Machines) -> None:
    old = machines.disk("a")
    begin(old)
    assert old.store(ONE)
    new = machines.disk("b")
    assert new.newest() is not None
    begin(new, TWO, batches=2)
    assert new.store(TWO)
    for batch in range(1, 6):
        commit(old, ONE, batch)
        assert old.store(ONE)
    newest = machines.disk("c").newest()
    assert newest is not None
    assert newest.name == TWO

    assert new.store(TWO), "which removes what the old one wrote"
    assert all(name.startswith(TWO) for name in machines.names())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda fields: fields.pop("files"), id="no files"),
        pytest.param(lambda fields: fields.update(format=0), id="another format"),
        pytest.param(
            lambda fields: fields["files"].update({"../out": fields["files"].popitem()[1]}),
            id="a file outside the folder",
        ),
        pytest.param(lambda fields: fields["timeline"].update(name=TWO), id="another timeline"),
        pytest.param(
            lambda fields: fields["files"].update(x=["a.pack", 0, 1, "0"]), id="no name of a pack"
        ),
        pytest.param(
            lambda fields: fields["files"].update(x=[f"{ONE}-000000001.pack", -1, 1, "0"]),
            id="before the beginning",
        ),
        pytest.param(
            lambda fields: fields["files"].update(x=[f"{ONE}-000000001.pack", 0, 1, "0"]),
            id="another digest",
        ),
        pytest.param(
            lambda fields: fields["files"].update(x=[f"{ONE}-000000009.pack", 0, 1, "0"]),
            id="a pack that is gone",
        ),
    ],
)
def test_a_checkpoint_that_says_what_cannot_be_is_passed_over(
    machines: Machines, change: object
) -> None:
    disk = machines.disk("a")
    begin(disk)
    assert disk.store(ONE)
    path = machines.kept / machines.names()[0]
    fields = json.loads(path.read_text())
    assert callable(change)
    change(fields)
    path.write_text(json.dumps(fields))
    assert machines.disk("b").newest() is None


def test_files_of_others_in_the_store_are_left_alone(machines: Machines) -> None:
    disk = machines.disk("a")
    begin(disk)
    assert disk.store(ONE)
    (machines.kept / "0-readme.json").write_text("{}")
    assert disk.store(ONE)
    assert "0-readme.json" in machines.names()


def test_a_store_that_denies_says_so_and_a_later_try_goes_on(machines: Machines) -> None:
    disk = machines.disk("a")
    begin(disk)
    machines.store.rmdir()
    with pytest.raises(
        Unavailable, match=r"cannot be written at p/s\.0: .*store does not exist, or is no folder"
    ):
        disk.store(ONE)
    assert list((machines.folder / "a").glob("*/storing-*")) == []
    assert not machines.store.exists(), "a mount may be missing"
    machines.store.mkdir()
    assert disk.store(ONE)
    assert machines.disk("b").newest() is not None


@pytest.mark.parametrize("fails_at", ["pack", "manifest"])
def test_a_store_that_is_full_has_nothing_of_an_attempt_that_failed(
    fails_at: str, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each attempt takes the space that was made for it."""
    disk, full = machines.disk("a"), OSError(errno.ENOSPC, "No space left on device")
    begin(disk, batches=3)

    def sync(path: Path) -> None:
        if path.suffix == ".json":
            raise full

    def append(stream: BinaryIO, relative: str, path: Path) -> NoReturn:
        stream.write(path.read_bytes())
        raise full

    if fails_at == "pack":
        monkeypatch.setattr(checkpoint_store, "_append_file", append)
    else:
        monkeypatch.setattr(checkpoint_store, "sync_file", sync)
    for _ in range(2):
        with pytest.raises(Unavailable, match="No space left"):
            disk.store(ONE)
    left = [f"{ONE}-000000001.pack"] if fails_at == "manifest" else []
    assert machines.names() == left, "a whole pack is not written again"
    monkeypatch.undo()
    assert disk.store(ONE)
    assert machines.disk("b").newest() is not None


def test_an_own_disk_that_is_full_delays_what_is_stored_and_ends_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = machines.disk("a")
    begin(disk)

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "link_tree", full)
    with pytest.raises(Unavailable, match=rf"checkpoint {ONE} cannot be copied: .*No space left"):
        disk.store(ONE)
    monkeypatch.undo()
    assert disk.store(ONE)


def test_a_replica_without_a_checkpoint_waits_for_a_store_that_is_away(machines: Machines) -> None:
    machines.store.rmdir()
    with pytest.raises(Unavailable, match=r"the checkpoint store cannot be read at p/s\.0: "):
        machines.disk("a").newest()
    with pytest.raises(Unavailable, match=r"the checkpoint store cannot be read at p/s\.1: "):
        machines.disk("a", "0", "1").peers()


def test_a_replica_with_a_checkpoint_does_not_need_the_store(machines: Machines) -> None:
    disk = machines.disk("a", "0", "1")
    begin(disk)
    machines.store.rmdir()
    assert disk.newest() is not None
    assert disk.peers() == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "checkpoints",
        "file://",
        "file://host/folder",
        "file:///folder?region=x",
        "s3://",
        "s3://bucket?regoin=x",
        "s3://bucket/folder?endpoint=host:9000",
        "gs://bucket/folder",
    ],
)
def test_an_address_that_is_none_is_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is no store of checkpoints: give file:///"):
        open_store(url)


def test_credentials_in_the_address_are_rejected_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="AWS_ACCESS_KEY_ID") as caught:
        open_store("s3://user:secret@bucket/folder")
    assert not re.search("user|secret", str(caught.value).replace("AWS_SECRET", ""))


def test_a_store_on_s3_is_not_contacted_before_it_is_used() -> None:
    store = open_store("s3://bucket/folder?endpoint=http://127.0.0.1:1&region=eu-central-1")
    StoredReplica(store, "p/s.0")
    assert store.base_path == "bucket/folder/"
