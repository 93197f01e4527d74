"""Checkpoint directories and timeline files on a disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.disk.checkpoints import ReplicaDisks, ReplicaFolder
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.timeline import Timeline, timeline_name
from anabranch.protocol.stage.owners_checkpoint import StoreUse
from harness import spark_files

ONE, TWO, THREE = (timeline_name(epoch, 0) for epoch in (1, 2, 10))


@pytest.fixture
def disk(tmp_path: Path) -> ReplicaFolder:
    return ReplicaFolder(tmp_path / "s.0")


def fill(folder: Path) -> None:
    for name in ("offsets/0", "commits/0", "state/0/0/1.zip", ".metadata.crc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Syncs:
    """Record of everything that is made durable, in order, each with the result of ``look`` at that
    moment. Nothing more may be synced.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, look: Callable[[], bool] = lambda: True
    ) -> None:
        self.seen: list[tuple[Path, bool]] = []
        monkeypatch.setattr(
            os,
            "fsync",
            lambda opened: self.seen.append((Path(f"/proc/self/fd/{opened}").readlink(), look())),
        )
        monkeypatch.setattr(
            os, "sync", lambda: pytest.fail("it would wait for every program of the machine")
        )


def test_a_new_directory_is_empty_even_where_a_copy_was_given_up(
    disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal is durable: otherwise a timeline file could name what a loss of power brought
    back.
    """
    fill(disk.directory(ONE))
    done = Syncs(monkeypatch, lambda: disk.directory(ONE).exists())
    disk.create(ONE)
    assert list(disk.directory(ONE).iterdir()) == []
    parent = disk.directory(ONE).parent
    assert done.seen == [(parent, False), (parent, True)]


def test_a_copy_has_its_name_when_what_it_is_made_of_is_durable(
    disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Syncs neither the rest of the machine nor the files, which are as durable as the source's."""
    spark_files.fill(disk.directory(ONE), 3)
    partial, target = tmp_path / "s.0" / f"copying-{TWO}", disk.directory(TWO)
    done = Syncs(monkeypatch, target.exists)
    disk.copy(ONE, TWO)
    folders = {partial / path.relative_to(target) for path in target.rglob("*") if path.is_dir()}
    assert {path for path, there in done.seen if not there} == {
        partial,
        *folders,
        partial / "metadata",
    }
    assert done.seen[-1] == (target.parent, True), "its name"


def test_sync_makes_each_file_durable_once(
    disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_files.fill(disk.directory(ONE), 3)
    done = Syncs(monkeypatch)
    disk.sync(ONE)
    assert {path for path, _ in done.seen} == {disk.directory(ONE), *disk.directory(ONE).rglob("*")}
    done.seen.clear()
    spark_files.log_batch(disk.directory(ONE), 3)
    disk.sync(ONE)
    new = {disk.directory(ONE) / "offsets" / name for name in ("3", ".3.crc")}
    assert {path for path, _ in done.seen if not path.is_dir()} == new
    disk.copy(ONE, TWO)
    done.seen.clear()
    disk.sync(TWO)
    assert {path.name for path, _ in done.seen if not path.is_dir()} == {"metadata"}, (
        "the rest is the same files"
    )


def test_a_timeline_file_that_was_not_finished_does_not_count(
    disk: ReplicaFolder, tmp_path: Path
) -> None:
    disk.create(ONE)
    disk.write(Timeline.fresh(1))
    (tmp_path / "s.0" / "timelines" / f"{TWO}.partial").write_text("{")
    assert disk.newest() == Timeline.fresh(1)


class TestCopy:
    def test_costs_no_space_and_what_is_added_to_it_is_its_own(self, disk: ReplicaFolder) -> None:
        fill(disk.directory(ONE))
        disk.copy(ONE, TWO)
        assert (disk.directory(TWO) / "offsets/0").stat().st_nlink == 2
        (disk.directory(TWO) / "offsets/1").write_text("new")
        assert not (disk.directory(ONE) / "offsets/1").exists()

    def test_replaces_an_earlier_copy_and_one_that_was_not_finished(
        self, disk: ReplicaFolder, tmp_path: Path
    ) -> None:
        fill(disk.directory(ONE))
        (disk.directory(TWO) / "commits").mkdir(parents=True)
        (disk.directory(TWO) / "commits/9").touch()
        (tmp_path / "s.0" / f"copying-{TWO}" / "junk").mkdir(parents=True)
        disk.copy(ONE, TWO)
        assert contents(disk.directory(TWO)) == contents(disk.directory(ONE))
        assert not list((tmp_path / "s.0").glob("copying-*"))

    def test_is_whole_or_not_there(
        self, disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(disk.directory(ONE))

        def full(_source: str, _target: str) -> str:
            raise OSError(28, "no space left on device")

        monkeypatch.setattr(os, "link", full)
        monkeypatch.setattr(shutil, "copy2", full)
        with pytest.raises(OSError, match="no space left on device"):
            disk.copy(ONE, TWO)
        assert not disk.directory(TWO).exists()

    def test_that_does_not_fit_is_an_error_and_not_a_peer_without_a_checkpoint(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A start that took it for one would begin with nothing, and a standby would keep an old
        checkpoint for good, without a word.
        """
        disk = ReplicaFolder(tmp_path / "s.0", {"1": tmp_path / "s.1"})
        fill(ReplicaFolder(tmp_path / "s.1").directory(ONE))
        mkdir = Path.mkdir

        def full(self: Path, *args: Any, **options: Any) -> None:
            if "copying-" in str(self.parent):
                raise OSError(errno.ENOSPC, "no space left on device", str(self))
            mkdir(self, *args, **options)

        monkeypatch.setattr(Path, "mkdir", full)
        with pytest.raises(OSError, match="no space left on device"):
            disk.copy_peer("1", ONE, TWO)
        assert not disk.directory(TWO).exists()
        assert not list((tmp_path / "s.0").glob("copying-*")), "it would take what space there is"

    def test_of_a_peer_that_cannot_be_read_is_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = ReplicaFolder(tmp_path / "s.0", {"1": tmp_path / "s.1"})
        fill(ReplicaFolder(tmp_path / "s.1").directory(ONE))

        def denied(*_: object) -> None:
            raise PermissionError(errno.EACCES, "permission denied")

        monkeypatch.setattr(os, "link", denied)
        monkeypatch.setattr(shutil, "copy2", denied)
        assert not disk.copy_peer("1", ONE, TWO)

    def test_of_a_directory_whose_process_still_purges_begins_anew(
        self, disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(disk.directory(ONE))
        link, left = os.link, [3]

        def vanishing(source: str, target: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                (disk.directory(ONE) / "state/0/0/1.zip").unlink(missing_ok=True)
                raise FileNotFoundError(source)
            link(source, target)

        monkeypatch.setattr(os, "link", vanishing)
        disk.copy(ONE, TWO)
        assert contents(disk.directory(TWO)) == contents(disk.directory(ONE))

    def test_of_a_directory_that_never_rests_is_given_up(
        self, disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(disk.directory(ONE))

        def gone(source: str, _target: str) -> None:
            raise FileNotFoundError(source)

        monkeypatch.setattr(os, "link", gone)
        with pytest.raises(Unavailable, match="kept changing"):
            disk.copy(ONE, TWO)

    def test_on_a_disk_without_links_copies(
        self, disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(disk.directory(ONE))

        def rejected(_source: str, _target: str) -> None:
            raise PermissionError(1, "links are not permitted")

        monkeypatch.setattr(os, "link", rejected)
        disk.copy(ONE, TWO)
        assert contents(disk.directory(TWO)) == contents(disk.directory(ONE))
        assert (disk.directory(TWO) / "offsets/0").stat().st_nlink == 1

    def test_paths_inside_the_state_are_those_of_the_copy(self, disk: ReplicaFolder) -> None:
        """Spark notes where its schema files are; the original goes away."""
        folder = disk.directory(ONE) / "state/0/_metadata/v2"
        folder.mkdir(parents=True)
        (folder / "0").write_text(f"v2\n{disk.directory(ONE)}/state/0/_stateSchema\n")
        (folder / ".0.crc").write_text("sum")
        (folder / "1").write_text("no path")
        disk.copy(ONE, TWO)
        copied = disk.directory(TWO) / "state/0/_metadata/v2"
        assert (copied / "0").read_text() == f"v2\n{disk.directory(TWO)}/state/0/_stateSchema\n"
        assert not (copied / ".0.crc").exists(), "the sum of the old content"
        assert (copied / "1").read_text() == "no path"
        assert str(disk.directory(ONE)) in (folder / "0").read_text(), (
            "the original is as it was, links or not"
        )
        assert (folder / ".0.crc").exists()

    def test_is_a_query_of_its_own(self, disk: ReplicaFolder) -> None:
        """Spark stops a query when another one with its id starts; here both must run."""
        folder = disk.directory(ONE)
        fill(folder)
        (folder / "metadata").write_text('{"id":"0a","other":1}')
        disk.copy(ONE, TWO)
        disk.copy(ONE, THREE)
        found = [
            json.loads((disk.directory(name) / "metadata").read_text())
            for name in (ONE, TWO, THREE)
        ]
        assert len({fields["id"] for fields in found}) == 3
        assert [fields["other"] for fields in found] == [1, 1, 1]
        assert found[0]["id"] == "0a", "the original is as it was, links or not"
        assert not (disk.directory(TWO) / ".metadata.crc").exists(), "the sum of the old content"
        assert (folder / ".metadata.crc").exists()


def test_what_is_written_into_a_removed_directory_goes_with_the_next_syncs(
    disk: ReplicaFolder,
) -> None:
    """Spark's maintenance may write one more snapshot there. A directory that is created again
    stays.
    """
    for name in (ONE, TWO, THREE):
        disk.create(name)
    disk.remove(ONE)
    disk.remove(TWO)
    fill(disk.directory(ONE))
    disk.create(TWO)
    disk.sync(THREE)
    assert [disk.directory(name).exists() for name in (ONE, TWO, THREE)] == [False, True, True]
    fill(disk.directory(ONE))
    disk.sync(THREE)
    assert not disk.directory(ONE).exists()
    fill(disk.directory(ONE))
    disk.sync(THREE)
    assert disk.directory(ONE).exists(), "nobody writes there so late"


class SlowRemoval:
    """Removal that lasts until ``ends``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.ends = threading.Event(), threading.Event()
        self._remove = shutil.rmtree
        monkeypatch.setattr(shutil, "rmtree", self._slowly)

    def _slowly(self, path: Path, *, ignore_errors: bool = False) -> None:
        self.began.set()
        assert self.ends.wait(120)
        self._remove(path, ignore_errors=ignore_errors)


@pytest.fixture
def slow_removal(disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowRemoval]:
    """Let a thread remove ONE for as long as the context lasts."""
    disk.create(ONE)
    slow = SlowRemoval(monkeypatch)
    removing = threading.Thread(target=disk.remove, args=(ONE,))
    removing.start()
    assert slow.began.wait(10)
    yield slow
    slow.ends.set()
    removing.join(30)


def test_nobody_waits_while_another_directory_is_removed(
    disk: ReplicaFolder, slow_removal: SlowRemoval
) -> None:
    """A fork copies a checkpoint while the earlier branch is removed."""
    forks = threading.Thread(target=disk.create, args=(TWO,), daemon=True)
    forks.start()
    forks.join(30)
    assert not forks.is_alive()
    assert disk.directory(ONE).exists()
    assert not slow_removal.ends.is_set()


def test_who_makes_a_directory_that_is_being_removed_makes_it_afterwards(
    disk: ReplicaFolder, slow_removal: SlowRemoval
) -> None:
    makes = threading.Thread(target=disk.create, args=(ONE,), daemon=True)
    makes.start()
    makes.join(0.1)
    assert makes.is_alive()
    slow_removal.ends.set()
    makes.join(30)
    assert disk.directory(ONE).exists()
    disk.sync(ONE)
    assert disk.directory(ONE).exists(), "no sync takes it for what was removed"


def test_a_process_that_stands_by_removes_what_is_below_its_copy(
    disk: ReplicaFolder, tmp_path: Path
) -> None:
    below, own, other, later = (
        timeline_name(2, number, token * 16)
        for number, token in ((1, "a"), (2, "a"), (2, "b"), (3, "b"))
    )
    for name in (ONE, below, own, other, later, THREE):
        fill(disk.directory(name))
        disk.write(Timeline(name=name, start_batch=0, start_tip=None))
        (tmp_path / "s.0" / f"copying-{name}").mkdir()
    disk.clean(2, 2)
    left = {own, other, later, THREE}
    assert {path.name for path in (tmp_path / "s.0" / "checkpoints").iterdir()} == left
    assert {path.stem for path in (tmp_path / "s.0" / "timelines").iterdir()} == left
    assert {path.name for path in (tmp_path / "s.0").glob("copying-*")} == {
        f"copying-{name}" for name in left
    }


def test_what_cannot_be_removed_is_reported(
    disk: ReplicaFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It fills the disk, as where another user has run the replica before."""
    fill(disk.directory(ONE))
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    disk.clean(9)
    assert f"{disk.directory(ONE)} cannot be removed" in caplog.text


def test_the_disks_of_a_node_are_folders_beside_each_other(tmp_path: Path) -> None:
    reached: list[str] = []
    disks = ReplicaDisks(tmp_path, crash_point=reached.append)
    other = disks.of("s", "1", [], life="a", store_use=StoreUse.WHOLE)
    fill(other.directory(ONE))
    disk = disks.of("s", "0", ["1"], life="a", store_use=StoreUse.WHOLE)
    assert disk.directory(ONE) == tmp_path / "s.0" / "life-a" / "checkpoints" / ONE
    assert disk.copy_peer("1", ONE, TWO)
    assert reached == ["checkpoint.copying"]


def test_what_is_within_reach_is_the_own_checkpoint_else_the_furthest_of_a_peer(
    tmp_path: Path,
) -> None:
    disk = ReplicaFolder(
        tmp_path / "s.0", {name: tmp_path / f"s.{name}" for name in ("1", "2", "3")}
    )
    assert disk.within_reach().bucket == 0
    for name, batches in (("1", 2), ("2", 5)):
        peer = ReplicaFolder(tmp_path / f"s.{name}")
        spark_files.fill(peer.directory(ONE), batches)
        peer.write(Timeline.fresh(1))
    assert disk.within_reach().bucket == 50
    spark_files.fill(disk.directory(TWO), 3)
    assert disk.within_reach().bucket == 50, "without a timeline file it counts for nothing"
    disk.write(Timeline.fresh(2))
    assert disk.within_reach().bucket == 30
    (disk.directory(TWO) / "offsets" / "2").write_bytes(b"torn")
    before = sorted(tmp_path.rglob("*"))
    assert disk.within_reach().bucket == 0
    assert sorted(tmp_path.rglob("*")) == before, "somebody may run there"
