"""The order in which a nemesis works, and what it does not do; what it does to real
processes is seen in `make chaos` and tests of the drills.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.local.child_process import ChildProcess
from anabranch.local.drill_links import Cut, Direction
from anabranch.protocol.errors import Unavailable
from chaos import nemesis as module
from chaos.nemesis import Nemesis
from chaos.schedule import Fault, Kind

CUT_S = 0.3


class _Recording(Nemesis):
    """Notes what it would do. Its clock is its own: what it waits for passes at once."""

    def __init__(
        self, folder: Path, faults: list[Fault], gone: str = "", until_s: float = 60.0
    ) -> None:
        super().__init__(folder, faults, folder / "faults.jsonl", lambda _: None, until_s)
        self.done: list[tuple[str, object]] = []
        self._gone = gone
        self._now_s = 0.0

    def play(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All of it, in this thread."""
        clock = SimpleNamespace(
            monotonic=lambda: self._now_s, time_ns=lambda: round(self._now_s * 1e9)
        )
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(self._stop_requested, "wait", self._pass)
        self.run()

    def _pass(self, wait_s: float) -> bool:
        self._now_s += wait_s
        return False

    def _cut(self, label: str, cut: Cut) -> None:
        """It takes a while: what is due meanwhile begins late."""
        self.done.append((label, cut))
        self._pass(CUT_S)

    def _drill(self) -> Any:
        return SimpleNamespace(
            cut=self._cut,
            heal=lambda label: self.done.append((label, "heal")),
            pause=lambda label: self.done.append((label, "pause")),
            resume=lambda label: self.done.append((label, "resume")),
            cuts=dict,
            labels=[],
        )

    def _when_it_runs(self, target: str, act: object) -> None:
        if target == self._gone:
            raise AssertionError(target)
        self.done.append((target, "runs"))


def test_faults_begin_in_their_order_last_as_long_as_planned_and_are_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [
        Fault(0, 0, Kind.CUT_TO, "a/a", 100),
        Fault(1, 50, Kind.PAUSE, "b/b", 200),
        Fault(2, 600, Kind.SLOW, "a/a", 100, 7),
        Fault(3, 900, Kind.KILL, "c/c"),
    ]
    nemesis = _Recording(tmp_path, faults)
    nemesis.play(monkeypatch)
    assert nemesis.error is None
    assert [done for done in nemesis.done if done[0] == "a/a"] == [
        ("a/a", Cut(Direction.TO)),
        ("a/a", "heal"),
        ("a/a", Cut(delay_ms=7)),
        ("a/a", "heal"),
    ]
    assert [done for done in nemesis.done if done[0] != "a/a"] == [
        ("b/b", "runs"),
        ("b/b", "resume"),
        ("c/c", "runs"),
    ]
    assert sorted(fault.number for fault in nemesis.injected) == [0, 1, 2, 3]
    assert all(
        fault.ended_ms - fault.begun_ms >= faults[fault.number].for_ms for fault in nemesis.injected
    ), "however late it began"
    journal = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert [entry["number"] for entry in journal if entry["what"] == "begins"] == [0, 1, 2, 3]
    assert sorted(entry["number"] for entry in journal if entry["what"] == "ends") == [0, 1, 2]


def test_what_is_not_there_is_left_out_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nemesis = _Recording(
        tmp_path,
        [Fault(0, 0, Kind.PAUSE, "gone/gone", 5), Fault(1, 1, Kind.KILL, "c/c")],
        gone="gone/gone",
    )
    nemesis.play(monkeypatch)
    assert [fault.number for fault in nemesis.left_out] == [0]
    assert [fault.number for fault in nemesis.injected] == [1]
    assert [fault.number for fault in nemesis.half_done] == [0], "it may have begun"
    assert nemesis.done == [("c/c", "runs")], "nothing is undone that was not done"


def test_what_would_begin_after_the_time_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nemesis = _Recording(
        tmp_path, [Fault(0, 0, Kind.KILL, "c/c"), Fault(1, 50, Kind.KILL, "c/c")], until_s=0.04
    )
    nemesis.play(monkeypatch)
    assert [fault.number for fault in nemesis.left_out] == [1]


def test_it_stops_when_told_to(tmp_path: Path) -> None:
    nemesis = _Recording(tmp_path, [Fault(0, 3_600_000, Kind.KILL, "c/c")])
    nemesis.start()
    nemesis.stop()
    assert not nemesis.is_alive()
    assert nemesis.done == []
    assert nemesis.name not in {thread.name for thread in threading.enumerate()}


class _OfOneReplica(Nemesis):
    """Each node runs the replica of its own name."""

    def _replicas_on(self, target: str) -> list[str]:
        return [target.partition("/")[2]]


def test_the_last_disk_is_not_lost(tmp_path: Path) -> None:
    nemesis = _OfOneReplica(tmp_path, [], tmp_path / "faults.jsonl", lambda _: None, 60.0)
    own, peer, other = (
        tmp_path / "processing" / name / "life-1" / "checkpoints" / "l" / "commits"
        for name in ("s.0", "s.1", "t.0")
    )
    for folder in (own, peer, other):
        folder.mkdir(parents=True)
    for folder in (own, other):
        (folder / "0").touch()
    with pytest.raises(Unavailable, match=r"no peer of s.0 has a checkpoint"):
        nemesis._reject_the_last_disk("processing/s.0")
    (peer / "3").touch()
    nemesis._reject_the_last_disk("processing/s.0")
    nemesis._lose_disk(Fault(0, 0, Kind.DISK, "processing/s.0"))
    nemesis._lose_disk(Fault(1, 0, Kind.DISK, "processing/s.0"))  # it is gone already
    assert not (tmp_path / "processing" / "s.0").exists()
    assert peer.exists()
    assert list((tmp_path / "lost").iterdir()) == []


class _Zombies(_Recording):
    """Its second copy is a program of this test's."""

    def __init__(self, folder: Path, script: str, *, is_ready: bool) -> None:
        super().__init__(folder, [Fault(0, 0, Kind.ZOMBIE, "ingestion/a", 10)])
        self._script = script
        self._is_ready = is_ready
        self._log = folder / "copy.log"

    def _replace(self, fault: Fault) -> None:
        self._copies[0] = (
            fault.target,
            ChildProcess([sys.executable, "-c", self._script], self._log),
        )

    def _await_copy(self, fault: Fault) -> bool:
        if self._is_ready:
            self._were_ready.add(fault.number)
            return True
        return super()._await_copy(fault)


@pytest.mark.parametrize(
    ("script", "is_ready", "broken", "counts"),
    [
        ("raise SystemExit(3)", True, "", True),
        ("raise SystemExit(1)", True, "was not fenced: it ended with 1", True),
        ("raise SystemExit(3)", False, "", False),
        ("raise SystemExit(1)", False, "", False),
    ],
    ids=["fenced", "ended otherwise", "ended before it was ready", "died at start"],
)
def test_only_a_second_copy_that_replaced_the_first_can_be_fenced(
    tmp_path: Path, script: str, is_ready: bool, broken: str, counts: bool
) -> None:
    nemesis = _Zombies(tmp_path, script, is_ready=is_ready)
    nemesis.run()
    nemesis.await_copies()
    assert [fault.number for fault in nemesis.injected] == ([0] if counts else [])
    assert [fault.number for fault in nemesis.left_out] == ([] if counts else [0])
    assert broken in " ".join(nemesis.broken) if broken else nemesis.broken == []
