"""The run of Nexmark: its command line, the pipeline files, the table and the page."""

from __future__ import annotations

import re

import pytest

from benchmarks.nexmark import flink_queries, plain_queries
from benchmarks.nexmark.generator import Plan, generate
from benchmarks.nexmark.oracle import ORACLES
from benchmarks.nexmark.queries import path_of


def test_each_system_has_each_query() -> None:
    assert plain_queries.QUERIES.keys() == flink_queries.QUERIES.keys() == ORACLES.keys()


@pytest.mark.parametrize("query", ORACLES)
def test_the_answers_have_the_columns_of_the_oracle(query: str) -> None:
    columns = flink_queries.QUERIES[query][0].replace("`", "")
    named = [each.split()[0] for each in columns.split(", ")]
    right = ORACLES[query](generate(Plan(5_000, 0)))
    assert named == right.columns


@pytest.mark.parametrize("query", ORACLES)
def test_a_join_in_time_is_wide_enough_for_the_stream(query: str) -> None:
    bound = re.findall(
        r"event_time \+ INTERVAL (\d+) SECONDS$", path_of(query).read_text(), re.MULTILINE
    )
    assert all(int(s) * 1_000 >= Plan(1, 0).longest_auction_ms for s in bound)
    assert bool(bound) == (query == "q4")
