"""The scaler moves what relieves, recovers what is lost, rests, and does not go to and fro."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.control import halving
from anabranch.protocol.control.placement import PlacedStage, Places
from anabranch.protocol.control.records import Move, NodeReport, ReplicaLoad, SplitStep, Step
from anabranch.protocol.control.scaling import (
    AVOIDED_MS,
    BEGIN_MS_MAX,
    CONFIRM_MS,
    DUTIES,
    LAG_CHANGE_MS,
    NEED_HIGH_PERMILLE,
    NODE_LOST_MS,
    NODE_START_MS,
    REPORT_GAP_MS,
    Cause,
    Duty,
    Halving,
    NodeState,
    Runs,
    Scaler,
    ScalingDecision,
    ScalingRules,
)
from anabranch.protocol.stage.load_control import RESUMED
from anabranch.protocol.stage.scheduling import APART_MOST_MS

STAGES = [
    PlacedStage("slow", "north", ("0", "1")),
    PlacedStage("light", "north", ("0",)),
    PlacedStage("other", "north", ("0",)),
]
NAMED: dict[str, list[str]] = {"north.7": [], "north.8": []}
HOME, SECOND, POOL, NEXT = "north.0", "north.1", "north.7", "north.8"
RULES = ScalingRules((POOL, NEXT), 700, 5_000, 10_000, 100)
STEP_MS = 500
LONG = pytest.mark.no_cover
"""Mark of a test in which a scaler decides for minutes: traced it takes four times as long, and its
lines are those of others.
"""


def places(stages: Sequence[PlacedStage] = STAGES) -> Places:
    return Places(stages, NAMED)


class World:
    """Nodes that report, and a scaler that is asked twice a second and whose decisions are written
    at once.
    """

    def __init__(
        self,
        rules: ScalingRules = RULES,
        *,
        writes: bool = True,
        stages: Sequence[PlacedStage] = STAGES,
    ) -> None:
        self.places, self.now_ms, self.writes = places(stages), 0, writes
        self.scaler = Scaler(rules, self.places, places(stages))
        self.busy = {"slow.0": 100, "slow.1": 100, "light.0": 50, "other.0": 50}
        self.need: dict[str, int] = {}
        """Need of each replica; else it is its busy share, as where the lag stays as it is."""
        self.behind: dict[str, int] = {}
        self.runs = {label: self.places.node_of(label) for label in self.places.labels()}
        self.stands_by: set[str] = set()
        self.cold: set[str] = set()
        """Replicas whose first batches run."""
        self.dead: set[str] = set()
        self.cores: Mapping[str, int] = dict.fromkeys((HOME, SECOND, POOL, NEXT), 2)
        self.restoring: set[str] = set()
        """Replicas that do not begin where their place is."""
        self.is_cut = False
        self.done: list[ScalingDecision] = []

    def report(self, node: str) -> NodeReport:
        loads = tuple(
            ReplicaLoad(
                stage=label.rpartition(".")[0],
                replica=label.rpartition(".")[2],
                state="standby" if label in self.stands_by else "running",
                leads=label not in self.stands_by,
                stands_by=label in self.stands_by,
                busy_permille=self.busy.get(label, 0),
                rows_per_s=10,
                behind=self.behind.get(label, 0),
                is_cold=label in self.cold,
                need_permille=self.need.get(label, self.busy.get(label, 0)),
            )
            for label, where in self.runs.items()
            if where == node
        )
        return NodeReport(node, 0, self.cores[node], loads)

    def step(self) -> tuple[ScalingDecision, ...]:
        """Let half a second pass."""
        self.now_ms += STEP_MS
        for label in self.places.labels():
            place = self.places.node_of(label)
            if place not in self.dead and place and label not in self.restoring:
                self.runs[label] = place
        if not self.is_cut:
            self.scaler.came_back(self.now_ms)
            if self.now_ms % 1_000 == 0:
                for node in (HOME, SECOND, POOL, NEXT):
                    if node not in self.dead:
                        self.scaler.reported(self.report(node), self.now_ms)
        actions = self.scaler.tick(self.now_ms)
        if self.writes:
            for action in actions:
                self.apply(action.record(self.now_ms))
        self.done += actions
        return actions

    def apply(self, record: Move | SplitStep, *, is_new: bool = True) -> bool:
        return self.apply_move(record, is_new=is_new) if isinstance(record, Move) else False

    def apply_move(self, move: Move, *, is_new: bool) -> bool:
        label = f"{move.stage}.{move.replica}"
        source = self.places.node_of(label)
        counts = self.places.moved(move)
        if counts:
            self.scaler.moved(move, source, self.now_ms, is_new=is_new)
        return counts

    def run(self, seconds: float) -> list[ScalingDecision]:
        """Let time pass. Return what was decided meanwhile."""
        before = len(self.done)
        for _ in range(int(seconds * 1_000) // STEP_MS):
            self.step()
        return self.done[before:]

    def until(self, seconds: float) -> ScalingDecision:
        """Return the first action within this time."""
        for _ in range(int(seconds * 1_000) // STEP_MS):
            if actions := self.step():
                return actions[0]
        raise AssertionError("nothing was decided")


def operator(label: str, node: str, *, withdrawn: str = "") -> Move:
    stage, _, replica = label.partition(".")
    return Move(stage, replica, node, 0, withdrawn=withdrawn)


def test_the_table_has_a_row_for_all_that_can_be() -> None:
    impossible = {(NodeState.LOST, Runs.HERE)}
    assert set(DUTIES) == set(itertools.product(NodeState, Runs)) - impossible
    assert [key for key, duty in DUTIES.items() if duty is Duty.JUDGE] == [
        (NodeState.ALIVE, Runs.HERE)
    ]


def test_nothing_is_moved_without_need() -> None:
    world = World()
    assert world.run(200) == []
    assert world.scaler.notes == {}


class TestOverload:
    def test_a_busy_replica_leaves_a_node_that_it_shares(self) -> None:
        world = World()
        world.busy["slow.0"] = 950
        action = world.until(30)
        assert (action.label, action.source, action.target) == ("slow.0", HOME, POOL)
        assert action.cause is Cause.OVERLOAD
        assert "95 % of the time, to keep up they need 95 %, the limit is 70 %" in action.because
        assert "1.05 of 2 cores" in action.because
        assert world.now_ms >= RULES.rest_ms, "SG2: it rests after its start"
        assert world.run(60) == [], "it stays there, whatever its load"

    @LONG
    def test_sg6_of_two_on_an_overloaded_node_of_the_pool_one_goes_home(self) -> None:
        """No other node of the pool is there."""
        world = World(replace(RULES, pool=(POOL,)))
        world.cores = dict.fromkeys((HOME, SECOND, POOL, NEXT), 1)
        for label in ("slow.0", "light.0"):
            world.apply(replace(operator(label, POOL), cause=Cause.OVERLOAD))
        world.busy |= {"slow.0": 750, "light.0": 400}
        action = world.until(60)
        assert (action.label, action.source, action.target) == ("light.0", POOL, HOME)
        assert action.cause is Cause.OVERLOAD
        assert world.run(300) == [], "both nodes have room"

    def test_one_busy_report_is_no_overload(self) -> None:
        """SG1."""
        world = World()
        for _ in range(20):
            world.busy["slow.0"] = 950
            assert world.run(4) == []
            world.busy["slow.0"] = 100
            assert world.run(2) == []

    def test_reports_far_apart_begin_a_new_window(self) -> None:
        """SG1."""
        world = World()
        world.busy["slow.0"] = 950
        for _ in range(10):
            assert world.run(4) == []
            world.dead = {HOME}
            assert world.run(REPORT_GAP_MS / 1_000 + 0.5) == []
            world.dead = set()

    def test_sg1_a_replica_that_stopped_meanwhile_begins_a_new_window(self) -> None:
        world = World()
        world.run(12)
        world.busy |= {"slow.0": 900, "light.0": 900}
        assert world.run(4) == []
        for label in ("slow.0", "light.0"):
            world.restoring.add(label)
            del world.runs[label]
        assert world.run(1) == [], "the node reports that it runs neither"
        world.restoring.clear()
        assert world.run(4) == []
        assert [action.cause for action in world.run(3)] == [Cause.OVERLOAD]

    def test_one_that_falls_behind_is_overloaded_whatever_its_share(self) -> None:
        world = World()
        world.need["slow.0"] = 200
        world.run(12)
        for behind in range(10, 200, 5):
            world.behind["slow.0"] = behind
            if actions := world.step():
                assert actions[0].label == "slow.0"
                assert "s behind" in actions[0].because
                return
        raise AssertionError("nothing was decided")

    @LONG
    @pytest.mark.parametrize(
        ("bucket_ms", "behind"),
        [
            # Batches are a second apart, and each reads what has come in between.
            (250, [1, 5, 4, 3, 2, 6]),
            # A bucket is in work when it is complete, until its batch ends.
            (60_000, [0, 0, 0, 0, 0, 1]),
            (60_000, [1, 0]),
        ],
    )
    def test_the_pace_of_batches_is_no_falling_behind(
        self, bucket_ms: int, behind: list[int]
    ) -> None:
        world = World(replace(RULES, bucket_ms=bucket_ms))
        world.busy["slow.0"] = 300
        for each in itertools.islice(itertools.cycle(behind), 200):
            world.behind["slow.0"] = each
            assert world.run(1) == []
            assert not world.scaler.is_overloaded("slow.0", world.now_ms)

    @pytest.mark.parametrize("reports", range(1, 7))
    def test_a_backlog_that_comes_at_once_is_no_falling_behind(self, reports: int) -> None:
        """SG1: after a failure of a source its stages find a minute of input complete."""
        world = World()
        world.run(12)
        world.behind["slow.0"] = 600
        assert world.run(reports) == []
        for behind in range(600, 0, -20):
            world.behind["slow.0"] = behind
            assert world.run(1) == []

    def test_what_counts_as_falling_behind_is_more_than_the_pace(self) -> None:
        assert LAG_CHANGE_MS > APART_MOST_MS

    def test_what_leaves_no_time_for_corrections_is_what_they_wait_for(self) -> None:
        assert NEED_HIGH_PERMILLE == RESUMED

    @LONG
    def test_one_that_catches_up_is_not(self) -> None:
        """SG14: however little its lag falls within the window."""
        world = World()
        world.busy["slow.0"], world.need["slow.0"] = 1_000, RULES.above_permille - 1
        for behind in range(10_000, 9_000, -1):
            world.behind["slow.0"] = behind
            assert world.step() == ()
        world.need["slow.0"] = RULES.above_permille
        assert world.until(30).label == "slow.0"

    def test_sg14_a_batch_longer_than_the_window_hides_that_it_catches_up(self) -> None:
        world = World()
        world.run(12)
        world.busy["slow.0"], world.need["slow.0"] = 1_000, 200
        for behind in (*range(400, 520, 10), *range(100, 220, 10)):
            world.behind["slow.0"] = behind
            assert world.run(1) == []

    def test_sg14_nor_does_what_its_input_catches_up(self) -> None:
        """The lag grows from the first report on that is not full."""
        world = World()
        world.run(12)
        for busy, behind in ((300, 0), *((1_000, each) for each in range(20, 400, 20))):
            world.busy["slow.0"], world.need["slow.0"] = busy, 500
            world.behind["slow.0"] = behind
            assert world.run(1) == []

    def test_sg14_corrections_that_wait_do_not_count_while_the_branch_leaves_them_time(
        self,
    ) -> None:
        world = World(replace(RULES, above_permille=950))
        world.busy["slow.0"], world.need["slow.0"] = 800, 820
        world.run(12)
        for behind in range(20, 400, 10):
            world.behind["slow.0"] = behind
            assert world.run(1) == []
        world.busy["slow.0"], world.need["slow.0"] = 940, NEED_HIGH_PERMILLE
        for behind in range(400, 500, 10):
            world.behind["slow.0"] = behind
            if world.run(1):
                return
        raise AssertionError("nothing was decided")

    def test_sg14_one_slow_batch_is_no_overload(self) -> None:
        world = World()
        world.busy["slow.0"] = 1_000
        for need in itertools.islice(itertools.cycle((400, 400, 3_000)), 60):
            world.need["slow.0"] = need
            assert world.run(1) == []

    def test_of_a_need_that_was_not_measured_the_lag_decides(self) -> None:
        world = World()
        world.busy["slow.0"], world.need["slow.0"] = 1_000, 0
        assert world.run(30) == []
        for behind in range(20, 400, 10):
            world.behind["slow.0"] = behind
            if actions := world.run(1):
                assert "100 % of the time, the limit" in actions[0].because
                return
        raise AssertionError("nothing was decided")

    def test_one_that_has_its_node_for_itself_is_not_moved(self) -> None:
        world = World()
        world.busy["slow.1"] = 1_000
        assert world.run(60) == []
        assert "has node north.1 for itself" in world.scaler.notes["slow.1"]

    def test_but_to_a_larger_node_it_is(self) -> None:
        world = World()
        world.cores = {**world.cores, NEXT: 8}
        world.busy["slow.1"] = 1_000
        action = world.until(60)
        assert (action.label, action.target) == ("slow.1", NEXT)

    def test_without_a_pool_that_is_heard_it_says_so(self) -> None:
        world = World()
        world.busy["slow.0"] = 1_000
        world.dead = {POOL, NEXT}
        assert world.run(60) == []
        assert "no node of the pool is heard" in world.scaler.notes["slow.0"]

    def test_the_replica_moves_whose_move_relieves_most(self) -> None:
        """A small neighbour does not go where a large one has to."""
        world = World()
        world.busy |= {"slow.0": 900, "light.0": 800, "other.0": 100}
        action = world.until(30)
        assert action.label == "slow.0"

    def test_a_busier_pool_node_is_passed_over(self) -> None:
        world = World()
        assert world.apply(operator("light.0", POOL))
        world.busy |= {"slow.0": 900, "light.0": 400, "other.0": 200}
        action = world.until(60)
        assert (action.label, action.target) == ("slow.0", NEXT)

    def test_it_is_not_moved_beside_a_sibling(self) -> None:
        """SG6, PC2."""
        world = World()
        assert world.apply(operator("slow.1", POOL))
        world.busy["slow.0"] = 900
        action = world.until(60)
        assert (action.label, action.target) == ("slow.0", NEXT)

    @LONG
    def test_where_the_pool_is_as_busy_nothing_is_moved(self) -> None:
        world = World(replace(RULES, pool=(POOL,)))
        assert world.apply(operator("light.0", POOL))
        world.busy |= {"slow.0": 900, "light.0": 1_000, "other.0": 150}
        assert world.run(100) == []
        assert "no move to a node of the pool" in world.scaler.notes["slow.0"]

    def test_a_process_of_a_passive_stage_is_not_moved_for_load(self) -> None:
        """SG10."""
        world = World(replace(RULES, passive=frozenset({"slow.0", "slow.1"})))
        world.busy |= {"slow.0": 1_000, "light.0": 200}
        action = world.until(30)
        assert action.label == "light.0", "a neighbour makes room instead"


class TestCold:
    """SG13."""

    def test_first_batches_are_no_overload_however_long(self) -> None:
        world = World()
        world.run(12)
        world.busy["slow.0"] = 1_000
        world.cold = {"slow.0"}
        for behind in range(10, 400, 10):
            world.behind["slow.0"] = behind
            assert world.run(1) == []
        world.cold, world.busy["slow.0"] = set(), 600
        for behind in range(390, 0, -10):
            world.behind["slow.0"] = behind
            assert world.run(1) == []
        assert world.scaler.notes == {}

    def test_nor_is_what_they_take_from_a_neighbour(self) -> None:
        world = World()
        world.run(12)
        world.busy |= {"slow.0": 1_000, "light.0": 950}
        world.cold = {"slow.0"}
        assert world.run(30) == []

    def test_what_follows_them_is_judged(self) -> None:
        world = World()
        world.busy["slow.0"] = 950
        world.cold = {"slow.0"}
        assert world.run(30) == []
        world.cold = set()
        assert world.run(RULES.for_ms / 1_000 - 1) == []
        assert world.until(3).label == "slow.0"

    def test_those_of_another_node_delay_nothing(self) -> None:
        world = World()
        world.busy |= {"slow.0": 950, "slow.1": 900}
        world.cold = {"slow.1"}
        assert world.until(30).label == "slow.0"
        shown: Any = world.scaler.shown(world.now_ms)["nodes"]
        assert [each["is_cold"] for each in shown[SECOND]["replicas"]] == [True]

    def test_what_was_moved_goes_back_once_it_is_warm(self) -> None:
        world = World()
        world.busy["slow.0"] = 950
        world.until(30)
        world.busy["slow.0"] = 100
        world.cold = {"slow.0"}
        assert world.run(60) == []
        world.cold = set()
        assert world.until(60).cause is Cause.BACK


class TestOneAtATime:
    def test_nothing_is_decided_while_a_move_is_under_way(self) -> None:
        """SG2."""
        world = World()
        world.busy |= {"slow.0": 950, "light.0": 900}
        world.restoring = {"slow.0", "light.0"}
        world.until(30)
        assert world.run(200) == []

    def test_one_that_has_begun_and_fails_later_holds_nothing_up(self) -> None:
        """SG2: that is no move any more. Its function may fail for days."""
        world = World()
        assert world.apply(operator("light.0", NEXT))
        world.run(2)
        world.restoring = {"light.0"}
        del world.runs["light.0"]
        world.busy |= {"slow.0": 950, "other.0": 300}
        assert world.until(60).label == "slow.0"

    def test_what_is_waited_for_is_named(self) -> None:
        world = World()
        world.restoring = {"light.0"}
        assert world.apply(operator("light.0", NEXT))
        world.run(20)
        assert "has not begun on north.8" in world.scaler.notes["light.0"]
        world.restoring = set()
        world.run(20)
        assert world.scaler.notes == {}

    def test_one_that_is_lost_for_good_holds_nothing_up(self) -> None:
        """SG2: no node can take it, and the others go on."""
        world = World(replace(RULES, pool=(POOL,)))
        world.busy |= {"light.0": 950, "other.0": 300}
        world.run(3)
        world.dead = {SECOND}
        assert world.apply(operator("slow.0", POOL))
        assert world.until(60).label == "other.0"
        assert "no node of the pool can take slow.1" in world.scaler.notes["slow.1"]

    def test_an_operators_move_is_waited_for_too(self) -> None:
        world = World()
        world.busy["slow.0"] = 950
        world.restoring = {"light.0"}
        assert world.apply(operator("light.0", NEXT))
        assert world.run(200) == []

    def test_it_rests_after_each(self) -> None:
        """SG2, SG3."""
        world = World()
        world.busy |= {"slow.0": 950, "light.0": 900, "other.0": 200}
        world.until(30)
        first_ms = world.now_ms
        second = world.until(60)
        assert second.label == "light.0"
        assert world.now_ms - first_ms >= RULES.rest_ms

    def test_a_decision_that_is_not_in_the_log_is_made_again(self) -> None:
        """SG9."""
        world = World(writes=False)
        world.busy["slow.0"] = 950
        first = world.until(30)
        first_ms = world.now_ms
        assert world.until(60).label == first.label
        assert world.now_ms - first_ms >= CONFIRM_MS

    def test_two_scalers_move_once(self) -> None:
        """PC7: they see other nodes, and decide otherwise; the first record counts."""
        world, other = World(writes=False), World(replace(RULES, pool=(NEXT,)), writes=False)
        for each in (world, other):
            each.busy["slow.0"] = 950
        first, second = world.until(30), other.until(30)
        assert {first.target, second.target} == {POOL, NEXT}
        for each in (world, other):
            assert each.apply(first.record(1))
            assert not each.apply(second.record(2))
            assert each.places.node_of("slow.0") == POOL
        record = first.record(3)
        assert isinstance(record, Move)
        assert record.only_from == HOME

    @LONG
    def test_after_a_withdrawn_move_it_is_left_alone(self) -> None:
        """SG8."""
        world = World()
        world.busy["slow.0"] = 950
        world.restoring = {"slow.0"}
        world.until(30)
        assert world.apply(operator("slow.0", HOME, withdrawn="no store"))
        assert world.scaler.history.episodes[-1].outcome == "withdrawn"
        world.busy |= {"light.0": 0, "other.0": 0}
        assert world.run(AVOIDED_MS / 1_000 - 30) == []
        world.busy |= {"light.0": 50, "other.0": 50}
        world.restoring = set()
        assert world.until(60).label == "slow.0"


class TestBack:
    def away(self) -> World:
        world = World()
        world.busy["slow.0"] = 950
        world.until(30)
        return world

    def test_it_goes_back_when_load_is_low(self) -> None:
        world = self.away()
        world.busy["slow.0"] = 100
        action = world.until(60)
        assert (action.label, action.target, action.cause) == ("slow.0", HOME, Cause.BACK)
        assert "load is low" in action.because

    def test_its_own_node_may_have_several_cores(self) -> None:
        """The load of a node is that of each core."""
        world = self.away()
        world.cores = {**world.cores, HOME: 4}
        world.busy |= {"slow.0": 300, "light.0": 300, "other.0": 300}
        assert world.until(60).cause is Cause.BACK

    @pytest.mark.parametrize(("bucket_ms", "behind"), [(250, [1, 6]), (60_000, [0, 1])])
    def test_the_pace_of_batches_does_not_keep_it_away(
        self, bucket_ms: int, behind: list[int]
    ) -> None:
        world = World(replace(RULES, bucket_ms=bucket_ms))
        world.busy["slow.0"] = 950
        world.until(30)
        world.busy["slow.0"] = 100
        for each in itertools.islice(itertools.cycle(behind), 60):
            world.behind["slow.0"] = each
            world.run(1)
        assert world.done[-1].cause is Cause.BACK

    @LONG
    @pytest.mark.parametrize("busy", [400, 950])
    def test_it_stays_where_it_would_be_more_than_half_of_the_threshold(self, busy: int) -> None:
        world = self.away()
        world.busy["slow.0"] = busy
        assert world.run(600) == []

    @LONG
    def test_it_stays_while_it_is_behind(self) -> None:
        world = self.away()
        world.busy["slow.0"] = 100
        world.behind["slow.0"] = 100
        assert world.run(600) == []

    @LONG
    def test_what_an_operator_moved_stays(self) -> None:
        """SG5."""
        world = World()
        assert world.apply(operator("slow.0", POOL))
        assert world.run(600) == []
        world = self.away()
        assert world.apply(operator("slow.0", NEXT))
        world.busy["slow.0"] = 100
        assert world.run(600) == []

    def test_what_an_operator_moved_stays_after_a_move_that_came_to_nothing(self) -> None:
        """SG5: a withdrawn move, and one to a node that died."""
        for dies in (False, True):
            world = World()
            assert world.apply(operator("slow.0", POOL))
            assert world.apply(operator("light.0", POOL))
            world.run(2)
            world.busy |= {"slow.0": 950, "light.0": 300}
            world.restoring = {"slow.0"}
            action = world.until(60)
            assert (action.label, action.target) == ("slow.0", NEXT)
            if dies:
                world.dead = {NEXT}
                assert world.until(20).cause is Cause.TARGET_LOST
            else:
                assert world.apply(operator("slow.0", POOL, withdrawn="no store"))
            assert world.places.node_of("slow.0") == POOL
            world.restoring, world.done = set(), []
            world.busy |= {"slow.0": 50, "light.0": 50}
            assert [each for each in world.run(600) if each.label == "slow.0"] == []

    @LONG
    def test_it_does_not_go_back_beside_a_sibling(self) -> None:
        world = self.away()
        assert world.apply(operator("slow.1", HOME))
        world.busy["slow.0"] = 0
        assert world.run(600) == []

    @LONG
    def test_load_that_comes_and_goes_moves_it_less_and_less(self) -> None:
        """SG4."""
        world, times = World(), []
        for _ in range(4):
            for busy in (950, 100):
                world.busy["slow.0"] = busy
                for _ in range(600):
                    times += [world.now_ms for _ in world.step()]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(gap >= RULES.rest_ms << min(n, 6) for n, gap in enumerate(gaps, 1))
        assert 4 <= len(times) <= 12

    def test_a_restarted_process_knows_what_was_moved_and_how_often(self) -> None:
        world = self.away()
        fresh = World()
        (move,) = [action.record(5) for action in world.done]
        assert fresh.apply(operator("slow.0", NEXT), is_new=False)
        assert fresh.apply(operator("slow.0", HOME, withdrawn="no store"), is_new=False)
        assert fresh.apply(move, is_new=False)
        fresh.busy["slow.0"] = 100
        action = fresh.until(60)
        assert action.cause is Cause.BACK
        assert fresh.now_ms >= 2 * RULES.rest_ms
        (old, _) = fresh.scaler.history.episodes
        assert (old.restore_ms, old.catch_up_ms, old.is_open) == (None, None, True)

    def test_a_standby_of_a_passive_stage_goes_back_but_not_its_primary(self) -> None:
        passive = replace(RULES, passive=frozenset({"slow.0", "slow.1"}))
        for stands_by, count in (({"slow.0"}, 1), (set(), 0)):
            world = World(passive)
            world.stands_by = set(stands_by)
            world.run(15)
            world.dead = {HOME}
            world.run(15)
            assert world.places.node_of("slow.0") == POOL
            world.dead = set()
            world.done.clear()
            world.run(100)
            assert sum(action.label == "slow.0" for action in world.done) == count


class TestLost:
    def test_the_replicas_of_a_silent_node_are_moved_at_once_and_together(self) -> None:
        world = World()
        world.run(3)
        world.dead = {HOME}
        began_ms = world.now_ms
        first = world.until(10)
        assert world.now_ms - began_ms <= NODE_LOST_MS + 1_000
        assert {each.label for each in world.done} == {"slow.0", "light.0", "other.0"}
        assert {each.cause for each in world.done} == {Cause.LOST}
        assert first.because.startswith("node north.0 was silent for 5.")
        assert {world.places.node_of(each.label) for each in world.done} == {POOL, NEXT}
        assert world.run(100) == []

    def test_the_load_is_spread(self) -> None:
        world = World()
        world.busy |= {"slow.0": 600, "light.0": 500, "other.0": 100}
        world.run(3)
        world.dead = {HOME}
        world.run(10)
        at = {each.label: each.target for each in world.done}
        assert at == {"slow.0": POOL, "light.0": NEXT, "other.0": NEXT}

    def test_each_phase_is_measured(self) -> None:
        world = World()
        world.run(3)
        world.restoring = {"light.0"}
        world.behind["light.0"] = 50
        world.dead = {HOME}
        world.run(8)
        episode = next(each for each in world.scaler.history.episodes if each.label == "light.0")
        assert episode.silent_ms is not None
        assert NODE_LOST_MS <= episode.silent_ms <= NODE_LOST_MS + 1_000
        reached = [(episode.restore_ms, episode.catch_up_ms)]
        world.run(3)
        world.restoring = set()
        world.run(2)
        reached.append((episode.restore_ms, episode.catch_up_ms))
        world.run(4)
        world.behind["light.0"] = 10
        world.run(2)
        reached.append((episode.restore_ms, episode.catch_up_ms))
        (first, (restore_ms, second), (_, catch_up_ms)) = reached
        assert (first, second) == ((None, None), None)
        assert restore_ms is not None
        assert catch_up_ms is not None
        assert (restore_ms >= 4_000, catch_up_ms >= 4_000) == (True, True)
        assert not episode.is_open

    def test_nobody_is_lost_while_the_broker_is_away(self) -> None:
        """SG7."""
        world = World()
        world.run(12)
        world.is_cut = True
        assert world.run(60) == []
        world.is_cut = False
        assert world.run(10) == []

    def test_a_node_that_was_never_heard_is_given_time_to_start(self) -> None:
        world = World()
        world.dead = {HOME}
        assert world.run(NODE_START_MS / 1_000 - 1) == []
        world.until(5)
        assert {each.label for each in world.done} == {"slow.0", "light.0", "other.0"}

    def test_without_a_pool_it_stays_and_says_so(self) -> None:
        world = World()
        world.run(3)
        world.dead = {HOME, POOL, NEXT}
        assert world.run(60) == []
        assert "name more nodes under scaling.nodes" in world.scaler.notes["slow.0"]
        assert world.places.node_of("slow.0") == HOME
        world.dead = {HOME}
        world.until(5)

    def test_a_pool_node_that_dies_meanwhile_is_replaced_by_the_other(self) -> None:
        world = World(replace(RULES, pool=(POOL, NEXT)))
        world.run(3)
        world.restoring = {"slow.0", "light.0", "other.0"}
        world.dead = {HOME}
        world.run(8)
        world.dead = {HOME, POOL}
        world.run(10)
        assert {world.places.node_of(label) for label in world.restoring} == {NEXT}

    def test_and_by_the_own_node_where_there_is_no_other(self) -> None:
        world = World(replace(RULES, pool=(POOL,)))
        world.run(3)
        world.restoring = {"slow.0"}
        world.dead = {HOME}
        world.run(8)
        world.dead = {POOL}
        world.run(10)
        assert world.places.node_of("slow.0") == HOME
        assert world.done[-1].cause is Cause.LOST

    def test_a_slide_to_a_node_that_dies_is_taken_back(self) -> None:
        world = World()
        world.busy["slow.0"] = 950
        world.restoring = {"slow.0"}
        world.until(30)
        world.dead = {POOL}
        action = world.until(10)
        assert (action.target, action.cause) == (HOME, Cause.TARGET_LOST)
        assert "it still runs on north.0" in action.because
        assert world.scaler.history.episodes[-2].outcome == "replaced"

    def test_one_that_cannot_be_taken_back_stays(self) -> None:
        """Its sibling has come where it runs."""
        world = World()
        world.busy["slow.0"] = 950
        world.restoring = {"slow.0"}
        world.until(30)
        world.restoring = {"slow.0", "slow.1"}
        assert world.apply(operator("slow.1", HOME))
        world.dead = {POOL}
        assert world.run(20) == []

    def test_one_that_does_not_begin_goes_back_to_its_own_node_when_that_is_there(self) -> None:
        """SG5: perhaps only there is a checkpoint of it."""
        world = World()
        world.run(3)
        world.restoring = {"slow.0"}
        world.dead = {HOME}
        world.run(10)
        del world.runs["slow.0"]
        assert world.run(BEGIN_MS_MAX / 1_000 + 10) == []
        world.dead = set()
        action = world.until(5)
        assert (action.label, action.target, action.cause) == ("slow.0", HOME, Cause.BACK)
        assert "has not begun on north.7" in action.because

    def test_a_standby_counts_as_there(self) -> None:
        world = World(replace(RULES, passive=frozenset({"slow.0", "slow.1"})))
        world.stands_by = {"slow.0"}
        world.run(3)
        world.dead = {HOME}
        world.run(15)
        episode = next(e for e in world.scaler.history.episodes if e.label == "slow.0")
        assert not episode.is_open


class TestWhatDoesNotConcernIt:
    def test_reports_of_unknown_nodes_and_replicas_are_ignored(self) -> None:
        world = World()
        load = world.report(HOME).replicas[0]
        world.scaler.reported(NodeReport("east.0", 0, 2, (load,)), 0)
        world.scaler.reported(NodeReport(POOL, 0, 2, (replace(load, stage="gone"),)), 0)
        assert world.scaler.node_state("east.0", 0) is NodeState.UNKNOWN
        assert world.run(30) == []

    def test_an_old_process_elsewhere_says_nothing_of_the_load(self) -> None:
        world = World()
        load = replace(world.report(HOME).replicas[0], busy_permille=1_000)
        for _ in range(60):
            world.scaler.reported(NodeReport(NEXT, 0, 2, (load,)), world.now_ms)
            assert world.step() == ()

    def test_one_of_which_no_load_was_heard_where_its_place_is_now_is_not_judged(self) -> None:
        world = World()
        world.dead = {HOME, SECOND, NEXT}
        load = replace(world.report(HOME).replicas[0], busy_permille=1_000)
        world.scaler.reported(NodeReport(NEXT, 0, 2, (load,)), world.now_ms)
        assert world.apply(operator("slow.0", NEXT))
        assert world.run(3) == []
        assert not world.scaler.is_overloaded("slow.0", world.now_ms)

    def test_a_removed_replica_and_one_at_a_partners_are_left_alone(self) -> None:
        partners = Places(STAGES, NAMED, {"east.0": ["light", "slow"]})
        scaler = Scaler(RULES, partners, places())
        assert partners.moved(operator("light.0", "east.0"))
        assert partners.moved(operator("slow.1", ""))
        for now_ms in range(0, 20_000, 500):
            scaler.came_back(now_ms)
            scaler.reported(NodeReport(HOME, 0, 2), now_ms)
            assert scaler.tick(now_ms) == ()

    def test_what_it_sees_can_be_shown(self) -> None:
        world = World()
        world.busy["slow.0"] = 950
        world.until(30)
        world.run(5)
        shown = world.scaler.shown(world.now_ms)
        nodes, events = shown["nodes"], shown["events"]
        assert isinstance(nodes, dict)
        assert isinstance(events, list)
        assert nodes[POOL]["replicas"][0]["replica"] == "slow.0"
        assert (nodes[POOL]["state"], nodes[POOL]["is_pool"]) == ("alive", True)
        assert nodes[HOME]["busy_permille"] == 100
        assert events[0]["cause"] == "overload"
        assert Scaler(RULES, places(), places()).shown(0)["events"] == []


def test_no_history_leaves_a_replica_without_a_place() -> None:
    world = World()
    for dead in ([HOME], [HOME, POOL], [POOL, NEXT], [], [HOME, SECOND, POOL, NEXT], []):
        world.dead = set(dead)
        world.run(30)
        assert all(world.places.node_of(label) for label in world.places.labels())
    world.run(2_000)
    assert {label: world.places.node_of(label) for label in world.places.labels()} == {
        label: places().node_of(label) for label in places().labels()
    }, "in the end all are where the file has them"


HALVES = ("slow.0", "slow.1")
SHARDED = [
    PlacedStage("slow", "north", ("0",)),
    PlacedStage("light", "north", ("1",)),
    *(PlacedStage(half, "north", ("0",), parent="slow") for half in HALVES),
    *(PlacedStage(f"slow.0{bit}", "north", ("0",), parent="slow.0") for bit in "01"),
]
SPLITTING = replace(RULES, halves={"slow": HALVES, "slow.0": ("slow.00", "slow.01")})


class Splitting(World):
    """A stage of one shard, alone on its node of one core, that may be split twice."""

    def __init__(self, rules: ScalingRules = SPLITTING, *, replicas: str = "0") -> None:
        stages = [
            replace(each, processes=tuple(replicas)) if each.name.startswith("slow") else each
            for each in SHARDED
        ]
        super().__init__(rules, stages=stages)
        self.cores = dict.fromkeys((HOME, SECOND, POOL, NEXT), 1)
        self.steps: list[SplitStep] = []
        self.wanted: dict[str, Step] = {}
        self.busy = {"light.1": 100}
        self.runs = {}

    def step(self) -> tuple[ScalingDecision, ...]:
        absent = {
            label
            for label in self.places.labels()
            for stage in [label.rpartition(".")[0]]
            if (parent := {**dict.fromkeys(HALVES, "slow")}.get(stage, stage[:-1]))
            and stage.startswith("slow.")
            and self.wanted.get(parent) not in (Step.WANTED, Step.CONFIRMED)
        }
        ended = {f"{shard}.{n}" for shard, step in self.wanted.items() for n in "01"} & {
            label
            for label in self.places.labels()
            if self.wanted.get(label.rpartition(".")[0]) is Step.CONFIRMED
        }
        given, self.restoring = self.restoring, self.restoring | absent | ended
        self.runs = {
            label: node for label, node in self.runs.items() if label not in absent | ended
        }
        try:
            return super().step()
        finally:
            self.restoring = given

    def apply(self, record: Move | SplitStep, *, is_new: bool = True) -> bool:
        if isinstance(record, Move):
            return self.apply_move(record, is_new=is_new)
        self.steps.append(record)
        self.wanted[record.shard] = record.step
        self.scaler.stepped(record, self.now_ms, is_new=is_new)
        return True

    def answer(self, step: Step, shard: str = "slow", **given: Any) -> None:
        self.apply(SplitStep(shard, step, self.now_ms, len(self.steps) - 1, **given))

    def split(self) -> list[ScalingDecision]:
        self.busy["slow.0"] = 950
        self.until(60)
        return self.done


@pytest.fixture
def split_again_ms(monkeypatch: pytest.MonkeyPatch) -> int:
    """Shorten the time between two attempts to a minute. Return it in ms."""
    monkeypatch.setattr(halving, "SPLIT_AGAIN_MS", 60_000)
    return 60_000


class TestSplit:
    def test_a_shard_that_has_its_node_for_itself_is_split_onto_the_pool(self) -> None:
        """SG11."""
        world = Splitting()
        lower, upper, split = world.split()
        assert (lower.label, lower.target, lower.cause) == ("slow.0.0", NEXT, Cause.HALF)
        assert (upper.label, upper.target, upper.cause) == ("slow.1.0", POOL, Cause.HALF)
        assert isinstance(split, Halving)
        assert (split.label, split.source, split.cause) == ("slow", HOME, Cause.SPLIT)
        assert split.in_words == f"split slow on {HOME} into slow.0.0 on {NEXT}, slow.1.0 on {POOL}"
        assert lower.in_words == f"move slow.0.0 from {lower.source} to {NEXT} (half)"
        assert "95 % of the time" in split.because
        assert "0.95 of 1 cores" in split.because
        assert world.now_ms >= RULES.rest_ms
        (wanted,) = world.steps
        assert (wanted.shard, wanted.step, wanted.attempt) == ("slow", Step.WANTED, -1)
        assert wanted.reason == split.because
        assert wanted.written_ms == world.now_ms

    def test_where_the_pool_has_one_node_a_half_stays(self) -> None:
        world = Splitting(replace(SPLITTING, pool=(POOL,)))
        upper, split = world.split()
        assert (upper.label, upper.target) == ("slow.1.0", POOL)
        assert f"slow.0.0 on {HOME}" in split.target

    def test_of_several_replicas_each_half_has_a_node_of_its_own(self) -> None:
        world = Splitting(replicas="01")
        world.busy["slow.1"] = 100
        actions = world.split()
        at = {each.label: each.target for each in actions}
        assert at["slow.1.0"] != at["slow.1.1"]
        assert isinstance(actions[-1], Halving)

    def test_a_replica_without_a_node_of_its_own_prevents_the_split(self) -> None:
        world = Splitting(replicas="01")
        world.busy |= {"slow.0": 950, "slow.1": 0, "light.1": 0}
        world.dead = {SECOND, POOL}
        world.run(3)
        assert world.run(30) == []
        assert "no nodes that are heard have room" in world.scaler.notes["slow.0"]

    def test_a_replica_that_an_operator_removed_is_no_load_anywhere(self) -> None:
        world = Splitting(replicas="01")
        assert world.apply(operator("slow.1", ""))
        assert isinstance(world.split()[-1], Halving)

    def test_a_shard_beside_others_moves_first(self) -> None:
        world = Splitting()
        assert world.apply(operator("light.1", HOME))
        world.busy |= {"slow.0": 950, "light.1": 300}
        assert world.until(60).cause is Cause.OVERLOAD

    def test_without_room_it_says_so(self) -> None:
        world = Splitting(replace(SPLITTING, pool=(SECOND,)))
        world.cores = dict.fromkeys(world.cores, 1)
        world.busy |= {"slow.0": 950, "light.1": 900}
        world.dead = {POOL, NEXT}
        assert world.run(60) == []
        assert "no nodes that are heard have room" in world.scaler.notes["slow.0"]

    def test_without_halves_it_names_what_is_missing(self) -> None:
        world = Splitting(RULES)
        world.busy["slow.0"] = 950
        assert world.run(60) == []
        assert "raise `halvings` of its stage" in world.scaler.notes["slow.0"]

    def test_a_split_that_was_withdrawn_is_left_alone_for_longer_and_longer(
        self, split_again_ms: int
    ) -> None:
        """HG3, SG12: the places of halves that do not run any more hold nothing up."""
        world = Splitting()
        for doublings in range(2):
            begun = len(world.steps)
            world.split()
            assert len(world.steps) == begun + 1
            assert world.steps[-1].attempt == (begun - 2 if begun else -1)
            world.run(5)
            world.answer(Step.WITHDRAWN, reason="the halves got no further")
            hold_ms = split_again_ms << doublings
            assert world.run(hold_ms / 1_000 - 1) == []
            note = world.scaler.notes["slow.0"]
            assert "its split was withdrawn: the halves got no further" in note
            assert "It is tried again in 1 min" in note

    def test_one_that_differs_is_never_tried_again(self, split_again_ms: int) -> None:
        """HG3."""
        world = Splitting()
        world.split()
        world.answer(Step.WITHDRAWN, reason="bucket 7 differs", bucket=7)
        assert world.run(2 * split_again_ms / 1_000) == []
        assert "then split it by command" in world.scaler.notes["slow.0"]

    def test_a_half_that_does_not_run_is_not_moved_and_holds_nothing_up(self) -> None:
        """SG12: before its split, where an operator has placed it too, and after a withdrawal."""
        world = Splitting()
        assert world.apply(operator("slow.1.0", SECOND))
        world.run(15)
        world.dead = {SECOND}
        world.run(15)
        assert [each.label for each in world.done] == ["light.1"]
        world.done.clear()
        world.split()
        assert world.done[-1].cause is Cause.SPLIT
        world.run(3)
        world.answer(Step.WITHDRAWN, reason="slow")
        world.done.clear()
        world.dead |= {POOL}
        world.run(20)
        assert {each.label for each in world.done} <= {"light.1"}
        shown = world.scaler.shown(world.now_ms)["nodes"]
        assert isinstance(shown, dict)
        assert not any(
            label in each["places"] for each in shown.values() for label in ("slow.0.0", "slow.1.0")
        )

    def test_what_is_compared_is_not_judged(self) -> None:
        """SG12, HG2."""
        world = Splitting()
        world.split()
        world.done.clear()
        world.busy |= {"slow.0.0": 1_000, "slow.1.0": 1_000}
        assert world.run(200) == []

    def test_nothing_is_moved_before_the_halves_have_begun(self) -> None:
        """SG2."""
        world = Splitting(replace(SPLITTING, pool=(POOL,)))
        world.restoring = {"slow.0.0"}
        world.split()
        world.done.clear()
        assert world.apply(operator("light.1", POOL))
        world.busy["light.1"] = 800
        assert world.run(100) == []
        world.restoring = set()
        world.cores = {**world.cores, POOL: 1, SECOND: 1}
        world.run(100)
        assert world.runs["slow.0.0"] == HOME

    def test_a_half_on_a_lost_node_is_recovered_while_it_runs(self) -> None:
        world = Splitting()
        world.split()
        world.run(5)
        world.done.clear()
        world.dead = {POOL}
        world.run(15)
        assert ("slow.1.0", Cause.LOST) in [(each.label, each.cause) for each in world.done]

    def test_a_shard_that_was_split_is_not_judged_but_recovered(self) -> None:
        """A process of it may have to end its stream."""
        world = Splitting()
        world.split()
        world.run(5)
        world.answer(Step.CONFIRMED)
        world.busy |= {"slow.0": 1_000, "slow.0.0": 400, "slow.1.0": 400}
        world.done.clear()
        assert world.run(30) == []
        world.dead = {HOME}
        world.run(10)
        assert ("slow.0", Cause.LOST) in [(each.label, each.cause) for each in world.done]
        world.done.clear()
        world.busy["slow.1.0"] = 950
        assert world.run(100) == [], "slow.1 has no halves; nobody waits for the old shard"
        assert "halvings" in world.scaler.notes["slow.1.0"]

    def test_a_half_that_is_too_much_again_is_split_after_a_whole_window(self) -> None:
        world = Splitting()
        world.split()
        world.busy |= {"slow.0.0": 900, "slow.1.0": 400}
        world.run(20)
        confirmed_ms = world.now_ms
        world.answer(Step.CONFIRMED)
        world.done.clear()
        world.until(60)
        assert world.done[-1].label == "slow.0"
        assert world.now_ms - confirmed_ms >= max(RULES.rest_ms, RULES.for_ms)
        assert world.steps[-1].attempt == -1

    def test_a_decision_whose_record_is_missing_is_made_again(self) -> None:
        """SG9."""
        world = Splitting()
        world.writes = False
        world.split()
        first_ms = world.now_ms
        world.until(60)
        assert world.now_ms - first_ms >= CONFIRM_MS
        assert isinstance(world.done[-1], Halving)

    def test_what_came_of_it_is_known(self) -> None:
        world = Splitting()
        world.split()
        *_, episode = world.scaler.history.episodes
        assert (episode.label, episode.cause, episode.is_open) == ("slow", "split", True)
        assert episode.because == world.steps[0].reason
        world.run(20)
        world.answer(Step.CONFIRMED)
        assert episode.catch_up_ms == 20_000
        assert not episode.is_open

    def test_a_restarted_process_knows_what_was_withdrawn(self, split_again_ms: int) -> None:
        world = Splitting()
        for step in (
            SplitStep("slow", Step.WANTED, 1, -1, "it is slow"),
            SplitStep("slow", Step.WITHDRAWN, 2, 0, "too slow"),
        ):
            world.apply(step, is_new=False)
        world.busy["slow.0"] = 950
        assert world.run(split_again_ms / 1_000 - 1) == []
        world.until(30)
        assert world.steps[-1].attempt == 0


PARALLEL = replace(SPLITTING, is_parallel=True)


class TestParallelRecovery:
    """SG15: shard ``slow`` has the node ``HOME``, which is lost."""

    def lost(self, world: Splitting, *dead: str) -> list[ScalingDecision]:
        """Return what is decided when nodes are lost, for the first time."""
        world.run(5)
        world.dead = {*dead} or {HOME}
        world.runs = {label: at for label, at in world.runs.items() if at not in world.dead}
        world.until(30)
        return world.done

    def test_the_shard_of_a_lost_node_is_split_onto_the_pool_and_moves_too(self) -> None:
        world = Splitting(PARALLEL)
        world.busy["slow.0"] = 800
        shard, *halves, split = self.lost(world)
        assert (shard.label, shard.source, shard.cause) == ("slow.0", HOME, Cause.LOST)
        assert {half.label for half in halves} == {"slow.0.0", "slow.1.0"}
        assert {half.target for half in halves} == {POOL, NEXT}
        assert {half.cause for half in halves} == {Cause.HALF}
        assert isinstance(split, Halving)
        assert (split.label, split.source) == ("slow", HOME)
        assert f"node {HOME} was silent for" in split.because
        assert "its halves compute the state anew: slow.0.0 on" in split.because
        (wanted,) = world.steps
        assert (wanted.step, wanted.reason) == (Step.WANTED, split.because)
        world.done.clear()
        world.run(30)
        assert world.done == [], "nothing is decided while it is compared"

    @pytest.mark.parametrize("busy", [0, 800])
    def test_with_three_nodes_none_is_shared(self, busy: int) -> None:
        world = Splitting(replace(PARALLEL, pool=(POOL, NEXT, SECOND)))
        world.busy = {"slow.0": busy, "light.1": 0}
        shard, *halves, _ = self.lost(world)
        assert {each.target for each in (shard, *halves)} == {POOL, NEXT, SECOND} - {HOME}

    def test_without_two_nodes_it_moves_and_says_so(self) -> None:
        world = Splitting(replace(PARALLEL, pool=(POOL, NEXT)))
        (shard,) = self.lost(world, HOME, NEXT)
        assert (shard.label, shard.target, shard.cause) == ("slow.0", POOL, Cause.LOST)
        assert "slow is not split: no two nodes of the pool can take its halves" in shard.because
        assert world.steps == []

    def test_where_the_file_does_not_want_it_it_moves(self) -> None:
        world = Splitting()
        (shard,) = self.lost(world)
        assert shard.cause is Cause.LOST
        assert "split" not in shard.because

    def test_a_shard_with_another_replica_that_runs_moves(self) -> None:
        world = Splitting(PARALLEL, replicas="01")
        (shard,) = self.lost(world)
        assert (shard.label, shard.cause) == ("slow.0", Cause.LOST)
        assert "split" not in shard.because

    def test_the_last_replica_that_is_lost_brings_the_split(self) -> None:
        world = Splitting(PARALLEL, replicas="01")
        actions = self.lost(world, HOME, SECOND)
        assert isinstance(actions[-1], Halving)
        at = {each.label: each.target for each in actions}
        assert {at["slow.0.0"], at["slow.0.1"]} == {at["slow.1.0"], at["slow.1.1"]} == {POOL, NEXT}
        assert at["slow.0.0"] != at["slow.1.0"]
        world.done.clear()
        world.run(3)
        assert {each.label for each in world.done} == {"slow.1", "light.1"}
        assert not any("not split" in each.because for each in world.done)

    def test_what_cannot_be_split_moves(self) -> None:
        world = Splitting(PARALLEL)
        actions = self.lost(world, SECOND)
        assert [each.label for each in actions] == ["light.1"]
        assert "split" not in actions[0].because

    def test_of_two_shards_the_busier_is_split(self) -> None:
        rules = replace(PARALLEL, halves={**PARALLEL.halves, "light": ("light.0", "light.1")})
        world = Splitting(rules)
        assert world.apply(operator("light.1", HOME))
        world.busy = {"slow.0": 300, "light.1": 100}
        world.run(10)
        actions = self.lost(world)
        moves = {each.label: each for each in actions if each.cause is Cause.LOST}
        light, slow = moves["light.1"], moves["slow.0"]
        assert "light is not split: the split of slow is under way" in light.because
        assert "not split" not in slow.because
        assert isinstance(actions[-1], Halving)
        assert actions[-1].label == "slow"

    def test_hg3_a_shard_whose_split_was_withdrawn_moves_and_says_so(self) -> None:
        world = Splitting(PARALLEL)
        world.split()
        world.answer(Step.WITHDRAWN, reason="bucket 7 differs", bucket=7)
        world.done.clear()
        (shard,) = self.lost(world)
        assert "slow is not split: its split was withdrawn: bucket 7 differs" in shard.because

    def test_a_shard_that_was_split_only_moves(self) -> None:
        """A process of it ends its stream; the places of its halves are theirs."""
        world = Splitting(PARALLEL)
        world.split()
        world.run(5)
        world.answer(Step.CONFIRMED)
        world.done.clear()
        actions = self.lost(world)
        assert [(each.label, each.cause) for each in actions] == [("slow.0", Cause.LOST)]

    def test_a_node_that_is_lost_while_it_restores_moves_what_it_has(self) -> None:
        """The split goes on; the half that was there begins elsewhere, too."""
        world = Splitting(PARALLEL)
        world.busy["slow.0"] = 800
        shard, *_ = self.lost(world)
        world.run(5)
        world.done.clear()
        world.dead |= {shard.target}
        world.runs = {label: at for label, at in world.runs.items() if at != shard.target}
        world.run(20)
        lost = {each.label for each in world.done}
        assert "slow.0" in lost
        assert {each.cause for each in world.done} == {Cause.LOST}
        assert len(world.steps) == 1
