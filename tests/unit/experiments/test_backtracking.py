"""Figures of a receiver that was killed, from what it noted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from experiments.backtracking.disciplines import Received, read_received
from experiments.backtracking.figures import figures, latencies_ms, table

BEGIN_S = 1_000.0


def batch(first: int, rows: int, late_ms: float, rate: int = 10) -> Received:
    """Received ``late_ms`` after its last tuple was due."""
    return Received(
        round((BEGIN_S + (first + rows - 1) / rate) * 1e6 + late_ms * 1000), first, rows
    )


def test_latency_is_counted_from_when_a_tuple_was_due() -> None:
    assert latencies_ms([batch(0, 2, 5)], BEGIN_S, 10) == pytest.approx([105, 5])
    assert len(latencies_ms([], BEGIN_S, 10)) == 0


def test_what_was_lost_repeated_and_late_is_seen() -> None:
    received = [
        batch(0, 10, 5),
        batch(10, 10, 5),
        batch(25, 5, 900),
        batch(25, 5, 950),
        batch(30, 10, 5),
    ]
    found = figures(
        "ask",
        received,
        begin_s=BEGIN_S,
        rate=10,
        warm_s=BEGIN_S,
        killed_s=BEGIN_S + 2,
        sent=40,
        repeated=1,
    )
    assert (found.lost, found.twice, found.repeated) == (5, 5, 1)
    assert found.throughput == 10
    assert found.p50_ms == pytest.approx(455)
    assert found.first_s == pytest.approx(1.8)
    assert found.caught_up_s == pytest.approx(1.905)


def test_a_receiver_that_never_came_back() -> None:
    found = figures(
        "none",
        [],
        begin_s=BEGIN_S,
        rate=10,
        warm_s=BEGIN_S,
        killed_s=BEGIN_S + 2,
        sent=4,
        repeated=0,
    )
    assert found.lost == 4
    assert math.isnan(found.first_s)
    assert table([found]).splitlines()[-1] == "| 10 | none | 0 | - | - | - | - | - | 4 | 0 |"


def test_an_entry_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "received"
    path.write_bytes(bytes(23) + b"\x01" + bytes(7))
    assert read_received(path) == [Received(0, 0, 1 << 56)]
