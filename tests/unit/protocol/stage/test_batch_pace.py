"""How far apart batches are."""

from __future__ import annotations

from anabranch.protocol.stage.batch_pace import (
    APART_LEAST_MS,
    APART_MOST_MS,
    SMALL_BATCH_MS,
    pace_ms,
)


def test_bp1_there_is_a_least_and_a_most() -> None:
    assert pace_ms(0, 1) == APART_LEAST_MS
    assert pace_ms(1_000, 1) == APART_MOST_MS


def test_bp2_each_replica_more_than_there_are_cores_adds_a_batch() -> None:
    found = [pace_ms(replicas, 2) - APART_LEAST_MS for replicas in range(6)]
    assert found == [0, 0, 0, SMALL_BATCH_MS, 2 * SMALL_BATCH_MS, 3 * SMALL_BATCH_MS]
