"""A replica and what is around it: logs, disks and peers that are slow or silent, functions
that fail.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from typing_extensions import override

from anabranch.adapters.memory.log import FailingOperation
from anabranch.processing.replica import StartQuery, StopQuery
from anabranch.processing.replica_environment import OnlySources
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import Fenced, StageFunctionError, Unavailable
from anabranch.protocol.log.records import BranchEnded
from harness.replica_bench import WAITS
from harness.replica_world import World, failing, running

FIRST, NEXT = WAITS.first_ms, WAITS.next_ms
ONE_STABLE = {"0": ReplicaState.UP_FAILURE, "1": ReplicaState.STABLE}
"""An input of which one of two replicas works on tentative buckets; the other gives all it has."""


BUG = StageFunctionError("a bug")


class TestBranchesThatFail:
    """RE7: the user's function does not bear incomplete input."""

    def test_the_stable_query_goes_on_without(self) -> None:
        world, process = failing()
        branch, stable_query = process.runner.branch, process.runner.stable_query
        assert branch is not None
        assert process.runner.failed(branch, BUG)
        assert process.runner.orders() == [StopQuery(branch)]
        process.queries = [stable_query]
        assert (process.runner.state, process.runner.branch, process.runner.missing) == (
            ReplicaState.STABLE,
            None,
            (),
        )
        assert process.runner.failed(branch, BUG), "it was dropped"
        process.wait(5 * FIRST)
        assert process.runner.branch is None, "not at the same hole again"
        assert [e for e in world.entries() if isinstance(e, BranchEnded)] == [
            BranchEnded("0", process.boundary.epoch, 1, process.boundary._started.token)
        ]
        world.close("a", 9, 7)
        process.settle()
        assert world.stable_rows() == world.expected(9)
        world.close("b", 15, 12)
        process.settle()
        process.wait(FIRST + NEXT)
        assert process.runner.state is ReplicaState.UP_FAILURE, "another hole, another branch"

    def test_the_successor_of_a_branch_that_failed_at_once_is_started(self) -> None:
        world, process = running()
        world.close("b", 9, 7, 9)
        process.runner.tick()
        stable_query = process.runner.stable_query
        for _ in range(20):
            world.clock.advance(100)
            process.runner.tick()
            if process.ask(stable_query) is not None:
                break
        assert process.runner.branch == stable_query, (
            "it forked, and nothing tentative is there yet"
        )
        assert process.runner.failed(stable_query, BUG)
        assert process.runner.orders() == [
            StartQuery(process.runner.stable_query),
            StopQuery(stable_query),
        ]

    def test_a_branch_is_stopped_when_its_successor_cannot_branch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Too many parts are open at the second hole: no second branch, and nothing of the
        first is left.
        """
        world, process = failing()
        branch, stable_query = process.runner.branch, process.runner.stable_query
        assert branch is not None
        monkeypatch.setattr("anabranch.protocol.log.writer.BRANCH_PENDING_PARTS_MAX", -1)
        world.close("a", 7, 6)
        process.wait(2 * FIRST)
        process.settle()
        assert (process.runner.state, process.runner.branch, process.runner.missing) == (
            ReplicaState.FAILURE,
            None,
            (),
        )
        assert process.orders[1:] == [StopQuery(branch)]
        assert list(world.machine.directories) == [stable_query]

    def test_the_process_does_not_go_on_without_its_stable_query(self) -> None:
        _, process = running()
        assert not process.runner.failed(process.runner.stable_query, BUG)

    def test_what_a_query_of_an_ended_epoch_died_of_says_nothing(self) -> None:
        """The newer process took its directory away, in the middle of a batch."""
        world, zombie = running()
        world.start().begin()
        with pytest.raises(Fenced):
            zombie.runner.failed(zombie.runner.stable_query, BUG)
        assert zombie.runner.log_lock.acquire(blocking=False), "nobody has the turn"
        zombie.runner.log_lock.release()

    def test_a_branch_of_an_ended_epoch_is_not_gone_on_without(self) -> None:
        world, zombie = failing()
        world.start().begin()
        assert zombie.runner.branch is not None
        with pytest.raises(Fenced):
            zombie.runner.failed(zombie.runner.branch, BUG)

    def test_its_own_error_counts_while_the_log_is_away(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, process = running()

        def away() -> None:
            message = "no broker"
            raise Unavailable(message)

        monkeypatch.setattr(process.boundary, "read_to_end", away)
        assert not process.runner.failed(process.runner.stable_query, BUG)


class TestAdvertisedState:
    """RE10: whether it has caught up is judged by the ends of the logs."""

    def test_a_log_whose_end_is_not_known_is_not_caught_up_with(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = World()
        world.close("a", 30, *range(1, 31))
        world.close("b", 30)
        process = world.start()
        end = process.inputs["b"].end

        def away() -> int:
            message = "no broker"
            raise Unavailable(message)

        monkeypatch.setattr(process.inputs["b"], "end", away)
        process.begin()
        process.settle()
        assert (len(world.stable_rows()), process.runner.state) == (
            len(world.expected(30)),
            ReplicaState.FAILURE,
        )
        monkeypatch.setattr(process.inputs["b"], "end", end)
        process.settle()
        assert process.runner.state is ReplicaState.STABLE

    def test_after_a_pause_the_end_is_asked_for_anew(self) -> None:
        world, process = running()
        world.clock.advance(60_000)
        for name in "ab":
            world.close(name, 90, 80)
        assert process.runner.state is ReplicaState.FAILURE
        process.runner.tick()
        assert process.runner.state is ReplicaState.FAILURE
        process.settle()
        assert (process.runner.state, process.runner.unread) == (ReplicaState.STABLE, set())


class TestRoom:
    """RE8: an input stays away for longer than there is room for what the others have."""

    @pytest.fixture(autouse=True)
    def _little_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("anabranch.protocol.stage.replica.INPUT_PARTS_MAX", 6)

    def test_new_results_stand_still_until_it_is_back(self) -> None:
        world, process = failing()
        for bucket in range(10, 31):
            world.close("b", bucket, bucket)
            process.wait(NEXT)
        log_state = process.inputs["b"].log_state
        assert (process.runner.unread, log_state.stable_parts, log_state.upto) == ({"b"}, 7, 14)
        assert process.runner.state is ReplicaState.UP_FAILURE
        world.close("a", 30, 8)
        process.wait(FIRST)
        process.settle()
        assert (world.stable_rows(), process.runner.unread, process.runner.state) == (
            world.expected(30),
            set(),
            ReplicaState.STABLE,
        )
        assert log_state.stable_parts == 0

    def test_what_is_waited_for_is_read_however_much_there_is(self) -> None:
        world, process = running()
        for bucket in range(6, 16):
            world.close("a", bucket, bucket)
        process.runner.tick()
        assert process.inputs["a"].log_state.stable_parts == 10
        world.close("b", 15)
        process.settle()
        assert world.stable_rows() == world.expected(15)

    def test_a_process_that_starts_with_a_long_way_to_go_reads_as_it_goes_on(self) -> None:
        world, process = running()
        for bucket in range(6, 60):
            world.close("a", bucket, bucket)
            world.close("b", bucket, bucket)
            process.runner.tick()
        assert process.runner.unread == {"a", "b"}
        process.wait(FIRST)
        assert (world.stable_rows(), process.runner.unread) == (world.expected(59), set())


class TestSync:
    def test_only_what_is_durable_is_never_read_again(self) -> None:
        """Rule 18."""
        world, process = running()
        assert process.runner.synced_bucket == 0
        process.runner.sync()
        assert process.runner.synced_bucket == 5
        world.close("b", 9, 7, 9)
        process.runner.tick()
        process.wait(FIRST + NEXT)
        process.runner.sync()
        assert process.runner.synced_bucket == 5, (
            "a branch has read further, but nobody starts from it"
        )

    def test_a_fork_while_the_disk_is_busy(self) -> None:
        """The stable query at the sync's start says nothing of the successor."""
        world, process = running()
        world.close("b", 9, 7, 9)
        process.runner.tick()
        process.wait(FIRST - 100)

        def busy(name: str) -> None:
            del name
            process.wait(300)

        world.disk.sync = busy  # type: ignore[method-assign]
        process.runner.sync()
        assert process.runner.branch is not None
        assert process.runner.synced_bucket == 0


class TestFollowing:
    def test_who_cannot_look_reads_what_comes(self) -> None:
        """The end of a log is not to be had for long, and its records are."""
        world, process = running()
        world.close("b", 12, 9)
        process.runner.tick()
        world.clock.advance(FIRST)
        world.close("a", 12, 9)
        world.log.fail_next(FailingOperation.OFFSETS, error=Unavailable, topic="a")
        process.runner.tick()
        assert process.inputs["a"].log_state.upto == 12

    def test_records_that_were_read_are_counted(self) -> None:
        world, process = running()
        world.close("a", 6)
        world.close("a", 7)
        assert (
            process.runner.follow("a", 0),
            process.runner.follow("a", 0),
            process.runner.follow("b", 0),
        ) == (2, 0, 0)


class TestUpstream:
    def test_its_choice_is_taken_and_its_word_is_heard(self) -> None:
        wishes: list[bool] = []
        allowed: list[int] = []

        offered: list[tuple[str, dict[str, int]]] = []

        class Asked(OnlySources):
            @override
            def may_correct(self, wanted: bool) -> bool:
                wishes.append(wanted)
                return bool(allowed)

            @override
            def choose(self, stream: str, offers: Mapping[str, int]) -> str | None:
                offered.append((stream, dict(offers)))
                return None

            @override
            def states(self, stream: str) -> Mapping[str, ReplicaState]:
                return ONE_STABLE if stream == "b" else {}

        world, process = failing(upstream=Asked())
        assert not any(wishes)
        world.close("a", 12, 6)
        world.close("b", 12, 11)
        process.wait(500)
        assert process.runner.wants_to_correct
        assert wishes[-1:] == [True]
        assert world.log_state().upto == 5, "not its turn"
        allowed.append(1)
        process.settle()
        assert world.log_state().upto == 12
        process.round()
        assert wishes[-1:] == [False], "the others hear that it is done"
        assert ("a", {}) in offered

    def test_only_who_has_more_than_was_read_is_chosen_from(self) -> None:
        """One that ended its branch long ago still offers what lies above the stable buckets."""
        offered: list[dict[str, int]] = []

        class Asked(OnlySources):
            @override
            def choose(self, stream: str, offers: Mapping[str, int]) -> str | None:
                offered.append(dict(offers))
                return None

        _, process = failing(upstream=Asked())
        branch = process.runner.branch
        assert branch is not None
        positions: list[int] = []

        def offers(after: int = 0) -> dict[str, int]:
            positions.append(after)
            return {"2": 10, "3": 14}

        log_state = process.inputs["a"].log_state
        log_state.tentative_offers = offers  # type: ignore[method-assign]
        offered.clear()
        process.ask(process.runner.stable_query)
        assert offered == [], "what is stable is not chosen"
        process.ask(branch)
        assert {"2": 10, "3": 14} in offered
        position = process.runner._started().position(branch)
        assert position is not None
        assert set(positions) == {position.bucket}
