"""The watch over the machine, with planted stalls."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo import machine_watch
from demo.machine_watch import MachineWatch, pressure_s
from demo.process_tree import TreeMeter
from demo.stalls import LATE_MS, Spent, Stall
from harness.waiting import wait_until


def test_a_clock_that_jumps_is_a_stall() -> None:
    """Every other reading is that of a wake-up, and one of these is late."""
    readings = [0, 20, 1_000, 1_025, 2_000, 3_400, 4_000, 4_000 + 20 + LATE_MS - 1]
    watch = MachineWatch(TreeMeter(os.getpid()), lambda: readings.pop(0) if readings else 9_000)
    watch.start()
    wait_until(lambda: not readings, 30, "all were read")
    watch.stop()
    assert watch.stalls() == [Stall(2_020, 3_400)]


def test_what_others_had_is_a_stall_too() -> None:
    meter = TreeMeter(os.getpid())
    processors = os.cpu_count() or 1
    meter.spent += [
        Spent(1_000, 10.0, 5.0),
        Spent(2_000, 10.0 + processors, 5.0 + processors),
        Spent(3_000, 10.0 + 2 * processors, 5.0 + processors),
    ]
    assert MachineWatch(meter).stalls() == [Stall(2_000, 3_000)]


_WATCHES = """
import os, sys
from demo.machine_watch import MachineWatch
from demo.process_tree import TreeMeter
watch = MachineWatch(TreeMeter(os.getpid()))
watch.start()
print("watches", flush=True)
input()
watch.stop()
print(max((stall.length_ms for stall in watch.stalls()), default=0))
"""


def test_a_process_that_is_stopped_sees_that_it_was() -> None:
    """The whole process stands still, as it does with its machine."""
    stopped_ms = 5 * LATE_MS
    with subprocess.Popen(
        [sys.executable, "-c", _WATCHES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        begun_s = time.monotonic()
        wait_until(lambda: time.monotonic() - begun_s > stopped_ms / 1_000, 30, "it was stopped")
        process.send_signal(signal.SIGCONT)
        longest_ms = int(process.communicate("\n", timeout=60)[0])
    assert longest_ms >= stopped_ms - 2 * LATE_MS


def test_pressure_is_told_where_the_system_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_watch, "_PRESSURE", tmp_path)
    assert pressure_s() == {}
    watch = MachineWatch(TreeMeter(os.getpid()))
    (tmp_path / "cpu").write_text("some avg10=1.00 avg60=0 avg300=0 total=2500000\nfull total=7\n")
    assert pressure_s() == {"cpu": 2.5}
    assert watch.pressure() == {}, "it was not known at the beginning"
    again = MachineWatch(TreeMeter(os.getpid()))
    assert again.pressure() == {"cpu": 0.0}
