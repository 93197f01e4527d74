"""Which rows of which query count as read; that Spark counts them so is shown on real Spark
(tests/conformance/test_engine.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.adapters.spark.rows_read import rows_read


class Node:
    """Leaf of a plan, and the number of rows that it gave."""

    def __init__(self, name: str, rows: int) -> None:
        self._name, self._rows = name, rows

    def nodeName(self) -> str:  # noqa: N802 - Spark's name
        return self._name

    def longMetric(self, name: str) -> Any:  # noqa: N802 - Spark's name
        assert name == "numOutputRows"
        return SimpleNamespace(value=lambda: self._rows)


def query(name: str, *nodes: Node) -> Any:
    leaves = SimpleNamespace(size=lambda: len(nodes), apply=lambda number: nodes[number])
    plan = SimpleNamespace(collectLeaves=lambda: leaves)
    execution = SimpleNamespace(executedPlan=lambda: plan)
    stream = SimpleNamespace(lastExecution=lambda: execution)
    return SimpleNamespace(name=name, _jsq=SimpleNamespace(streamingQuery=lambda: stream))


@pytest.mark.parametrize(("name", "inputs", "rows"), [("b", 2, 7), ("b", 1, None), ("c", 2, None)])
def test_the_rows_of_the_sources_of_the_named_query_count(
    name: str, inputs: int, rows: int | None
) -> None:
    two = Node("MicroBatchScan[x] Python", 3), Node("LocalTableScan", 90), Node("MicroBatchScan", 4)
    queries = [query("a", Node("MicroBatchScan", 1)), query("b", *two)]
    session = cast("Any", SimpleNamespace(streams=SimpleNamespace(active=queries)))
    assert rows_read(session, name, inputs) == rows
