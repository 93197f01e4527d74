from __future__ import annotations

import os
import subprocess
import sys

import pytest

from demo.process_tree import (
    Process,
    TreeMeter,
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
