"""``anabranch tap`` on a log in memory."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from anabranch.client.history import TABLE_BYTES_MAX, Span, joined
from anabranch.operating.tap import lines_of, open_tap, queried
from anabranch.protocol.errors import ConfigurationError
from harness.output_world import World
from harness.outputs import STAGE, WIDTH_MS


@pytest.fixture
def world() -> World:
    made = World(shards=1)
    made.feed(4, {1: 3, 3: 3})
    return made


def values(world: World, from_ms: int | None = None, to_ms: int | None = None) -> list[int]:
    tables = open_tap(world.log, world.pipeline, STAGE, from_ms, to_ms)[1]
    return sorted(json.loads(line)["total"] for line in lines_of(tables))


def test_each_row_is_a_line_with_its_time(world: World) -> None:
    there, tables = open_tap(world.log, world.pipeline, STAGE, None, None)
    assert there == Span(0, 4 * WIDTH_MS)
    first = json.loads(next(lines_of(tables)))
    assert first.keys() == {"car", "road", "total", "mean", "event_time"}
    assert first["event_time"].startswith("1970-01-01T00:00:00.0")
    assert first["event_time"].endswith("Z")


def test_both_ends_of_the_time_are_included(world: World) -> None:
    """Bucket 3 has rows at 201, 202 and 203 ms."""
    assert values(world) == [1_000_000, 1_000_001, 1_000_002, 3_000_000, 3_000_001, 3_000_002]
    assert values(world, 202) == [3_000_001, 3_000_002]
    assert values(world, None, 202) == [1_000_000, 1_000_001, 1_000_002, 3_000_000, 3_000_001]
    assert values(world, 202, 202) == [3_000_001]
    assert values(world, 301) == []


def test_a_query_sees_the_rows_as_a_table_of_the_streams_name(world: World) -> None:
    table = joined(STAGE, open_tap(world.log, world.pipeline, STAGE, None, None)[1])
    found = queried(STAGE, table, "SELECT car, count(*) AS n FROM totals GROUP BY car ORDER BY car")
    assert [json.loads(line) for line in lines_of(iter([found]))] == [
        {"car": 0, "n": 2},
        {"car": 1, "n": 2},
        {"car": 2, "n": 2},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DROP TABLE totals", "only queries are possible"),
        ("SELECT nothing FROM totals", "nothing"),
        ("SELECT FROM FROM", "--sql SELECT FROM FROM: "),
    ],
)
def test_what_is_no_query_is_refused(world: World, text: str, message: str) -> None:
    table = joined(STAGE, open_tap(world.log, world.pipeline, STAGE, None, None)[1])
    with pytest.raises(ConfigurationError, match=message):
        queried(STAGE, table, text)


def test_a_column_that_has_changed_its_type_is_named() -> None:
    """A new version of a stage may give it another one."""
    tables = [pa.table({"total": [1]}), pa.table({"total": [1.5]})]
    with pytest.raises(ConfigurationError, match=r"of totals have changed .*Field total .*a time"):
        joined(STAGE, iter(tables))


def test_a_table_has_a_largest_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.client.history.TABLE_BYTES_MAX", 100)
    with pytest.raises(ConfigurationError, match="name a shorter time"):
        joined(STAGE, open_tap(world.log, world.pipeline, STAGE, None, None)[1])
    assert TABLE_BYTES_MAX > 100


def test_a_pipeline_that_has_not_run_on_this_broker(world: World) -> None:
    elsewhere = world.pipeline.model_copy(update={"name": "other"})
    with pytest.raises(ConfigurationError, match="pipeline other has not run there"):
        open_tap(world.log, elsewhere, STAGE, None, None)
