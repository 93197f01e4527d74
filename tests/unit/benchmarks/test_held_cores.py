"""Groups of processes that are held to a share of a core, in folders that stand for cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.held_cores import HeldGroup, HoldError, Spent, cores


def old_root(folder: Path) -> Path:
    """Make the folders of version 1, with the two controllers apart."""
    for name in ("cpu", "cpuacct"):
        (folder / name).mkdir()
    return folder


def new_root(folder: Path) -> Path:
    """Make the folder of version 2."""
    (folder / "cgroup.controllers").write_text("cpu memory\n")
    return folder


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_a_third_of_a_core_in_version_1(tmp_path: Path) -> None:
    root = old_root(tmp_path)
    group = HeldGroup("node", 0.33, root)
    assert lines(root / "cpu/node/cpu.cfs_period_us") == ["100000"]
    assert lines(root / "cpu/node/cpu.cfs_quota_us") == ["33000"]
    group.add([5, 7])
    for controller in ("cpu", "cpuacct"):
        assert lines(root / controller / "node/cgroup.procs") == ["5", "7"]
    (root / "cpu/node/cpu.stat").write_text(
        "nr_periods 40\nnr_throttled 10\nthrottled_time 670000000\n"
    )
    (root / "cpuacct/node/cpuacct.usage").write_text("1250000000\n")
    assert group.spent() == Spent(1.25, 40, 10)
    assert group.spent().since(Spent(1.0, 30, 8)) == Spent(0.25, 10, 2)
    group.release()
    assert lines(root / "cpu/node/cpu.cfs_quota_us")[-1] == "-1"


def test_a_third_of_a_core_in_version_2(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    group = HeldGroup("node", 0.33, root)
    assert lines(root / "cgroup.subtree_control") == ["+cpu"]
    assert lines(root / "node/cpu.max") == ["33000 100000"]
    group.add([5, 7])
    assert lines(root / "node/cgroup.procs") == ["5", "7"]
    (root / "node/cpu.stat").write_text(
        "usage_usec 1250000\nuser_usec 1000000\nnr_periods 40\nnr_throttled 10\n"
    )
    assert group.spent() == Spent(1.25, 40, 10)
    group.release()
    assert lines(root / "node/cpu.max")[-1] == "max 100000"


def test_a_process_comes_with_those_that_it_has_started(tmp_path: Path) -> None:
    root = old_root(tmp_path)
    HeldGroup("node", 1, root).add_tree(os.getpid())
    found = lines(root / "cpu/node/cgroup.procs")
    assert str(os.getpid()) in found
    assert len(found) == len(set(found))


def test_without_cgroups_nothing_can_be_held(tmp_path: Path) -> None:
    with pytest.raises(HoldError, match="leave out --node-core"):
        HeldGroup("node", 0.33, tmp_path)


def test_a_group_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    root = old_root(tmp_path)
    (root / "cpuacct").rmdir()
    with pytest.raises(HoldError, match="run as a user who may"):
        HeldGroup("node", 0.33, root)
    assert list((root / "cpu").iterdir()) == []


def test_a_group_without_files_is_removed(tmp_path: Path) -> None:
    root = old_root(tmp_path)
    group = HeldGroup("node", 0.33, root)
    for controller in ("cpu", "cpuacct"):
        for file in (root / controller / "node").iterdir():
            file.unlink()  # cgroups have no files of their own: they go with the folder
    group.remove()
    group.remove()
    assert [*(root / "cpu").iterdir(), *(root / "cpuacct").iterdir()] == []


def test_a_share_is_at_least_what_the_kernel_takes() -> None:
    assert cores("0.33") == 0.33
    for text in ("0", "-1", "nan", "third"):
        with pytest.raises(ValueError, match=text):
            cores(text)
