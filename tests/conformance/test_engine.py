"""Conformance suite of ``Engine``: the simulation's, and Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from anabranch.codec.plan_offsets import Offset, position_of
from anabranch.ports import BatchDone, Clock
from anabranch.protocol.errors import DataMissing, StageFunctionError, Unavailable
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.planner import Plan
from anabranch.protocol.stage.replica import JointPlan
from harness.engines import WIDTH_MS, EngineRig, HandDriver, simulated, spark
from simulation.workload import Row


@pytest.fixture(
    scope="module", params=["simulated", pytest.param("spark", marks=pytest.mark.integration)]
)
def rig(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineRig]:
    folder = tmp_path_factory.mktemp("engine")
    if request.param == "simulated":
        with simulated(folder, "engine_simulated") as made:
            yield made
        return
    address: str = request.getfixturevalue("kafka")
    with spark(address, folder, "engine_spark") as made:
        yield made


def row(bucket: int, v: int, *, late_ms: int = 50, key: int = 1) -> Row:
    """Return a row of ``bucket``, so long before its end."""
    return (bucket * WIDTH_MS - late_ms, v, key, v)


def window(bucket: int, total: int, key: int = 1) -> tuple[int, int, int]:
    """Return the result of the window of two buckets that ends with ``bucket``."""
    return (bucket * WIDTH_MS, key, 1_000 + total)


def test_batches_run_in_order_and_each_gives_what_its_boundary_completes(rig: EngineRig) -> None:
    driver, done = HandDriver(rig.clock), list[BatchDone]()
    first = rig.plan(None, 11, row(10, 1), row(11, 2))
    second = rig.plan(first, 12, row(12, 4), row(12, 8, key=2))
    third = rig.plan(second, 20)
    for plan in (first, second, third, rig.plan(third, 22, row(21, 16))):
        driver.add(plan)
    query = rig.start("sums", driver, rig.name(), done=done.append)
    rig.until(lambda: len(done) == 4, query, "four batches")
    query.stop()
    assert driver.order == [
        f"{what} {plan}" for plan in (1, 2, 3, 4) for what in ("begin", "finish")
    ]
    assert [watermark for _, _, watermark in driver.begun] == [1_100, 1_200, 2_000, 2_200]
    made = {plan: rig.results("sums", parts) for plan, parts in driver.made.items()}
    assert made == {
        1: [window(10, 1)],
        2: [window(12, 6), window(12, 8, key=2)],
        3: [],
        4: [window(22, 16)],
    }
    assert [
        (
            each.batch,
            each.start.before.bucket,
            each.start.after.bucket,
            each.start.rows,
            each.rows_out,
        )
        for each in done
    ] == [
        (0, 0, 11, 2, 1),
        (1, 11, 12, 2, 2),
        (2, 12, 20, 0, 0),
        (3, 20, 22, 1, 1),
    ]


def test_no_row_above_the_boundary_before_is_late(rig: EngineRig) -> None:
    """In whatever order they come: the newest first, and one a millisecond above the boundary."""
    driver = HandDriver(rig.clock)
    first = rig.plan(None, 11, row(11, 1, late_ms=1))
    second = rig.plan(
        first, 14, row(14, 4), row(13, 8), row(12, 2, late_ms=WIDTH_MS - 1), row(12, 16, late_ms=1)
    )
    for plan in (first, second):
        driver.add(plan)
    query = rig.start("sums", driver, rig.name())
    rig.until(lambda: 2 in driver.made, query, "two batches")
    query.stop()
    assert rig.results("sums", driver.made[2]) == [window(12, 19), window(14, 12)]


def test_a_query_waits_for_its_plans(rig: EngineRig) -> None:
    driver = HandDriver(rig.clock)
    first = rig.plan(None, 11, row(11, 1))
    driver.add(first)
    query = rig.start("doubled", driver, rig.name())
    rig.until(lambda: 1 in driver.made, query, "a batch")
    rig.rest()
    assert not query.ended(1)
    assert driver.order == ["begin 1", "finish 1"]
    driver.add(rig.plan(first, 12, row(12, 2)))
    rig.until(lambda: 2 in driver.made, query, "the next batch")
    query.stop()
    assert rig.results("doubled", driver.made[2]) == [(1_150, 1, 5)]


class LedDriver(HandDriver):
    """Plans come between the questions of the two sources of one input: only the one that leads
    may take them.
    """

    def __init__(self, clock: Clock, plans: list[Plan]) -> None:
        super().__init__(clock)
        self._later, self._joint = plans, JointPlan()

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        """See the port."""
        position = position_of(start)
        if self._joint.known(position) is None:
            if not self._joint.leads(name, source):
                if self._later:
                    self.add(self._later.pop(0))
                return None
            if (plan := self._plans.get(position.sequence)) is None:
                return None
            self._joint.made(plan)
        return super().advance(query, name, start, source)


def test_the_sources_of_an_input_that_is_used_twice_take_the_same_plan(rig: EngineRig) -> None:
    first = rig.plan(None, 11, row(10, 1), row(11, 2))
    second = rig.plan(first, 12, row(12, 4))
    name, driver = rig.name(), LedDriver(rig.clock, [first, second])
    query = rig.start("paired", driver, name)
    rig.until(lambda: 2 in driver.made, query, "two batches")
    query.stop()
    assert set(driver.asked) == {0, 1}
    for _, offsets, _ in driver.begun:
        assert len(offsets) == 2
        assert offsets[0] == offsets[1]
    # Spark runs a batch of nothing where its first round of questions had no answer: plan 0
    assert [rig.results("paired", driver.made[plan]) for plan in (1, 2)] == [
        [(950, 1, 3), (1_050, 1, 5)],
        [(1_150, 1, 9)],
    ]
    dying = HandDriver(rig.clock, dies_at="begin 3")
    third = rig.plan(second, 13, row(13, 8))
    dying.add(third)
    query = rig.start("paired", dying, name)
    with pytest.raises(Unavailable, match="a crash at begin 3"):
        rig.until(lambda: False, query, "dead")
    query.stop()
    again = LedDriver(rig.clock, [rig.plan(third, 14, row(14, 16))])
    query = rig.start("paired", again, name)
    rig.until(lambda: 4 in again.made, query, "the logged batch and the next")
    query.stop()
    assert again.order[:2] == ["begin 3", "finish 3"]
    assert [rig.results("paired", again.made[plan]) for plan in (3, 4)] == [
        [(1_250, 1, 17)],
        [(1_350, 1, 33)],
    ]


@pytest.mark.parametrize("at", ["advance", "begin", "finish", "recorded"])
def test_after_a_crash_at_any_step_the_logged_plan_runs_again(rig: EngineRig, at: str) -> None:
    name, dying = rig.name(), HandDriver(rig.clock, dies_at=f"{at} 2")
    first = rig.plan(None, 11, row(10, 1), row(11, 2))
    second = rig.plan(first, 13, row(12, 4), row(13, 8))
    for plan in (first, second):
        dying.add(plan)
    query = rig.start("sums", dying, name)
    with pytest.raises(Unavailable, match=f"a crash at {at} 2"):
        rig.until(lambda: False, query, "dead")
    query.stop()
    assert dying.begun[-1][0] == (1 if at == "advance" else 2)

    again = HandDriver(rig.clock)
    for plan in (second, rig.plan(second, 14)):
        again.add(plan)
    query = rig.start("sums", again, name)
    rig.until(lambda: 3 in again.made, query, "the batches after the crash")
    query.stop()
    assert again.order[:2] == ["begin 2", "finish 2"]
    assert again.given_out == ([2, 3] if at == "advance" else [3]), (
        "what is logged is not asked for"
    )
    if at != "advance":
        assert again.begun[0] == dying.begun[-1]
    assert {plan: rig.results("sums", parts) for plan, parts in again.made.items()} == {
        2: [window(12, 6)],
        3: [window(14, 8)],
    }


@pytest.mark.parametrize("stage", ["doubled", "paired", "sums"])
def test_a_plan_that_keeps_a_part_of_the_rows_keeps_the_same_after_a_crash(
    rig: EngineRig, stage: str
) -> None:
    name, dying = rig.name(), HandDriver(rig.clock, dies_at="recorded 1")
    rows = [row(11 + v % 2, v, key=v % 10) for v in range(20, 60)]
    plan = replace(rig.plan(None, 12, *rows, kind=BoundaryKind.TENTATIVE), kept=400)
    dying.add(plan)
    query = rig.start(stage, dying, name)
    with pytest.raises(Unavailable, match="a crash at recorded 1"):
        rig.until(lambda: False, query, "dead")
    query.stop()

    again = HandDriver(rig.clock)
    again.add(replace(rig.plan(plan, 14, *rows[:0], kind=BoundaryKind.TENTATIVE), kept=800))
    query = rig.start(stage, again, name)
    rig.until(lambda: 2 in again.made, query, "the batches after the crash")
    query.stop()
    assert again.begun[0] == dying.begun[0]
    kept = rig.kept(stage, rows, 400)
    assert 0 < len(kept) < len(rows)
    if stage == "sums":
        keys = {key for _, _, key, _ in kept}
        assert len(kept) == 4 * len(keys), "all rows of a key"
        expected = [window(12, sum(v for *_, k, v in kept if k == key), key) for key in keys]
    else:
        expected = [(at, key, 2 * v + 1) for at, _, key, v in kept]
    for driver in (dying, again):
        assert rig.results(stage, driver.made[1]) == sorted(expected)
        assert driver.read[1] == (len(kept) if stage == "sums" else None)


def test_a_query_is_stopped_within_a_batch_and_goes_on(rig: EngineRig) -> None:
    name, first_driver = rig.name(), HandDriver(rig.clock, hold_ms=400)
    first = rig.plan(None, 12, row(11, 1))
    second = rig.plan(first, 14, row(13, 2))
    for plan in (first, second):
        first_driver.add(plan)
    query = rig.start("sums", first_driver, name)
    rig.until(lambda: first_driver.order, query, "begun")
    query.stop()
    query.stop()
    assert first_driver.order[:1] == ["begin 1"]

    next_driver = HandDriver(rig.clock)
    for plan in (first, second):
        next_driver.add(plan)
    query = rig.start("sums", next_driver, name)
    rig.until(lambda: 2 in next_driver.made or 2 in first_driver.made, query, "both batches")
    query.stop()
    made = first_driver.made | next_driver.made
    assert {plan: rig.results("sums", parts) for plan, parts in made.items()} == {
        1: [window(12, 1)],
        2: [window(14, 2)],
    }


def test_of_a_task_that_is_run_twice_the_parts_name_the_rows_once(rig: EngineRig) -> None:
    driver, values = HandDriver(rig.clock), range(20, 60)
    driver.add(rig.plan(None, 12, *(row(11 + v % 2, v) for v in values)))
    rig.fail_a_task()
    query = rig.start("doubled", driver, rig.name())
    rig.until(lambda: 1 in driver.made, query, "the batch")
    query.stop()
    assert Counter(v for _, _, v in rig.results("doubled", driver.made[1])) == Counter(
        2 * v + 1 for v in values
    )


def test_a_function_that_fails_is_named_as_the_cause(rig: EngineRig) -> None:
    driver = HandDriver(rig.clock)
    driver.add(rig.plan(None, 12, row(12, rig.fail_a_branch()), kind=BoundaryKind.TENTATIVE))
    query = rig.start("doubled", driver, rig.name())
    with pytest.raises(StageFunctionError):
        rig.until(lambda: False, query, "dead")
    query.stop()
    assert driver.made == {}


def test_input_that_is_gone_ends_the_query(rig: EngineRig) -> None:
    driver = HandDriver(rig.clock)
    driver.add(rig.plan(None, 12, row(12, 1)))
    rig.delete_input()
    query = rig.start("doubled", driver, rig.name())
    with pytest.raises(DataMissing):
        rig.until(lambda: False, query, "dead")
    query.stop()
    assert driver.made == {}


def test_only_the_buckets_that_are_wanted_are_written(rig: EngineRig) -> None:
    driver = HandDriver(rig.clock)
    driver.add(rig.plan(None, 14, row(11, 1), row(12, 2), row(13, 3)))
    query = rig.start("doubled", driver, rig.name(), only=frozenset({12}), in_place=False)
    rig.until(lambda: 1 in driver.made, query, "the batch")
    query.stop()
    assert [part.bucket for part in driver.made[1]] == [12]
    assert rig.results("doubled", driver.made[1]) == [(1_150, 1, 5)]


def test_what_is_not_written_has_the_same_digests(rig: EngineRig) -> None:
    made = []
    for is_written in (True, False):
        driver = HandDriver(rig.clock)
        driver.add(rig.plan(None, 14, row(11, 1), row(12, 2), row(13, 3)))
        before = rig.block_count("doubled")
        query = rig.start("doubled", driver, rig.name(), is_written=is_written, in_place=False)
        rig.until(lambda driver=driver: 1 in driver.made, query, "the batch")  # type: ignore[misc]
        query.stop()
        assert (rig.block_count("doubled") > before) is is_written
        made.append(sorted((part.bucket, part.rows, part.digest) for part in driver.made[1]))
    assert made[0] == made[1] != []


def test_queries_run_side_by_side(rig: EngineRig) -> None:
    """The stable query and a branch do so, each by its own plans and watermark."""
    drivers = [HandDriver(rig.clock), HandDriver(rig.clock)]
    for driver, v in zip(drivers, (1, 2), strict=True):
        driver.add(rig.plan(None, 10 + 2 * v, row(10 + 2 * v, v)))
    queries = [rig.start("sums", driver, rig.name()) for driver in drivers]
    for driver, query in zip(drivers, queries, strict=True):
        rig.until(lambda driver=driver: 1 in driver.made, query, "a batch")  # type: ignore[misc]
    for query in queries:
        query.stop()
    assert [rig.results("sums", driver.made[1]) for driver in drivers] == [
        [window(12, 1)],
        [window(14, 2)],
    ]
