from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo import process_tree
from demo.process_tree import (
    Process,
    TreeMeter,
    busy_s,
    descendants,
    find,
    is_running,
    proportional_bytes,
)
from harness.waiting import wait_until


def test_a_child_is_found_with_its_memory_until_it_ends() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    process = find(child.pid)
    assert process is not None
    tree = descendants(os.getpid())
    assert process in tree
    assert proportional_bytes({process}) > 100_000
    assert is_running(process)
    assert not is_running(Process(process.pid, process.started + 1)), (
        "another process with the same id"
    )
    child.communicate(b"\n", timeout=60)
    assert not is_running(process)


@pytest.mark.parametrize("sees_memory", [True, False])
def test_what_a_tree_took_counts_after_its_end(*, sees_memory: bool) -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        process = find(child.pid)
        assert child.stdout is not None
        child.stdout.readline()
        meter = TreeMeter(child.pid, sees_memory=sees_memory)
        meter.start()
        wait_until(
            lambda: meter.processor_s and (meter.peak_bytes or not sees_memory),
            60,
            "it was looked at",
        )
        child.communicate(b"\n", timeout=60)
    meter.stop()
    assert meter.seen == {process}
    assert 0.2 < meter.processor_s < 10
    assert (meter.peak_bytes > 100_000) == sees_memory


@pytest.mark.parametrize(("niceness", "ticks"), [(0, 61), (19, 63)])
def test_what_works_and_what_the_host_takes_is_busy(
    niceness: int, ticks: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a low priority is what yields, unless this process yields itself."""
    monkeypatch.setattr(process_tree, "_PROC", tmp_path)
    monkeypatch.setattr(os, "getpriority", lambda *_: niceness)
    assert busy_s() == 0
    fields = [1, 2, 4, 800, 1_600, 8, 16, 32, 6_400, 12_800]
    (tmp_path / "stat").write_text(f"cpu  {' '.join(map(str, fields))}\ncpu0 1 2\n")
    assert busy_s() == pytest.approx(ticks / os.sysconf("SC_CLK_TCK"))


def test_a_sample_in_which_a_process_ended_is_not_whole() -> None:
    meters = TreeMeter(os.getpid(), sees_memory=False)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        meters.start()
        wait_until(lambda: any(each.pid == child.pid for each in meters.seen), 60, "it is seen")
        wait_until(lambda: len(meters.spent) > 1, 60, "it ran between two samples")
        before = meters.spent.copy()
        child.communicate(b"\n", timeout=60)
    wait_until(lambda: not all(each.is_whole for each in meters.spent), 60, "its end is seen")
    meters.stop()
    assert all(each.is_whole for each in before)
    assert before[-1].own_s <= before[-1].busy_s
