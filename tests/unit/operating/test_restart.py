"""``anabranch restart`` waits for the next run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.local import state_file
from anabranch.local.state_file import Deployment, ProcessRow
from anabranch.operating.restart import restart
from anabranch.protocol.errors import Unavailable


def write_state(state: Path, row: ProcessRow | None) -> None:
    state_file.write(
        state, Deployment(1, "p.yaml", "k:1", None, True, () if row is None else (row,))
    )


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals, which no process gets."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "anabranch.operating.restart.os.kill", lambda pid, number: sent.append((pid, number))
    )
    return sent


def test_it_ends_the_process_and_waits_until_another_is_ready(
    tmp_path: Path, sent: list[tuple[int, int]]
) -> None:
    write_state(tmp_path, ProcessRow("ingestion", "a", 7, state="running"))
    rows = [
        ProcessRow("ingestion", "a", None, state="restarting"),
        ProcessRow("ingestion", "a", 8, state="starting"),
        ProcessRow("ingestion", "a", 8, state="running"),
    ]

    class Clock(VirtualClock):
        """Clock that changes the supervisor's file while the command waits."""

        def sleep_ms(self, duration_ms: int) -> None:
            super().sleep_ms(duration_ms)
            write_state(tmp_path, rows.pop(0))

    clock = Clock()
    assert restart(tmp_path, "ingestion/a", clock) == 8
    assert sent == [(7, signal.SIGTERM)]


def test_a_process_that_does_not_become_ready_is_reported(
    tmp_path: Path, sent: list[tuple[int, int]]
) -> None:
    write_state(tmp_path, ProcessRow("ingestion", "a", 7, state="running"))
    with pytest.raises(
        Unavailable, match=r"ingestion/a is not ready after 2 s; see `anabranch logs ingestion/a`"
    ):
        restart(tmp_path, "ingestion/a", VirtualClock(), wait_ms=2_000)
    write_state(tmp_path, ProcessRow("ingestion", "a", None, state="failed"))
    with pytest.raises(Unavailable, match="does not run now"):
        restart(tmp_path, "ingestion/a", VirtualClock())
    assert len(sent) == 1
