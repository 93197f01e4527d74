"""Which query's watermark is set, and to what; the rest is shown on real Spark
(tests/spark/test_own_watermark.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.adapters.spark.own_watermark import watermark_of
from anabranch.protocol.errors import LocalProtocolError


class Query:
    """A running query, and what its watermark was set to."""

    def __init__(self, name: str | None) -> None:
        self.name, self.watermarks = name, list[int]()
        tracker = SimpleNamespace(setWatermark=self.watermarks.append)
        self._jsq = SimpleNamespace(
            streamingQuery=lambda: SimpleNamespace(watermarkTracker=lambda: tracker)
        )


def session(*queries: Query) -> Any:
    return cast("Any", SimpleNamespace(streams=SimpleNamespace(active=list(queries))))


def test_the_watermark_of_the_named_query_is_set_to_the_end_of_the_bucket() -> None:
    queries = [Query(None), Query("s.0 1-1"), Query("s.0 1-10")]
    set_watermark = watermark_of(session(*queries), "s.0 1-1", 250)
    set_watermark(4)
    set_watermark(4)
    set_watermark(7)
    assert [query.watermarks for query in queries] == [[], [1_000, 1_000, 1_750], []]


def test_a_query_that_does_not_run_is_an_error() -> None:
    with pytest.raises(LocalProtocolError, match=r"no query with the name s\.0 1-1"):
        watermark_of(session(Query("s.0 1-10")), "s.0 1-1", 250)
