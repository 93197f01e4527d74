"""Temporary folders of processes: those of dead ones are removed, those of living ones stay."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.adapters.system import scratch as module
from anabranch.adapters.system.scratch import SOCKET_PATH_BYTES_MAX, Scratch, sweep

PROGRAM = """
import sys
from pathlib import Path
from anabranch.adapters.system.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.path / "library.so").touch()
print(scratch.path, scratch.socket_path("s" * int(sys.argv[2])), flush=True)
sys.stdin.read()
"""


class Owner:
    """Process with a scratch folder."""

    def __init__(self, root: Path, name_length: int = 1) -> None:
        command = [sys.executable, "-c", PROGRAM, str(root), str(name_length)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        folder, at = self.process.stdout.readline().split()
        self.folder, self.socket = Path(folder), Path(at)

    def end(self) -> None:
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.kill()


def names(root: Path) -> set[str]:
    return {entry.name for entry in root.iterdir()}


def test_who_ends_in_order_leaves_nothing(owner: Owner, tmp_path: Path) -> None:
    assert names(tmp_path) == {owner.folder.name, f"{owner.folder.name}.lock"}
    owner.end()
    assert names(tmp_path) == set()


def test_what_a_killed_process_left_is_removed_by_the_next(owner: Owner, tmp_path: Path) -> None:
    owner.kill()
    assert owner.folder.exists()
    mine = Scratch(tmp_path)
    assert names(tmp_path) == {mine.path.name, f"{mine.path.name}.lock"}
    mine.close()
    mine.close()
    assert names(tmp_path) == set()


def test_what_a_living_process_has_stays_even_if_it_is_paused(owner: Owner, tmp_path: Path) -> None:
    owner.process.send_signal(signal.SIGSTOP)
    mine = Scratch(tmp_path)
    assert mine.path != owner.folder
    sweep(tmp_path)
    assert (owner.folder / "library.so").exists()
    assert mine.path.exists()
    mine.close()
    owner.process.send_signal(signal.SIGCONT)
    owner.end()
    assert names(tmp_path) == set()


def test_what_a_version_without_locks_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "blockmgr-1" / "0c").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path.parent)
    (tmp_path / "of_nothing.lock").touch()
    sweep(tmp_path)
    assert names(tmp_path) == set()
    assert tmp_path.parent.exists()


def test_only_the_user_may_look_into_it(tmp_path: Path) -> None:
    mine = Scratch(tmp_path)
    assert mine.path.stat().st_mode & 0o777 == 0o700
    mine.close()


def test_a_sweep_between_the_file_and_its_lock_takes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is then on a file that no process finds any more, so another name is chosen."""
    taken, swept = module._try_lock, list[Path]()

    def late(descriptor: int) -> bool:
        if not swept:
            swept.extend(tmp_path.glob("*.lock"))
            for path in swept:
                path.unlink()
        return taken(descriptor)

    monkeypatch.setattr(module, "_try_lock", late)
    mine = Scratch(tmp_path)
    assert [path.stem for path in swept] != [mine.path.name]
    assert names(tmp_path) == {mine.path.name, f"{mine.path.name}.lock"}
    mine.close()


def test_a_socket_is_in_the_folder_or_where_its_path_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    mine = Scratch(tmp_path)
    fits = SOCKET_PATH_BYTES_MAX - len(os.fsencode(mine.path / "x")) + 1
    assert mine.socket_path("x" * fits) == str(mine.path / ("x" * fits))
    found = [mine.socket_path(name) for name in ("x" * (fits + 1), "y" * (fits + 1))]
    assert len({Path(path).parent for path in found}) == 1
    assert Path(found[0]).parent.parent == short
    assert Path(found[0]).parent.stat().st_mode & 0o777 == 0o700
    mine.close()
    assert names(short) == set()
    short.rmdir()


def test_a_socket_with_the_longest_path_can_be_bound() -> None:
    with tempfile.TemporaryDirectory(prefix="t-") as folder, socket.socket(socket.AF_UNIX) as bound:
        path = f"{folder}/".ljust(SOCKET_PATH_BYTES_MAX, "x")
        bound.bind(path)


def test_the_folder_of_a_killed_process_socket_goes_with_its_own(tmp_path: Path) -> None:
    owner = Owner(
        tmp_path, name_length=SOCKET_PATH_BYTES_MAX - len(os.fsencode(tempfile.gettempdir())) - 20
    )
    assert owner.socket.parent != owner.folder
    assert owner.socket.parent.is_dir()
    owner.kill()
    sweep(tmp_path)
    assert names(tmp_path) == set()
    assert not owner.socket.parent.exists()


def test_a_link_to_what_is_not_of_this_kind_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root" / "dead").mkdir(parents=True)
    (tmp_path / "others").mkdir()
    (tmp_path / "root" / "dead" / "elsewhere").symlink_to(tmp_path / "others")
    sweep(tmp_path / "root")
    assert names(tmp_path) == {"root", "others"}
    assert names(tmp_path / "root") == set()


@pytest.mark.parametrize("before", [None, "/somewhere"])
def test_children_keep_their_files_there(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv("TMPDIR", raising=False)
    else:
        monkeypatch.setenv("TMPDIR", before)
    chosen = tempfile.gettempdir()
    mine = Scratch(tmp_path)
    with mine.for_children():
        program = "import tempfile; print(tempfile.gettempdir(), end='')"
        found = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        assert found == tempfile.gettempdir() == str(mine.path)
    assert tempfile.gettempdir() == chosen
    assert os.environ.get("TMPDIR") == before
    mine.close()


def test_a_copy_of_the_process_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Scratch(tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    mine.close()
    assert mine.path.exists()
