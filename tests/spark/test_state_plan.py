"""Tests of what real Spark says of the operators that hold state: what counts, and what
does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from anabranch.adapters.spark.plan_facts import OBSERVED
from anabranch.adapters.spark.session import session_beside
from anabranch.adapters.spark.state_plan import stateful_operators
from anabranch.protocol.log.stateful_plan import StatefulPlan, difference
from anabranch.stateful import BatchSafeProcessor, Timers, transform

pytestmark = pytest.mark.integration

WINDOWS = (
    "SELECT sensor, count(*) n, max(celsius) c, window.end event_time FROM s WHERE room > 3"
    " GROUP BY window(event_time, '10 seconds'), sensor"
)
HOPS = WINDOWS.replace("'10 seconds'", "'10 seconds', '5 seconds'")
SESSIONS = (
    "SELECT sensor, sum(celsius) c, session_window.end event_time FROM s"
    " GROUP BY session_window(event_time, '10 seconds'), sensor"
)
JOIN = (
    "SELECT s.sensor, r.celsius, s.event_time FROM s JOIN r ON s.sensor = r.sensor"
    " AND r.event_time BETWEEN s.event_time AND s.event_time + INTERVAL 10 SECONDS"
)
OUTER = JOIN.replace(" JOIN", " LEFT JOIN")
DISTINCT = "SELECT DISTINCT sensor, room, event_time FROM s"
UNION = (
    "SELECT sensor, count(*) n, window.end event_time FROM"
    " (SELECT sensor, event_time FROM s UNION ALL SELECT sensor, event_time FROM r)"
    " GROUP BY window(event_time, '10 seconds'), sensor"
)
EACH = (
    "SELECT x, count(*) n, window.end event_time FROM (SELECT explode(many) x, event_time FROM s)"
    " GROUP BY window(event_time, '1 day'), x"
)
OF_COUNTS = (
    "SELECT window.end event_time, max(n) FROM (SELECT sensor, count(*) n, window FROM s"
    " GROUP BY window(event_time, '10 seconds'), sensor) GROUP BY window"
)
ONE_OF_TWO = (
    "SELECT a, window.end event_time FROM (SELECT min(celsius) a, min(room) b, window FROM s"
    " GROUP BY window(event_time, '10 seconds'))"
)
"""Spark keeps what is needed, and finds it by its position."""


ONE_OF_MANY = WINDOWS.replace("room > 3", f"room IN ({', '.join(map(str, range(20)))})")
"""Filter with more than ten values, which Spark turns into a set."""
ABOVE_STATIC = WINDOWS.replace("room > 3", "room > (SELECT max(id) FROM t WHERE id > 1)")


@pytest.fixture(scope="module")
def first() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    yield session
    session.stop()


def read(session: SparkSession, name: str, more: str = "0 AS unused") -> DataFrame:
    frame = session.readStream.format("rate").load()
    frame = frame.selectExpr(
        more,
        "timestamp AS event_time",
        "string(value) AS sensor",
        "int(value) AS celsius",
        "int(value) AS room",
        "array(value) AS many",
    )
    observed = F.count(F.lit(1)).alias("rows")
    return frame.withWatermark("event_time", "0 seconds").observe(OBSERVED + name, observed)


def plan(session: SparkSession, query: str | Callable[[DataFrame], DataFrame]) -> StatefulPlan:
    """In a session of its own, as each prepared stage has."""
    beside = session_beside(session)
    frames = {name: read(beside, name) for name in ("s", "r")}
    if not isinstance(query, str):
        return plan_of(query(frames["s"]))
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    beside.range(9).createOrReplaceTempView("t")
    return plan_of(beside.sql(query))


def plan_of(frame: DataFrame) -> StatefulPlan:
    operators = stateful_operators(frame)
    assert operators is not None, "it can be read"
    return StatefulPlan(operators)


def deduplicated(*columns: str) -> Callable[[DataFrame], DataFrame]:
    return lambda s: s.dropDuplicates(list(columns))


def add(value: int) -> int:
    """Add a number. The function's text counts."""
    return value + 1


def fed_by(function: Callable[[int], int]) -> Callable[[DataFrame], DataFrame]:
    def built(s: DataFrame) -> DataFrame:
        made = F.udf(function, "int", useArrow=False)
        return s.groupBy(F.window("event_time", "10 seconds")).agg(F.max(made("celsius")))

    return built


def scaled_by(factor: int) -> Callable[[int], int]:
    return lambda value: value * factor


def observed(s: DataFrame) -> DataFrame:
    """Has a metric of its own in front of the state."""
    seen = s.where("room > 3").observe("seen", F.count("*").alias("n"))
    return seen.groupBy(F.window("event_time", "10 seconds")).agg(F.max("celsius"))


def higher_order(s: DataFrame) -> DataFrame:
    doubled = F.transform("many", lambda each: each * 2)
    return s.groupBy(F.window("event_time", "10 seconds")).agg(F.max(doubled[0]))


def add_with_comment(value: int) -> int:
    """Say the same otherwise."""
    # No matter.
    return value + 1


class Counts(BatchSafeProcessor):
    state_schema = "n BIGINT"

    def __init__(self, step: int = 1) -> None:
        self.step = step

    def row(
        self, key: tuple[object, ...], row: Row, state: tuple[int, ...] | None, timers: Timers
    ) -> tuple[tuple[int, ...] | None, list[Row]]:
        del key, row, timers
        return ((state or (0,))[0] + self.step,), []


class OtherCounts(Counts):
    state_schema = "n INT"


class Versioned(Counts):
    state_version = 3


class VersionedLater(Versioned):
    state_schema = "n INT"


def processed(
    processor: BatchSafeProcessor, *keys: str, out: str = "n BIGINT"
) -> Callable[[DataFrame], DataFrame]:
    return lambda s: transform(s, list(keys), processor, f"{out}, event_time TIMESTAMP")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (WINDOWS, "window(s.event_time, 10 seconds)"),
        (HOPS, "window(s.event_time, 10 seconds, 5 seconds)"),
        (WINDOWS.replace("seconds'", "seconds', '10 seconds', '2 seconds'"), "10 seconds, 2 sec"),
        (SESSIONS, "session_window(s.event_time, 10 seconds)"),
        (JOIN, "inner join"),
        (OUTER, "leftouter join"),
        (DISTINCT, "'s.sensor', 's.room'"),
        (UNION, "rows of s"),
        (deduplicated("sensor", "event_time"), "deduplicate"),
        (lambda s: s.dropDuplicatesWithinWatermark(["sensor"]), "within watermark"),
        (processed(Counts(), "sensor"), "Counts"),
        (EACH, "window(s.event_time, 1 day)"),
        (OF_COUNTS, "max(count(1))"),
    ],
)
def test_two_sessions_describe_a_function_alike_and_as_people_wrote_it(
    first: SparkSession, query: str | Callable[[DataFrame], DataFrame], told: str
) -> None:
    found = plan(first, query)
    assert told in str(found)
    assert plan(first, query) == found
    assert "#" not in str(found), "no number of Spark's"


@pytest.mark.parametrize(
    ("query", "other"),
    [
        (WINDOWS, WINDOWS.replace("10 seconds", "1 minute")),
        (WINDOWS, HOPS),
        (HOPS, HOPS.replace("5 seconds", "2 seconds")),
        (WINDOWS, WINDOWS.replace("max(", "min(")),
        (WINDOWS, WINDOWS.replace("max(celsius)", "max(room)")),
        (WINDOWS, WINDOWS.replace("max(celsius)", "max(celsius) FILTER (WHERE room > 1)")),
        (WINDOWS, WINDOWS.replace(", sensor", ", room").replace("sensor,", "room,")),
        (WINDOWS, WINDOWS.replace("room > 3", "room > 4")),
        (WINDOWS, WINDOWS.replace(" WHERE room > 3", "")),
        (WINDOWS, WINDOWS + " HAVING sensor = 'a'"),
        (WINDOWS, f"SELECT sensor, c, n, event_time FROM ({WINDOWS})"),  # Spark keeps them in order
        (ONE_OF_TWO, ONE_OF_TWO.replace("SELECT a", "SELECT b")),
        (SESSIONS, SESSIONS.replace("10 seconds", "1 minute")),
        (JOIN, JOIN.replace("10 SECONDS", "20 SECONDS")),
        (JOIN, JOIN.replace("s.sensor = r.sensor", "s.celsius = r.celsius")),
        (JOIN, JOIN.replace("r.celsius,", "r.room,")),
        (JOIN, OUTER),
        (DISTINCT, DISTINCT.replace("room", "celsius")),
        (UNION, UNION.replace("FROM r", "FROM r WHERE room > 3")),
        (deduplicated("sensor", "event_time"), deduplicated("room", "event_time")),
        (deduplicated("sensor", "event_time"), deduplicated("sensor", "room", "event_time")),
        (fed_by(add), fed_by(lambda value: value + 2)),
        (fed_by(scaled_by(2)), fed_by(scaled_by(3))),
        (ONE_OF_MANY, ONE_OF_MANY.replace("19)", "20)")),
        (ABOVE_STATIC, ABOVE_STATIC.replace("max(id)", "min(id)")),
        (ABOVE_STATIC, ABOVE_STATIC.replace("id > 1", "id > 2")),
        (observed, lambda s: observed(s.where("room > 4"))),
        (processed(Counts(), "sensor"), processed(OtherCounts(), "sensor")),
        (processed(Counts(), "sensor"), processed(Counts(2), "sensor")),
        (processed(Counts(), "sensor"), processed(Counts(), "room")),
        (processed(Counts(), "sensor"), processed(Counts(), "sensor", "room")),
    ],
)
def test_what_changes_the_meaning_of_the_state_differs(
    first: SparkSession,
    query: str | Callable[[DataFrame], DataFrame],
    other: str | Callable[[DataFrame], DataFrame],
) -> None:
    assert difference(plan(first, query), plan(first, other))


@pytest.mark.parametrize(
    ("query", "other"),
    [
        (ABOVE_STATIC, ABOVE_STATIC.replace("FROM t", "FROM t AS u")),
        (ONE_OF_MANY, ONE_OF_MANY.replace("FROM s", "FROM s AS t")),
        (WINDOWS, WINDOWS.replace(" c,", " hottest,").replace(" n,", " m,")),
        (WINDOWS, WINDOWS.replace("max(celsius)", "max(celsius) * 9 / 5 + 32")),
        (WINDOWS, WINDOWS + " HAVING max(celsius) > 3"),
        (WINDOWS, f"SELECT * FROM ({WINDOWS}) WHERE n > 3"),
        (WINDOWS, f"WITH w AS ({WINDOWS}) SELECT sensor, n, c, event_time FROM w"),
        (
            WINDOWS,
            WINDOWS.replace(
                "FROM s", "FROM (SELECT celsius, sensor, room, event_time, many FROM s) AS a"
            ),
        ),
        (
            WINDOWS,
            WINDOWS.replace("max(celsius)", "max(t)").replace(
                "FROM s", "FROM (SELECT celsius AS t, sensor, room, event_time FROM s)"
            ),
        ),
        (
            WINDOWS.replace("room > 3", "room > 3 AND celsius < 9"),
            WINDOWS.replace("room > 3", "celsius < 9 AND room > 3"),
        ),
        (JOIN, JOIN.replace("s.sensor = r.sensor", "r.sensor = s.sensor")),
        (JOIN, f"SELECT sensor, celsius + 1 c, event_time FROM ({JOIN})"),
        (
            deduplicated("sensor", "event_time"),
            lambda s: s.dropDuplicates(["sensor", "event_time"]).where("room > 3"),
        ),
        (processed(Counts(), "sensor"), processed(Counts(), "sensor", out="m BIGINT")),
        (observed, lambda s: observed(s.repartition(3, "sensor").repartition(2))),
        (observed, lambda s: observed(s.observe("another", F.count("*").alias("n")))),
        (higher_order, higher_order),  # Spark numbers the variable of each lambda
    ],
)
def test_what_does_not_change_it_does_not(
    first: SparkSession,
    query: str | Callable[[DataFrame], DataFrame],
    other: str | Callable[[DataFrame], DataFrame],
) -> None:
    assert difference(plan(first, query), plan(first, other)) == ""


def test_comments_do_not_count_and_a_version_stands_for_the_source(first: SparkSession) -> None:
    add_with_comment.__name__ = "add"
    kept, said = plan(first, fed_by(add)), plan(first, fed_by(add_with_comment))
    assert difference(kept, said).replace("add_with_comment", "add") == difference(kept, said)
    VersionedLater.__name__ = "Versioned"
    versions = [plan(first, processed(each(), "sensor")) for each in (Versioned, VersionedLater)]
    assert difference(*versions) == ""


def test_another_column_of_an_input_that_is_not_used_does_not_count(first: SparkSession) -> None:
    plans = []
    for more in ("0 AS unused", "named_struct('a', 1) AS another"):
        beside = session_beside(first)
        read(beside, "s", more).createOrReplaceTempView("s")
        plans.append(stateful_operators(beside.sql(WINDOWS)))
    assert plans[0] == plans[1]
