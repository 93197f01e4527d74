"""The ingestion service in a backlog: the next round is read while the one before is written.

Each fetch of ten records is a backlog here.
"""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.adapters.memory.log import FailingOperation
from anabranch.ingestion.service import IngestionService
from anabranch.pipeline.model import IdleTimeout
from anabranch.protocol.edge import source_batches
from anabranch.protocol.errors import Fenced, Unavailable
from harness.source_world import World
from harness.sources import everything, report


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_batches, "SOURCE_BATCH_RECORDS", 10)
    monkeypatch.setattr(source_batches, "BACKLOG_RECORDS", 10)


def backlog(records: int = 57) -> World:
    world = World(1, bounded=True)
    world.produce(0, *(b"bad" if i % 9 == 5 else report(1_000 + 20 * i, i) for i in range(records)))
    return world


def check(world: World, process: IngestionService, records: int = 57) -> None:
    """All is there once; dead letters at least once."""
    bad = {i for i in range(records) if i % 9 == 5}
    last = max(i for i in range(records) if i not in bad)
    end = -(-(1_000 + 20 * last) // 100)
    world.run(process, lambda: world.view.closed() == end)
    assert world.view.cars() == [i for i in range(records) if i not in bad]
    assert len(world.dead()) >= len(bad)
    assert set(world.dead()) == {(b"bad", "not_json")}


def test_blocks_of_a_round_and_the_record_of_the_one_before_are_under_way() -> None:
    world = backlog()
    process = world.process()
    process.step()
    assert (process.status.detail["records"], world.boundary_records()) == (10, 0)
    process.step()
    assert (process.status.detail["records"], world.boundary_records()) == (20, 0)
    assert sum(len(c.offsets) for c in everything(world.log, "p.reports.blocks.0")) == 2
    process.step()
    assert (process.status.detail["records"], world.boundary_records()) == (30, 1)
    check(world, process)


def test_the_end_of_a_backlog_is_named_at_once() -> None:
    world = backlog(33)
    process = world.process()
    for _ in range(4):
        process.step()
    assert (process.status.detail["records"], world.boundary_records()) == (33, 4)


@pytest.mark.parametrize("steps", range(1, 8))
def test_a_crash_loses_and_repeats_nothing(steps: int) -> None:
    world = backlog()
    process = world.process()
    world.run(process, steps)
    process.stop()
    check(world, world.process())


@pytest.mark.parametrize("applied", [0, 1, -1, None])
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("topic", ["p.reports.blocks.0", "p.reports.boundaries"])
def test_an_unknown_outcome_loses_and_repeats_nothing(
    topic: str, steps: int, applied: int | None
) -> None:
    world = backlog()
    process = world.process()
    world.run(process, steps)
    world.log.fail_next(FailingOperation.FLUSH, applied=applied, topic=topic)
    check(world, process)


@pytest.mark.parametrize("applied", [0, None])
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("topic", ["p.reports.blocks.0", "p.reports.rejected"])
def test_who_starts_after_an_error_goes_on_where_the_log_says(
    topic: str, steps: int, applied: int | None
) -> None:
    world = backlog()
    process = world.process()
    world.run(process, steps)
    world.log.fail_next(FailingOperation.FLUSH, applied=applied, error=Unavailable, topic=topic)
    with pytest.raises(Unavailable):
        world.run(process)
    process.stop()
    check(world, world.process())


def test_a_newer_process_ends_the_older_one_in_the_middle() -> None:
    world = backlog()
    older = world.process()
    world.run(older, 2)
    newer = world.process()
    with pytest.raises(Fenced):
        world.run(older)
    check(world, newer)


def test_what_was_taken_before_an_error_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who starts again would come no further."""
    world = backlog()
    process = world.process()
    world.run(process, 2)

    def broken(_records_max: int, _wait_ms: int) -> Any:
        raise Unavailable("a record does not match its checksum")

    monkeypatch.setattr(process._reader, "fetch", broken)
    process.step()
    with pytest.raises(Unavailable):
        process.step()
    last = world.process()._boundaries.log_state.last("0")
    assert last is not None
    assert [at.offset_next for at in last.positions] == [20]


def test_silence_closes_no_bucket_of_which_something_has_no_name() -> None:
    """A partition is left out while rows of the other are under way."""
    world = World(2, idle_timeout=IdleTimeout(partition_ms=1_000))
    world.produce(1, report(1_000, 9_999))
    world.produce(0, *(report(1_000 + 20 * i, i) for i in range(300)))
    process = world.process()
    for _ in range(40):
        process.step()
        world.clock.advance(100)
    world.run(process, lambda: world.view.closed() == 69)
    assert world.view.cars() == [*range(296), 9_999]
