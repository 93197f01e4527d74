"""One process of a replica over logs and directories in memory: forks, drops, crashes at
every step, overtaken processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from anabranch.codec.plan_offsets import (
    INITIAL,
    Offset,
    kind_of,
    position_fields,
    position_of,
    taken_of,
)
from anabranch.processing.replica import StartQuery, StopQuery
from anabranch.processing.replica_environment import OnlySources
from anabranch.protocol import limits
from anabranch.protocol.control.failure_detector import QUERY_STUCK_MS
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import Fenced, LocalProtocolError, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log import writer
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, BranchEnded, GivenUp
from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.planner import PlanTraits
from harness.replica_bench import STATEFUL, STATELESS, WAITS, part
from harness.replica_world import Crash, Process, World, failing, running

FIRST, NEXT = WAITS.first_ms, WAITS.next_ms
TRAITS = pytest.mark.parametrize(
    "traits",
    [STATELESS, STATEFUL, PlanTraits(is_stateful=True, is_batch_safe=False)],
    ids=["map", "sum", "by_bucket"],
)


def in_a_batch() -> tuple[World, Process, str, list[Offset]]:
    """Return a branch that has begun a batch and not finished it: its name, and what the batch
    reads.
    """
    world, process = failing()
    branch = process.runner.branch
    assert branch is not None
    world.close("b", 11, 10)
    process.runner.tick()
    world.clock.advance(NEXT + 100)
    process.runner.tick()
    offsets = process.ask(branch)
    assert offsets is not None
    bound_ms = position_of(offsets[0]).bucket * world.width_ms
    process.runner.begin(branch, offsets, bound_ms, world.position(branch))
    return world, process, branch, offsets


class TestGivenUp:
    """An operator gives ``a`` up in buckets 6 to 8."""

    @pytest.mark.parametrize(
        ("horizon", "lacking"), [(None, range(6, 14)), (2, range(6, 11)), (0, range(6, 9))]
    )
    def test_what_is_made_of_it_names_it(self, horizon: int | None, lacking: range) -> None:
        world, process = running(STATEFUL)
        runner = process.runner
        runner._rules = replace(runner._rules, horizon_buckets=horizon)
        world.close("b", 14, 7, 9)
        process.settle()
        world.close("a", 8, 7, given_up=(GivenUp("a", 6, 8),))
        process.settle()
        world.close("a", 14, 9)
        process.settle()
        found = world.log_state()
        assert [bucket for bucket in range(1, 14) if found.given_up.names(bucket)] == list(lacking)
        assert {
            bucket: rows for bucket, rows in world.stable_rows().items() if bucket <= 13
        } == world.expected(13)

    def test_without_state_it_is_the_bucket_itself_after_a_restart_too(self) -> None:
        world, process = running(STATELESS)
        world.close("a", 8, 7, given_up=(GivenUp("a", 6, 8),))
        world.close("b", 7, 7)
        process.settle()
        second = world.start()
        second.begin()
        world.close("a", 14)
        world.close("b", 14)
        second.settle()
        found = world.log_state()
        assert [bucket for bucket in range(1, 15) if found.given_up.names(bucket)] == [6, 7, 8]

    def test_a_branch_names_it_as_missing(self) -> None:
        world, process = failing(STATELESS)
        world.close("b", 12, 11, given_up=(GivenUp("b", 10, 11),))
        process.runner.tick()
        process.wait(WAITS.first_ms + WAITS.next_ms)
        process.settle()
        tentative = [record for record in world.records() if record.kind is BoundaryKind.TENTATIVE]
        assert tentative[-1].missing == ("a", "b")


class TestEnd:
    """The shard's halves are proven."""

    def test_the_stream_ends_once_after_what_was_stable(self) -> None:
        world, process = running(STATEFUL)
        before = world.log_state()
        process.runner.end_stream(BatchId("e", 0))
        process.runner.end_stream(BatchId("f", 0))
        found = world.log_state()
        assert (found.heirs, found.closed_upto) == (2, before.upto)
        assert [each.id for each in world.records() if each.heirs] == [BatchId("e", 0)]

    def test_a_replaced_process_does_not_end_it(self) -> None:
        world, process = running(STATEFUL)
        second = world.start()
        second.begin()
        with pytest.raises(Fenced):
            process.runner.end_stream(BatchId("e", 0))
        assert world.log_state().heirs == 0
        second.runner.end_stream(BatchId("f", 0))
        assert world.log_state().heirs == 2


def checked(world: World, process: Process, query: str, for_ms: int = QUERY_STUCK_MS) -> None:
    """Check ``query`` every second of the time ``for_ms``."""
    for _ in range(0, for_ms + 1_000, 1_000):
        process.runner.check_query(query)
        world.clock.advance(1_000)


class TestStuck:
    """The engine does not run a query on, and says nothing."""

    def test_a_query_that_asks_no_more_is_found(self) -> None:
        world, process = running(STATELESS)
        stable_query = process.runner.stable_query
        process.ask(stable_query)
        checked(world, process, stable_query, QUERY_STUCK_MS - 2_000)
        process.ask(stable_query)
        with pytest.raises(Unavailable, match="neither run a batch nor asked"):
            checked(world, process, stable_query)

    def test_a_long_batch_is_no_standstill(self) -> None:
        world, process, branch, _ = in_a_batch()
        checked(world, process, branch, 3 * QUERY_STUCK_MS)
        process.runner.finish(branch, 0, ())
        with pytest.raises(Unavailable):
            checked(world, process, branch)

    def test_a_dropped_query_is_nobodys_concern(self) -> None:
        world, process = running(STATELESS)
        checked(world, process, "dropped", 2 * QUERY_STUCK_MS)


class TestStart:
    def test_a_new_replica_starts_from_nothing(self) -> None:
        world = World()
        process = world.start()
        process.begin()
        stable_query = process.runner.stable_query
        assert (
            stable_query,
            process.runner.branch,
            process.runner.branch_number,
            process.runner.tip(stable_query),
        ) == (
            timeline_name(0, 0),
            None,
            None,
            None,
        )
        assert (list(world.machine.directories), process.runner.orders()) == ([stable_query], [])
        assert process.runner.epoch == process.boundary.epoch == 0
        states = [process.runner.state]
        process.settle()
        assert [*states, process.runner.state] == [ReplicaState.FAILURE, ReplicaState.STABLE]

    @TRAITS
    def test_the_next_process_goes_on_where_the_last_one_committed(
        self, traits: PlanTraits
    ) -> None:
        world, first = running(traits)
        tip = first.runner.tip(first.runner.stable_query)
        second = world.start()
        second.begin()
        assert second.runner.tip(second.runner.stable_query) == tip
        assert second.runner.stable_query > first.runner.stable_query
        world.close("a", 9, 8)
        world.close("b", 9, 8, 9)
        second.settle()
        assert world.stable_rows() == world.expected(9)

    @TRAITS
    def test_a_logged_batch_is_run_again_exactly(self, traits: PlanTraits) -> None:
        """Rule 9; more is there by now."""
        world, first = running(traits)
        world.close("a", 6, 6)
        world.close("b", 6, 6)
        first.runner.tick()
        offsets = first.ask(first.runner.stable_query)
        assert offsets is not None
        world.plan(first.runner.stable_query, offsets)
        world.close("a", 9, 8)
        world.close("b", 9, 8)
        second = world.start()
        second.begin()
        assert second.step(second.runner.stable_query)
        assert world.offsets(second.runner.stable_query) == offsets
        second.settle()
        assert world.stable_rows() == world.expected(9)


class TestAnswers:
    def test_where_there_is_nothing_yet_the_first_plan_warms_the_engine_up(self) -> None:
        world = World()
        process = world.start()
        process.begin()
        world.close("a", 3, 2)
        process.runner.tick()
        offsets = process.ask(process.runner.stable_query)
        assert offsets is not None
        assert [(position_of(o).sequence, position_of(o).bucket, taken_of(o)) for o in offsets] == [
            (1, 0, [])
        ] * 2

    def test_all_inputs_get_the_same_plan_although_boundaries_move_between_two_questions(
        self,
    ) -> None:
        world, process = running()
        stable_query = process.runner.stable_query
        world.close("a", 7, 6)
        world.close("b", 7, 7)
        process.runner.tick()
        start = position_fields(world.offsets(stable_query)[0])
        first = process.runner.advance(stable_query, "a", start)
        world.close("a", 9, 8)
        world.close("b", 9, 8)
        process.runner.tick()
        other = process.runner.advance(stable_query, "b", start)
        assert first is not None
        assert other is not None
        assert position_of(first) == position_of(other)
        assert position_of(first).bucket == 7
        assert process.runner.advance(stable_query, "a", start) == first, (
            "the same question gets the same plan"
        )

    def test_two_sources_of_one_input_take_the_same_plan_whenever_data_comes(self) -> None:
        """A function that uses an input twice: only one of its sources leads."""
        world, process = running()
        query = process.runner.stable_query
        start = position_fields(world.offsets(query)[0])
        asked = [("a", 0), ("b", 1), ("a", 2)]
        assert process.runner.advance(query, "a", start, 0) is None
        world.close("a", 7, 6)
        world.close("b", 7, 7)
        process.runner.tick()
        assert [process.runner.advance(query, name, start, n) for name, n in asked[1:]] == [
            None,
            None,
        ], "the round began with nothing"
        found = [process.runner.advance(query, name, start, n) for name, n in asked]
        assert None not in found
        assert found[0] == found[2]
        offsets = [each for each in found if each is not None]
        batch = process.runner.begin(
            query, offsets, position_of(offsets[0]).bucket * world.width_ms, world.position(query)
        )
        assert batch.rows == 2, "rows of an input count once"
        assert [process.runner.advance(query, *asked[2][:1], start, 2)] == [found[2]]

    def test_an_input_that_does_not_lead_makes_no_plan(self) -> None:
        world, process = running()
        stable_query = process.runner.stable_query
        world.close("a", 7, 6)
        world.close("b", 7, 7)
        process.runner.tick()
        start = position_fields(world.offsets(stable_query)[0])
        assert process.runner.advance(stable_query, "b", start) is None
        assert process.runner.advance(stable_query, "a", start) is not None

    def test_a_stage_that_stops_begins_nothing_new_but_finishes_what_its_leader_began(self) -> None:
        world, process = running()
        stable_query = process.runner.stable_query
        world.close("a", 7)
        world.close("b", 7)
        process.runner.tick()
        start = position_fields(world.offsets(stable_query)[0])
        leader = process.runner.advance(stable_query, "a", start)
        process.stopping = True
        other = process.runner.advance(stable_query, "b", start)
        assert leader is not None
        assert other is not None
        world.close("a", 9)
        world.close("b", 9)
        process.runner.tick()
        assert process.runner.advance(stable_query, "a", position_fields(leader)) is None

    def test_a_silent_input_holds_all_back_and_is_named(self) -> None:
        world, process = running()
        world.close("b", 9)
        process.runner.tick()
        assert not process.step(process.runner.stable_query)
        assert (process.runner.complete_upto(), process.runner.waiting_for()) == (5, "a")


class TestBatches:
    def test_a_batch_whose_inputs_do_not_agree_is_rejected(self) -> None:
        _, process = running()
        offsets = [INITIAL | {"bucket": 6, "sequence": 9}, INITIAL | {"bucket": 7, "sequence": 9}]
        with pytest.raises(LocalProtocolError, match="different positions"):
            process.runner.begin(process.runner.stable_query, offsets, 0, position_of(INITIAL))

    def test_a_stateful_batch_under_another_watermark_is_rejected(self) -> None:
        _, process = running(STATEFUL)
        with pytest.raises(LocalProtocolError, match="watermark"):
            process.runner.begin(
                process.runner.stable_query, [INITIAL, INITIAL], 17, position_of(INITIAL)
            )

    def test_an_end_without_a_beginning_is_rejected(self) -> None:
        _, process = running()
        with pytest.raises(LocalProtocolError, match="never began"):
            process.runner.finish(process.runner.stable_query, 99, ())

    def test_a_record_says_what_it_was_made_from(self) -> None:
        world, _ = running()
        record = world.records()[-1]
        assert (record.kind, record.closed, record.made_from) == (
            BoundaryKind.STABLE,
            5,
            (("a", 5), ("b", 5)),
        )
        assert record.written_ms > 10**12, "the wall clock"

    @TRAITS
    def test_a_batch_with_more_parts_than_a_record_may_name_has_several(
        self, traits: PlanTraits, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its plan is in the engine's log, and every process that dies between two of them is
        followed by one that runs it again (rule 9).
        """
        monkeypatch.setattr(limits, "PARTS_PER_RECORD_MAX", 2)
        monkeypatch.setattr(writer, "PARTS_PER_RECORD_MAX", 2)
        world, process = running(traits)
        for name in "ab":
            for bucket in (6, 8, 9):
                world.close(name, bucket, bucket)
        for pieces in (0, 1, 2):
            appended: list[object] = []
            append = process.boundary.append

            def dies(
                record: BoundaryRecord,
                pieces: int = pieces,
                appended: list[object] = appended,
                append: Any = append,
            ) -> None:
                if len(appended) == pieces:
                    raise Crash
                appended.append(record.id)
                append(record)

            process.boundary.append = dies  # type: ignore[method-assign]
            with pytest.raises(Crash):
                process.settle()
            process = world.start()
            process.begin()
        process.settle()
        assert world.stable_rows() == world.expected(9)
        assert max(len(record.parts) for record in world.records()) == 2


class TestFork:
    @TRAITS
    def test_a_failure_from_its_beginning_to_its_end(self, traits: PlanTraits) -> None:
        world, process = failing(traits)
        branch, stable_query = (
            timeline_name(process.boundary.epoch, 0),
            timeline_name(process.boundary.epoch, 1),
        )
        assert (
            process.runner.branch,
            process.runner.stable_query,
            process.runner.branch_number,
        ) == (branch, stable_query, 1)
        assert process.orders == [StartQuery(stable_query)]
        assert process.runner.missing[:1] == ("a",)
        newest = world.disk.newest()
        assert newest is not None
        assert newest.name == stable_query
        log_state = world.log_state()
        assert (log_state.upto, log_state.tentative_upto("0")) == (5, 9), (
            "of bucket 10 there is nothing"
        )
        shown = {
            n: sum(p.rows for p in t.parts)
            for n in range(6, 10)
            if (t := log_state.tentative("0", n)) is not None and t.parts
        }
        assert shown == {
            bucket: rows for bucket, rows in world.expected(9).items() if bucket > 5
        }, "what b gave, and nothing of a"
        world.close("a", 12, 7, 11)
        world.close("b", 12, 11)
        process.wait(200)
        process.settle()
        assert (process.runner.state, process.runner.branch, process.runner.missing) == (
            ReplicaState.STABLE,
            None,
            (),
        )
        assert process.orders == [StartQuery(stable_query), StopQuery(branch)]
        assert [e for e in world.entries() if isinstance(e, BranchEnded)] == [
            BranchEnded("0", process.boundary.epoch, 1, process.boundary._started.token)
        ]
        assert not world.log_state().has_branch("0")
        assert list(world.machine.directories) == [stable_query], "the branch's directory is gone"
        assert world.stable_rows() == world.expected(12)

    def test_an_input_that_is_back_is_not_named_as_missing(self) -> None:
        """Though the branch goes on until the corrections have passed it."""
        world, process = failing()
        branch = process.runner.branch
        assert branch is not None
        assert process.runner.missing[:1] == ("a",)
        world.close("a", 12, 7, 11)
        world.close("b", 12, 11)
        process.runner.tick()
        assert process.ask(branch) is not None
        assert (process.runner.branch, process.runner.missing) == (branch, ())

    def test_a_branch_says_how_many_rows_its_input_lacks(self) -> None:
        class TakesTentative(OnlySources):
            @override
            def choose(self, stream: str, offers: Mapping[str, int]) -> str | None:
                return "0" if stream == "a" else None

        world, process = failing(upstream=TakesTentative())
        before = [r for r in world.records() if r.kind is BoundaryKind.TENTATIVE]
        world.branch("a", 30, shed=700)
        world.close("b", 30, 20, 29)
        process.runner.tick()
        process.wait(WAITS.first_ms + WAITS.next_ms)
        process.settle()
        after = [r for r in world.records() if r.kind is BoundaryKind.TENTATIVE]
        assert {r.shed for r in before} == {0}
        assert after[-1].closed == 30
        assert after[-1].shed == 700

    def test_the_successor_is_started_when_the_first_tentative_bucket_is_there(self) -> None:
        """A start costs seconds of the cores, and it has nothing to do yet."""
        world, process = running()
        world.close("b", 9, 7, 9)
        process.runner.tick()
        for _ in range(20):
            world.clock.advance(100)
            process.runner.tick()
            if (offsets := process.ask(process.runner.stable_query)) is not None:
                break
        else:
            pytest.fail("no fork")
        assert kind_of(offsets[0]) is BoundaryKind.TENTATIVE
        assert process.runner.state is ReplicaState.UP_FAILURE
        assert process.runner.orders() == []
        process.settle()
        assert process.orders == [StartQuery(process.runner.stable_query)]

    def test_a_dropped_branch_writes_nothing_any_more(self) -> None:
        world, process, branch, offsets = in_a_batch()
        before = world.position(branch)
        world.close("a", 11, 10)
        process.runner.tick()
        stable_query = process.runner.stable_query
        for _ in range(5):
            process.step(stable_query)
        assert process.runner.branch is None
        count = len(world.entries())
        assert not process.runner.finish(branch, 99, (part(10),))
        assert len(world.entries()) == count
        assert process.runner.advance(branch, "a", position_fields(offsets[0])) is None
        start = process.runner.begin(branch, [INITIAL, INITIAL | {"sequence": 3}], 17, before)
        assert (start.kind, start.after) == (BoundaryKind.TENTATIVE, before), (
            "answered in part: it is void anyway"
        )

    def test_a_branch_that_is_dropped_while_its_record_is_on_the_way(self) -> None:
        """It has ended, or the next one has begun: the record is rejected, which is no reason to
        end.
        """
        world, process, branch, _ = in_a_batch()
        append, process.queries = process.boundary.append, [process.runner.stable_query]

        def late(record: object) -> None:
            process.boundary.append = append  # type: ignore[method-assign]
            process.runner.log_lock.release()
            world.close("a", 7, 6)
            for _ in range(20):
                world.clock.advance(100)
                process.runner.tick()
                branch = process.runner.branch
                while process.step(
                    branch
                    if branch is not None and process.runner.branch_number == 2
                    else process.runner.stable_query
                ):
                    pass
            process.runner.log_lock.acquire()
            append(record)  # type: ignore[arg-type]

        process.boundary.append = late  # type: ignore[method-assign]
        assert not process.runner.finish(branch, world.disk.last_commit(branch) + 1, ())
        assert process.runner.branch_number == 2

    def test_a_record_that_comes_after_the_end_of_its_branch_is_no_reason_to_end(self) -> None:
        world, process, branch, _ = in_a_batch()
        stable_query = process.runner.stable_query
        append, process.queries = process.boundary.append, [stable_query]

        def late(record: object) -> None:
            process.boundary.append = append  # type: ignore[method-assign]
            process.runner.log_lock.release()
            world.close("a", 11, 10)
            process.runner.tick()
            while process.step(stable_query):
                pass
            assert not world.log_state().has_branch("0")
            process.runner.log_lock.acquire()
            append(record)  # type: ignore[arg-type]

        process.boundary.append = late  # type: ignore[method-assign]
        assert not process.runner.finish(branch, world.disk.last_commit(branch) + 1, ())
        assert not world.log_state().has_branch("0")

    def test_a_query_that_waits_says_at_once_that_the_branch_has_ended(self) -> None:
        """It has caught up, and there is nothing for it to run."""
        world, process = failing()
        world.close("a", 9, 7)
        process.runner.tick()
        process.settle()
        assert (process.runner.branch, world.log_state().has_branch("0")) == (None, False)


class TestFencing:
    @TRAITS
    def test_a_zombies_stable_record_is_rejected(self, traits: PlanTraits) -> None:
        world, zombie = running(traits)
        world.close("a", 7, 6)
        world.close("b", 7, 7)
        zombie.runner.tick()
        offsets = zombie.ask(zombie.runner.stable_query)
        assert offsets is not None
        before = world.position(zombie.runner.stable_query)
        batch = world.disk.last_commit(zombie.runner.stable_query) + 1
        zombie.runner.begin(
            zombie.runner.stable_query, offsets, position_of(offsets[0]).bucket * 1_000, before
        )
        second = world.start()
        second.begin()
        with pytest.raises(Fenced):
            zombie.runner.finish(zombie.runner.stable_query, batch, (part(6, 77),))
        with pytest.raises(Fenced):
            zombie.runner.check_epoch()
        second.settle()
        assert world.stable_rows() == world.expected(7)

    def test_while_a_record_is_being_appended_that_looks_after_the_epoch(self) -> None:
        world, zombie = running()
        world.start().begin()
        with zombie.runner.log_lock:
            zombie.runner.check_epoch()
        with pytest.raises(Fenced):
            zombie.runner.check_epoch()
        assert zombie.runner.log_lock.acquire(blocking=False), "nobody has the turn"
        zombie.runner.log_lock.release()


def test_it_is_behind_by_what_is_complete_and_not_run() -> None:
    """Not before its first bucket, which may be any."""
    world, process = running(STATEFUL)
    process.settle()
    runner = process.runner
    assert runner.behind() == 0
    for name in ("a", "b"):
        world.close(name, 14, 9)
    runner.tick()
    assert runner.behind() == runner.complete_upto() - world.position(runner.stable_query).bucket
    assert runner.behind() > 0
    replica = runner._started()
    replica._queries.clear()
    assert runner.behind() == 0
    assert runner.read_busy().busy_permille == 0
