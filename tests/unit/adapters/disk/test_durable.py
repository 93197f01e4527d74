"""Trees that change while they are made durable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.adapters.disk.durable import SyncedTree, put_file, replace_file


def test_what_is_removed_meanwhile_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/1", "b/1"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    fsync, synced = os.fsync, list[str]()

    def removing(opened: int) -> None:
        synced.append(Path(f"/proc/self/fd/{opened}").readlink().name)
        fsync(opened)
        for path in [*tmp_path.rglob("1"), *tmp_path.glob("?")]:
            path.rmdir() if path.is_dir() else path.unlink()

    monkeypatch.setattr(os, "fsync", removing)
    SyncedTree().sync(tmp_path)
    assert synced == ["1", tmp_path.name]


def test_a_file_that_grew_is_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, synced = SyncedTree(), list[str]()
    (tmp_path / "log").write_text("1")
    monkeypatch.setattr(
        os, "fsync", lambda opened: synced.append(Path(f"/proc/self/fd/{opened}").readlink().name)
    )
    tree.sync(tmp_path)
    (tmp_path / "log").write_text("12")
    tree.sync(tmp_path)
    assert synced.count("log") == 2


def test_of_a_replaced_hard_link_the_other_name_keeps_the_content(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    os.link(tmp_path / "old", tmp_path / "new")
    replace_file(tmp_path / "new", b"2")
    assert [(tmp_path / name).read_text() for name in ("old", "new")] == ["1", "2"]


def test_a_file_may_be_for_its_owner_alone(tmp_path: Path) -> None:
    put_file(tmp_path / "secret", b"1", 0o600)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_file_is_put_whole_or_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "facts.json"
    put_file(path, b"old")

    def full(_: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            put_file(path, b"new, longer")
    assert path.read_bytes() == b"old"
    put_file(path, b"new")
    assert (path.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (b"new", [path.name])
