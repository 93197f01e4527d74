"""Alarm for floats that differ between two replicas, raised once, on a log in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.codec.blocks import schema_from_text, schema_text
from anabranch.consistency_manager import float_audit
from anabranch.consistency_manager.float_audit import FLOAT_SAMPLE_EVERY_MS
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.process.threads import OwnThreads
from anabranch.protocol.control.records import Alarm
from harness.control_topics import alarms
from harness.manager_world import ManagerWorld
from harness.outputs import Replica, rows
from harness.waiting import wait_until


def other_means(table: pa.Table, by: float) -> pa.Table:
    return table.set_column(
        table.schema.get_field_index("mean"), "mean", pc.multiply(table.column("mean"), by)
    )


class World(ManagerWorld):
    """Two replicas whose stream has a column of floats."""

    def __init__(self) -> None:
        super().__init__()
        columns = schema_text(rows(1, 1).schema)
        self.replicas = [
            Replica(self.log, self.pipeline, self.clock, SeededEntropy(n), str(n), schema=columns)
            for n in (0, 1)
        ]
        self.watching = self.manager()

    def close_bucket(self, bucket: int, by: float) -> None:
        """Close a bucket by both replicas; the means of the second one are ``by`` times those of
        the first.
        """
        self.replicas[0].close_buckets(bucket, {bucket: rows(bucket, 8)})
        self.replicas[1].close_buckets(bucket, {bucket: other_means(rows(bucket, 8), by)})
        self.clock.advance(FLOAT_SAMPLE_EVERY_MS)
        before = self.compared()
        self.watching.step()
        wait_until(lambda: self.compared() > before, 30, "the sample is compared")
        wait_until(lambda: not self.watching._floats._is_busy(), 30, "the thread has ended")
        self.watching.step()

    def compared(self) -> float:
        return float(self.watching._floats._compared.labels("p", "totals")._value.get())

    def alarms(self) -> list[Alarm]:
        return alarms(self.log, self.pipeline)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.watching.stop()


def test_what_the_order_of_additions_changes_is_no_alarm(world: World) -> None:
    world.close_bucket(1, 1 + 1e-13)
    world.close_bucket(2, 1)
    assert world.alarms() == []


def test_a_difference_is_one_alarm_that_names_it(world: World) -> None:
    world.close_bucket(1, 1 + 1e-5)
    wait_until(lambda: (world.watching.step(), world.alarms())[1], 30, "it is told")  # type: ignore[func-returns-value]
    (alarm,) = world.alarms()
    assert (alarm.kind, alarm.stream, alarm.bucket) == ("float_mismatch", "totals", 1)
    assert alarm.text.startswith(
        "replicas 0 and 1 of totals differ in bucket 1, column mean: 7 of 8 rows, by up to 1e-05 of"
        " the larger number"
    )
    world.replicas[0].close_buckets(2, {2: rows(2, 8)})
    world.replicas[1].close_buckets(2, {2: other_means(rows(2, 8), 2.0)})
    world.clock.advance(FLOAT_SAMPLE_EVERY_MS)
    before = world.watching._floats._thread
    world.watching.step()
    assert world.watching._floats._thread is before, "the pair is known to differ"


@pytest.mark.parametrize(("by", "alarms"), [(1, 0), (2, 1)])
def test_a_bucket_that_two_versions_have_given_rows_is_compared_by_columns(
    world: World, by: float, alarms: int
) -> None:
    """A function that got a column may find a row of the version before in a later bucket."""
    before = rows(2, 8).drop_columns("road")
    for replica in world.replicas:
        replica.close_buckets(1, {1: rows(1, 8), 2: before})
    world.close_bucket(2, by)
    assert len(world.alarms()) == alarms


def test_the_threads_are_those_of_the_process_and_end_with_their_comparison(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, begin = list[str](), OwnThreads.begin

    def noted(self: OwnThreads, name: str, work: Callable[[], None]) -> threading.Thread:
        begun.append(name)
        return begin(self, name, work)

    monkeypatch.setattr(OwnThreads, "begin", noted)
    world.close_bucket(1, 1)
    world.close_bucket(2, 1)
    assert begun == ["compare floats", "compare floats"]


def test_a_comparison_that_outlives_the_manager_closes_its_readers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_closed, compared = threading.Event(), threading.Event()

    def slow(*_: object) -> str:
        compared.set()
        is_closed.wait(30)
        return ""

    monkeypatch.setattr("anabranch.consistency_manager.float_audit.float_difference", slow)
    for replica in world.replicas:
        replica.close_buckets(1, {1: rows(1, 8)})
    floats = world.watching._floats
    world.watching.step()
    assert compared.wait(30)
    floats.close()
    assert floats._readers
    is_closed.set()
    wait_until(lambda: not floats._is_busy(), 30, "the thread has ended")
    assert floats._readers == {}


def test_an_error_of_the_thread_ends_the_manager(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr("anabranch.consistency_manager.float_audit.float_difference", broken)
    world.replicas[0].close_buckets(1, {1: rows(1, 8)})
    world.replicas[1].close_buckets(1, {1: rows(1, 8)})
    world.watching.step()
    wait_until(lambda: world.watching._floats._error is not None, 30, "the thread has ended")
    with pytest.raises(ZeroDivisionError):
        world.watching.step()


def test_a_stream_without_floats_starts_no_thread_and_is_looked_at_as_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, looks = ManagerWorld(), list[str]()

    def counted(text: str) -> pa.Schema:
        looks.append(text)
        return schema_from_text(text)

    monkeypatch.setattr(float_audit, "schema_from_text", counted)
    watching: ConsistencyManager = plain.manager()
    columns = schema_text(rows(1, 1).drop_columns("mean").schema)
    replicas = [
        Replica(plain.log, plain.pipeline, plain.clock, SeededEntropy(n), str(n), schema=columns)
        for n in (0, 1)
    ]
    for bucket in range(1, 6):
        for replica in replicas:
            replica.close_buckets(bucket, {bucket: rows(bucket, 8).drop_columns("mean")})
        watching.step()
    assert watching._floats._thread is None
    assert len(looks) == 1
    plain.clock.advance(FLOAT_SAMPLE_EVERY_MS)
    replicas[0].close_buckets(6, {})
    replicas[1].close_buckets(6, {})
    watching.step()
    assert len(looks) == 2
