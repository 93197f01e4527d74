"""Batch of a query: what it closes, and the rows with which it counts."""

from __future__ import annotations

import pytest

from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.planned_batch import PlannedBatch
from anabranch.protocol.stage.planner import QueryPosition

BEGIN, END = QueryPosition(3, 7_000, True), QueryPosition(4, 7_008, True)


def batch(before: QueryPosition = BEGIN, kept: int = KEPT_ALL) -> PlannedBatch:
    """Return a batch of 200 rows."""
    return PlannedBatch(BoundaryKind.TENTATIVE, before, END, 200, (), kept=kept)


def test_qb1_a_batch_closes_less_event_time_if_it_leaves_out_rows() -> None:
    assert batch().closes_ms(250) == 2_000
    assert batch(kept=100).closes_ms(250) == 200


def test_qb1_the_first_batch_of_a_stream_is_not_measured() -> None:
    assert batch(QueryPosition(2)).closes_ms(250) == 0


@pytest.mark.parametrize(
    ("kept", "counted", "rows"),
    [
        (KEPT_ALL, None, 200),
        (100, None, 20),
        (100, 150, 150),  # one key has most of the rows
        (100, 0, 0),
        (100, 320, 200),  # as a shard estimates them
    ],
)
def test_qb2_a_batch_counts_with_the_rows_that_it_processed(
    kept: int, counted: int | None, rows: int
) -> None:
    assert batch(kept=kept).rows_processed(counted) == rows
